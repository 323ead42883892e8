package powerloss

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ankole.storage/test/lack"
	"ankole.storage/test/powerdisk"
)

// mutation takes one care out of the engine program.
type mutation struct {
	name, file string
	// old is a piece of the file, new what stands there instead.
	old, new string
	fs       string
	// ops, unless 0, records a longer life, of which moments right after acknowledgements are
	// tried.
	ops int
}

var mutations = []mutation{
	{name: "a flush is answered without a sync", file: "dataplane/loop/posix/pool.go", fs: "ext4",
		old: "_, _, e := unix.Syscall(unix.SYS_FDATASYNC, uintptr(t.handle), 0, 0)\n\t\t\treturn e", new: "return 0"},
	{name: "a FUA write is not synced", file: "dataplane/replica/job.go", fs: "ext4",
		old: "if j.h.Flags&wire.FUA != 0 {", new: "if j.h.Flags&wire.FUA != 0 && r == nil {"},
	{name: "a flush joins a sync that began before its writes ended", file: "dataplane/replica/sync.go", fs: "ext4",
		ops: 120,
		old: "y.next = append(y.next, j)\n", new: "if y.running {\n\t\ty.now = append(y.now, " +
			"j)\n\t\treturn\n\t}\n\ty.next = append(y.next, j)\n"},
	{name: "dirty regions are not marked", file: "dataplane/chain/dirty.go", fs: "ext4",
		old: "return c.breaks(c.dirty.write(payload))", new: "return nil"},
	{name: "directories are not synced", file: "dataplane/disk/osdisk/osdisk.go", fs: "ext4",
		old: "err := unix.Fsync(fd)\n", new: "err := error(nil)\n"},
	{name: "metadata is renamed into place without a sync", file: "dataplane/disk/osdisk/osdisk.go", fs: "xfs",
		old: "err = f.Sync()", new: "err = nil"},
}

// TestMissingSyncsAreNoticed builds engines that lack one care each, records what they do, and
// looks for a state that shows it. It is what says that the other tests of this package can fail.
func TestMissingSyncsAreNoticed(t *testing.T) {
	needDisks(t)
	if !*deep {
		lack.Later(t, "builds a program for each mutation; run with -deep")
	}
	for _, m := range mutations {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			s := seed(t)
			p := plan{fs: m.fs, binary: m.build(t), replicas: 2, size: 8 * mib, seed: s, ops: 24}
			if m.ops > 0 {
				p.ops = m.ops
			}
			r := record(t, p)
			list := every(r, s)
			if m.ops > 0 {
				list = acknowledged(r, s)
			}
			_, err := r.firstViolation(t, list)
			if err == nil {
				t.Fatalf("not noticed in %d states", len(list))
			}
			line, rest, _ := strings.Cut(err.Error(), "\n")
			t.Logf("noticed: %s\n%.300s", line, rest)
		})
	}
}

// TestMutationsApply notices at once when the code has moved on and a care is no longer where it
// was.
func TestMutationsApply(t *testing.T) {
	for _, m := range mutations {
		m.text(t)
	}
}

// acknowledged lists the moments right after acknowledgements; what was not flushed by then is
// lost.
func acknowledged(r *recording, seed uint64) []trial {
	slices.Sort(r.acknowledged)
	list := make([]trial, 0, len(r.acknowledged))
	for _, at := range r.acknowledged {
		list = append(list, trial{at: at, keep: make([]powerdisk.Survival, len(r.disks)), seed: seed})
	}
	return list
}

// text returns the repository, the path of the source that m changes, and its text, which holds
// what is replaced once.
func (m mutation) text(t *testing.T) (root, source, text string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	source = filepath.Join(root, m.file)
	data, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), m.old); n != 1 {
		t.Fatalf("%s holds the text to replace %d times; say it anew:\n%s", m.file, n, m.old)
	}
	return root, source, string(data)
}

// build makes the engine program with the mutation and returns its path.
func (m mutation) build(t *testing.T) string {
	t.Helper()
	root, source, text := m.text(t)
	dir := t.TempDir()
	mutated, overlay, out := filepath.Join(dir, "mutated.go"), filepath.Join(dir, "overlay.json"),
		filepath.Join(dir, "engine")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {source: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{mutated: []byte(strings.Replace(text, m.old, m.new, 1)), overlay: replace} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("go", "build", "-overlay", overlay, "-o", out, "./cmd/engine")
	c.Dir = root
	if msg, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, msg)
	}
	return out
}
