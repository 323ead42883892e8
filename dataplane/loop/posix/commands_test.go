package posix

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/loop"
	"ankole.storage/host/patience"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// TestCommandsOfAFile: on a file that takes no commands they fail, and what is read and written
// behind them is done at once. A device of commands is closed with all that is outstanding.
func TestCommandsOfAFile(t *testing.T) {
	l, err := New(loop.NewArena(8<<20), Options{Files: FilesByRing})
	if err != nil {
		lack.Skip(t, "no io_uring here: "+err.Error())
	}
	defer l.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	h := loop.Handle(fd)
	reap := func(want int) (all []loop.Done) {
		t.Helper()
		done := make([]loop.Done, 16)
		for until := time.Now().Add(patience.Of(wait.Limit)); len(all) < want; {
			if time.Now().After(until) {
				wait.RanOut(t, "completions")
				t.Fatalf("%d completions of %d", len(all), want)
			}
			all = append(all, done[:l.Reap(done, time.Second)]...)
		}
		return all
	}
	l.Submit([]loop.Op{{Kind: loop.Fetch, Handle: h, Tag: 1},
		{Kind: loop.Commit, Handle: h, Tag: 2, Off: 1<<16 | 3, Len: -5}})
	for _, d := range reap(2) {
		if d.Errno != loop.Errno(unix.EOPNOTSUPP) || d.Tag != 1 && d.Tag != 2 || (d.Kind == loop.Fetch) != (d.Tag == 1) {
			t.Errorf("%+v", d)
		}
	}
	b, _ := l.Arena().Get(4096)
	copy(l.Arena().Bytes(b), "text")
	op := loop.Op{Kind: loop.FileWrite, Handle: h, Tag: 3, Off: 4096}
	op.Add(loop.Seg{Buf: b, Len: 512})
	back := loop.Op{Kind: loop.FileRead, Handle: h, Tag: 4, Off: 4096}
	back.Add(loop.Seg{Buf: b, Len: 512})
	beyond := back
	beyond.Off, beyond.Tag = 1<<20, 5
	l.Submit([]loop.Op{op, back, beyond})
	for _, d := range reap(3) {
		if bad := d.Tag == 5; (d.N == 512) == bad || (d.Errno == loop.EIO) != bad {
			t.Errorf("%+v", d)
		}
	}
	l.Submit([]loop.Op{{Kind: loop.Close, Handle: h, Tag: 6}})
	if d := reap(1)[0]; d.Kind != loop.Close || d.Errno != 0 {
		t.Errorf("%+v", d)
	}
	if len(l.devices) != 0 {
		t.Error("the loop knows the device still")
	}
}

// TestCloseCancelsCommands: commands that the kernel has not answered are cancelled by Close,
// before it completes.
func TestCloseCancelsCommands(t *testing.T) {
	l, err := New(loop.NewArena(8<<20), Options{Files: FilesByRing})
	if err != nil {
		lack.Skip(t, "no io_uring here: "+err.Error())
	}
	defer l.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(f.Fd()))
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	h := loop.Handle(fd)
	// In one submission: nothing of the commands is looked at before the device is closed.
	l.Submit([]loop.Op{{Kind: loop.Fetch, Handle: h, Tag: 2}, {Kind: loop.Fetch, Handle: h, Tag: 1},
		{Kind: loop.Close, Handle: h, Tag: 3}})
	got := map[uint64]loop.Errno{}
	done := make([]loop.Done, 16)
	for until := time.Now().Add(patience.Of(wait.Limit)); len(got) < 3 && time.Now().Before(until); {
		for _, d := range done[:l.Reap(done, time.Second)] {
			got[d.Tag] = d.Errno
		}
	}
	want := map[uint64]loop.Errno{1: loop.Canceled, 2: loop.Canceled, 3: 0}
	for tag, errno := range want {
		if e, ok := got[tag]; !ok || e != errno {
			t.Errorf("tag %d: completed %v, with %d, not %d", tag, ok, e, errno)
		}
	}
}

// TestWithoutAdmin: the right to administer the system is away while a function runs, and back
// afterwards, on this thread.
func TestWithoutAdmin(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	admin := func() bool {
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&hdr, &data[0]); err != nil {
			t.Fatal(err)
		}
		return data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
	}
	had := admin()
	ran := false
	withoutAdmin(func() {
		ran = true
		if admin() {
			t.Error("the right is there still")
		}
	})
	if !ran || admin() != had {
		t.Errorf("ran %v; the right was there: %v, is there: %v", ran, had, admin())
	}
}
