package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// sourceTimeout is how long a replica of another volume may owe an answer: opening a snapshot of
// many extents takes a while.
const sourceTimeout = 30 * time.Second

// errSourceLost is what requests get that the connection took with it; another replica can be
// asked.
var errSourceLost = errors.New("connection lost")

// source is a read-only session with one replica of another volume. It shows one snapshot. It has
// no part in membership: nothing that happens to it touches the replicas of this volume.
type source struct {
	session
	from   *CloneSource
	number uint64 // of all sources there were
	nextID uint64
	asks   map[uint64]*sourceAsk
	// opened gets the size of the snapshot, or why it cannot be read here; it is called once.
	opened func(size int64, err error)
}

// sourceAsk is a request that is not answered yet. seg is where the data of a read goes.
type sourceAsk struct {
	typ    wire.Type
	seg    loop.Seg
	at     clock.Ticks // when it was sent
	shared bool        // it has a slot
	done   func(p []byte, err error)
}

// sources are the sessions with replicas of other volumes, or with those of this one as readers.
type sources struct {
	e   *Engine
	all []*source
	// runs numbers everything that reads in this way.
	runs uint64
}

// connect begins a session; opened is called when it can be used or has failed.
func (k *sources) connect(from *CloneSource, addr string, opened func(size int64, err error)) *source {
	s := &source{session: session{e: k.e, addr: addr}, from: from, asks: map[uint64]*sourceAsk{}, opened: opened}
	s.peer = s
	k.runs++
	s.number = k.runs
	k.all = append(k.all, s)
	s.connect()
	return s
}

// tag implements sessionPeer.
func (s *source) tag(what uint64) uint64 { return loop.Tag(ownerSource, s.number<<8|what) }

// lane implements sessionPeer.
func (s *source) lane() int { return 0 }

func (k *sources) done(d *loop.Done) {
	v := loop.ValueOf(d.Tag)
	var at *source
	for _, s := range k.all {
		if s.number&(1<<40-1) == v>>8 {
			at = s
		}
	}
	switch {
	case d.Kind == loop.Call && at != nil:
		k.e.windowMade(&at.session, d.Value.(windowMade))
	case d.Kind == loop.Call:
		k.e.windowMade(nil, d.Value.(windowMade))
	case at != nil:
		at.completed(d, v&0xff)
	}
}

// down implements sessionPeer.
func (s *source) down() {
	s.e.sources.all = slices.DeleteFunc(s.e.sources.all, func(o *source) bool { return o == s })
	s.failAsks()
}

// broken implements sessionPeer.
func (s *source) broken(err error) { s.hangUp(err) }

// tell answers whoever waits for the session.
func (s *source) tell(size int64, err error) {
	if opened := s.opened; opened != nil {
		s.opened = nil
		opened(size, err)
	}
}

// hangUp ends the session. Requests fail when the connection is down.
func (s *source) hangUp(err error) {
	s.close()
	s.tell(0, err)
}

// failAsks fails what was not answered.
func (s *source) failAsks() {
	asks := s.asks
	s.asks = map[uint64]*sourceAsk{}
	for _, id := range slices.Sorted(maps.Keys(asks)) {
		asks[id].done(nil, fmt.Errorf("replica %s: %w", s.addr, errSourceLost))
	}
}

// deadline is when the replica must have said something.
func (s *source) deadline() clock.Ticks {
	switch {
	case s.negotiating():
		return s.handshakeDue(sourceTimeout)
	case s.phase != sessionReady || len(s.asks) == 0:
		return clock.Never
	}
	first := clock.Never
	for _, a := range s.asks {
		first = clock.Min(first, a.at)
	}
	return clock.Min(s.heard.Add(sourceTimeout), max(first, s.e.standstill.last).Add(overdueTimeouts*sourceTimeout))
}

// place implements sessionPeer.
func (s *source) place(h *wire.Header) loop.Seg {
	if a := s.asks[h.ID]; a != nil && h.Type == a.typ {
		return a.seg
	}
	return loop.Seg{}
}

// initiate implements sessionPeer.
func (s *source) initiate(m *wire.InitiationMessage) (*wire.Handshake, []byte) {
	m.Reader = &s.from.Grant
	return wire.Initiate(m, s.from.Key, wire.NewDigester(s.from.Key))
}

// greeted implements sessionPeer.
func (s *source) greeted(g *wire.GreetingMessage) error {
	s.hello(&wire.HelloMessage{VolumeName: s.from.VolumeName, VolumeUUID: s.from.VolumeUUID, Engine: s.e.identity,
		InstanceManager: s.e.cfg.InstanceManager, Member: g.Member})
	return nil
}

// welcomed implements sessionPeer.
func (s *source) welcomed(h *wire.Header, r *wire.HelloReply) error {
	if h.Code != block.OK {
		return fmt.Errorf("replica %s refuses: %w", s.addr, refusal(h.Code, r.Error))
	}
	if r.Size <= 0 || r.Size%block.Size != 0 {
		return fmt.Errorf("%w: snapshot of %d bytes", wire.ErrFrame, r.Size)
	}
	s.phase = sessionReady
	s.offerWindow()
	s.tell(r.Size, nil)
	return nil
}

// answered implements sessionPeer.
func (s *source) answered(h *wire.Header, p []byte) error {
	a := s.asks[h.ID]
	if a == nil || h.Type != a.typ || !s.takeBack(a.shared, h.ID, h, a.seg) ||
		(h.Code == block.OK && a.seg.Len > 0 && !a.shared && int64(h.Payload) != int64(a.seg.Len)) {
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

// ask sends a request; done is called once, with what was answered unless seg says where it goes.
func (s *source) ask(h wire.Header, payload []byte, seg loop.Seg, done func(p []byte, err error)) {
	if s.phase != sessionReady {
		done(nil, fmt.Errorf("replica %s: %w", s.addr, errSourceLost))
		return
	}
	if len(s.asks) == 0 {
		s.heard = s.e.now
	}
	s.nextID++
	h.ID = s.nextID
	a := &sourceAsk{typ: h.Type, seg: seg, at: s.e.now, done: done}
	a.shared = (s.window == nil || s.window.taken < wire.ReaderSlots) && s.share(h.ID, &h, seg)
	s.asks[h.ID] = a
	s.conn.SendMessage(&h, payload)
}

// control implements sessionPeer.
func (s *source) control(r *wire.ControlRequest, reply func(block.Code, *wire.ControlReply)) {
	s.ask(wire.Header{Type: wire.Control}, wire.Marshal(r), loop.Seg{}, func(p []byte, err error) {
		m, code := &wire.ControlReply{}, block.OK
		if err != nil {
			code, m.Error = block.Invalid, err.Error()
		}
		if len(p) > 0 && wire.Unmarshal(p, m) != nil {
			code = block.Invalid
		}
		reply(code, m)
	})
}

// step ends sessions that owe an answer for too long.
func (k *sources) step() {
	for _, s := range k.all {
		if s.deadline() <= k.e.now {
			s.hangUp(fmt.Errorf("replica %s: no answer within %s", s.addr, sourceTimeout))
		}
	}
}

// due is when the next one will.
func (k *sources) due() clock.Ticks {
	w := clock.Never
	for _, s := range k.all {
		w = clock.Min(w, s.deadline())
	}
	return w
}

func (k *sources) flush() {
	for _, s := range k.all {
		s.flush()
	}
}
