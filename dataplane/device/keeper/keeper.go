// Package keeper lets a block device outlive the engine process that serves it.
//
// The kernel ends a FUSE connection when the last descriptor of it is closed, and the device on it
// fails for good. So an engine gives a duplicate of its descriptor, with what its successor has to
// know, to the instance manager: as JSON, and where the kernel does not tell it what was received
// before, as a memfd beside the first descriptor. When the engine dies without a request to drop
// it, the descriptor stays open and the kernel lets I/O wait; the next engine of the volume takes
// it over, asks the kernel to send again what was not answered, and goes on.
//
//	engine ── Keep(volume, state, descriptors), connection stays open ──> instance manager
//	engine ── dies; the connection ends ──> the device is an orphan
//	engine' ── Take(volume) ──> state and descriptors; the connection stays open
//	engine' ── Drop, or a clean end ──> the instance manager closes its duplicate
//
// An orphan that nobody takes within the time that its last owner named is given up: its I/O fails
// then, instead of hanging for ever. One whose engine has ended for good, since its volume is
// detached or deleted, is given up at once (Server.Abandon).
//
// Messages are JSON, one in each direction per packet of a unix socket (SOCK_SEQPACKET), the
// descriptors beside it. One that keeps a single descriptor, as before there were two, closes the
// second. The socket belongs to the owner of the instance manager alone.
package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/host/listener"
)

// OrphanWait is how long a device without an engine is kept if its owner names no time: longer than
// a control plane needs to start another engine, with a change of its leader or an upgrade of the
// managers in between.
const OrphanWait = 5 * time.Minute

// Bounds.
const (
	// maxMessage holds any message: names and a few numbers.
	maxMessage = 16 << 10
	// answerTimeout bounds one exchange; the instance manager answers from memory.
	answerTimeout = 5 * time.Second
	// maxDescriptors of one device: the connection, and the journal of what was received on it.
	maxDescriptors = 2
)

// Errors of Take and Keep.
var (
	// ErrNone: no device of that volume is kept.
	ErrNone = errors.New("no device is kept")
	// ErrInUse: a living engine has the device.
	ErrInUse = errors.New("the device belongs to a living engine")
	// ErrOwned: another instance manager of the node has the device. Its end, or that of its engines,
	// was waited for; who asks again waits on.
	ErrOwned = errors.New("the device belongs to another instance manager of the node")
)

const (
	opKeep = "keep"
	opTake = "take"
	opDrop = "drop"
)

// request is what an engine says.
type request struct {
	Op     string `json:"op"`
	Volume string `json:"volume"`
	// Engine is the instance name of whoever asks.
	Engine string `json:"engine,omitempty"`
	// Wait is for how many milliseconds the device is kept without an engine; 0 means OrphanWait.
	Wait  int64           `json:"waitMilliseconds,omitempty"`
	State json.RawMessage `json:"state,omitempty"`
}

// answer is what it is told; Kind names the sentinel error.
type answer struct {
	Error string          `json:"error,omitempty"`
	Kind  string          `json:"kind,omitempty"`
	State json.RawMessage `json:"state,omitempty"`
}

const (
	kindNone  = "none"
	kindInUse = "in use"
	kindOwned = "owned"
)

// Owner is an engine that has a device kept.
type Owner struct {
	Volume string
	// Engine is its instance name: when that instance ends for good, so does what is kept.
	Engine string
	// Wait is how long the device is kept after the end of the engine until the next one takes it;
	// 0 means OrphanWait.
	Wait time.Duration
}

func (o *Owner) request(op string, state json.RawMessage) request {
	return request{Op: op, Volume: o.Volume, Engine: o.Engine, Wait: o.Wait.Milliseconds(), State: state}
}

// Held is a device that the instance manager keeps for this process. Whoever holds it closes it: by
// Drop when the device is gone, or by dying.
type Held struct {
	conn  *net.UnixConn
	owner Owner
}

// Keep hands duplicates of descriptors and their state, which is JSON of the caller's own, to the
// instance manager at socket.
func Keep(socket string, o Owner, state json.RawMessage, fds ...int) (*Held, error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	h := &Held{conn: conn, owner: o}
	if err := h.Keep(state, fds...); err != nil {
		conn.Close()
		return nil, err
	}
	return h, nil
}

// Keep puts other descriptors and another state in the place of those that are kept for this
// process.
func (h *Held) Keep(state json.RawMessage, fds ...int) error {
	if _, _, err := h.ask(h.owner.request(opKeep, state), fds...); err != nil {
		return fmt.Errorf("keep the device of volume %s: %w", h.owner.Volume, err)
	}
	return nil
}

// Take takes over the device of a volume whose engine has died: at least one descriptor, which are
// the caller's to close. Errors: ErrNone, ErrInUse, ErrOwned.
func Take(socket string, o Owner) (h *Held, state json.RawMessage, fds []int, err error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, nil, nil, err
	}
	h = &Held{conn: conn, owner: o}
	a, fds, err := h.ask(o.request(opTake, nil))
	if err == nil && len(fds) == 0 {
		err = errors.New("the answer has no descriptor")
	}
	if err != nil {
		conn.Close()
		return nil, nil, nil, fmt.Errorf("take over the device of volume %s: %w", o.Volume, err)
	}
	return h, a.State, fds, nil
}

// Drop gives the device up: the instance manager closes its duplicate.
func (h *Held) Drop() error {
	defer h.conn.Close()
	_, _, err := h.ask(h.owner.request(opDrop, nil))
	return err
}

// Leave ends this process's ownership and leaves the device to the next engine, as the end of the
// process would.
func (h *Held) Leave() error { return h.conn.Close() }

func dial(socket string) (*net.UnixConn, error) {
	name, release, err := listener.Reach(socket)
	if err != nil {
		return nil, fmt.Errorf("instance manager's socket for devices: %w", err)
	}
	defer release()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("instance manager's socket for devices: %w", err)
	}
	return conn, nil
}

// ask sends one request with descriptors and returns the answer with its own.
func (h *Held) ask(r request, fds ...int) (answer, []int, error) {
	if err := h.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return answer{}, nil, err
	}
	defer h.conn.SetDeadline(time.Time{}) // it stays open and silent from now on
	if err := send(h.conn, r, fds); err != nil {
		return answer{}, nil, err
	}
	var a answer
	got, err := receive(h.conn, &a)
	switch {
	case err != nil:
		return answer{}, nil, err
	case a.Error != "":
		closeAll(got)
		return answer{}, nil, a.err()
	}
	return a, got, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func (a *answer) err() error {
	switch a.Kind {
	case kindNone:
		return fmt.Errorf("%w: %s", ErrNone, a.Error)
	case kindInUse:
		return fmt.Errorf("%w: %s", ErrInUse, a.Error)
	case kindOwned:
		return fmt.Errorf("%w: %s", ErrOwned, a.Error)
	}
	return errors.New(a.Error)
}

func send(conn *net.UnixConn, v any, fds []int) error {
	p, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(p) > maxMessage {
		return fmt.Errorf("message of %d bytes, at most %d are possible", len(p), maxMessage)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = conn.WriteMsgUnix(p, rights, nil)
	return err
}

// receive reads one message and its descriptors; with more than maxDescriptors it is an error.
// After errNoDescriptor the next message can be read.
func receive(conn *net.UnixConn, v any) (fds []int, err error) {
	p, rights := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*4))
	n, rn, flags, _, err := conn.ReadMsgUnix(p, rights)
	if err != nil {
		return nil, err
	}
	messages, _ := unix.ParseSocketControlMessage(rights[:rn])
	for i := range messages {
		got, _ := unix.ParseUnixRights(&messages[i])
		for _, fd := range got {
			unix.CloseOnExec(fd)
		}
		fds = append(fds, got...)
	}
	switch {
	case n == 0:
		err = errClosed
	case flags&unix.MSG_TRUNC != 0:
		err = errors.New("a message is too long")
	case len(fds) > maxDescriptors:
		err = fmt.Errorf("%d descriptors with a message, at most %d are possible", len(fds), maxDescriptors)
	case flags&unix.MSG_CTRUNC != 0:
		err = errNoDescriptor
	default:
		err = json.Unmarshal(p[:n], v)
	}
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	return fds, nil
}

// errNoDescriptor: the descriptors of a message are lost, since none was free for them here.
var errNoDescriptor = errors.New("no descriptor is free")

// errClosed: the peer has closed the connection.
var errClosed = fmt.Errorf("connection closed: %w", os.ErrClosed)
