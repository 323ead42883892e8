package handover

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/frontend"
	"ankole.storage/host/listener"
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

// Conn is one side of a hand-over. It is used by one goroutine at a time, but for Abort.
type Conn struct {
	c *net.UnixConn
	// in is the message that is being received.
	in incoming
}

// Dial connects to the engine that listens at socket, a path of any length.
func Dial(socket string) (*Conn, error) {
	name, release, err := listener.Reach(socket)
	if err != nil {
		return nil, fmt.Errorf("hand-over: no engine to take over from: %w", err)
	}
	defer release()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("hand-over: no engine to take over from: %w", err)
	}
	return &Conn{c: c}, nil
}

// Close ends the connection, and drops a message that has not come whole.
func (c *Conn) Close() error {
	closeAll(c.in.fds)
	c.in = incoming{}
	return c.c.Close()
}

// Abort ends the connection under whoever uses it, from any goroutine. Close it all the same.
func (c *Conn) Abort() { c.c.Close() }

// Peer returns a descriptor of the process at the other end (pidfd), which is certain to name that
// process as long as it is open, and the process number. The caller closes it.
func (c *Conn) Peer() (pidfd, pid int, err error) {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return -1, 0, err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		return -1, 0, cerr
	}
	if err != nil {
		return -1, 0, err
	}
	pidfd, err = unix.PidfdOpen(int(cred.Pid), 0)
	return pidfd, int(cred.Pid), err
}

// Send sends a message until deadline; the descriptors of an Offer's Export go with it and stay the
// caller's.
func (c *Conn) Send(m Message, deadline time.Time) error {
	p, fds, err := m.encode()
	if err != nil {
		return err
	}
	if err := c.c.SetWriteDeadline(deadline); err != nil {
		return err
	}
	if len(fds) == 0 {
		// One write, so that a message that fits into the socket is accepted whole or not at all:
		// Taken relies on it.
		_, err = c.c.Write(p)
		return err
	}
	if _, _, err = c.c.WriteMsgUnix(p[:headerSize], unix.UnixRights(fds...), nil); err == nil {
		_, err = c.c.Write(p[headerSize:])
	}
	return err
}

// encode returns the message with its header, and the descriptors that go with it.
func (m *Message) encode() (p []byte, fds []int, err error) {
	if m.kind() == "" {
		return nil, nil, fmt.Errorf("%w: not exactly one field is set", ErrBadMessage)
	}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, nil, err
	}
	if x := m.export(); x != nil {
		for _, d := range x.Descriptors {
			fds = append(fds, d.FD)
		}
	}
	if len(body) > maxMessage || len(fds) > MaxDescriptors {
		return nil, nil, fmt.Errorf("%w: %d bytes and %d descriptors; at most %d and %d are possible", ErrBadMessage,
			len(body), len(fds), maxMessage, MaxDescriptors)
	}
	p = binary.LittleEndian.AppendUint32(p, uint32(len(body)))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(fds)))
	return append(p, body...), fds, nil
}

// Receive waits for a message until deadline. The descriptors of an Export in it belong to the
// caller; they are closed on exec. io.EOF: the peer has closed the connection, or died.
// os.ErrDeadlineExceeded: what has come of a message is kept, and the next Receive goes on with it:
// a word that the peer was told is accepted must be heard, whenever it arrives.
func (c *Conn) Receive(deadline time.Time) (Message, error) {
	if err := c.c.SetReadDeadline(deadline); err != nil {
		return Message{}, err
	}
	err := c.in.read(c.c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return Message{}, err
	}
	in := c.in
	c.in = incoming{}
	var m Message
	if err == nil {
		m, err = decode(in.body, in.fds)
	}
	if err != nil {
		closeAll(in.fds)
	}
	return m, err
}

// incoming is a message of which a part has arrived.
type incoming struct {
	header [headerSize]byte
	fds    []int  // came with the first byte of the header
	body   []byte // nil until the header is whole
	got    int    // bytes of header and body
}

// read goes on until the message is whole.
func (in *incoming) read(c *net.UnixConn) error {
	oob := make([]byte, unix.CmsgSpace(4*MaxDescriptors))
	for in.got < headerSize {
		n, on, flags, _, err := c.ReadMsgUnix(in.header[in.got:], oob)
		in.fds = append(in.fds, rights(oob[:on])...)
		switch {
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		case flags&unix.MSG_CTRUNC != 0:
			return fmt.Errorf("%w: descriptors were lost; is the limit of open files reached?", ErrBadMessage)
		}
		in.got += n
	}
	if in.body == nil {
		length, want := int(binary.LittleEndian.Uint32(in.header[:])), int(binary.LittleEndian.Uint32(in.header[4:]))
		if length > maxMessage || want != len(in.fds) {
			return fmt.Errorf("%w: %d bytes, %d descriptors announced, %d received", ErrBadMessage, length, want, len(in.fds))
		}
		in.body = make([]byte, length)
	}
	n, err := io.ReadFull(c, in.body[in.got-headerSize:])
	in.got += n
	return err
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
	n, err := c.peek()
	return n == 0 && err == nil
}

// Heard reports that the peer has said something that was not received yet.
func (c *Conn) Heard() bool {
	n, _ := c.peek()
	return n > 0
}

// peek returns how many bytes there are to receive, of 1; 0 without an error: the peer is gone. It
// waits for nothing, and so no deadline that has passed keeps it from looking.
func (c *Conn) peek() (n int, err error) {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return 0, nil // closed here
	}
	p := make([]byte, 1)
	if raw.Control(func(fd uintptr) {
		n, _, err = unix.Recvfrom(int(fd), p, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}) != nil {
		return 0, nil
	}
	return n, err
}

// CloseRead makes the kernel refuse whatever the peer sends from now on. What it has accepted
// before can still be received; then comes io.EOF.
func (c *Conn) CloseRead() error { return c.c.CloseRead() }
