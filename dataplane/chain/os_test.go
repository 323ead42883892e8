package chain_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/test/lack"
)

// alignedBuffer returns n bytes that direct I/O accepts.
func alignedBuffer(n int) []byte {
	raw := make([]byte, n+4096)
	skip := int(-uintptr(unsafe.Pointer(&raw[0])) % 4096)
	return raw[skip : skip+n : skip+n]
}

// fdFile writes through a descriptor, as the production loop does.
type fdFile int

func (f fdFile) WriteAt(p []byte, off int64) (int, error) {
	buf := alignedBuffer(len(p))
	copy(buf, p)
	n, err := unix.Pwrite(int(f), buf, off)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return n, err
}

func (f fdFile) Punch(off, n int64) error {
	return unix.Fallocate(int(f), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

// newOSWorld creates and opens a chain on the machine's file system.
func newOSWorld(t *testing.T, size int64) *world {
	t.Helper()
	w := &world{t: t, fs: osdisk.New(nil), dir: t.TempDir() + "/r", opts: testOptions()}
	w.must(chain.Create(w.fs, w.dir, testSpec(size), w.opts))
	w.open()
	t.Cleanup(func() { _ = w.c.Abandon() })
	return w
}

// An idle sparse volume costs no memory for its size, and opening it does not read it.
func TestHugeSparseVolumeIsCheap(t *testing.T) {
	const tib = 1 << 40
	w := newOSWorld(t, tib)
	for i := range int64(8) {
		w.fill(i*(tib/8), 4096, byte(i+1))
	}
	w.must(w.c.Close())
	before := residentBytes(t)
	w.open()
	if plan := w.c.ReadPlan(tib/2-1<<19, 1<<20, nil); len(plan) != 3 {
		t.Fatalf("plan %+v", plan)
	}
	if grown := residentBytes(t) - before; grown > 16*mib {
		t.Fatalf("opening an almost empty volume of 1 TiB took %d MiB of memory", grown/mib)
	}
	for i := range int64(8) {
		w.wantByte(i*(tib/8), 4096, byte(i+1))
	}
	w.must(w.c.Expand(2*tib, ""))
	w.wantByte(2*tib-mib, mib, 0)
	w.wantByte(0, 4096, 1)
}

func residentBytes(t *testing.T) int64 {
	t.Helper()
	data, err := osdisk.New(nil).ReadFile("/proc/self/statm", 4096)
	if err != nil {
		lack.Skip(t, fmt.Sprintf("this machine does not tell a process's memory: %v", err))
	}
	var total, resident int64
	for i, n := 0, &total; i < len(data) && n != nil; i++ {
		switch {
		case data[i] >= '0' && data[i] <= '9':
			*n = *n*10 + int64(data[i]-'0')
		case n == &total:
			n = &resident
		default:
			n = nil
		}
	}
	return resident * int64(unix.Getpagesize())
}

// The steps of a replica's life on a real file system, with direct I/O.
func TestOnMachineFileSystem(t *testing.T) {
	w := newOSWorld(t, 8*mib)
	w.fill(0, mib, 1)
	w.snapshot("a")
	w.fill(512, 1024, 2)
	w.zero(mib/2, 8192)
	w.must(w.c.Expand(16*mib, ""))
	w.fill(15*mib+512, 512, 3)
	w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Self: "v-1"}))
	for range 2 {
		w.wantByte(0, 512, 1)
		w.wantByte(512, 1024, 2)
		w.wantByte(1536, 2560, 1)
		w.wantByte(mib/2, 8192, 0)
		w.wantByte(mib/2+8192, 4096, 1)
		w.wantByte(15*mib, 512, 0)
		w.wantByte(15*mib+512, 512, 3)
		w.wantByte(15*mib+1024, 3072, 0)
		raw, err := readRaw(w.fs, w.dir, false)
		w.must(err)
		if got, err := raw.Content(raw.Head); err != nil || string(got) != string(w.read(0, w.c.Size())) {
			t.Fatalf("the independent reader sees other content (%v)", err)
		}
		w.reopen()
	}
	_, err := chain.Open(w.fs, w.dir, w.opts)
	wantErr(t, err, chain.ErrInUse)
	w.must(w.c.Close())
}

// What moves only the time of the last change of an image on a real file system refuses nothing,
// after a close and after a kill; an older file that is copied onto it with its time is refused.
func TestSealOnMachineFileSystem(t *testing.T) {
	older := time.Now().Add(-time.Hour)
	for _, closed := range []bool{true, false} {
		for name, c := range map[string]struct {
			do   func(image string) error
			want string
		}{
			"chmod": {func(image string) error { return os.Chmod(image, 0o640) }, ""},
			"link": {func(image string) error {
				return errors.Join(os.Link(image, image+".x"), os.Remove(image+".x"))
			}, ""},
			"an older file": {func(image string) error {
				err := os.WriteFile(image, make([]byte, mib), 0o600)
				return errors.Join(err, os.Chtimes(image, older, older))
			}, "it was written to"},
		} {
			t.Run(fmt.Sprint(name, closed), func(t *testing.T) {
				w := newOSWorld(t, mib)
				w.fill(0, mib, 1)
				w.snapshot("a")
				w.must(w.c.CopyMeta())
				if closed {
					w.must(w.c.Close())
				} else {
					w.must(w.c.Abandon())
				}
				w.must(c.do(w.dir + "/volume-snap-a.img"))
				w.opens(c.want)
			})
		}
	}
}
