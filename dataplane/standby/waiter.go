package standby

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Waiter is the connection of a process that waits for a directory.
type Waiter struct {
	fd int
}

// Dial connects to the process that has the directory. An error means that it gives nothing away:
// an older program, or none.
func Dial(dir string) (*Waiter, error) {
	d, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(d)
	fd, err := socket()
	if err != nil {
		return nil, err
	}
	if err = unix.Connect(fd, &unix.SockaddrUnix{Name: at(d)}); err == nil {
		err = ownPeer(fd)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("socket %s in %s: %w", Name, dir, err)
	}
	return &Waiter{fd}, nil
}

// ownPeer refuses a socket that another user has put there.
func ownPeer(fd int) error {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err == nil && int(cred.Uid) != os.Geteuid() {
		err = fmt.Errorf("it is of user %d, not of %d", cred.Uid, os.Geteuid())
	}
	return err
}

// Close ends the connection.
func (w *Waiter) Close() { unix.Close(w.fd) }

// State of a connection.
type State int

// States.
const (
	// Idle: the process that has the directory has said nothing.
	Idle State = iota
	// Given: it has given something that was not taken.
	Given
	// Ended: it has said nothing and is gone, or listens no more.
	Ended
)

// State tells how the connection stands.
func (w *Waiter) State() State {
	for {
		n, _, err := unix.Recvfrom(w.fd, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return Idle
		case err == nil && n > 0:
			return Given
		default:
			return Ended
		}
	}
}

// Take returns what was given, as memory that cannot change, or nil if there is nothing. free gives
// it back.
func (w *Waiter) Take() (data []byte, free func(), err error) {
	oob := make([]byte, unix.CmsgSpace(4))
	var n, on int
	for {
		if n, on, _, _, err = unix.Recvmsg(w.fd, make([]byte, 1), oob,
			unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	}
	var fds []int
	messages, _ := unix.ParseSocketControlMessage(oob[:on])
	for i := range messages {
		more, _ := unix.ParseUnixRights(&messages[i])
		fds = append(fds, more...)
	}
	defer closeAll(fds...)
	if len(fds) != 1 {
		return nil, nil, fmt.Errorf("%w: %d descriptors", errForeign, len(fds))
	}
	return mapped(fds[0])
}

func mapped(fd int) (data []byte, free func(), err error) {
	have, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errForeign, err)
	}
	if have&seals != seals {
		return nil, nil, fmt.Errorf("%w: seals %#x", errForeign, have)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, nil, err
	}
	if st.Size < 1 || st.Size > MaxBytes {
		return nil, nil, fmt.Errorf("%w: %d bytes", errForeign, st.Size)
	}
	if data, err = unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_POPULATE); err != nil {
		return nil, nil, err
	}
	return data, func() { _ = unix.Munmap(data) }, nil
}
