package qcow2

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ankole.storage/test/lack"
)

// grown is a new file in memory, with the rules of direct I/O.
type grown struct {
	mu sync.Mutex
	p  []byte
}

func (g *grown) Resize(size int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if size > int64(len(g.p)) {
		g.p = append(g.p, make([]byte, size-int64(len(g.p)))...)
	}
	g.p = g.p[:size]
	return nil
}

func (g *grown) WriteAt(p []byte, off int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if (off|int64(len(p)))%alignment != 0 || off+int64(len(p)) > int64(len(g.p)) {
		return fmt.Errorf("%d bytes at %d of %d", len(p), off, len(g.p))
	}
	copy(g.p[off:], p)
	return nil
}

// written writes an image of a disk in ranges of a length.
func written(t *testing.T, content []byte, length int, order func(n int) []int) []byte {
	t.Helper()
	g := &grown{}
	w := NewWriter(g)
	if err := w.Resize(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	for _, n := range order((len(content)-1)/length + 1) {
		p := content[n*length : min((n+1)*length, len(content))]
		var err error
		if bytes.Count(p, []byte{0}) == len(p) && n%2 == 0 {
			err = w.Punch(int64(n*length), int64(len(p)))
		} else {
			err = w.WriteAt(p, int64(n*length))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	return g.p
}

func inOrder(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// sparseDisk is a disk of which some mebibytes hold something.
func sparseDisk(size int) []byte {
	p := make([]byte, size)
	for at := 3 << 20; at < size; at += 5<<20 + 8192 {
		for i := at; i < min(at+300<<10, size); i++ {
			p[i] = byte(i>>9) | 1
		}
	}
	return p
}

// TestWriter: what was written is read again, by the reader here and by QEMU, from a file that
// takes no more than what is not zero.
func TestWriter(t *testing.T) {
	r := random(t)
	program, err := exec.LookPath("qemu-img")
	if err != nil {
		lack.Less(t, "qemu-img")
	}
	for _, tt := range []struct {
		size, length int
		any          bool
	}{{4096, 4096, false}, {2 << 20, 4096, false}, {40 << 20, 512 << 10, false}, {40<<20 + 4096, 68 << 10, true}} {
		want := sparseDisk(tt.size)
		order := inOrder
		if tt.any {
			order = func(n int) []int { return r.Perm(n) }
		}
		file := written(t, want, tt.length, order)
		same(t, open(t, file), want, r)
		if full := bytes.Count(want, []byte{0}); len(file) > tt.size-full+40*(64<<10) {
			t.Errorf("%d bytes, for a disk of %d with %d zeroes", len(file), tt.size, full)
		}
		if program == "" {
			continue
		}
		name := filepath.Join(t.TempDir(), "i.qcow2")
		if err := os.WriteFile(name, file, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), program, "check", name).CombinedOutput(); err != nil ||
			!strings.Contains(string(out), "No errors were found") {
			t.Errorf("%d bytes: %v\n%s", tt.size, err, out)
		}
		raw := name + ".raw"
		if out, err := exec.CommandContext(t.Context(), program, "convert", "-O", "raw", name,
			raw).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if got, err := os.ReadFile(raw); err != nil || !bytes.Equal(got, want) {
			t.Errorf("QEMU reads %d bytes, %v, first difference at %d", len(got), err, difference(got, want))
		}
	}
}

// TestWriterIsDeterminate: the same content makes the same file, whatever the ranges.
func TestWriterIsDeterminate(t *testing.T) {
	want := sparseDisk(20 << 20)
	first := written(t, want, 4096, inOrder)
	for _, length := range []int{64 << 10, 512 << 10, 1 << 20, 20 << 20} {
		if file := written(t, want, length, inOrder); !bytes.Equal(file, first) {
			t.Errorf("ranges of %d bytes: %d bytes, %d before, first difference at %d", length, len(file), len(first),
				difference(file, first))
		}
	}
}

// TestWriterBounds: clusters grow with the disk, and what is too large or no disk is refused.
func TestWriterBounds(t *testing.T) {
	for size, bits := range map[int64]uint{512: 16, 128 << 30: 16, 128<<30 + 512: 17, 1 << 40: 19, maxWritten: 21} {
		w := NewWriter(&grown{})
		w.f = sized{}
		if err := w.Resize(size); err != nil || w.bits != bits {
			t.Errorf("%d bytes: clusters of 2^%d, %v, want 2^%d", size, w.bits, err, bits)
		}
	}
	for _, size := range []int64{0, -512, 100, maxWritten + 512} {
		if err := NewWriter(sized{}).Resize(size); !errors.Is(err, ErrRefused) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	w := NewWriter(sized{})
	if err := w.Resize(1 << 20); err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{-4096, 1 << 20, 1<<20 - 2048} {
		if err := w.WriteAt(make([]byte, 4096), off); !errors.Is(err, ErrRefused) {
			t.Errorf("at %d: %v", off, err)
		}
		if err := w.Punch(off, 4096); !errors.Is(err, ErrRefused) {
			t.Errorf("a hole at %d: %v", off, err)
		}
	}
}

// sized takes everything.
type sized struct{}

func (sized) Resize(int64) error          { return nil }
func (sized) WriteAt([]byte, int64) error { return nil }

var errFull = errors.New("full")

// full is a file that fails at some operation.
type full struct {
	grown
	left int
}

func (f *full) step() error {
	if f.left--; f.left < 0 {
		return errFull
	}
	return nil
}

func (f *full) Resize(size int64) error { return errors.Join(f.step(), f.grown.Resize(size)) }

func (f *full) WriteAt(p []byte, off int64) error {
	return errors.Join(f.step(), f.grown.WriteAt(p, off))
}

// TestWriterFails: an error of the file is told, whatever operation fails.
func TestWriterFails(t *testing.T) {
	content := sparseDisk(8 << 20)
	for n := 0; ; n++ {
		f := &full{left: n}
		w := NewWriter(f)
		err := w.Resize(int64(len(content)))
		if err == nil {
			err = w.WriteAt(content, 0)
		}
		if err == nil {
			err = w.Finish()
		}
		if err == nil {
			if n < 6 {
				t.Errorf("%d operations", n)
			}
			return
		}
		if !errors.Is(err, errFull) {
			t.Fatalf("operation %d: %v", n, err)
		}
	}
}
