package chain_test

import (
	"runtime"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// Files as large as the format allows are made up here, instead of stored: what a piece of an
// operation costs must not depend on them.

// vastDisk has files whose images consist of the largest extents, once vast is set.
type vastDisk struct {
	*memdisk.FS
	vast bool
	// punched is how much was asked to be punched.
	punched int64
}

type vastFile struct {
	disk.File
	d *vastDisk
}

// vastSize is a terabyte, written from end to end on a file system that has it in a thousand
// extents.
const (
	vastSize   = 1 << 40
	vastExtent = 1 << 30
)

// Create implements disk.Meta.
func (d *vastDisk) Create(name string, mode disk.Mode) (disk.File, error) {
	return d.wrap(d.FS.Create(name, mode))
}

// Open implements disk.Meta.
func (d *vastDisk) Open(name string, mode disk.Mode) (disk.File, error) {
	return d.wrap(d.FS.Open(name, mode))
}

func (d *vastDisk) wrap(f disk.File, err error) (disk.File, error) {
	if err != nil {
		return nil, err
	}
	return &vastFile{f, d}, nil
}

// Extents implements disk.File.
func (f *vastFile) Extents(off int64, out []disk.Extent) ([]disk.Extent, bool, error) {
	if info, err := f.Stat(); err != nil || !f.d.vast || info.Size < vastSize {
		return f.File.Extents(off, out)
	}
	for len(out) < disk.ExtentsPerCall && off < vastSize {
		end := off/vastExtent*vastExtent + vastExtent
		out = append(out, disk.Extent{Off: off, Len: end - off})
		off = end
	}
	return out, off < vastSize, nil
}

// Punch implements disk.File.
func (f *vastFile) Punch(off, n int64) error {
	f.d.punched += n
	return f.File.Punch(off, n)
}

// vastWorld has snapshots a and b with their checksums, and a marked.
func vastWorld(t *testing.T) (*world, *vastDisk) {
	d := &vastDisk{FS: memdisk.New()}
	w := &world{t: t, fs: d, dir: "/r", opts: testOptions()}
	w.must(chain.Create(d, w.dir, testSpec(vastSize), w.opts))
	w.open()
	t.Cleanup(func() { _ = w.c.Abandon() })
	for _, name := range []string{"a", "b"} {
		f, _ := d.File(w.c.HeadHandle())
		_, err := f.WriteAt(make([]byte, 4096), 0)
		w.must(err)
		w.c.MarkWritten(0, 4096)
		w.snapshot(name)
		_, err = w.c.Hash(name, false, "2026-11-21T09:00:00Z")
		w.must(err)
	}
	return w, d
}

// allocates is how many bytes f allocates.
func allocates(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// A piece of a checksum, of a merge, or of what a scrub verifies costs what a piece holds: not a
// list of all pieces of a terabyte.
func TestAPieceCostsAPiece(t *testing.T) {
	const most = 16 << 20 // read and written for a piece of 8 MiB, and the pages of the simulated disk
	w, d := vastWorld(t)
	t.Run("verify", func(t *testing.T) {
		v := w.view("b")
		defer v.Close() // only read
		d.vast = true
		defer func() { d.vast = false }()
		if n := allocates(func() {
			_, _, err := v.Verify(0, chain.SumPiece)
			w.must(err)
		}); n > most {
			t.Errorf("%d bytes for a piece", n)
		}
	})
	t.Run("hash", func(t *testing.T) {
		d.vast = true
		defer func() { d.vast = false }()
		h, err := w.c.NewHash("b", true)
		w.must(err)
		defer h.Close() // given up
		if n := allocates(func() {
			_, err := h.Work()
			w.must(err)
		}); n > most {
			t.Errorf("%d bytes for a piece", n)
		}
	})
	t.Run("merge", func(t *testing.T) {
		w.must(w.c.MarkRemoved("a"))
		p, err := w.c.NewPurge()
		w.must(err)
		step, _ := p.Next()
		d.vast = true
		defer func() { d.vast = false }()
		w.must(p.Note(w.c.Sidecars, &step))
		if n := allocates(func() {
			_, err := p.Work(&step, w.c.DurableWhiteouts(step.Whiteouts()))
			w.must(err)
		}); n > most+chain.MergePiece {
			t.Errorf("%d bytes for a piece", n)
		}
	})
}

// A prune takes away a bounded piece at a time: all other operations on files wait for it.
func TestAPruneGoesInPieces(t *testing.T) {
	w, d := vastWorld(t)
	w.must(w.c.MarkRemoved("b"))
	w.must(w.c.MarkRemoved("a"))
	w.must(w.c.Purge(nil)) // leaves one, below the head
	p, err := w.c.NewPurge()
	w.must(err)
	step, more := p.Next()
	if !more || step.Action != chain.PurgePrune {
		t.Fatalf("%+v, %v", step, more)
	}
	d.vast = true
	defer func() { d.vast = false }()
	for range 3 {
		before := d.punched
		w.must(p.Note(w.c.Sidecars, &step))
		done, err := p.Work(&step, w.c.DurableWhiteouts(step.Whiteouts()))
		w.must(err)
		if n := d.punched - before; done || n == 0 || n > chain.PrunePiece {
			t.Fatalf("a piece has punched %d bytes, done %v", n, done)
		}
	}
}
