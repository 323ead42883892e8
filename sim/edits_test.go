package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"ankole.storage/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/engine"
	"ankole.storage/disk/memdisk"
)

// change is something that is done to the files of a directory at rest.
type change struct {
	// class is what kind it is, name the file; key is set to how.
	class, name, key, how string
}

// directories are what a file can be taken from.
type directories struct{ older, other map[string]savedFile }

// Places that are written to, and what they hold in the end.
var written = map[int64]uint64{0: 4, 64 << 10: 2, 8 << 20: 3}

// used makes a volume that was attached twice, and detached, with two snapshots. before is its
// first directory between the two.
func used(t *testing.T, replicas int) (o *atRest, before map[string]savedFile) {
	o = newAtRest(t, replicas)
	r := o.v.Replicas[0]
	o.attach()
	o.fill(1, 0)
	o.snapshot("a")
	o.fill(2, 64<<10)
	o.detach()
	before = save(t, r.Disk.FS, replicaDir+r.Name)
	o.attach()
	o.snapshot("b")
	o.fill(3, 8<<20)
	o.fill(4, 0)
	o.detach()
	return o, before
}

// changes lists what is done to the files of a directory.
func changes(t *testing.T) (out []change, d *directories) {
	t.Helper()
	o, older := used(t, 1)
	now := save(t, o.v.Replicas[0].Disk.FS, replicaDir+o.v.Replicas[0].Name)
	o.v.Close()
	w := NewWorld(2)
	id := Identity{"other", "00000000-93d3-4b7c-9a5e-2d1f0c6b7a88"}
	x := &atRest{trio: &trio{t: t, w: w, v: NewVolumeOf(w, id, "", 1, atRestSize)}}
	x.v.Alone = true
	x.attach()
	x.fill(9, 0)
	x.snapshot("a")
	x.snapshot("b")
	x.fill(9, 0)
	x.detach()
	d = &directories{older, save(t, x.v.Replicas[0].Disk.FS, replicaDir+x.v.Replicas[0].Name)}
	x.v.Close()
	for _, name := range slices.Sorted(maps.Keys(now)) {
		out = append(out, change{class: "emptied", name: name}, change{class: "cut in half", name: name},
			change{class: "removed", name: name}, change{class: "renamed", name: name})
		if _, ok := older[name]; ok {
			out = append(out, change{class: "from an older copy", name: name})
		}
		if _, ok := d.other[name]; ok {
			out = append(out, change{class: "from another volume", name: name})
		}
		if strings.HasSuffix(name, ".meta") && name != "ankole.meta" {
			out = append(out, edits(t, name, now[name].data[0])...)
		}
	}
	return append(out, change{class: "the whole directory", name: "an older copy"},
		change{class: "the whole directory", name: "another volume's"}), d
}

// edits gives each key of a JSON file other values of its type, and takes it away.
func edits(t *testing.T, name string, text []byte) (out []change) {
	t.Helper()
	keys := parsed(t, name, text)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		for _, how := range slices.Sorted(maps.Keys(others(keys[k]))) {
			out = append(out, change{class: "a key", name: name, key: k, how: how})
		}
		out = append(out, change{class: "a key", name: name, key: k, how: takenAway})
	}
	return out
}

const takenAway = "taken away"

// others are other values of a value's type.
func others(v any) map[string]any {
	values := map[string]any{}
	switch v := v.(type) {
	case bool:
		values["the opposite"] = !v
	case json.Number:
		n, _ := v.Int64()
		values["doubled"], values["halved"], values["negative"] = n*2, n/2, -n
	case string:
		for how, text := range map[string]string{"a word": "x" + v, "no word": "", "a snapshot": "volume-snap-a.img"} {
			if text != v {
				values[how] = text
			}
		}
	default:
		values["a map"] = map[string]string{"x": "y"}
	}
	return values
}

func parsed(t *testing.T, name string, text []byte) (keys map[string]any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&keys); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return keys
}

// edit changes a key of a file.
func (c *change) edit(t *testing.T, fs *memdisk.FS, path string) {
	t.Helper()
	keys := parsed(t, c.name, saveFile(t, fs, path).data[0])
	if keys[c.key] = others(keys[c.key])[c.how]; c.how == takenAway {
		delete(keys, c.key)
	}
	text, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	savedFile{int64(len(text)), map[int64][]byte{0: text}}.put(t, fs, path)
}

// String says what is done.
func (c *change) String() string {
	if c.class == "a key" {
		return fmt.Sprintf("%s: %s is %s", c.name, c.key, c.how)
	}
	return c.name + ", " + c.class
}

// make carries a change out on a directory.
func (c *change) make(t *testing.T, r *Replica, d *directories) {
	t.Helper()
	fs, dir := r.Disk.FS, replicaDir+r.Name
	path := dir + "/" + c.name
	var err error
	switch c.class {
	case "a key":
		c.edit(t, fs, path)
	case "emptied":
		savedFile{}.put(t, fs, path)
	case "cut in half":
		s := saveFile(t, fs, path)
		s.size /= 2
		for off, p := range s.data {
			if delete(s.data, off); off < s.size {
				s.data[off] = p[:min(int64(len(p)), s.size-off)]
			}
		}
		s.put(t, fs, path)
	case "removed":
		err = fs.Remove(path)
	case "renamed":
		err = fs.Rename(path, path+".old")
	case "from an older copy":
		d.older[c.name].put(t, fs, path)
	case "from another volume":
		d.other[c.name].put(t, fs, path)
	case "the whole directory":
		from := d.older
		if c.name != "an older copy" {
			from = d.other
		}
		restore(t, fs, dir, from)
	}
	if err == nil {
		err = fs.SyncDir(dir)
	}
	if err != nil {
		t.Fatal(c.name, err)
	}
}

// judge attaches the volume and tells what has become of it, and what must not have been.
func (o *atRest) judge(c *change) (outcome, reason string, wrong []string) {
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	r := o.v.Replicas[0]
	full := heldBy(o.t, r)
	o.begin()
	e := o.v.Current
	o.until("something comes of it", func() bool { return e.state.Fatal || e.state.Serving })
	if e.state.Fatal {
		if reason = e.state.Reason; r.Broken != nil {
			reason = r.Broken.Error()
		}
		outcome = "refused"
	} else {
		wrong = append(wrong, o.content(e)...)
		switch {
		case len(o.v.Replicas) == 1:
			return "served", "", wrong
		case r.Broken != nil:
			outcome, reason = "goes on without it", r.Broken.Error()
		case e.mode(r.Addr()) == engine.RW:
			outcome = "served"
		default:
			reason = o.whyNot(e, r)
			o.add(r)
			outcome = "rebuilt"
		}
	}
	if outcome != "served" && reason == "" {
		fail("no reason is told")
	}
	if outcome == "rebuilt" || outcome == "served" {
		for _, x := range o.v.Replicas {
			for off, want := range written {
				if n := o.holds(x, off); n != want {
					fail("%s holds write %d at %d, want %d", x.Name, n, off, want)
				}
			}
		}
		return outcome, reason, wrong
	}
	after := heldBy(o.t, r)
	for name, n := range full {
		if after[name] != n && c.class != "the whole directory" {
			fail("%s had %d bytes of data and has %d", name, n, after[name])
		}
	}
	return outcome, reason, wrong
}

func (o *atRest) whyNot(e *EngineProcess, r *Replica) string {
	for i := range e.state.Replicas {
		if x := &e.state.Replicas[i]; x.Address == r.Addr() {
			return x.Error
		}
	}
	return ""
}

// heldBy is how much data the images of a directory have.
func heldBy(t *testing.T, r *Replica) map[string]int64 {
	t.Helper()
	names, err := r.Disk.FS.List(replicaDir + r.Name)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	for _, name := range names {
		if info, err := r.Disk.FS.Stat(replicaDir + r.Name + "/" + name); err == nil && strings.Contains(name, ".img") &&
			!strings.Contains(name, ".meta") && info.Allocated > 0 {
			out[name] = info.Allocated
		}
	}
	return out
}

// content checks what users see: the volume, its size, and both snapshots.
func (o *atRest) content(e *EngineProcess) (wrong []string) {
	if e.state.Size != atRestSize {
		wrong = append(wrong, fmt.Sprintf("the volume has %d bytes", e.state.Size))
	}
	for off, want := range written {
		if n := o.reads(off); n != want {
			wrong = append(wrong, fmt.Sprintf("write %d is read at %d, want %d", n, off, want))
		}
	}
	for _, x := range o.v.Replicas {
		if e.mode(x.Addr()) != engine.RW {
			continue
		}
		for name, want := range map[string]map[int64]uint64{"a": {0: 1, 64 << 10: 0}, "b": {0: 1, 64 << 10: 2}} {
			for off, n := range want {
				if got := snapshotHolds(x.Chain(), name, off); got != n {
					wrong = append(wrong, fmt.Sprintf("snapshot %s of %s holds write %d at %d, want %d", name, x.Name, got, off, n))
				}
			}
		}
	}
	return wrong
}

// snapshotHolds is the number in a block of a snapshot; the highest there is without the snapshot.
func snapshotHolds(c *chain.Chain, name string, off int64) uint64 {
	none := ^uint64(0)
	all, err := c.Snapshots()
	if err != nil || !slices.ContainsFunc(all, func(s chain.SnapshotInfo) bool { return s.Name == name && !s.Removed }) {
		return none
	}
	at, err := c.Files.At(name)
	if err != nil {
		return none
	}
	defer at.Close()
	p := make([]byte, block.Size)
	if _, err := at.ReadAt(p, off); err != nil {
		return none
	}
	n, _ := unstamp(p, off/block.SectorSize)
	return n
}

// TestChangedAtRest changes a directory at rest in every way that is listed, in the only copy and
// in one of three. Never is other content served than was acknowledged, or another size, or a file
// with data removed where nothing was rebuilt; and what is refused has a reason.
func TestChangedAtRest(t *testing.T) {
	all, d := changes(t)
	for _, copies := range []int{1, 3} {
		sums := map[string]map[string]int{}
		for i := range all {
			c := &all[i]
			o, _ := used(t, copies)
			c.make(t, o.v.Replicas[0], d)
			outcome, reason, wrong := o.judge(c)
			o.v.Close()
			if sums[c.class] == nil {
				sums[c.class] = map[string]int{}
			}
			sums[c.class][outcome]++
			t.Logf("%d copies, %s: %s %s", copies, c, outcome, reason)
			for _, text := range wrong {
				t.Errorf("%d copies, %s: %s %s: %s", copies, c, outcome, reason, text)
			}
		}
		for _, class := range slices.Sorted(maps.Keys(sums)) {
			t.Logf("sum: %d copies, %s: %v", copies, class, sums[class])
		}
	}
}
