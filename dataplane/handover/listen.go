package handover

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ankole.storage/host/listener"
)

// Listener is where an engine can be asked to hand over.
type Listener struct {
	l    listener.Unix
	path string
	file os.FileInfo
}

// Listen opens the socket for the owner alone, in the place of whatever is there: the engine that
// replaces another one takes its place too. Whoever asks in between reaches one of the two.
func Listen(path string) (*Listener, error) {
	own := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(own); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("hand-over socket: %w", err)
	}
	l, err := listener.ListenUnix("unix", own)
	if err != nil {
		return nil, fmt.Errorf("hand-over socket: %w", err)
	}
	l.KeepPath()
	if err = unix.Chmod(own, 0o600); err == nil {
		err = os.Rename(own, path)
	}
	var file os.FileInfo
	if err == nil {
		file, err = os.Lstat(path)
	}
	if err != nil {
		l.Close()
		_ = os.Remove(own)
		return nil, fmt.Errorf("hand-over socket: %w", err)
	}
	return &Listener{l: l, path: path, file: file}, nil
}

// Accept waits for an engine that asks. It fails with net.ErrClosed after Close.
func (l *Listener) Accept() (*Conn, error) {
	c, err := l.l.Accept()
	if err != nil {
		return nil, err
	}
	return &Conn{c: c}, nil
}

// Close stops listening, and removes the socket unless it is another engine's by now.
func (l *Listener) Close() error {
	err := l.l.Close()
	if now, serr := os.Lstat(l.path); serr == nil && os.SameFile(now, l.file) {
		err = errors.Join(err, os.Remove(l.path))
	}
	return err
}

// Leave stops listening and leaves the socket to the engine that has taken the volume over. That
// one may put its own there at any moment, also between a look at what is there and its removal.
func (l *Listener) Leave() error { return l.l.Close() }
