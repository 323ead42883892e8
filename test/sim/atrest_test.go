package sim

import (
	"fmt"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
	"ankole.storage/test/sim/register"
)

// atRest is a volume that is attached and detached, and whose directories are changed in between.
type atRest struct {
	*trio
	// attached counts engines, which run on two nodes in turn.
	attached int
}

const atRestSize = 12 << 20

func newAtRest(t *testing.T, replicas int) *atRest {
	w := NewWorld(1)
	v := NewVolume(w, replicas, atRestSize)
	v.Alone = true
	return &atRest{trio: &trio{t: t, w: w, v: v}}
}

// begin starts every replica that can be started, and an engine with them.
func (o *atRest) begin() {
	for _, r := range o.v.Replicas {
		if !r.Alive() {
			r.Start()
		}
	}
	o.attached++
	o.v.StartEngine(o.v.Nodes[len(o.v.Nodes)-1-o.attached%2])
}

func (o *atRest) attach() {
	o.t.Helper()
	o.begin()
	o.until("the volume serves", o.v.Healthy)
}

// detach ends the engine and the replicas in order.
func (o *atRest) detach() {
	o.t.Helper()
	ended := false
	o.v.Current.Post(engine.DetachFrontend{Reply: func(error) { ended = true }})
	o.until("the frontend is gone", func() bool { return ended })
	o.pass(time.Second)
	o.v.KillEngine(o.v.Current)
	for _, r := range o.v.Replicas {
		r.End(time.Second)
	}
	o.until("the replicas have ended", func() bool { return len(o.v.all()) == 0 })
}

// kill ends all processes at once.
func (o *atRest) kill() {
	o.t.Helper()
	o.pass(time.Second)
	o.v.KillEngine(o.v.Current)
	for _, r := range o.v.Replicas {
		r.Kill()
	}
}

// losePower takes the power of all nodes, which come back.
func (o *atRest) losePower() {
	o.t.Helper()
	o.pass(time.Second)
	for _, n := range o.v.Nodes {
		o.v.PowerOff(n)
	}
	for _, n := range o.v.Nodes {
		n.PowerOn()
	}
}

// fill writes number n to a block, and to be read it must be answered.
func (o *atRest) fill(n uint64, off int64) {
	o.t.Helper()
	o.until("a write", o.write(n, off))
}

// discard gives a block back, durably.
func (o *atRest) discard(off int64) {
	o.t.Helper()
	for _, c := range []Call{{Kind: block.Discard, Off: off, Len: block.Size}, {Kind: block.Flush}} {
		done := false
		c.Done = func(code block.Code, _ []byte) { done = code == block.OK }
		o.v.Current.front.Submit(&c)
		o.until(c.Kind.String(), func() bool { return done })
	}
}

func (o *atRest) snapshot(name string) {
	o.t.Helper()
	var err error
	done := false
	o.v.Current.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: name, UserCreated: true, Created: created},
		Reply: func(e error) { done, err = true, e }})
	o.until("a snapshot", func() bool { return done })
	if err != nil {
		o.t.Fatal(err)
	}
}

// reads returns the number in a block as users read it.
func (o *atRest) reads(off int64) uint64 {
	o.t.Helper()
	var n uint64
	done := false
	o.v.Current.front.Submit(&Call{Kind: block.Read, Off: off, Len: block.Size, Done: func(code block.Code, data []byte) {
		if code != block.OK {
			o.t.Errorf("read at %d: %s", off, code)
		} else {
			n, _ = register.Unstamp(data, off/block.SectorSize)
		}
		done = true
	}})
	o.until("a read", func() bool { return done })
	return n
}

// savedFile is a file with its holes.
type savedFile struct {
	size int64
	data map[int64][]byte
}

// save copies a directory aside.
func save(t *testing.T, fs *memdisk.FS, dir string) map[string]savedFile {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]savedFile{}
	for _, name := range names {
		out[name] = saveFile(t, fs, dir+"/"+name)
	}
	return out
}

func saveFile(t *testing.T, fs *memdisk.FS, path string) savedFile {
	t.Helper()
	f, err := fs.Open(path, disk.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	s := savedFile{info.Size, map[int64][]byte{}}
	for off, more := int64(0), true; more && err == nil; {
		var extents []disk.Extent
		extents, more, err = f.Extents(off, nil)
		for _, e := range extents {
			p := make([]byte, min(e.Len, info.Size-e.Off))
			if _, err = f.ReadAt(p, e.Off); err != nil {
				break
			}
			s.data[e.Off], off = p, e.Off+e.Len
		}
		more = more && len(extents) > 0
	}
	if err != nil {
		t.Fatal(path, err)
	}
	return s
}

// put writes a file anew, with the inode that a file of its name has, as cp does.
func (s savedFile) put(t *testing.T, fs *memdisk.FS, path string) {
	t.Helper()
	f, err := fs.Open(path, 0)
	if err != nil {
		f, err = fs.Create(path, 0)
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		err = f.Truncate(s.size)
	}
	for off, p := range s.data {
		if err == nil {
			_, err = f.WriteAt(p, off)
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		t.Fatal(path, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// restore makes a directory what was saved.
func restore(t *testing.T, fs *memdisk.FS, dir string, saved map[string]savedFile) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := fs.Remove(dir + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range saved {
		s.put(t, fs, dir+"/"+name)
	}
	if err := fs.SyncDir(dir); err != nil {
		t.Fatal(err)
	}
}

// TestOldStateInPlace: a directory is copied aside, the volume is written to on another node, and
// the old directory is put in its place. The only copy is refused until a person accepts what is
// lost, one of three is rebuilt.
func TestOldStateInPlace(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			o := newAtRest(t, n)
			defer o.v.Close()
			r := o.v.Replicas[0]
			o.attach()
			o.fill(1, 0)
			o.detach()
			old := save(t, r.Disk.FS, replicaDir+r.Name)
			o.attach()
			o.fill(2, 0)
			o.detach()
			restore(t, r.Disk.FS, replicaDir+r.Name, old)
			o.begin()
			if n == 1 {
				o.until("the start is refused", func() bool { return o.v.Current.state.Fatal })
				t.Log(o.v.Current.state.Reason)
				o.v.KillEngine(o.v.Current)
				o.v.Trust = []string{r.Name}
				o.attach()
				if got := o.reads(0); got != 1 {
					t.Errorf("on a person's word write %d is read, want 1", got)
				}
				return
			}
			o.until("it serves without the old copy", func() bool {
				return o.v.Current.state.Serving && o.v.Current.mode(r.Addr()) == engine.ERR
			})
			if got := o.reads(0); got != 2 {
				t.Errorf("write %d is read, want 2", got)
			}
			o.add(r)
			if got := o.holds(r, 0); got != 2 {
				t.Errorf("after its rebuild the old copy holds write %d", got)
			}
		})
	}
}
