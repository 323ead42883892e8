package witness_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/instancemanager/witness"
)

// TestListenUnixRemovesOnlyDeadSockets: what is at the path is removed if it is a socket that
// nobody listens on, and nothing else.
func TestListenUnixRemovesOnlyDeadSockets(t *testing.T) {
	for name, put := range map[string]func(t *testing.T, path string){
		"a file": func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"an empty directory": func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"a link": func(t *testing.T, path string) {
			if err := os.Symlink("/nowhere", path); err != nil {
				t.Fatal(err)
			}
		},
		"a living socket of another kind": func(t *testing.T, path string) {
			l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		},
		"a living socket whose queue is full": func(t *testing.T, path string) {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Close(fd) })
			if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
				t.Fatal(err)
			}
			if err := unix.Listen(fd, 0); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the queue of such a one holds one
				c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { unix.Close(c) })
				_ = unix.Connect(c, &unix.SockaddrUnix{Name: path}) // the last one is refused for want of room
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "w.sock")
			put(t, path)
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			l, err := witness.ListenUnix(t.Context(), path)
			if err == nil {
				l.Close()
				t.Fatal("it was replaced")
			}
			if !strings.Contains(err.Error(), path) {
				t.Errorf("the error does not name it: %v", err)
			}
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("it is gone: %v", err)
			}
		})
	}
}
