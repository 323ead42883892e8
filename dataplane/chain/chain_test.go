package chain_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// world is a chain on a file system whose files are written by handle, as a core would through its
// loop.
type world struct {
	t    *testing.T
	fs   disk.Meta
	dir  string
	opts chain.Options
	c    *chain.Chain
}

const mib = 1 << 20

var testUUID = chain.UUID{0xaa, 1, 2, 3}

// testRand makes stamps reproducible.
type testRand struct{ *rand.Rand }

func (r testRand) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return len(p), nil
}

func testOptions() chain.Options {
	return chain.Options{VolumeUUID: testUUID, Rand: testRand{rand.New(rand.NewPCG(1, 2))}}
}

func testSpec(size int64) chain.Spec {
	return chain.Spec{Size: size, VolumeUUID: testUUID, Self: "v-1", Created: "2026-11-21T08:00:00Z"}
}

// newWorld creates and opens a chain in memory.
func newWorld(t *testing.T, size int64) (*world, *memdisk.FS) {
	t.Helper()
	fs := memdisk.New()
	w := &world{t: t, fs: fs, dir: "/r", opts: testOptions()}
	w.must(chain.Create(fs, w.dir, testSpec(size), w.opts))
	w.open()
	return w, fs
}

// open opens the directory and, as a replica does, has its metadata copied, so that what follows is
// judged by the copy if it is not closed.
func (w *world) open() {
	w.t.Helper()
	w.openOnly()
	err := w.c.CopyMeta()
	if !w.opts.ReadOnly && !errors.Is(err, disk.ErrNoSpace) && !errors.Is(err, disk.ErrUnchanged) {
		w.must(err)
	}
}

func (w *world) openOnly() {
	w.t.Helper()
	c, err := chain.Open(w.fs, w.dir, w.opts)
	w.must(err)
	w.c = c
}

func (w *world) reopen() {
	w.t.Helper()
	w.must(w.c.Close())
	w.open()
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// mem is the file system as a memdisk.
func (w *world) mem() *memdisk.FS { return w.fs.(*memdisk.FS) }

// handleFile is what a loop can do with a handle.
type handleFile interface {
	WriteAt(p []byte, off int64) (int, error)
	Punch(off, n int64) error
}

func (w *world) byHandle(h int32) handleFile {
	w.t.Helper()
	m, ok := w.fs.(*memdisk.FS)
	if !ok {
		return fdFile(h)
	}
	f, ok := m.File(h)
	if !ok {
		w.t.Fatalf("handle %d is not open", h)
	}
	return f
}

// write does what a core does for a write: widen the edges, write to the head, mark.
func (w *world) write(off int64, data []byte) error {
	from, to := off&^4095, (off+int64(len(data))+4095)&^4095
	whole := make([]byte, to-from)
	if to-from > int64(len(data)) {
		if _, err := w.c.ReadAt(whole, from); err != nil {
			return err
		}
	}
	copy(whole[off-from:], data)
	f := w.byHandle(w.c.HeadHandle())
	if _, err := f.WriteAt(whole, from); err != nil {
		return err
	}
	w.c.MarkWritten(from, to-from)
	return nil
}

func (w *world) fill(off, n int64, b byte) {
	w.t.Helper()
	w.must(w.write(off, bytes.Repeat([]byte{b}, int(n))))
}

// zero does what a core does to make a range read as zeroes.
func (w *world) zero(off, n int64) {
	w.t.Helper()
	for _, z := range w.c.ZeroPlan(off, n, nil) {
		w.applyZero(z)
	}
}

func (w *world) applyZero(z chain.ZeroRange) {
	w.t.Helper()
	if !z.Punch {
		w.fill(z.Off, z.Len, 0)
		return
	}
	f := w.byHandle(w.c.HeadHandle())
	w.must(f.Punch(z.Off, z.Len))
	w.c.MarkPunched(z.Off, z.Len)
}

func (w *world) read(off, n int64) []byte {
	w.t.Helper()
	p := make([]byte, n)
	_, err := w.c.ReadAt(p, off)
	w.must(err)
	return p
}

func (w *world) wantByte(off, n int64, b byte) {
	w.t.Helper()
	if got := w.read(off, n); !bytes.Equal(got, bytes.Repeat([]byte{b}, int(n))) {
		i := 0
		for got[i] == b {
			i++
		}
		w.t.Fatalf("[%d,+%d) reads %#x at %d, want %#x", off, n, got[i], off+int64(i), b)
	}
}

func (w *world) snapshot(name string) {
	w.t.Helper()
	w.must(w.c.Snapshot(name, true, "2026-11-21T09:00:00Z", nil))
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// writeHead writes whole blocks to the head of a chain on the machine's file system.
func writeHead(t *testing.T, c *chain.Chain, off int64, n int, fill byte) {
	t.Helper()
	if _, err := fdFile(c.HeadHandle()).WriteAt(bytes.Repeat([]byte{fill}, n), off); err != nil {
		t.Fatal(err)
	}
	c.MarkWritten(off, int64(n))
}
