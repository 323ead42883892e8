package listener_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"ankole.storage/host/listener"
	"ankole.storage/test/wait"
)

// TestTooManyConnections: beyond a bound a connection is closed at once. One address leaves room
// for others, and there is room again when a connection goes, however often it is closed.
func TestTooManyConnections(t *testing.T) {
	plain, err := listener.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := listener.Bounded(plain, listener.Bounds{Connections: 5, OfAddress: 3}, slog.New(slog.DiscardHandler))
	defer l.Close()
	accepted := make(chan net.Conn, 100)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	served := func(from string) net.Conn {
		t.Helper()
		dial(from)
		c := wait.Receive(t, "a connection from "+from, accepted)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	refused := func(from string) {
		t.Helper()
		if _, err := dial(from).Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("one too many from %s: %v", from, err)
		}
	}
	first := served("127.0.0.2")
	served("127.0.0.2")
	served("127.0.0.2")
	refused("127.0.0.2")
	served("127.0.0.3")
	other := served("127.0.0.3")
	refused("127.0.0.4") // in all
	_ = first.Close()
	_ = first.Close() // a second time counts no more
	served("127.0.0.4")
	refused("127.0.0.4")
	_ = other.Close()
	served("127.0.0.2")
}
