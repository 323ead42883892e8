package daemon

import (
	"net"
	"path/filepath"
	"testing"
)

// TestSocketsOfTwo: instance managers at the same address, in networks of their own, have sockets
// of their own, the same ones at each start, and short enough for the kernel.
func TestSocketsOfTwo(t *testing.T) {
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 1, 1), Port: 8500}
	dir := t.TempDir()
	one, two := &Config{LogsDir: filepath.Join(dir, "1")}, &Config{LogsDir: filepath.Join(dir, "2")}
	if one.defaultSocket(addr) == two.defaultSocket(addr) {
		t.Error("two instance managers have one socket")
	}
	if again := (&Config{LogsDir: filepath.Join(dir, "1")}).defaultSocket(addr); again != one.defaultSocket(addr) {
		t.Errorf("at the next start it is %s", again)
	}
	if s := filepath.Base(one.defaultSocket(addr)); len(s) > 40 {
		t.Errorf("%s is long", s)
	}
}
