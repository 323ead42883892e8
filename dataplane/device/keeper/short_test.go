package keeper

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/test/descriptors"
	"ankole.storage/test/lack"
)

// TestKeeperOutlivesALackOfDescriptors: an engine that connects while the instance manager has no
// descriptor left is heard when it has one again. The keeper does not end, which would end every
// engine and replica of the node.
func TestKeeperOutlivesALackOfDescriptors(t *testing.T) {
	lack.RealTime(t, "a window of 50 ms without descriptors")
	l, err := Listen(filepath.Join(t.TempDir(), "k"))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	go func() { defer close(ended); NewServer(slog.New(slog.DiscardHandler), 0).Serve(t.Context(), l) }()
	restore := descriptors.None(t)
	connected := unix.Connect(fd, &unix.SockaddrUnix{Name: l.Addr().String()})
	over := false
	select {
	case <-ended:
		over = true
	case <-time.After(50 * time.Millisecond): // the keeper tries meanwhile
	}
	restore()
	if over || connected != nil {
		t.Fatalf("the keeper has ended: %v; connect: %v", over, connected)
	}
	near := os.NewFile(uintptr(fd), "engine")
	defer near.Close()
	c, err := net.FileConn(near)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("nonsense\n")); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n == 0 && os.IsTimeout(err) {
		t.Error("nobody has heard the engine")
	}
}

// TestOwnerOutlivesALackOfDescriptors: an engine puts others in the place of what is kept while the
// instance manager has no descriptor left for them. It is told so, still owns what was kept before,
// and can say that this is to be given up: what it uses now is something else.
func TestOwnerOutlivesALackOfDescriptors(t *testing.T) {
	lack.RealTime(t, "a process without descriptors")
	path := filepath.Join(t.TempDir(), "k")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	go NewServer(slog.New(slog.DiscardHandler), 0).Serve(t.Context(), l)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	held, err := Keep(path, Owner{Volume: "v", Engine: "e"}, []byte("1"), int(null.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	restore := descriptors.None(t)
	short := held.Keep([]byte("2"), int(null.Fd()))
	restore()
	if short == nil {
		t.Fatal("something was kept without a descriptor")
	}
	if _, _, _, err := Take(path, Owner{Volume: "v", Engine: "e"}); !errors.Is(err, ErrInUse) {
		t.Errorf("the engine has lost its device: %v", err)
	}
	if err := held.Drop(); err != nil {
		t.Errorf("the engine cannot give its device up: %v", err)
	}
	if _, _, _, err := Take(path, Owner{Volume: "v", Engine: "e"}); !errors.Is(err, ErrNone) {
		t.Errorf("what was given up: %v", err)
	}
}
