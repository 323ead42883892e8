package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/engine"
	"ankole.storage/test/sim/register"
)

// change is something that is done to the files of a directory at rest.
type change struct {
	// class is what kind it is, name the file; key is set to how.
	class, name, key, how string
	// layer is whose whiteouts the file has, "" for any other file. Its name is another one in each
	// volume.
	layer string
	// open: the file is written to while the volume is attached.
	open bool
}

// directories are what a file can be taken from.
type directories struct{ older, other map[string]savedFile }

// Places that are written to, and what they hold in the end.
var written = map[int64]uint64{0: 4, 64 << 10: 2, 128 << 10: 0, 192 << 10: 0, 256 << 10: 0, 320 << 10: 0, 8 << 20: 3}

// snapshots are what the two snapshots hold.
var snapshots = map[string]map[int64]uint64{
	"a": {0: 1, 64 << 10: 0, 128 << 10: 5, 192 << 10: 6, 256 << 10: 7, 320 << 10: 8},
	"b": {0: 1, 64 << 10: 2, 128 << 10: 0, 192 << 10: 0, 256 << 10: 7, 320 << 10: 8},
}

// used makes a volume that was attached twice, with two snapshots and whiteouts, and ends it.
// before is its first directory between the two.
func used(t *testing.T, replicas int, end func(o *atRest)) (o *atRest, before map[string]savedFile) {
	o = newAtRest(t, replicas)
	r := o.v.Replicas[0]
	o.attach()
	for n, off := range []int64{0, 128 << 10, 192 << 10, 256 << 10, 320 << 10} {
		o.fill([]uint64{1, 5, 6, 7, 8}[n], off)
	}
	o.snapshot("a")
	o.fill(2, 64<<10)
	o.discard(128 << 10)
	o.detach()
	before = save(t, r.Disk.FS, replicaDir+r.Name)
	o.attach()
	o.discard(192 << 10)
	o.snapshot("b")
	o.fill(3, 8<<20)
	o.fill(4, 0)
	o.discard(256 << 10)
	o.discard(320 << 10)
	end(o)
	return o, before
}

// whiteoutsOf is the name of a layer's file of whiteouts, "" if it has none.
func whiteoutsOf(t *testing.T, fs *memdisk.FS, dir, layer string) string {
	t.Helper()
	number, ok := parsed(t, layer, saveFile(t, fs, dir+"/"+layer+".meta").data[0])["AnkoleWhiteouts"].(string)
	if !ok {
		return ""
	}
	return "ankole.whiteouts-" + number
}

// changes lists what is done to the files of a directory.
func changes(t *testing.T) (out []change, d *directories) {
	t.Helper()
	o, older := used(t, 1, (*atRest).detach)
	fs, dir := o.v.Replicas[0].Disk.FS, replicaDir+o.v.Replicas[0].Name
	now := save(t, fs, dir)
	head := parsed(t, "volume.meta", now["volume.meta"].data[0])["Head"].(string)
	layers := map[string]string{}
	for _, layer := range []string{"volume-snap-a.img", "volume-snap-b.img", head} {
		layers[whiteoutsOf(t, fs, dir, layer)] = layer
	}
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
		for _, class := range []string{"emptied", "cut in half", "removed", "renamed", "from an older copy",
			"from another volume"} {
			_, inOlder := older[name]
			_, inOther := d.other[name]
			if class == "from an older copy" && !inOlder || class == "from another volume" && !inOther {
				continue
			}
			out = append(out, change{class: class, name: name, layer: layers[name], open: name == head || layers[name] == head})
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
	if c.layer != "" {
		return "whiteouts of " + c.layer + ", " + c.class
	}
	return c.name + ", " + c.class
}

// make carries a change out on a directory.
func (c *change) make(t *testing.T, r *Replica, d *directories) {
	t.Helper()
	fs, dir := r.Disk.FS, replicaDir+r.Name
	path := dir + "/" + c.name
	if c.layer != "" {
		path = dir + "/" + whiteoutsOf(t, fs, dir, c.layer)
	}
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
		for name, want := range snapshots {
			if got := snapshotHolds(x.Chain(), name, want); !maps.Equal(got, want) {
				wrong = append(wrong, fmt.Sprintf("snapshot %s of %s holds %v, want %v", name, x.Name, got, want))
			}
		}
	}
	return wrong
}

// snapshotHolds returns the numbers that a snapshot has where another map has some, nil without the
// snapshot.
func snapshotHolds(c *chain.Chain, name string, where map[int64]uint64) map[int64]uint64 {
	all, err := c.Snapshots()
	if err != nil || !slices.ContainsFunc(all, func(s chain.SnapshotInfo) bool { return s.Name == name && !s.Removed }) {
		return nil
	}
	at, err := c.Files.At(name)
	if err != nil {
		return nil
	}
	defer at.Close()
	out := map[int64]uint64{}
	p := make([]byte, block.Size)
	for off := range where {
		if _, err := at.ReadAt(p, off); err == nil {
			out[off], _ = register.Unstamp(p, off/block.SectorSize)
		}
	}
	return out
}

// endings are how a volume can have been left.
var endings = map[string]func(o *atRest){
	"detached": (*atRest).detach, "killed": (*atRest).kill, "without power": (*atRest).losePower,
}

// TestChangedAtRest changes a directory at rest in every way that is listed, in the only copy and
// in one of three, of a volume that was detached, was killed or has lost its power. Never is other
// content served than was acknowledged, or another size, or a file with data removed where nothing
// was rebuilt; and what is refused has a reason. What is not noticed is another content of the head
// and of its whiteouts, which only a directory that was closed knows.
func TestChangedAtRest(t *testing.T) {
	all, d := changes(t)
	for _, ending := range slices.Sorted(maps.Keys(endings)) {
		t.Run(ending, func(t *testing.T) {
			for _, copies := range []int{1, 3} {
				changeEach(t, all, d, copies, ending)
			}
		})
	}
}

func changeEach(t *testing.T, all []change, d *directories, copies int, ending string) {
	sums := map[string]map[string]int{}
	for i := range all {
		c := &all[i]
		o, _ := used(t, copies, endings[ending])
		c.make(t, o.v.Replicas[0], d)
		outcome, reason, wrong := o.judge(c)
		o.v.Close()
		if sums[c.class] == nil {
			sums[c.class] = map[string]int{}
		}
		sums[c.class][outcome]++
		t.Logf("%d copies, %s: %s %s", copies, c, outcome, reason)
		if c.open && outcome == "served" && ending != "detached" {
			continue
		}
		for _, text := range wrong {
			t.Errorf("%d copies, %s: %s %s: %s", copies, c, outcome, reason, text)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(sums)) {
		t.Logf("sum: %d copies, %s: %v", copies, class, sums[class])
	}
}
