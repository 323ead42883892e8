package listener

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// flaky fails as a system that is short of everything, then goes on.
type flaky struct {
	net.Listener
	errs []error
}

func (f *flaky) Accept() (net.Conn, error) {
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, &net.OpError{Op: "accept", Net: "unix", Err: os.NewSyscallError("accept4", err)}
	}
	return f.Listener.Accept()
}

// short never has a descriptor, until it is closed.
type short struct {
	net.Listener
	closed atomic.Bool
}

func (s *short) Accept() (net.Conn, error) {
	if s.closed.Load() {
		return nil, net.ErrClosed
	}
	return nil, unix.EMFILE
}

func (s *short) Close() error {
	s.closed.Store(true)
	return nil
}

// TestCloseEndsThePause: who closes a listener does not wait for the next attempt.
func TestCloseEndsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := steady{&short{}, newEnd()}
		var ended time.Time
		over := make(chan error, 1)
		go func() {
			_, err := l.Accept()
			ended = time.Now()
			over <- err
		}()
		<-time.After(10*maxPause + maxPause/10)
		closed := time.Now()
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		if err := <-over; !errors.Is(err, net.ErrClosed) || !ended.Equal(closed) {
			t.Errorf("%v, %s after the end", err, ended.Sub(closed))
		}
	})
}

// TestSteady: everything that accept(2) names and that passes is waited out, and the end of the
// listener is told.
func TestSteady(t *testing.T) {
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	l := net.Listener(steady{&flaky{inner, []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.EPERM,
		unix.ECONNABORTED}}, newEnd()})
	near, err := net.Dial("unix", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	far.Close()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener: %v", err)
	}
}
