// Package fsx makes random changes to a file, keeps a model of it in memory, and compares: what is
// read through the file system, by whatever way, is what was written last. It knows the ways by
// which applications change files: writes cached and direct, memory maps, truncation, holes,
// zeroing, preallocation, syncs, closing and opening again.
//
// One Exerciser uses one file. The same seed makes the same operations, whatever happens below; the
// error says which one went wrong and what came before it.
package fsx

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// MaxSize is the largest file, in bytes.
	MaxSize = 2 << 20
	// maxSpan is the longest range of one operation.
	maxSpan  = 96 << 10
	pageSize = 4096
	// remembered is how many operations an error tells.
	remembered = 25
)

// Exerciser makes operations on one file.
type Exerciser struct {
	path   string
	seed   uint64
	rng    *rand.Rand
	f      *os.File
	direct *os.File // the same file without the cache; nil where the file system has none
	model  []byte   // as long as the file
	count  int
	log    []string
	buf    []byte // aligned, for direct access
}

// Open makes the file, which must not exist.
func Open(path string, seed uint64) (*Exerciser, error) {
	x := &Exerciser{path: path, seed: seed, rng: rand.New(rand.NewPCG(seed, 0xf5))}
	raw := make([]byte, maxSpan+2*pageSize)
	x.buf = raw[pageSize-int(uintptr(unsafe.Pointer(&raw[0]))%pageSize):]
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	x.f = f
	return x, x.openDirect()
}

func (x *Exerciser) openDirect() (err error) {
	x.direct, err = os.OpenFile(x.path, os.O_RDWR|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) { // tmpfs of older kernels
		return nil
	}
	return err
}

// Count returns how many operations have been made.
func (x *Exerciser) Count() int { return x.count }

// operation is one kind of change or look. It returns a description.
type operation struct {
	weight int
	do     func(x *Exerciser) (string, error)
}

var operations = []operation{
	{20, (*Exerciser).read},
	{8, (*Exerciser).readDirect},
	{8, (*Exerciser).readMap},
	{25, (*Exerciser).write},
	{12, (*Exerciser).writeDirect},
	{10, (*Exerciser).writeMap},
	{5, (*Exerciser).truncate},
	{6, func(x *Exerciser) (string, error) {
		return x.allocate("punch", unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE)
	}},
	{5, func(x *Exerciser) (string, error) { return x.allocate("zero", unix.FALLOC_FL_ZERO_RANGE) }},
	{3, func(x *Exerciser) (string, error) {
		return x.allocate("zero-keep", unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE)
	}},
	{3, func(x *Exerciser) (string, error) { return x.allocate("allocate", 0) }},
	{3, func(x *Exerciser) (string, error) { return x.allocate("allocate-keep", unix.FALLOC_FL_KEEP_SIZE) }},
	{4, func(x *Exerciser) (string, error) { return "sync", x.f.Sync() }},
	{3, func(x *Exerciser) (string, error) { return "datasync", unix.Fdatasync(int(x.f.Fd())) }},
	{2, (*Exerciser).reopen},
	{1, func(x *Exerciser) (string, error) { return "compare", x.Compare() }},
}

// Step makes one operation.
func (x *Exerciser) Step() error {
	x.count++
	total := 0
	for _, o := range operations {
		total += o.weight
	}
	n := x.rng.IntN(total)
	for _, o := range operations {
		if n -= o.weight; n < 0 {
			what, err := o.do(x)
			if x.log = append(x.log, fmt.Sprintf("%d %s", x.count, what)); len(x.log) > remembered {
				x.log = x.log[1:]
			}
			return x.explain(err)
		}
	}
	return nil
}

func (x *Exerciser) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s, seed %d, operation %d: %w\nlast operations:\n  %s", x.path, x.seed, x.count, err,
		strings.Join(x.log, "\n  "))
}

// span draws a range; the file may be shorter.
func (x *Exerciser) span(limit int) (off, n int) {
	n = 1 + x.rng.IntN(maxSpan)
	if x.rng.IntN(3) == 0 {
		n = 1 + x.rng.IntN(2000)
	}
	n = min(n, limit)
	if n == 0 {
		return 0, 0
	}
	return x.rng.IntN(limit - n + 1), n
}

// aligned draws a range for direct access.
func (x *Exerciser) aligned(limit int) (off, n int) {
	off, n = x.span(limit)
	off &^= pageSize - 1
	return off, min((n+pageSize-1)&^(pageSize-1), (limit-off)&^(pageSize-1))
}

func (x *Exerciser) data(p []byte) {
	b := byte(x.count)
	for i := range p {
		p[i] = b ^ byte(i*7) ^ byte(i>>8)
	}
}

// grow makes the model at least n bytes long.
func (x *Exerciser) grow(n int) {
	if n > len(x.model) {
		x.model = append(x.model, make([]byte, n-len(x.model))...)
	}
}

func (x *Exerciser) same(got []byte, off int) error {
	want := x.model[off : off+len(got)]
	if bytes.Equal(got, want) {
		return nil
	}
	first, count := -1, 0
	for i := range got {
		if got[i] != want[i] {
			if count++; first < 0 {
				first = i
			}
		}
	}
	return fmt.Errorf("content differs in %d bytes from offset %d on (of %d): found %#x, want %#x", count, off+first,
		len(x.model), got[first], want[first])
}

func (x *Exerciser) read() (string, error) {
	off, n := x.span(len(x.model))
	p := make([]byte, n)
	_, err := x.f.ReadAt(p, int64(off))
	if err == nil {
		err = x.same(p, off)
	}
	return fmt.Sprintf("read %d+%d", off, n), err
}

func (x *Exerciser) readDirect() (string, error) {
	off, n := x.aligned(len(x.model))
	if x.direct == nil || n == 0 {
		return "no direct read", nil
	}
	_, err := io.ReadFull(io.NewSectionReader(x.direct, int64(off), int64(n)), x.buf[:n])
	if err == nil {
		err = x.same(x.buf[:n], off)
	}
	return fmt.Sprintf("direct read %d+%d", off, n), err
}

func (x *Exerciser) write() (string, error) {
	off, n := x.span(MaxSize)
	p := make([]byte, n)
	x.data(p)
	_, err := x.f.WriteAt(p, int64(off))
	x.grow(off + n)
	copy(x.model[off:], p)
	return fmt.Sprintf("write %d+%d", off, n), err
}

func (x *Exerciser) writeDirect() (string, error) {
	off, n := x.aligned(MaxSize)
	if x.direct == nil || n == 0 {
		return "no direct write", nil
	}
	x.data(x.buf[:n])
	_, err := x.direct.WriteAt(x.buf[:n], int64(off))
	x.grow(off + n)
	copy(x.model[off:], x.buf[:n])
	return fmt.Sprintf("direct write %d+%d", off, n), err
}

// mapped calls f with the mapped bytes of a range inside the file.
func (x *Exerciser) mapped(off, n int, f func(p []byte) error) (err error) {
	from := off &^ (pageSize - 1)
	m, err := unix.Mmap(int(x.f.Fd()), int64(from), off+n-from, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	return errors.Join(f(m[off-from:]), unix.Munmap(m))
}

func (x *Exerciser) readMap() (string, error) {
	off, n := x.span(len(x.model))
	if n == 0 {
		return "no mapped read", nil
	}
	return fmt.Sprintf("mapped read %d+%d", off, n), x.mapped(off, n, func(p []byte) error { return x.same(p, off) })
}

func (x *Exerciser) writeMap() (string, error) {
	off, n := x.span(len(x.model))
	if n == 0 {
		return "no mapped write", nil
	}
	sync := x.rng.IntN(4) == 0
	err := x.mapped(off, n, func(p []byte) error {
		x.data(p)
		copy(x.model[off:], p)
		if !sync {
			return nil
		}
		from := off & (pageSize - 1)
		return unix.Msync(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&p[0]), -from)), from+len(p)), unix.MS_SYNC)
	})
	return fmt.Sprintf("mapped write %d+%d, synced %v", off, n, sync), err
}

func (x *Exerciser) truncate() (string, error) {
	n := x.rng.IntN(MaxSize + 1)
	err := x.f.Truncate(int64(n))
	was := len(x.model)
	x.grow(n)
	x.model = x.model[:n]
	return fmt.Sprintf("truncate %d to %d", was, n), err
}

func (x *Exerciser) allocate(name string, mode uint32) (string, error) {
	off, n := x.span(MaxSize)
	err := unix.Fallocate(int(x.f.Fd()), mode, int64(off), int64(n))
	if mode&unix.FALLOC_FL_KEEP_SIZE == 0 {
		x.grow(off + n)
	}
	if mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) != 0 && off < len(x.model) {
		clear(x.model[off:min(off+n, len(x.model))])
	}
	return fmt.Sprintf("%s %d+%d", name, off, n), err
}

func (x *Exerciser) reopen() (string, error) {
	if err := x.close(); err != nil {
		return "reopen", err
	}
	var err error
	if x.f, err = os.OpenFile(x.path, os.O_RDWR, 0); err == nil {
		err = x.openDirect()
	}
	return "reopen", err
}

func (x *Exerciser) close() error {
	err := x.f.Close()
	if x.direct != nil {
		err = errors.Join(err, x.direct.Close())
	}
	return err
}

// Compare reads the whole file.
func (x *Exerciser) Compare() error {
	got, err := os.ReadFile(x.path)
	if err != nil {
		return err
	}
	if len(got) != len(x.model) {
		return fmt.Errorf("the file has %d bytes, want %d", len(got), len(x.model))
	}
	return x.same(got, 0)
}

// Close syncs, compares for the last time, and closes the file.
func (x *Exerciser) Close() error {
	return errors.Join(x.explain(errors.Join(x.f.Sync(), x.Compare())), x.close())
}
