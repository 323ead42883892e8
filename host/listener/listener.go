// Package listener opens listeners whose Accept goes on whatever the system is short of at the
// moment. A server that ends because one connection could not be accepted takes everything with it
// that its process does; whoever connects can wait, or comes again. No other package calls
// net.Listen or accepts connections by itself (tidy's TestListeners).
package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Pauses between two attempts: the first one, and the longest.
const (
	firstPause = 5 * time.Millisecond
	maxPause   = 200 * time.Millisecond
)

// accept calls next, a method of a listener, until there is a connection or the listener is closed.
// Whatever else fails (no descriptors, no memory in the kernel, a connection that was gone again)
// passes.
func accept[C any](next func() (C, error), over *end) (C, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		c, err := next()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return c, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-over.told:
			t.Stop()
		}
	}
}

// end of a listener; it ends a pause too.
type end struct {
	once sync.Once
	told chan struct{}
}

func newEnd() *end { return &end{told: make(chan struct{})} }

func (e *end) tell() { e.once.Do(func() { close(e.told) }) }

// Listen listens as net.ListenConfig does. TCP connections end when their peer is silent.
func Listen(ctx context.Context, network, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{KeepAlive: -1}).Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return steady{l, newEnd()}, nil
}

type steady struct {
	net.Listener
	over *end
}

// Accept implements net.Listener. It fails with net.ErrClosed after Close, and with nothing else.
func (l steady) Accept() (net.Conn, error) {
	conn, err := accept(l.Listener.Accept, l.over)
	if err == nil {
		accepted(conn)
	}
	return conn, err
}

// Close implements net.Listener.
func (l steady) Close() error {
	err := l.Listener.Close()
	l.over.tell()
	return err
}

// Unix listens on a unix socket, for connections that carry descriptors.
type Unix struct {
	l       *net.UnixListener
	over    *end
	release func()
}

// ListenUnix listens at a path of any length, which must not exist: network is "unix" or
// "unixpacket".
func ListenUnix(network, path string) (Unix, error) {
	name, release, err := Reach(path)
	if err != nil {
		return Unix{}, err
	}
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: name, Net: network})
	if err != nil {
		release()
		return Unix{}, err
	}
	return Unix{l, newEnd(), release}, nil
}

// Accept waits for a connection. It fails with net.ErrClosed after Close, and with nothing else.
func (l Unix) Accept() (*net.UnixConn, error) { return accept(l.l.AcceptUnix, l.over) }

// Addr is where it listens.
func (l Unix) Addr() net.Addr { return l.l.Addr() }

// Close ends the listening and removes the socket.
func (l Unix) Close() error {
	err := l.l.Close()
	l.over.tell()
	l.release()
	return err
}

// Streams is l for servers whose connections carry no descriptors.
func (l Unix) Streams() net.Listener { return streams{l} }

type streams struct{ Unix }

// Accept implements net.Listener.
func (l streams) Accept() (net.Conn, error) {
	conn, err := l.Unix.Accept()
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// KeepPath has Close leave the socket at its path.
func (l Unix) KeepPath() { l.l.SetUnlinkOnClose(false) }

// RemoveStale removes the unix socket at path if nobody listens on it, whatever its kind. Nothing
// there is no error; EADDRINUSE: somebody listens. What is no socket is left alone, with an error.
func RemoveStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s is no socket, and in the way of one: remove it or choose another path", path)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	name, release, err := Reach(path)
	if err != nil {
		return err
	}
	defer release()
	// Any other answer, a full queue or another kind of socket, is that of a living one.
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("another process listens at %s: %w", path, unix.EADDRINUSE)
	}
	return os.Remove(path)
}
