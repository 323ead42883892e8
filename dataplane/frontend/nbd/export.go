package nbd

import (
	"encoding/json"
	"errors"
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// A server can be given to another process: frontend.Exporter here, Import there. Its clients keep
// their connections.
//
// While it is suspended it parses no more requests. A receive that is under way may still bring
// bytes; they stay where they are: in the receive buffer, or in the buffers of the write whose
// payload they are. When the engine has answered everything, the loop is made to forget every
// connection, which ends its receive, and cuts short a send that the client does not take. What is
// left then of a connection is a clientState: bytes in, bytes out, and where in the protocol it
// stands.

// Transport names this frontend in an export.
const Transport = "nbd-unix"

// exportVersion is the version of serverState and clientState. A field that an older server may
// ignore needs no new one.
const exportVersion = 1

// Kinds of descriptors in an export.
const (
	kindListener = "listener"
	kindClient   = "client"
)

// maxCarried bounds the bytes in an export, of all clients together: what they have sent and nobody
// has acted on, and what they have not taken of their answers. With more there is no export until
// they have taken it. It fits a message of the hand-over.
const maxCarried = 32 << 20

// serverState is what holds for all connections.
type serverState struct {
	Version int    `json:"version"`
	Export  string `json:"export"`
	Size    int64  `json:"size"`
}

// clientState is where a connection stands, beside its unread bytes.
type clientState struct {
	Phase    string      `json:"phase"`
	NoZeroes bool        `json:"noZeroes,omitempty"`
	Options  int         `json:"options,omitempty"`
	Write    *writeState `json:"write,omitempty"`
	Skip     *skipState  `json:"skip,omitempty"`
	// Unsent is what the client has not taken of its answers.
	Unsent []byte `json:"unsent,omitempty"`
}

// writeState is a write whose payload is being received. The unread bytes begin with it, after the
// first Done bytes.
type writeState struct {
	Cookie uint64 `json:"cookie"`
	Off    int64  `json:"off"`
	Size   int64  `json:"size"`
	FUA    bool   `json:"fua,omitempty"`
	// Done counts bytes that are written already, whole pieces; Errno is the protocol's if one of
	// them failed.
	Done  int64  `json:"done,omitempty"`
	Errno uint32 `json:"errno,omitempty"`
}

// skipState is a write that is refused once its payload, of which Left bytes are to come, has
// passed.
type skipState struct {
	Left   int64  `json:"left"`
	Cookie uint64 `json:"cookie"`
	Errno  uint32 `json:"errno"`
}

var phaseNames = [...]string{awaitFlags: "flags", negotiation: "options", transmission: "transmission",
	draining: "draining"}

func phaseOf(name string) (phase, bool) {
	for p, n := range phaseNames {
		if n == name {
			return phase(p), true
		}
	}
	return 0, false
}

// handing is the part of a Server that hands it over.
type handing struct {
	suspended bool
	// released: the loop does not know the listener; releasing: it is being told to forget it.
	released, releasing bool
}

// Suspend implements frontend.Exporter.
func (s *Server) Suspend(out *[]loop.Op) {
	s.suspended = true
	s.releaseSockets(out)
}

// releaseSockets has the loop forget every descriptor once the engine owes no answer. It is called
// again whenever that may have changed.
func (s *Server) releaseSockets(out *[]loop.Op) {
	if !s.suspended || s.pending > 0 || s.stopping {
		return
	}
	if !s.released && !s.releasing {
		s.releasing = true
		*out = append(*out, loop.Op{Kind: loop.Release, Handle: s.cfg.Listener, Tag: s.tag(tagReleaseListener, 0, 0)})
	}
	for _, c := range s.clients {
		if c != nil && !c.closing && !c.released && !c.releasing {
			c.releasing = true
			*out = append(*out, loop.Op{Kind: loop.Release, Handle: c.conn, Tag: s.tag(tagRelease, c.index, 0)})
		}
	}
}

// Suspended implements frontend.Exporter.
func (s *Server) Suspended() bool {
	if !s.suspended || s.pending > 0 || !s.released {
		return false
	}
	carried := 0
	for _, c := range s.clients {
		switch {
		case c == nil:
		case c.closing || !c.released:
			return false
		default:
			carried += c.unsent() + c.unread()
		}
	}
	return carried <= maxCarried
}

// Continue implements frontend.Exporter.
func (s *Server) Continue(out *[]loop.Op) {
	s.suspended = false
	if !s.releasing {
		s.accept(out)
	}
	for _, c := range s.clients {
		if c != nil && !c.releasing && !c.closing {
			c.goOn(out)
		}
	}
}

// listenerReleased is called when the loop has forgotten the listener.
func (s *Server) listenerReleased(out *[]loop.Op) {
	s.releasing, s.released = false, true
	if !s.suspended {
		s.accept(out)
	}
}

// goOn has a connection taken up again: what is unsent leaves, and Resume looks at what was
// received.
func (c *client) goOn(out *[]loop.Op) {
	c.send(out)
	c.hold(true)
}

// forgotten is called when the loop has forgotten the connection. Its receive and its send were
// cancelled before.
func (c *client) forgotten(out *[]loop.Op) {
	c.releasing, c.released = false, true
	if c.closing {
		return // the Close was submitted meanwhile
	}
	c.gather()
	if !c.s.suspended {
		c.goOn(out)
	}
}

// cutShort keeps what a cancelled send of n bytes has left over.
func (c *client) cutShort(n int) {
	var left []byte
	for _, seg := range c.vec[:c.segs] {
		p := c.s.cfg.Arena.Seg(seg)
		k := min(n, len(p))
		n -= k
		left = append(left, p[k:]...)
	}
	c.carry = append(left, c.carry...)
	c.sent()
}

// gather puts behind that what has to follow it at once: the rest of an answer of which a part is
// sent, and what is in tx, which belongs behind that.
func (c *client) gather() {
	if len(c.replies) > 0 && c.s.requests[c.replies[0]].sent > 0 {
		c.carry = c.appendReply(c.carry, c.replies[0])
		c.s.free(c.replies[0])
		c.replies = append(c.replies[:0], c.replies[1:]...)
	}
	c.carry = append(c.carry, c.s.cfg.Arena.Bytes(c.tx)[c.posted:c.queued]...)
	c.posted, c.queued = 0, 0
}

// appendReply appends the answer to a request, or what is left of it.
func (c *client) appendReply(b []byte, slot uint32) []byte {
	r := &c.s.requests[slot]
	if r.sent == 0 {
		var h [replyHeader]byte
		putReply(h[:], errno(r.code), r.cookie)
		b = append(b, h[:]...)
	}
	if r.kind == block.Read && r.code == block.OK {
		for p := r.sent; p < r.pieces(); p++ {
			b = append(b, c.s.cfg.Arena.Bytes(r.bufs[p])[:r.pieceLen(p)]...)
		}
	}
	return b
}

// unsent counts the bytes that leftOver returns.
func (c *client) unsent() int {
	n := len(c.carry)
	for _, slot := range c.replies {
		r := &c.s.requests[slot]
		n += replyHeader
		if r.kind == block.Read && r.code == block.OK {
			n += int(r.size)
		}
	}
	return n
}

// unread counts the bytes that state returns.
func (c *client) unread() int {
	n := c.to - c.from + len(c.piece)
	if c.current != 0 {
		n += int(c.s.requests[c.current-1].written % block.MaxTransfer)
	}
	return n
}

// leftOver is everything that a released client has not been sent: see gather.
func (c *client) leftOver() []byte {
	b := c.carry
	for _, slot := range c.replies {
		b = c.appendReply(b, slot)
	}
	return b
}

// Export implements frontend.Exporter.
func (s *Server) Export() frontend.Export {
	x := frontend.Export{Transport: Transport,
		State: mustJSON(serverState{Version: exportVersion, Export: s.cfg.Export, Size: s.size})}
	x.Descriptors = append(x.Descriptors, frontend.Descriptor{Kind: kindListener, FD: int(s.cfg.Listener)})
	for _, c := range s.clients {
		if c == nil {
			continue
		}
		state, unread := c.state()
		x.Descriptors = append(x.Descriptors, frontend.Descriptor{Kind: kindClient, FD: int(c.conn),
			State: mustJSON(state), Unread: unread})
		c.hold(false)
		c.closed()
	}
	s.stopping, s.listening, s.first = true, false, nil
	return x
}

// mustJSON encodes plain structs.
func mustJSON(v any) json.RawMessage {
	p, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers, strings and bytes can be encoded
	}
	return p
}

// state is what there is to know of a connection, and what it has received and nobody has acted on.
func (c *client) state() (clientState, []byte) {
	st := clientState{Phase: phaseNames[c.phase], NoZeroes: c.noZeroes, Options: c.options, Unsent: c.leftOver()}
	var unread []byte
	if c.current != 0 {
		r := &c.s.requests[c.current-1]
		done := r.written / block.MaxTransfer * block.MaxTransfer
		st.Write = &writeState{Cookie: r.cookie, Off: r.off, Size: r.size, FUA: r.fua, Done: done, Errno: errno(r.code)}
		unread = append(unread, c.s.cfg.Arena.Bytes(r.bufs[done/block.MaxTransfer])[:r.written-done]...)
	}
	if c.restored != nil {
		st.Write, unread = c.restored, c.piece
	}
	if c.skip > 0 {
		st.Skip = &skipState{Left: c.skip, Cookie: c.skipped, Errno: c.skipErr}
	}
	return st, append(unread, c.bytes()...)
}

// ErrExport: what should be imported is no export of an NBD server, or not one that this server can
// go on with.
var ErrExport = errors.New("nbd: cannot be imported")

// Import returns a server that goes on where another one was exported. Listener and size are those
// of the export, whatever cfg says. The descriptors are the server's once it is returned, and the
// caller's in case of an error.
func Import(cfg Config, x frontend.Export) (*Server, error) {
	var st serverState
	if x.Transport != Transport {
		return nil, fmt.Errorf("%w: it is of a frontend %q", ErrExport, x.Transport)
	}
	if err := json.Unmarshal(x.State, &st); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrExport, err)
	}
	if st.Version != exportVersion || st.Export != cfg.Export {
		return nil, fmt.Errorf("%w: version %d of export %q; this is version %d of %q", ErrExport, st.Version,
			st.Export, exportVersion, cfg.Export)
	}
	var clients []frontend.Descriptor
	cfg.Listener, cfg.Size = loop.None, st.Size
	for _, d := range x.Descriptors {
		switch {
		case d.Kind == kindListener && cfg.Listener == loop.None:
			cfg.Listener = loop.Handle(d.FD)
		case d.Kind == kindClient:
			clients = append(clients, d)
		default:
			return nil, fmt.Errorf("%w: a descriptor %q too many", ErrExport, d.Kind)
		}
	}
	s, err := New(cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrExport, err)
	}
	if len(clients) > len(s.clients) {
		return nil, fmt.Errorf("%w: %d clients, at most %d are possible", ErrExport, len(clients), len(s.clients))
	}
	for i, d := range clients {
		if err := s.restore(i, d); err != nil {
			s.abandon()
			return nil, fmt.Errorf("%w: client %d: %w", ErrExport, i, err)
		}
	}
	return s, nil
}

// abandon frees the buffers of a server that was not restored whole.
func (s *Server) abandon() {
	for _, c := range s.clients {
		if c != nil {
			c.hold(false)
			c.closed()
		}
	}
}

var errNoBuffers = errors.New("no buffers left")

// restore makes a client from its descriptor.
func (s *Server) restore(index int, d frontend.Descriptor) error {
	var st clientState
	if err := json.Unmarshal(d.State, &st); err != nil {
		return err
	}
	p, ok := phaseOf(st.Phase)
	if !ok || d.FD < 0 || st.Options < 0 || (st.Write != nil || st.Skip != nil) && p != transmission ||
		st.Write != nil && st.Skip != nil {
		return fmt.Errorf("state %q with %d options, a write: %v, one that is refused: %v", st.Phase, st.Options,
			st.Write != nil, st.Skip != nil)
	}
	c := s.admit(loop.Handle(d.FD), index)
	if c == nil {
		return errNoBuffers
	}
	c.phase, c.noZeroes, c.options, c.carry = p, st.NoZeroes, st.Options, st.Unsent
	c.released = true
	if k := st.Skip; k != nil {
		if k.Left <= 0 || k.Left > MaxRequest {
			return fmt.Errorf("%d bytes to pass over", k.Left)
		}
		c.skip, c.skipped, c.skipErr = k.Left, k.Cookie, k.Errno
	}
	if st.Write != nil {
		return c.restoreWrite(st.Write, d.Unread)
	}
	if len(d.Unread) > rxSize {
		return fmt.Errorf("%d bytes are unread, at most %d can be", len(d.Unread), rxSize)
	}
	c.to = copy(s.cfg.Arena.Bytes(c.rx)[:rxSize], d.Unread)
	return nil
}

// restoreWrite takes over a write whose payload is being received. What was received of a piece
// that is not whole stays where it is until the server goes on and there are buffers for the rest:
// an import must not fail for memory, since then nobody has the volume's users.
func (c *client) restoreWrite(w *writeState, unread []byte) error {
	if w.Size <= 0 || w.Size > MaxRequest || w.Size%block.SectorSize != 0 || w.Off < 0 || w.Off%block.SectorSize != 0 ||
		w.Off > c.s.size-w.Size ||
		w.Done < 0 || w.Done >= w.Size || w.Done%block.MaxTransfer != 0 {
		return fmt.Errorf("a write of %d bytes at %d, %d done, on a volume of %d", w.Size, w.Off, w.Done, c.s.size)
	}
	if int64(len(unread)) >= min(block.MaxTransfer, w.Size-w.Done) {
		return fmt.Errorf("a piece of a write at %d is whole and was not carried out", w.Off)
	}
	c.restored, c.piece = w, unread
	return nil
}

// continueWrite goes on with a write that was taken over.
func (c *client) continueWrite() bool {
	s, w := c.s, c.restored
	if s.first != nil && s.first != c {
		c.hold(true)
		return false
	}
	piece := int(w.Done / block.MaxTransfer)
	slot, ok := s.slot(block.Write, w.Size, piece)
	if !ok {
		s.first = c
		c.hold(true)
		return false
	}
	s.first = nil
	r := &s.requests[slot]
	r.client, r.cookie, r.off, r.fua, r.code, r.left = c, w.Cookie, w.Off, w.FUA, codeOf(w.Errno), r.pieces()-piece
	r.written = w.Done + int64(copy(s.cfg.Arena.Bytes(r.bufs[piece]), c.piece))
	c.inFlight++
	c.current, c.restored, c.piece = int(slot)+1, nil, nil
	c.owing.begun++
	return true
}

// codeOf is errno backwards, as far as the protocol tells.
func codeOf(errno uint32) block.Code {
	switch errno {
	case 0:
		return block.OK
	case errnoInvalid:
		return block.Invalid
	case errnoNoSpace:
		return block.NoSpace
	}
	return block.IOError
}
