package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/volume"
)

// dirEdit is a change of a replica's directory while no process has it.
type dirEdit struct {
	kind string
	// file is what is changed, "" for the whole directory.
	file string
	// put makes the changed file from the one that was moved aside.
	put func(at *atRest, aside, file string) error
	// says is what the reason for the refusal has.
	says string
}

// dirEdits are the kinds of changes that scenario F19 names.
func dirEdits() []dirEdit {
	return []dirEdit{
		{"key", "volume-snap-VOLUME-b.img.meta", func(_ *atRest, aside, file string) error {
			text, err := os.ReadFile(aside)
			if err != nil {
				return err
			}
			edited := strings.Replace(string(text), `"Parent":"volume-snap-`, `"Other":"volume-snap-`, 1)
			if edited == string(text) {
				return fmt.Errorf("no parent in %s", text)
			}
			return os.WriteFile(file, []byte(edited), 0o600)
		}, "Parent was"},
		{"cut", "volume-snap-VOLUME-a.img", func(_ *atRest, aside, file string) error {
			return errors.Join(copyOfFile(aside, file), os.Truncate(file, cloneSize/2))
		}, fmt.Sprintf("it had %d bytes and has %d", cloneSize, cloneSize/2)},
		{"other", "volume-snap-VOLUME-b.img", func(at *atRest, _, file string) error {
			return copyOfFile(filepath.Join(at.foreign, "volume-snap-"+filepath.Base(at.otherVolume)+"-b.img"), file)
		}, "it is another file"},
		{"older", "", func(at *atRest, _, file string) error { return copyOfFile(at.older, file) }, "older state"},
	}
}

// atRest is a volume of which one replica's directory is changed.
type atRest struct {
	*cluster
	dirEdit
	name   string
	copies int
	// dir is the directory, older a copy of it from before the last writes.
	dir, older string
	// otherVolume is one of another kind, foreign the directory of one of its replicas.
	otherVolume, foreign string
	content              [32]byte
}

func copyOfFile(from, to string) error {
	out, err := exec.Command("cp", "-a", "--sparse=always", from, to).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return err
}

// TestF19 kills a cluster, and changes one directory of each volume before it starts again. The
// volume of which that is the only copy does not serve and says why, until what was there is put
// back; of three copies the changed one is replaced, and what is read is what was written.
func TestF19(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.setting("block-device-wait", "10") // then a volume that cannot start says why
	var all []*atRest
	for _, copies := range []int{1, 3} {
		for _, e := range dirEdits() {
			at := &atRest{cluster: c, dirEdit: e, copies: copies, name: fmt.Sprintf("f19-%s-%d", e.kind, copies)}
			at.file = strings.ReplaceAll(e.file, "VOLUME", at.name)
			all = append(all, at)
		}
	}
	for i, at := range all {
		at.use(t)
		at.otherVolume = all[(i+1)%len(all)].name
	}
	c.Kill9()
	for i, at := range all {
		at.foreign = all[(i+1)%len(all)].dir
	}
	for _, at := range all {
		at.change(t)
	}
	c.Restart(t)
	c.connect()
	outer := c.t
	for _, at := range all {
		t.Run(fmt.Sprintf("%s/%d", at.kind, at.copies), func(t *testing.T) {
			c.t = t
			defer func() { c.t = outer }()
			if at.copies == 1 {
				at.refused(t)
				at.putBack(t)
			}
			at.serves(t)
		})
	}
}

// use writes to the volume, with two snapshots, and leaves it attached.
func (at *atRest) use(t *testing.T) {
	at.create(at.name, cloneSize, at.copies)
	endpoint := at.attach(at.name, "node-1", at.copies)
	write := func(seed byte) {
		t.Helper()
		d := at.device(endpoint)
		fill(t, d, seed)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	at.orderSnapshot(at.name, at.name+"-a")
	dirs := at.replicaDirs(at.name)
	at.dir = dirs[slices.Sorted(maps.Keys(dirs))[0]]
	if at.file == "" {
		at.detach(at.name)
		at.awaitClosed(at.dir)
		at.older = filepath.Join(t.TempDir(), "older")
		if err := copyOfFile(at.dir, at.older); err != nil {
			t.Fatal(err)
		}
		endpoint = at.attach(at.name, "node-1", at.copies)
	}
	write(2)
	at.orderSnapshot(at.name, at.name+"-b")
	write(3)
	at.content = hashDevice(t, at.cluster, endpoint)
}

// aside is where what was there is kept meanwhile.
func (at *atRest) aside() string { return filepath.Join(filepath.Dir(at.dir), "..", at.name+".aside") }

func (at *atRest) path() string { return filepath.Join(at.dir, at.file) }

func (at *atRest) change(t *testing.T) {
	t.Helper()
	if err := errors.Join(os.Rename(at.path(), at.aside()), at.put(at, at.aside(), at.path())); err != nil {
		t.Fatalf("%s: %v", at.name, err)
	}
}

// putBack detaches the volume, and has the directory what it was.
func (at *atRest) putBack(t *testing.T) {
	t.Helper()
	at.detach(at.name)
	at.awaitClosed(at.dir)
	if err := errors.Join(os.RemoveAll(at.path()), os.Rename(at.aside(), at.path())); err != nil {
		t.Fatal(err)
	}
}

func (at *atRest) awaitClosed(dir string) {
	at.t.Helper()
	at.eventually("nobody uses "+dir, func(context.Context) error {
		if pids := holding(at.Info.Dir, dir); len(pids) > 0 {
			return fmt.Errorf("%v", pids)
		}
		return nil
	})
}

// refused waits until the volume says why it does not start.
func (at *atRest) refused(t *testing.T) {
	t.Helper()
	at.eventually(at.name+" says why it does not start", func(context.Context) error {
		v := at.volume(at.name)
		why := v.Conditions[volume.ConditionStart]
		if v.State == "attached" && v.Robustness == "healthy" {
			return fmt.Errorf("it is attached")
		}
		if why.Status != string(longhorn.ConditionFalse) || !strings.Contains(why.Message, at.says) {
			return fmt.Errorf("%s %s: %+v", v.State, v.Robustness, why)
		}
		return nil
	})
}

// serves waits until all copies serve, and compares what they hold.
func (at *atRest) serves(t *testing.T) {
	t.Helper()
	endpoint := at.attach(at.name, "node-1", at.copies)
	holds(t, at.cluster, endpoint, at.content, at.name+" has another content")
	at.detach(at.name)
	at.identical(at.name, at.copies)
}
