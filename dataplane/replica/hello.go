package replica

import (
	"errors"
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/wire"
)

// initiated greets whoever has proved that it knows the volume's secret, or a grant's key. Nobody
// else hears anything.
func (s *session) initiated(p []byte) {
	c := &s.r.cfg
	m, hs, err := wire.Accept(p, c.Secret, c.VolumeUUID, s.r.digester)
	if err == nil {
		err = m.MeantFor(s.at)
	}
	if err != nil {
		if !errors.Is(err, wire.ErrFrame) {
			c.Event("refused", err.Error())
		}
		s.conn.Fail(err)
		return
	}
	s.handshake, s.grant = hs, m.Reader
	g := wire.GreetingMessage{Nonce: c.Nonce(), Member: c.Member}
	if g.Version, err = wire.Pick(m.MinVersion, m.Version); err != nil {
		c.Event("refused", err.Error())
		s.phase = sessionTurnedAway
		s.send(wire.Header{Type: wire.Greeting, Code: block.Invalid}, wire.Marshal(wire.GreetingMessage{Error: err.Error()}))
		return
	}
	s.phase, s.version = sessionGreeted, g.Version
	greeting := wire.Marshal(g)
	hs.Greet(greeting)
	s.send(wire.Header{Type: wire.Greeting}, greeting)
}

// hello checks who is there, and on success takes the session over: see the package comment.
func (s *session) hello(h *wire.Header, p []byte) {
	c := &s.r.cfg
	m, keys, err := s.handshake.ReadHello(p)
	if err != nil {
		c.Event("refused", err.Error())
		s.conn.Fail(err)
		return
	}
	if !s.conn.Secured() {
		s.conn.Secure(keys)
	}
	err = m.MeantFor(c.Member)
	switch {
	case m.VolumeUUID != c.VolumeUUID:
		s.refuse(h, block.Refused, fmt.Sprintf("this is a replica of volume %s (%s), not of %s (%s)", c.VolumeName,
			c.VolumeUUID, m.VolumeName, m.VolumeUUID))
	case err != nil:
		s.refuse(h, block.Refused, err.Error())
	case s.grant != nil:
		s.admitReader(h)
	case m.Prepared:
		s.prepare(h, &m)
	case s.r.blocks != nil && promisedToNewer(&s.r.record, &m):
		s.refuseOlder(h, s.r.record.Promised, s.r.record.Engine)
	default:
		if o := s.r.sessions.promising(); o != nil && isOlder(o.epoch, o.engine, &m) {
			// It is as good as promised. Ending that session for one that is refused a moment later
			// would leave nobody.
			s.refuseOlder(h, o.epoch, o.engine)
			return
		}
		for _, o := range s.r.sessions.conns {
			if o != nil && o != s && (o.phase == sessionOpen || o.phase == sessionPromising || o.released) {
				o.end(fmt.Sprintf("engine %s takes over with epoch %d", m.Engine, m.Epoch))
			}
		}
		s.phase, s.released = sessionPromising, false
		s.epoch, s.engine, s.notices = m.Epoch, m.Engine, m.Notices
		hdr := *h
		s.r.ops.enqueue(&metaOp{exclusive: true, s: s, both: func(w *worker, l *sidecarSet) any { return w.promise(l, &m) },
			done: func(v any) { s.promised(&hdr, &m, v) }})
	}
}

func (s *session) refuse(h *wire.Header, code block.Code, text string) {
	s.r.cfg.Event("refused", text)
	s.send(h.Answer(code), wire.Marshal(wire.HelloReply{Error: text}))
	s.phase = sessionGreeted
}

// promising returns the session whose promise is on its way to the disk, nil if there is none.
func (c *sessions) promising() *session {
	for _, s := range c.conns {
		if s != nil && s.phase == sessionPromising {
			return s
		}
	}
	return nil
}

// promisedToNewer reports that a newer engine, or another of the same epoch, has been promised
// already.
func promisedToNewer(rec *chain.Record, m *wire.HelloMessage) bool {
	return isOlder(rec.Promised, rec.Engine, m)
}

func isOlder(epoch uint64, engine string, m *wire.HelloMessage) bool {
	return m.Epoch < epoch || (m.Epoch == epoch && engine != m.Engine && engine != "")
}

// refuseOlder refuses an engine because of the one that has the promise.
func (s *session) refuseOlder(h *wire.Header, epoch uint64, engine string) {
	s.send(h.Answer(block.Fenced), wire.Marshal(wire.HelloReply{Promised: epoch,
		Error: fmt.Sprintf("epoch %d is promised to engine %s", epoch, engine)}))
}
