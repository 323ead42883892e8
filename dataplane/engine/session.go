package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// sessionPhase is how far a connection to a replica is.
type sessionPhase uint8

const (
	sessionIdle sessionPhase = iota
	sessionConnecting
	sessionGreeting // initiation sent, waiting for the greeting
	sessionHello    // hello sent
	sessionProbed   // told what it has promised; nothing is promised to this engine
	sessionReady
	sessionClosing // close submitted, waiting until nothing is outstanding
	sessionClosed
)

// operations of a session, in the low byte of its tags.
const (
	tagConnect = iota
	tagRecv
	tagSend
	tagClose
	tagWindow
)

// session is the client's side of a data connection: it connects, shows that it knows the secret,
// takes the greeting, says hello, passes answers on, and ends. A link to a replica of this volume
// has one, and so has a source, a replica of another volume.
type session struct {
	e     *Engine
	peer  sessionPeer
	addr  string
	phase sessionPhase
	// run counts connections; completions of earlier ones are recognised by it.
	run    uint64
	conn   *wire.Conn
	handle loop.Handle
	// handshake is the present connection's.
	handshake *wire.Handshake
	// heard is when anything was received last, or when the first request after idleness was sent;
	// began is when the handshake did, or the present part of it.
	heard, began clock.Ticks
	// window is what it shares with a replica on this machine, nil for nothing; see window.go.
	window *window
}

// sessionPeer is what the owner of a session does in its own way.
type sessionPeer interface {
	// tag is the tag of operation what of the present run.
	tag(what uint64) uint64
	// lane tells the connections of a core apart.
	lane() int
	// initiate begins the handshake, as an engine or a reader.
	initiate(m *wire.InitiationMessage) (h *wire.Handshake, payload []byte)
	// greeted takes the greeting, which has been checked, and says hello.
	greeted(g *wire.GreetingMessage) error
	// welcomed takes the answer to the hello.
	welcomed(h *wire.Header, r *wire.HelloReply) error
	// place says where the payload of an answer goes, the zero segment without a place of its own.
	place(h *wire.Header) loop.Seg
	// control asks a control request; reply is called once.
	control(r *wire.ControlRequest, reply func(block.Code, *wire.ControlReply))
	// answered takes an answer, or a notice, once the session is ready; p is its payload if that is
	// a message.
	answered(h *wire.Header, p []byte) error
	// broken is called when the connection cannot be made or has failed. It closes the session.
	broken(err error)
	// down is called when nothing of the connection is outstanding any more: only now no late
	// completion touches a buffer.
	down()
}

// connect opens the data connection: the port after the replica's first.
func (s *session) connect() {
	s.run++
	s.phase, s.heard, s.began, s.handle = sessionConnecting, s.e.now, s.e.now, loop.None
	s.e.op(loop.Op{Kind: loop.Connect, Addr: "tcp:" + dataAddress(s.addr), Tag: s.peer.tag(tagConnect)})
}

// dataAddress is the address of the data port: control port + 1, fixed by the layout of a replica's
// ports.
func dataAddress(addr string) string {
	i := strings.LastIndexByte(addr, ':')
	var port int
	if _, err := fmt.Sscanf(addr[i+1:], "%d", &port); err != nil || i < 0 {
		return addr
	}
	return fmt.Sprintf("%s:%d", addr[:i], port+1)
}

// completed takes a completion of the present run.
func (s *session) completed(d *loop.Done, what uint64) {
	switch what {
	case tagConnect:
		s.connected(d)
	case tagRecv:
		if d.Errno == 0 && d.N > 0 {
			s.heard = s.e.now
		}
		s.conn.Received(d, s, s.e.out)
	case tagSend:
		s.conn.Sent(d, s.e.out)
	case tagClose:
		s.phase = sessionClosed
	}
	if s.conn != nil && s.conn.Err() != nil {
		s.peer.broken(s.why(s.conn.Err()))
	}
	s.checkDown()
}

// why explains the end of a connection: a replica says nothing to who has not proved that it knows
// the secret.
func (s *session) why(err error) error {
	if (s.phase == sessionGreeting || s.phase == sessionHello) && errors.Is(err, wire.ErrClosed) {
		return fmt.Errorf("%w in the middle of the handshake; its log says why, unless it has ended: it does not take the "+
			"secret or the grant, or addresses are translated on the way", err)
	}
	return err
}

func (s *session) connected(d *loop.Done) {
	switch {
	case d.Errno != 0:
		s.phase = sessionClosed
		s.peer.broken(fmt.Errorf("cannot connect to %s (errno %d): is the replica process running?",
			dataAddress(s.addr), d.Errno))
		return
	case s.phase == sessionClosing: // given up while connecting
		s.handle = d.New
		s.e.op(loop.Op{Kind: loop.Close, Handle: d.New, Tag: s.peer.tag(tagClose)})
		return
	}
	s.handle, s.phase = d.New, sessionGreeting
	conn, err := wire.NewConn(d.New, s.peer.lane(), s.e.arena, s.peer.tag(tagRecv), s.peer.tag(tagSend))
	if err != nil {
		s.peer.broken(fmt.Errorf("cannot connect to %s: %w", dataAddress(s.addr), err))
		return
	}
	s.conn = conn
	s.conn.Start(s.e.out)
	var p []byte
	s.handshake, p = s.peer.initiate(&wire.InitiationMessage{MinVersion: wire.MinVersion, Version: wire.Version,
		Nonce: s.e.cfg.Nonce(), Address: dataAddress(s.addr)})
	s.conn.SendMessage(&wire.Header{Type: wire.Initiation}, p)
}

// close begins the end of the session; down follows.
func (s *session) close() {
	switch s.phase {
	case sessionIdle:
		s.phase = sessionClosed
	case sessionConnecting:
		s.phase = sessionClosing
	case sessionGreeting, sessionHello, sessionProbed, sessionReady:
		s.phase = sessionClosing
		if s.conn != nil {
			s.conn.Fail(wire.ErrClosed)
		}
		s.e.op(loop.Op{Kind: loop.Close, Handle: s.handle, Tag: s.peer.tag(tagClose)})
	}
}

// checkDown tells the owner when the connection is down.
func (s *session) checkDown() {
	if s.phase != sessionClosed || (s.conn != nil && !s.conn.Idle()) {
		return
	}
	if s.conn != nil {
		s.conn.Free()
		s.conn = nil
	}
	s.dropWindow()
	s.peer.down()
}

// negotiating reports that the replica owes an answer of the handshake.
func (s *session) negotiating() bool {
	return s.phase == sessionConnecting || s.phase == sessionGreeting || s.phase == sessionHello
}

// handshakeDue is when a handshake is given up: after a timeout without a byte, and after a few of
// them in any case, since nothing has shown yet that the other side is a replica.
func (s *session) handshakeDue(timeout time.Duration) clock.Ticks {
	return clock.Min(s.heard.Add(timeout), max(s.began, s.e.standstill.last).Add(overdueTimeouts*timeout))
}

func (s *session) flush() {
	if s.conn != nil {
		s.conn.Flush(s.e.out)
	}
}

// hello says m.
func (s *session) hello(m *wire.HelloMessage) {
	s.phase, s.heard, s.began = sessionHello, s.e.now, s.e.now
	p, keys := s.handshake.Hello(m)
	s.conn.SendMessage(&wire.Header{Type: wire.Hello, Epoch: m.Epoch}, p)
	if !s.conn.Secured() {
		s.conn.Secure(keys)
	}
}

// PlacePayload implements wire.Handler: a payload goes to its place, which it has to fill, or is a
// message if it has none.
func (s *session) PlacePayload(_ *wire.Conn, h *wire.Header) (loop.Seg, bool) {
	var into loop.Seg
	if s.phase == sessionReady && h.IsResponse() && h.Code == block.OK {
		into = s.peer.place(h)
	}
	switch {
	case into.Len == 0:
		return loop.Seg{}, true
	case int64(h.Payload) != int64(into.Len):
		s.conn.Fail(fmt.Errorf("%w: read answer of %d bytes for %d", wire.ErrFrame, h.Payload, into.Len))
		return loop.Seg{}, false
	}
	s.e.arena.Retain(into.Buf)
	return into, true
}

// Frame implements wire.Handler.
func (s *session) Frame(_ *wire.Conn, h *wire.Header, payload loop.Seg, p []byte) {
	if payload.Len > 0 {
		s.e.arena.Release(payload.Buf) // it is in its place, which has a reference of its own
	}
	var err error
	switch {
	case s.phase == sessionGreeting && h.Type == wire.Greeting:
		err = s.greeted(h, p)
	case s.phase == sessionHello && h.Type == wire.Hello && h.IsResponse():
		var r wire.HelloReply
		if err = wire.Unmarshal(p, &r); err == nil {
			err = s.peer.welcomed(h, &r)
		}
	case s.phase == sessionReady && (h.IsResponse() || h.Type == wire.Notice):
		err = s.peer.answered(h, p)
	default:
		err = fmt.Errorf("%w: unexpected %s", wire.ErrFrame, h.Type)
	}
	if err != nil {
		s.conn.Fail(err)
	}
}

// greeted checks what the replica says to an engine that it has taken for one. The version that it
// has picked is one of those that were offered.
func (s *session) greeted(h *wire.Header, p []byte) error {
	var g wire.GreetingMessage
	if err := wire.Unmarshal(p, &g); err != nil {
		return err
	}
	switch {
	case h.Code != block.OK:
		return fmt.Errorf("refused: %s: %s", h.Code, g.Error)
	case g.Version < wire.MinVersion || g.Version > wire.Version:
		return fmt.Errorf("%w: the greeting picks protocol version %d, of %d to %d: somebody has changed the greeting "+
			"on its way", wire.ErrFrame, g.Version, wire.MinVersion, wire.Version)
	}
	s.handshake.Greet(p)
	return s.peer.greeted(&g)
}
