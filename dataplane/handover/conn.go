package handover

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/frontend"
)

const (
	// headerSize: length of the message and number of descriptors, four bytes each.
	headerSize = 8
	// maxMessage holds sixteen clients in the middle of the largest write, in JSON.
	maxMessage = 64 << 20
	// MaxDescriptors is what the kernel passes at once.
	MaxDescriptors = 253
)

// ErrBadMessage: what came is no message.
var ErrBadMessage = errors.New("hand-over: invalid message")

// Conn is one side of a hand-over. It is used by one goroutine at a time.
type Conn struct {
	c *net.UnixConn
}

// Dial connects to the engine that listens at socket.
func Dial(socket string) (*Conn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("hand-over: no engine to take over from: %w", err)
	}
	return &Conn{c}, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.c.Close() }

// Peer returns a descriptor of the process at the other end (pidfd), which is certain to name that process as long as it is
// open, and the process number. The caller closes it.
func (c *Conn) Peer() (pidfd, pid int, err error) {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return -1, 0, err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return -1, 0, cerr
	}
	if err != nil {
		return -1, 0, err
	}
	pidfd, err = unix.PidfdOpen(int(cred.Pid), 0)
	return pidfd, int(cred.Pid), err
}

// Send sends a message until deadline; the descriptors of an Offer's Export go with it and stay the caller's.
func (c *Conn) Send(m Message, deadline time.Time) error {
	if m.kind() == "" {
		return fmt.Errorf("%w: not exactly one field is set", ErrBadMessage)
	}
	p, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var fds []int
	if x := m.export(); x != nil {
		for _, d := range x.Descriptors {
			fds = append(fds, d.FD)
		}
	}
	if len(p) > maxMessage || len(fds) > MaxDescriptors {
		return fmt.Errorf("%w: %d bytes and %d descriptors; at most %d and %d are possible", ErrBadMessage, len(p), len(fds), maxMessage, MaxDescriptors)
	}
	if err := c.c.SetWriteDeadline(deadline); err != nil {
		return err
	}
	var h [headerSize]byte
	binary.LittleEndian.PutUint32(h[:], uint32(len(p)))
	binary.LittleEndian.PutUint32(h[4:], uint32(len(fds)))
	if len(fds) == 0 {
		// One write, so that a message that fits into the socket is accepted whole or not at all: Taken relies on it.
		_, err = c.c.Write(append(h[:], p...))
		return err
	}
	if _, _, err = c.c.WriteMsgUnix(h[:], unix.UnixRights(fds...), nil); err == nil {
		_, err = c.c.Write(p)
	}
	return err
}

// Receive waits for a message until deadline. The descriptors of an Export in it belong to the caller; they are closed on
// exec. io.EOF: the peer has closed the connection, or died.
func (c *Conn) Receive(deadline time.Time) (Message, error) {
	if err := c.c.SetReadDeadline(deadline); err != nil {
		return Message{}, err
	}
	fds, n, err := c.header()
	if err != nil {
		closeAll(fds)
		return Message{}, err
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(c.c, p); err != nil {
		closeAll(fds)
		return Message{}, err
	}
	m, err := decode(p, fds)
	if err != nil {
		closeAll(fds)
	}
	return m, err
}

// header reads the header and the descriptors that come with its first byte.
func (c *Conn) header() (fds []int, length int, err error) {
	var h [headerSize]byte
	oob := make([]byte, unix.CmsgSpace(4*MaxDescriptors))
	for got := 0; got < headerSize; {
		n, on, flags, _, err := c.c.ReadMsgUnix(h[got:], oob)
		fds = append(fds, rights(oob[:on])...)
		switch {
		case err != nil:
			return fds, 0, err
		case n == 0:
			return fds, 0, io.EOF
		case flags&unix.MSG_CTRUNC != 0:
			return fds, 0, fmt.Errorf("%w: descriptors were lost; is the limit of open files reached?", ErrBadMessage)
		}
		got += n
	}
	length, want := int(binary.LittleEndian.Uint32(h[:])), int(binary.LittleEndian.Uint32(h[4:]))
	if length > maxMessage || want != len(fds) {
		return fds, 0, fmt.Errorf("%w: %d bytes, %d descriptors announced, %d received", ErrBadMessage, length, want, len(fds))
	}
	return fds, length, nil
}

func rights(oob []byte) []int {
	var all []int
	messages, _ := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			unix.CloseOnExec(fd)
		}
		all = append(all, fds...)
	}
	return all
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// decode reads a message and gives its descriptors their numbers.
func decode(p []byte, fds []int) (Message, error) {
	var m Message
	if err := json.Unmarshal(p, &m); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrBadMessage, err)
	}
	if m.kind() == "" {
		return Message{}, fmt.Errorf("%w: not exactly one field is set: the peer is newer, or no engine", ErrBadMessage)
	}
	x := m.export()
	want := 0
	if x != nil {
		want = len(x.Descriptors)
	}
	if want != len(fds) {
		return Message{}, fmt.Errorf("%w: %d descriptors described, %d received", ErrBadMessage, want, len(fds))
	}
	for i := range fds {
		x.Descriptors[i].FD = fds[i]
	}
	return m, nil
}

func (m *Message) export() *frontend.Export {
	if m.Offer == nil {
		return nil
	}
	return m.Offer.Export
}

// Gone reports that the peer has closed the connection, or died, and has said nothing more before.
func (c *Conn) Gone() bool {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return true
	}
	n, p := -1, make([]byte, 1)
	cerr := raw.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), p, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return true
	})
	return cerr != nil || (n == 0 && err == nil)
}

// Deaf makes the kernel refuse whatever the peer sends from now on. What it has accepted before can still be received; then
// comes io.EOF.
func (c *Conn) Deaf() error { return c.c.CloseRead() }
