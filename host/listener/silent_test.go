package listener

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSilentPeersAreGivenUp: both ends of a connection, the accepted one too, ask a peer that is
// silent and wait for a confirmation no longer than half a minute.
func TestSilentPeersAreGivenUp(t *testing.T) {
	l, err := Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	dialed, err := Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close() })
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	for name, c := range map[string]net.Conn{"dialed": dialed, "accepted": accepted} {
		for _, o := range []struct {
			what               string
			level, option, set int
		}{
			{"keep-alive", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{"seconds until the first question", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 30},
			{"seconds between questions", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10},
			{"questions", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
			{"milliseconds for a confirmation", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 30_000},
		} {
			raw, err := c.(syscall.Conn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var got int
			var failed error
			err = raw.Control(func(fd uintptr) { got, failed = unix.GetsockoptInt(int(fd), o.level, o.option) })
			if err != nil || failed != nil || got != o.set {
				t.Errorf("%s: %s %d, want %d (%v, %v)", name, o.what, got, o.set, err, failed)
			}
		}
	}
}

// TestUnixSocketsHaveNoSilence: a socket that is not TCP is left as it is.
func TestUnixSocketsHaveNoSilence(t *testing.T) {
	l, err := Listen(t.Context(), "unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
