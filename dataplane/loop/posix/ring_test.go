package posix_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// byRing makes a loop with a ring, or skips.
func byRing(t *testing.T) *posix.Loop {
	t.Helper()
	l, err := posix.New(loop.NewArena(64<<20), posix.Options{Files: posix.FilesByRing})
	if err != nil {
		lack.Skip(t, "no io_uring here: "+err.Error())
	}
	t.Cleanup(l.Close)
	return l
}

// TestWaysForFiles: which way there is, and why, is told; one that nobody knows is refused.
func TestWaysForFiles(t *testing.T) {
	byRing(t)
	for _, tt := range []struct{ asked, got string }{{"", posix.FilesByRing}, {posix.FilesByRing, posix.FilesByRing},
		{posix.FilesByPool, posix.FilesByPool}} {
		l, err := posix.New(loop.NewArena(1<<20), posix.Options{Files: tt.asked})
		if err != nil {
			t.Fatal(err)
		}
		if how, why := l.Files(); how != tt.got || (why == nil) != (how == posix.FilesByRing) {
			t.Errorf("%q: %s, %v", tt.asked, how, why)
		}
		l.Close()
	}
	if l, err := posix.New(loop.NewArena(1<<20), posix.Options{Files: "threads"}); err == nil {
		l.Close()
		t.Error("a way that nobody knows is taken")
	}
}

// TestRingTakesMoreThanItHolds: operations beyond what may be in flight wait, and all complete,
// once.
func TestRingTakesMoreThanItHolds(t *testing.T) {
	l := byRing(t)
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const n = 3000
	b, _ := l.Arena().Get(4096)
	ops := make([]loop.Op, n)
	for i := range ops {
		ops[i] = loop.Op{Kind: loop.FileWrite, Handle: loop.Handle(f.Fd()), Off: int64(i) * 4096, Tag: uint64(i)}
		ops[i].Add(loop.Seg{Buf: b, Len: 4096})
	}
	l.Submit(ops)
	seen := map[uint64]bool{}
	done := make([]loop.Done, 100)
	for len(seen) < n {
		for _, d := range done[:l.Reap(done, time.Minute)] {
			if d.Errno != 0 || d.N != 4096 || seen[d.Tag] {
				t.Fatalf("%+v, seen before: %v", d, seen[d.Tag])
			}
			seen[d.Tag] = true
		}
	}
	if info, err := f.Stat(); err != nil || info.Size() != n*4096 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestRingErrors: what a worker would be told the ring is told.
func TestRingErrors(t *testing.T) {
	l := byRing(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	b, _ := l.Arena().Get(4096)
	for _, tt := range []struct {
		name   string
		kind   loop.Kind
		handle uintptr
		want   loop.Errno
	}{
		{"no space", loop.FileWrite, full.Fd(), loop.ENOSPC},
		{"a directory", loop.FileRead, dir.Fd(), loop.Errno(unix.EISDIR)},
		{"nothing open", loop.FileSync, 1 << 19, loop.Errno(unix.EBADF)},
	} {
		op := loop.Op{Kind: tt.kind, Handle: loop.Handle(tt.handle), Tag: 7}
		if tt.kind != loop.FileSync {
			op.Add(loop.Seg{Buf: b, Len: 4096})
		}
		l.Submit([]loop.Op{op})
		done := make([]loop.Done, 1)
		if n := l.Reap(done, time.Minute); n != 1 || done[0].Errno != tt.want || done[0].Tag != 7 {
			t.Errorf("%s: %d, %+v, want %d", tt.name, n, done[0], tt.want)
		}
	}
}

// TestHeldFileOutlivesItsDescriptor: a lock on a file that a loop holds stays until nothing of the
// loop is in flight, as after a kill, and goes at once when it is given up.
func TestHeldFileOutlivesItsDescriptor(t *testing.T) {
	dir := t.TempDir()
	open := func() int {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	another := open()
	defer unix.Close(another)
	locked := func() bool {
		err := unix.Flock(another, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			_ = unix.Flock(another, unix.LOCK_UN)
		} else if !errors.Is(err, unix.EWOULDBLOCK) {
			t.Fatal(err)
		}
		return err != nil
	}
	l, err := posix.New(loop.NewArena(1<<20), posix.Options{Files: posix.FilesByRing})
	if err != nil {
		lack.Skip(t, "no io_uring here: "+err.Error())
	}
	hold := func() int {
		fd := open()
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Fatal(err)
		}
		if err := l.Hold(loop.Handle(fd)); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	fd := hold()
	_ = unix.Flock(fd, unix.LOCK_UN)
	unix.Close(fd)
	if locked() {
		t.Error("it was given up, and is locked")
	}
	unix.Close(hold())
	if !locked() {
		t.Error("it was not given up, and is not locked")
	}
	l.Close()
	wait.Until(t, "the lock is gone with the ring", func() bool { return !locked() })
}
