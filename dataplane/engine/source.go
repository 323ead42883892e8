package engine

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"ankole.storage/block"
	"ankole.storage/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// sourceTimeout is how long a replica of another volume may owe an answer: opening a snapshot of many extents takes a while.
const sourceTimeout = 30 * time.Second

// errSourceLost is what requests get that the connection took with it; another replica can be asked.
var errSourceLost = errors.New("connection lost")

type sourcePhase uint8

const (
	sourceConnecting sourcePhase = iota
	sourceGreeting
	sourceHello
	sourceOpen
	sourceClosing
	sourceClosed
)

// source is a read-only session with one replica of another volume. It shows one snapshot. It has no part in membership: nothing
// that happens to it touches the replicas of this volume.
type source struct {
	e      *Engine
	from   *CloneSource
	addr   string
	run    uint64
	phase  sourcePhase
	conn   *wire.Conn
	handle loop.Handle
	nonce  []byte
	theirs []byte
	heard  clock.Ticks
	nextID uint64
	asks   map[uint64]*sourceAsk
	// opened gets the size of the snapshot, or why it cannot be read here; it is called once.
	opened func(size int64, err error)
}

// sourceAsk is a request that is not answered yet. seg is where the data of a read goes.
type sourceAsk struct {
	typ  wire.Type
	seg  loop.Seg
	done func(p []byte, err error)
}

// connectSource begins a session; opened is called when it can be used or has failed.
func (e *Engine) connectSource(from *CloneSource, addr string, opened func(size int64, err error)) *source {
	e.sourceRuns++
	s := &source{e: e, from: from, addr: addr, run: e.sourceRuns, handle: loop.None, heard: e.now, asks: map[uint64]*sourceAsk{}, opened: opened}
	e.sources = append(e.sources, s)
	e.op(loop.Op{Kind: loop.Connect, Addr: "tcp:" + dataAddress(addr), Tag: s.tag(tagConnect)})
	return s
}

func (s *source) tag(what uint64) uint64 { return loop.Tag(ownerSource, s.run<<8|what) }

func (e *Engine) sourceDone(d *loop.Done) {
	v := loop.ValueOf(d.Tag)
	for i, s := range e.sources {
		if s.run&(1<<40-1) != v>>8 {
			continue
		}
		s.completed(d, v&0xff)
		if s.phase == sourceClosed && (s.conn == nil || s.conn.Idle()) {
			if s.conn != nil {
				s.conn.Free()
			}
			e.sources = append(e.sources[:i], e.sources[i+1:]...)
			s.settle()
		}
		return
	}
}

func (s *source) completed(d *loop.Done, what uint64) {
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
		s.phase = sourceClosed
	}
	if s.conn != nil && s.conn.Err() != nil {
		s.close(s.conn.Err())
	}
}

func (s *source) connected(d *loop.Done) {
	switch {
	case d.Errno != 0:
		s.phase = sourceClosed
		s.tell(0, fmt.Errorf("cannot connect to %s (errno %d)", dataAddress(s.addr), d.Errno))
		return
	case s.phase == sourceClosing:
		s.handle = d.New
		s.e.op(loop.Op{Kind: loop.Close, Handle: d.New, Tag: s.tag(tagClose)})
		return
	}
	s.handle, s.phase = d.New, sourceGreeting
	s.conn = wire.NewConn(d.New, 0, s.e.arena, s.tag(tagRecv), s.tag(tagSend))
	s.conn.Start(s.e.out)
}

// tell answers whoever waits for the session.
func (s *source) tell(size int64, err error) {
	if opened := s.opened; opened != nil {
		s.opened = nil
		opened(size, err)
	}
}

// close ends the session. Requests are settled when the connection is down, since only then nothing of it touches a buffer.
func (s *source) close(err error) {
	switch s.phase {
	case sourceConnecting:
		s.phase = sourceClosing
	case sourceGreeting, sourceHello, sourceOpen:
		s.phase = sourceClosing
		s.conn.Fail(wire.ErrClosed)
		s.e.op(loop.Op{Kind: loop.Close, Handle: s.handle, Tag: s.tag(tagClose)})
	}
	s.tell(0, err)
}

// settle fails what was not answered.
func (s *source) settle() {
	asks := s.asks
	s.asks = map[uint64]*sourceAsk{}
	for _, id := range slices.Sorted(maps.Keys(asks)) {
		asks[id].done(nil, fmt.Errorf("replica %s: %w", s.addr, errSourceLost))
	}
}

// deadline is when the replica must have said something.
func (s *source) deadline() clock.Ticks {
	if s.phase == sourceClosing || s.phase == sourceClosed || (s.phase == sourceOpen && len(s.asks) == 0) {
		return clock.Never
	}
	return s.heard.Add(sourceTimeout)
}

// PlacePayload implements wire.Handler.
func (s *source) PlacePayload(_ *wire.Conn, h *wire.Header) (loop.Seg, bool) {
	if a := s.asks[h.ID]; s.phase == sourceOpen && a != nil && h.IsResponse() && h.Type == a.typ && h.Code == block.OK {
		return s.e.place(s.conn, h, a.seg)
	}
	return s.e.place(s.conn, h, loop.Seg{})
}

// Frame implements wire.Handler.
func (s *source) Frame(_ *wire.Conn, h *wire.Header, payload loop.Seg) {
	var p []byte
	if payload.Len > 0 {
		p = s.e.arena.Seg(payload)
		defer s.e.arena.Release(payload.Buf)
	}
	var err error
	switch {
	case s.phase == sourceGreeting && h.Type == wire.Greeting:
		err = s.greeted(p)
	case s.phase == sourceHello && h.Type == wire.Hello && h.IsResponse():
		err = s.welcomed(h, p)
	case s.phase == sourceOpen && h.IsResponse():
		err = s.answered(h, p)
	default:
		err = fmt.Errorf("%w: unexpected %s", wire.ErrFrame, h.Type)
	}
	if err != nil {
		s.conn.Fail(err)
		s.tell(0, err)
	}
}

func (s *source) greeted(p []byte) error {
	var g wire.GreetingMessage
	if err := wire.Unmarshal(p, &g); err != nil {
		return err
	}
	v, err := wire.Pick(g.MinVersion, g.Version)
	switch {
	case err != nil:
		return err
	case v < wire.ReaderVersion:
		return fmt.Errorf("replica %s speaks version %d of the protocol; a clone needs %d: upgrade the source volume's engine image", s.addr, v, wire.ReaderVersion)
	case len(g.Nonce) != wire.NonceSize:
		return fmt.Errorf("%w: greeting with a nonce of %d bytes", wire.ErrFrame, len(g.Nonce))
	}
	s.theirs, s.nonce = g.Nonce, s.e.cfg.Nonce()
	m := wire.HelloMessage{Version: v, VolumeName: s.from.VolumeName, VolumeUUID: s.from.VolumeUUID, Engine: s.e.identity,
		InstanceManager: s.e.cfg.InstanceManager, Reader: &s.from.Grant, Nonce: s.nonce,
		Proof: wire.ReaderProof(s.from.Key, s.from.VolumeUUID, s.theirs, s.nonce)}
	s.phase, s.heard = sourceHello, s.e.now
	return s.e.sendMessage(s.conn, &wire.Header{Type: wire.Hello}, wire.Marshal(m))
}

func (s *source) welcomed(h *wire.Header, p []byte) error {
	var r wire.HelloReply
	if err := wire.Unmarshal(p, &r); err != nil {
		return err
	}
	if h.Code != block.OK {
		return fmt.Errorf("replica %s refuses: %w: %s", s.addr, h.Code, r.Error)
	}
	if !wire.SameProof(r.Proof, wire.ReplicaProof(s.from.Key, s.from.VolumeUUID, 0, s.theirs, s.nonce)) {
		return fmt.Errorf("replica %s does not know its volume's secret", s.addr)
	}
	if r.Size <= 0 || r.Size%block.Size != 0 {
		return fmt.Errorf("%w: snapshot of %d bytes", wire.ErrFrame, r.Size)
	}
	s.phase = sourceOpen
	s.tell(r.Size, nil)
	return nil
}

func (s *source) answered(h *wire.Header, p []byte) error {
	a := s.asks[h.ID]
	if a == nil || h.Type != a.typ || (h.Code == block.OK && a.seg.Len > 0 && len(p) != int(a.seg.Len)) {
		return fmt.Errorf("%w: answer %s to nothing that was asked", wire.ErrFrame, h.Type)
	}
	delete(s.asks, h.ID)
	if h.Code != block.OK {
		a.done(p, fmt.Errorf("replica %s: %w", s.addr, h.Code))
		return nil
	}
	a.done(p, nil)
	return nil
}

// ask sends a request; done is called once, with a copy of what was answered unless seg says where it goes.
func (s *source) ask(h wire.Header, payload []byte, seg loop.Seg, done func(p []byte, err error)) {
	if s.phase != sourceOpen {
		done(nil, fmt.Errorf("replica %s: %w", s.addr, errSourceLost))
		return
	}
	if len(s.asks) == 0 {
		s.heard = s.e.now
	}
	s.nextID++
	h.ID = s.nextID
	s.asks[h.ID] = &sourceAsk{typ: h.Type, seg: seg, done: func(p []byte, err error) {
		if seg.Len > 0 {
			p = nil // it is in its place
		}
		done(bytes.Clone(p), err)
	}}
	if len(payload) == 0 {
		s.conn.Send(&h)
	} else if err := s.e.sendMessage(s.conn, &h, payload); err != nil {
		delete(s.asks, h.ID)
		done(nil, err)
	}
}

// sourceDeadlines ends sessions that owe an answer for too long, and says when the next one will.
func (e *Engine) sourceDeadlines() {
	for _, s := range e.sources {
		if s.deadline() <= e.now {
			s.close(fmt.Errorf("replica %s: no answer within %s", s.addr, sourceTimeout))
		}
	}
}

func (e *Engine) sourcesDue() clock.Ticks {
	w := clock.Never
	for _, s := range e.sources {
		w = clock.Min(w, s.deadline())
	}
	return w
}
