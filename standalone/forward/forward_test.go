package forward

import (
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// server answers every connection with its name and then echoes.
func server(t *testing.T, name string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(c, name)
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return l
}

func start(t *testing.T, targets func() []string) *Forwarder {
	t.Helper()
	f, err := Start("127.0.0.1:0", targets, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// ask sends text and returns all that comes back.
func ask(t *testing.T, f *Forwarder, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = io.WriteString(c, text)
	_ = c.(*net.TCPConn).CloseWrite()
	data, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestPicksTheLiving: dead targets are passed over, and a target that dies is replaced for the next
// caller.
func TestPicksTheLiving(t *testing.T) {
	dead, a, b := server(t, "dead"), server(t, "a"), server(t, "b")
	_ = dead.Close()
	f := start(t, func() []string {
		return []string{dead.Addr().String(), a.Addr().String(), b.Addr().String()}
	})
	if got := ask(t, f, "-hello"); got != "a-hello" {
		t.Errorf("answer %q", got)
	}
	_ = a.Close()
	if got := ask(t, f, "-hello"); got != "b-hello" {
		t.Errorf("answer %q after the first target died", got)
	}
}

// TestWaitsForOne: a connection made too early is served as soon as somebody is there.
func TestWaitsForOne(t *testing.T) {
	var addr atomic.Value
	asked := make(chan struct{}, 1)
	f := start(t, func() []string {
		if a := addr.Load(); a != nil {
			return []string{a.(string)}
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		return nil
	})
	go func() {
		<-asked
		addr.Store(server(t, "late").Addr().String())
	}()
	if got := ask(t, f, ""); got != "late" {
		t.Errorf("answer %q", got)
	}
}

// TestCloseCutsConnections that are open.
func TestCloseCutsConnections(t *testing.T) {
	a := server(t, "a")
	f := start(t, func() []string { return []string{a.Addr().String()} })
	c, err := net.Dial("tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	buf := make([]byte, 1)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := c.Read(buf); err == nil {
		t.Error("the connection is still open")
	}
}
