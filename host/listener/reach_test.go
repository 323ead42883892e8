package listener

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReach: a unix socket at a path that is longer than the kernel takes is listened at, reached,
// told from a left one, and removed when its listener ends.
func TestReach(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := ListenUnix("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	name, release, err := Reach(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	release()
	if err := RemoveStale(path); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a socket that is listened at is removed: %v", err)
	}
	l.KeepPath()
	l.Close()
	if err := RemoveStale(path); err != nil {
		t.Errorf("a left socket: %v", err)
	}
	if l, err = ListenUnix("unix", path); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("after Close the socket is there: %v", err)
	}
	if _, _, err := Reach(filepath.Join(dir, "absent", "s")); err == nil {
		t.Error("a folder that is not there is reached")
	}
}
