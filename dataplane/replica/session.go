package replica

import (
	"errors"
	"fmt"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

type sessionPhase uint8

const (
	// sessionAccepted: nothing was proved; sessionTurnedAway: proved, and no version is spoken by both
	// sides; it ends when that is sent.
	sessionAccepted sessionPhase = iota
	sessionTurnedAway
	sessionGreeted
	sessionPromising
	sessionOpen
	// sessionOpening: a reader's snapshot is being opened; sessionReading: it may be read.
	sessionOpening
	sessionReading
	sessionClosing
)

// operations of a connection, in the low byte of its tags.
const (
	tagRecv = 1 + iota
	tagSend
	tagClose
)

// session is one connection.
type session struct {
	r      *Replica
	index  int
	run    uint64
	phase  sessionPhase
	conn   *wire.Conn
	handle loop.Handle
	// at is the address at which it has come in, since when.
	at    string
	since clock.Ticks
	// handshake is nil before the initiation; version is the protocol's in this session, grant what a
	// reader may read.
	handshake *wire.Handshake
	version   int
	grant     *wire.Grant
	epoch     uint64
	engine    string // who said hello, once it has been taken in
	closed    bool   // the close has completed
	// released: it was open, and has given the directory up.
	released bool
	// notices: the engine takes them.
	notices bool
	// hashed: it has asked for checksums, and may have left a computation behind.
	hashed bool
	// reader: it may read the snapshot that view shows, and nothing else.
	reader bool
	// view is the snapshot that is open here, nil without one.
	view *chain.Blocks
	// window is what the engine shares, nil without one; windowAsked: one is being mapped.
	window      *window
	windowAsked bool
	jobs        int
	// waiting are its requests that came while the chain was being changed or no buffer was free,
	// in their order.
	waiting []frame
	// postponed are those that wait until there is room for whiteouts, while others go on.
	postponed []frame
	// queued counts metadata operations that it has asked for and that have not begun.
	queued int
}

// sessions are the connections: who is accepted, and who has to go to make room.
type sessions struct {
	r        *Replica
	conns    []*session
	accepted uint64
	open     int // those of engines
}

// count takes in that an engine's session has begun or is over.
func (c *sessions) count(by int) {
	c.open += by
	c.r.cfg.Sessions(c.open)
}

func (c *sessions) accept() {
	c.accepted++
	c.r.op(loop.Op{Kind: loop.Accept, Handle: c.r.cfg.Listener, Tag: loop.Tag(ownerListener, 0)})
}

// errTooMany: nobody is told of every one of them.
var errTooMany = errors.New("too many connections")

func (c *sessions) acceptDone(d *loop.Done) {
	if d.Kind != loop.Accept || d.Errno == loop.Canceled { // else a connection is closed that was refused
		return
	}
	c.accept()
	if d.Errno != 0 {
		c.r.cfg.Event("accept-failed", fmt.Sprintf("errno %d", d.Errno))
		return
	}
	index := slices.Index(c.conns, nil)
	if index < 0 {
		index = len(c.conns)
	}
	s := &session{r: c.r, index: index, run: c.accepted, handle: d.New, since: c.r.now}
	err := errTooMany
	if index < maxConns && !c.r.dead && !c.r.ending {
		s.conn, err = wire.NewConn(d.New, index, c.r.arena, s.tag(tagRecv), s.tag(tagSend))
	}
	if err != nil {
		if errors.Is(err, wire.ErrNoMemory) {
			c.r.cfg.Event("accept-failed", err.Error())
		}
		c.r.op(loop.Op{Kind: loop.Close, Handle: d.New, Tag: loop.Tag(ownerListener, 1)})
		return
	}
	if index == len(c.conns) {
		c.conns = append(c.conns, nil)
	}
	c.conns[index] = s
	c.limitStrangers()
	s.at, _ = d.Value.(string)
	s.conn.Start(c.r.out)
}

// stranger reports whether nobody has said a hello that is proved. Who sends an initiation again
// that somebody else has proved is one too.
func (s *session) stranger() bool { return !s.conn.Secured() && !s.closing() }

// limitStrangers ends the oldest stranger if there are too many: nobody can keep the engine out by
// holding connections open.
func (c *sessions) limitStrangers() {
	var oldest *session
	n := 0
	for _, s := range c.conns {
		if s == nil || !s.stranger() {
			continue
		}
		n++
		if oldest == nil || s.run < oldest.run {
			oldest = s
		}
	}
	if n > maxStrangers {
		oldest.end("too many connections that have not said hello")
	}
}

// endStrangers ends those whose time is over, and says when the next one's is.
func (c *sessions) endStrangers() clock.Ticks {
	next := clock.Never
	for _, s := range c.conns {
		if s == nil || !s.stranger() {
			continue
		}
		if due := s.since.Add(strangerTime); due > c.r.now {
			next = clock.Min(next, due)
		} else {
			s.end("has not said hello in time")
		}
	}
	return next
}

func (s *session) tag(what uint64) uint64 {
	return loop.Tag(ownerConn, s.run<<16|uint64(s.index)<<8|what)
}

func (c *sessions) connDone(v uint64, d *loop.Done) {
	index := int(v >> 8 & 0xff)
	if index >= len(c.conns) || c.conns[index] == nil || c.conns[index].run&(1<<40-1) != v>>16 {
		return
	}
	s := c.conns[index]
	switch v & 0xff {
	case tagRecv:
		s.conn.Received(d, s, c.r.out)
	case tagSend:
		s.conn.Sent(d, c.r.out)
		if s.phase == sessionTurnedAway {
			s.end("speaks no version of the protocol that is spoken here")
		}
	case tagClose:
		s.closed = true
	}
	s.check()
}

// check ends a session whose connection failed, and forgets one that is down.
func (s *session) check() {
	if err := s.conn.Err(); err != nil {
		s.end(err.Error())
	}
	if s.closed && s.conn.Idle() && s.jobs == 0 {
		s.drop()
		s.conn.Free()
		s.freeWindow()
		s.r.sessions.conns[s.index] = nil
		s.r.leave(s)
	}
}

// goOn carries out what waited for a buffer or for the chain, and receives again.
func (s *session) goOn() {
	r := s.r
	for len(s.waiting) > 0 && !s.closing() && !r.ops.exclusive {
		f := s.waiting[0]
		if !r.requests.run(s, &f.h, f.payload, f.message) {
			break
		}
		s.waiting = s.waiting[1:]
	}
	if s.closing() {
		s.drop()
	}
	if !s.behind() {
		s.conn.Resume(s, r.out)
	}
	s.check()
}

// behind reports that nothing more is to be received now: the session has enough to do, or its peer
// to take.
func (s *session) behind() bool {
	return len(s.waiting)+len(s.postponed)+s.queued >= maxWaiting || s.conn.Unsent() > maxUnsent
}

// drop forgets what waits.
func (s *session) drop() {
	for _, f := range slices.Concat(s.waiting, s.postponed) {
		s.r.release(f.payload)
	}
	s.waiting, s.postponed = nil, nil
}

func (s *session) closing() bool { return s.phase == sessionClosing }

// end closes the connection. Operations already on the disk go on and are waited for by whoever
// needs that.
func (s *session) end(reason string) {
	if s.phase == sessionClosing {
		return
	}
	if s.phase == sessionOpen {
		s.r.sessions.count(-1)
		s.r.cfg.Event("session-ended", fmt.Sprintf("epoch %d: %s", s.epoch, reason))
	}
	s.phase = sessionClosing
	if s.conn.Err() == nil {
		s.conn.Fail(wire.ErrClosed)
	}
	s.r.op(loop.Op{Kind: loop.Close, Handle: s.handle, Tag: s.tag(tagClose)})
}

// PlacePayload implements wire.Handler. The payload of a write is placed so that its block
// alignment in memory equals that on disk, with room for the whole blocks around it.
func (s *session) PlacePayload(_ *wire.Conn, h *wire.Header) (loop.Seg, bool) {
	switch {
	case s.phase < sessionGreeted && (h.Type != wire.Initiation || h.Payload > maxInitiation):
		s.conn.Fail(fmt.Errorf("%w: %s of %d bytes instead of an initiation", wire.ErrFrame, h.Type, h.Payload))
		return loop.Seg{}, false
	case s.phase == sessionGreeted && (h.Type != wire.Hello || h.Payload > maxHello):
		s.conn.Fail(fmt.Errorf("%w: %s of %d bytes instead of a hello", wire.ErrFrame, h.Type, h.Payload))
		return loop.Seg{}, false
	case s.phase == sessionReading && h.Payload > maxHello:
		s.conn.Fail(fmt.Errorf("%w: %s of %d bytes from a reader", wire.ErrFrame, h.Type, h.Payload))
		return loop.Seg{}, false
	case !carries(h.Type):
		s.conn.Fail(fmt.Errorf("%w: %s with %d bytes that belong to none", wire.ErrFrame, h.Type, h.Payload))
		return loop.Seg{}, false
	case len(s.waiting) > 0 && !mayBePing(h):
		// Whoever waits for a buffer comes first: payloads that can only wait behind it must not
		// take the last ones.
		return loop.Seg{}, false
	case h.Type != wire.Write && h.Type != wire.LayerWrite:
		return loop.Seg{}, true
	}
	lead := int32(h.Off % block.Size)
	room := (int(lead) + int(h.Payload) + block.Size - 1) &^ (block.Size - 1)
	if room > block.MaxTransfer {
		s.conn.Fail(fmt.Errorf("%w: write of %d bytes at %d covers more than %d", wire.ErrFrame, h.Payload, h.Off,
			block.MaxTransfer))
		return loop.Seg{}, false
	}
	b, ok := s.r.arena.Get(room)
	return loop.Seg{Buf: b, Off: lead, Len: int32(h.Payload)}, ok
}

// carries tells whether a request has a payload. No other may bring one, since nobody would give
// its buffer back.
func carries(t wire.Type) bool {
	switch t {
	case wire.Initiation, wire.Hello, wire.Control, wire.MarkDirty, wire.Write, wire.LayerWrite:
		return true
	}
	return false
}

// Frame implements wire.Handler.
func (s *session) Frame(_ *wire.Conn, h *wire.Header, payload loop.Seg, message []byte) {
	r := s.r
	defer s.limit()
	switch {
	case s.phase == sessionAccepted && h.Type == wire.Initiation && len(message) > 0:
		s.initiated(message)
		return
	case s.phase == sessionGreeted && h.Type == wire.Hello && len(message) > 0:
		s.hello(h, message)
		return
	case (s.phase != sessionOpen && s.phase != sessionReading) || h.IsResponse() || h.Type == wire.Notice ||
		h.Type == wire.Initiation:
		s.conn.Fail(fmt.Errorf("%w: unexpected %s", wire.ErrFrame, h.Type))
		r.release(payload)
		return
	}
	if h.Epoch != s.epoch {
		s.answer(h, block.Fenced)
		r.release(payload)
		return
	}
	if s.reader && !readerMay(h) {
		s.answer(h, block.Refused)
		r.release(payload)
		return
	}
	if h.Flags&wire.Shared != 0 {
		room, err := s.shared(h)
		if err != nil {
			s.conn.Fail(err)
			r.release(payload)
			return
		}
		payload = room
	}
	if (r.ops.exclusive || len(s.waiting) > 0) && mayBePing(h) && isPing(message) {
		r.reply(s, h, block.OK, wire.ControlReply{}) // however long the chain is being changed
		return
	}
	if r.ops.exclusive || len(s.waiting) > 0 || !r.requests.run(s, h, payload, message) {
		s.waiting = append(s.waiting, frame{*h, payload, message})
	}
}

// maxPing is above the size of a Ping as engines send it.
const maxPing = 64

// mayBePing reports whether a frame is short enough for a Ping: it may wait beside others without
// taking memory that they wait for.
func mayBePing(h *wire.Header) bool { return h.Type == wire.Control && h.Payload <= maxPing }

// isPing reports whether a message asks for an answer and nothing else.
func isPing(message []byte) bool {
	var m wire.ControlRequest
	return len(message) > 0 && wire.Unmarshal(message, &m) == nil && m.Ping != nil
}

// limit stops receiving from a session that is behind.
func (s *session) limit() {
	if s.behind() {
		s.conn.Pause()
	}
}

func (s *session) send(h wire.Header, p []byte) { s.conn.SendMessage(&h, p) }

func (s *session) answer(h *wire.Header, code block.Code) {
	if s.closing() {
		return
	}
	a := h.Answer(code)
	s.conn.Send(&a)
}

// promiseResult is what promise brings back.
type promiseResult struct {
	// opened is the directory if it was opened for this.
	opened *opened
	held   held
	older  bool
	err    error
}

// promised answers hello. Everybody else's session has ended before the promise was made.
func (s *session) promised(h *wire.Header, m *wire.HelloMessage, v any) {
	r := s.r
	res := v.(promiseResult)
	if res.opened != nil {
		r.adopt(res.opened)
		r.handover.standby = false
		if res.err != nil || res.older {
			r.handover.giveBack()
		}
	}
	if res.err == nil {
		// Even if nobody is there to be told: the promise is on the disk.
		r.record, r.recorded = res.held.record, res.held.recorded
	}
	switch {
	case s.closing():
		return
	case res.err != nil:
		s.refuse(h, codeOf(res.err), res.err.Error())
		return
	case res.older:
		s.phase = sessionGreeted
		s.refuseOlder(h, r.record.Promised, r.record.Engine)
		return
	}
	reply := r.welcome(m, &res.held)
	s.phase = sessionOpen
	r.sessions.count(1)
	r.cfg.Event("session", fmt.Sprintf("engine %s (%.*s), epoch %d, protocol version %d", m.Engine, maxBuild, m.Build,
		m.Epoch, s.version))
	s.send(h.Answer(block.OK), wire.Marshal(reply))
	if r.losing.told != "" {
		s.tellLost()
	}
}

// welcome describes the directory to an engine. marks is what the dirty log said in the operation
// that has just ended.
func (r *Replica) welcome(m *wire.HelloMessage, marks *held) wire.HelloReply {
	reply := wire.HelloReply{Promised: m.Epoch, Size: r.blocks.Size(), Rebuilding: r.blocks.Rebuilding(), Blank: r.blank(),
		Empty: r.blocks.Empty() && !r.blocks.Rebuilding(), OnImage: r.blocks.OnImage(), Closed: marks.wasClosed,
		Counter: marks.counter}
	reply.Record = r.recordMessage(&r.record)
	if !reply.Blank {
		reply.Dirty, reply.DirtyAll, reply.PowerLost = marks.dirty, marks.dirtyAll, marks.powerLost
	}
	return reply
}

// blank reports that the directory has never held anything.
func (r *Replica) blank() bool {
	return r.record.Generation == 0 && !r.blocks.Rebuilding() && r.blocks.Empty()
}
