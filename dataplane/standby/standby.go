// Package standby is the way between the process that has a replica directory and those that wait
// for it (standby, in a live upgrade): what the first one knows of the directory reaches the next
// one together with the lock.
//
// The process that has the lock listens on a socket in the directory itself, because that is the
// one thing all of them see, whatever Pod they run in. Whoever waits connects, says nothing, and
// looks for an answer once it has the lock. The one that leaves writes what it has to say into
// memory, seals it so that nobody can change it, passes the descriptor to everybody who is
// connected, and gives up the lock. Nothing of it ever is on a disk, and it is gone with the last
// process that has it. No call here waits for the other side.
package standby

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Name is the socket's in a replica directory.
const Name = "ankole.standby"

const (
	// maxWaiting bounds who is given anything: two processes share a directory in a live upgrade.
	maxWaiting = 8
	// MaxBytes bounds what is passed: the map of four terabytes, every page of it used.
	MaxBytes = 1<<30 + 1<<20
	// seals: neither the length nor the content can be changed any more.
	seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
)

// errForeign: somebody else made what was received.
var errForeign = errors.New("what another process passed on is not sealed, or too large")

// Listener is where processes wait for a directory. It belongs to the one that has the lock.
type Listener struct {
	fd, dir int
}

// Listen opens the socket in a directory, in the place of one that a dead process has left. The
// caller has the lock.
func Listen(dir string) (*Listener, error) {
	l := &Listener{fd: -1, dir: -1}
	err := l.open(dir)
	if err != nil {
		l.free()
		return nil, fmt.Errorf("socket %s in %s: %w", Name, dir, err)
	}
	return l, nil
}

func (l *Listener) open(dir string) (err error) {
	if l.dir, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if l.fd, err = socket(); err != nil {
		return err
	}
	if err := l.unlink(); err != nil {
		return err
	}
	if err := unix.Bind(l.fd, &unix.SockaddrUnix{Name: at(l.dir)}); err != nil {
		return err
	}
	return unix.Listen(l.fd, maxWaiting)
}

func socket() (int, error) {
	return unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// at is the socket's address: the kernel allows 107 bytes for one, which a directory's path may
// exceed.
func at(dir int) string { return fmt.Sprintf("/proc/self/fd/%d/%s", dir, Name) }

func (l *Listener) unlink() error {
	if err := unix.Unlinkat(l.dir, Name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

func (l *Listener) free() {
	closeAll(l.fd, l.dir)
	l.fd, l.dir = -1, -1
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Waiting takes everybody who waits now off the socket. The caller gives to them, or closes them.
func (l *Listener) Waiting() Waiting {
	var all Waiting
	for len(all) < maxWaiting {
		fd, _, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
			continue
		}
		if err != nil {
			break // nobody else
		}
		all = append(all, fd)
	}
	return all
}

// Close removes the socket and lets everybody go who waits. The lock must still be held.
func (l *Listener) Close() error {
	err := l.unlink()
	l.free()
	return err
}

// Waiting are connections of processes that wait.
type Waiting []int

// Close lets them go.
func (w Waiting) Close() { closeAll(w...) }

// Give passes to all of them what m writes. Who has gone meanwhile gets nothing.
func (w Waiting) Give(m io.WriterTo) error {
	fd, err := unix.MemfdCreate("ankole-standby", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "memory for the next process")
	defer f.Close() // memory
	n, err := m.WriteTo(f)
	if err != nil {
		return err
	}
	if n > MaxBytes {
		return fmt.Errorf("%d bytes are more than the %d that can be passed on", n, int64(MaxBytes))
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return err
	}
	for _, to := range w {
		_ = unix.Sendmsg(to, []byte{0}, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL) // it may be gone
	}
	return nil
}
