package standby

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// text is something to pass on.
type text string

func (s text) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, string(s))
	return int64(n), err
}

func listen(t *testing.T, dir string) *Listener {
	t.Helper()
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func dial(t *testing.T, dir string) *Waiter {
	t.Helper()
	w, err := Dial(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func give(t *testing.T, l *Listener, s string) {
	t.Helper()
	all := l.Waiting()
	defer all.Close()
	if err := all.Give(text(s)); err != nil {
		t.Fatal(err)
	}
}

func takes(t *testing.T, w *Waiter, want string) {
	t.Helper()
	data, free, err := w.Take()
	if err != nil || string(data) != want {
		t.Fatalf("%q, %v instead of %q", data, err, want)
	}
	if free != nil {
		free()
	}
}

// longDir is a directory whose path does not fit into the address of a socket.
func longDir(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 200))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Everybody who waits is given the same, even after the one that gave it is gone.
func TestWhatIsGivenArrives(t *testing.T) {
	dir := longDir(t)
	l := listen(t, dir)
	first, second := dial(t, dir), dial(t, dir)
	if first.State() != Idle {
		t.Error("something came before it was given")
	}
	takes(t, first, "")
	large := strings.Repeat("map", 1<<20)
	give(t, l, large)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if first.State() != Given || second.State() != Given {
		t.Error("nothing was given")
	}
	takes(t, first, large)
	takes(t, second, large)
	if first.State() != Ended {
		t.Error("the connection has not ended")
	}
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Errorf("%v is left", names)
	}
	if _, err := Dial(dir); err == nil {
		t.Error("connected although nobody listens")
	}
}

// Who waits for a process that ends, or lets it go, is not given anything.
func TestNothingIsGiven(t *testing.T) {
	dir := t.TempDir()
	l := listen(t, dir)
	w, late := dial(t, dir), dial(t, dir)
	all := l.Waiting()
	if len(all) != 2 {
		t.Fatalf("%d wait", len(all))
	}
	all.Close()
	takes(t, w, "")
	if w.State() != Ended {
		t.Error("the connection has not ended")
	}
	late.Close()
	gone := dial(t, dir)
	gone.Close()
	give(t, l, "nobody is there")
	l.Close()
}

// The socket that a killed process has left is replaced.
func TestSocketOfADeadProcess(t *testing.T) {
	dir := t.TempDir()
	dead := listen(t, dir)
	dead.free() // as the end of a process does
	if _, err := Dial(dir); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("connected to a dead process: %v", err)
	}
	l := listen(t, dir)
	w := dial(t, dir)
	give(t, l, "x")
	takes(t, w, "x")
	l.Close()
}

// No more than a few are given anything, and who comes when the queue is full is told so.
func TestWaitingIsBounded(t *testing.T) {
	dir := t.TempDir()
	l := listen(t, dir)
	defer l.Close()
	n := 0
	for ; n < 100; n++ {
		w, err := Dial(dir)
		if err != nil {
			break
		}
		t.Cleanup(w.Close)
	}
	if n == 100 {
		t.Fatal("a hundred may wait")
	}
	all := l.Waiting()
	if len(all) > maxWaiting {
		t.Errorf("%d are given something", len(all))
	}
	all.Close()
}

// Memory that could still change, or nothing at all, is refused.
func TestForeignMemoryIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		flags, size, seals int
	}{
		"not sealed":        {unix.MFD_ALLOW_SEALING, 10, 0},
		"may be written to": {unix.MFD_ALLOW_SEALING, 10, unix.F_SEAL_GROW | unix.F_SEAL_SHRINK},
		"empty":             {unix.MFD_ALLOW_SEALING, 0, seals},
		"too large":         {unix.MFD_ALLOW_SEALING, MaxBytes + 1, seals},
	} {
		t.Run(name, func(t *testing.T) {
			fd, err := unix.MemfdCreate("test", c.flags)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := unix.Ftruncate(fd, int64(c.size)); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, c.seals); err != nil {
				t.Fatal(err)
			}
			if _, _, err := mapped(fd); !errors.Is(err, errForeign) {
				t.Errorf("%v", err)
			}
		})
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(bytes.Repeat([]byte{1}, 10)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := mapped(int(f.Fd())); !errors.Is(err, errForeign) {
		t.Errorf("a file on a disk: %v", err)
	}
}
