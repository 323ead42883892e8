package process

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/test/wait"
)

// hangingLog has it that whoever opens the log of a name for writing waits, as on a disk that does
// not answer, until release.
func hangingLog(t *testing.T, l *logs, name string) (release func()) {
	t.Helper()
	if err := unix.Mkfifo(l.path(name), 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		f, err := os.OpenFile(l.path(name), os.O_RDWR, 0)
		if err != nil {
			t.Error(err)
			return
		}
		f.Close() // whoever waited has it open now
	}
}

// TestALogThatHangs: where the disk for logs does not answer, processes are started and seen to end
// all the same, that of this log and others.
func TestALogThatHangs(t *testing.T) {
	t.Parallel()
	m := newManager(t, nil)
	defer hangingLog(t, m.logs, "demo-e-0")()
	for _, name := range []string{"demo-e-0", "demo-r-1", "demo-e-0"} {
		if _, err := m.Create(spec(t, name, instancetest.Print, 0, "--count", "3")); err != nil {
			t.Fatal(err)
		}
		if p := await(t, m, name, Running, Error); p.State != Running {
			t.Fatalf("%s is %s: %s", name, p.State, p.ErrorMsg)
		}
		if err := unix.Kill(pidOf(m, name), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if p := await(t, m, name, Error); p.State != Error {
			t.Fatalf("%s is %s: %s", name, p.State, p.ErrorMsg)
		}
		if _, err := m.Delete(name, ""); err != nil {
			t.Fatal(err)
		}
		awaitGone(t, m, name)
	}
}

// TestALogThatBeginsToHang: a log whose disk stops answering while lines are written to it keeps
// nobody from seeing the end of its process.
func TestALogThatBeginsToHang(t *testing.T) {
	t.Parallel()
	m := newManager(t, nil)
	if err := unix.Mkfifo(m.logs.path("demo-e-0"), 0o600); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile(m.logs.path("demo-e-0"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close() // ends the write that waits
	if _, err := unix.FcntlInt(full.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Create(spec(t, "demo-e-0", instancetest.Print, 0, "--count", "10000")); err != nil {
		t.Fatal(err)
	}
	if p := await(t, m, "demo-e-0", Running, Error); p.State != Running {
		t.Fatalf("it is %s: %s", p.State, p.ErrorMsg)
	}
	wait.Until(t, "nothing more can be written to the log", func() bool {
		n, err := unix.IoctlGetInt(int(full.Fd()), unix.TIOCINQ)
		return err == nil && n > 4096-len("line 10000\n")
	})
	if err := unix.Kill(pidOf(m, "demo-e-0"), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if p := await(t, m, "demo-e-0", Error); p.State != Error {
		t.Fatalf("it is %s: %s", p.State, p.ErrorMsg)
	}
}
