package replica

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/wire"
)

// hello checks who is there, and on success takes the session over: see the package comment.
func (s *session) hello(h *wire.Header, p []byte) {
	m, bound, err := wire.ReadHello(p)
	if err != nil {
		s.conn.Fail(err)
		return
	}
	c := &s.r.cfg
	switch {
	case m.Version < wire.MinVersion || m.Version > wire.Version:
		s.refuse(h, block.Invalid, fmt.Sprintf("protocol version %d is not spoken here", m.Version))
	case (m.Version >= wire.BoundVersion) != (bound != nil) || (bound == nil && s.conn.Secured()):
		s.refuse(h, block.Invalid, fmt.Sprintf("a hello of protocol version %d in the form of another version", m.Version))
	case len(m.Nonce) != wire.NonceSize:
		s.refuse(h, block.Invalid, fmt.Sprintf("nonce of %d bytes", len(m.Nonce)))
	case m.VolumeUUID != c.VolumeUUID:
		s.refuse(h, block.Refused, fmt.Sprintf("this is a replica of volume %s (%s), not of %s (%s)", c.VolumeName,
			c.VolumeUUID, m.VolumeName, m.VolumeUUID))
	case m.Reader != nil:
		s.admitReader(h, &m, bound)
	case !s.proved(&m, bound, c.Secret, s.r.digester,
		wire.EngineProof(c.Secret, c.VolumeUUID, m.Epoch, s.nonce, m.Nonce)):
		s.refuse(h, block.Refused, "the volume's secret does not match, or the handshake was changed on its way")
	case s.ledHere(h, &m):
	case m.Prepared:
		s.prepare(h, &m)
	case s.r.blocks != nil && promisedToNewer(&s.r.record, &m):
		s.refuseOlder(h, &m, s.r.record.Promised, s.r.record.Engine)
	default:
		if o := s.r.promising(); o != nil && isOlder(o.epoch, o.engine, &m) {
			// It is as good as promised. Ending that session for one that is refused a moment later
			// would leave nobody.
			s.refuseOlder(h, &m, o.epoch, o.engine)
			return
		}
		for _, o := range s.r.conns {
			if o != nil && o != s && (o.phase == sessionOpen || o.phase == sessionPromising || o.released) {
				o.end(fmt.Sprintf("engine %s takes over with epoch %d", m.Engine, m.Epoch))
			}
		}
		s.phase, s.released = sessionPromising, false
		s.epoch, s.engine, s.version, s.notices = m.Epoch, m.Engine, m.Version, m.Notices
		hdr := *h
		s.r.enqueue(&metaOp{exclusive: true, s: s, both: func(w *worker, l *sidecarSet) any { return w.promise(l, &m) },
			done: func(v any) { s.promised(&hdr, &m, v) }})
	}
}

// proved checks the proof of a hello, and secures the connection with it; old is what the proof of
// an earlier version has to be.
func (s *session) proved(m *wire.HelloMessage, bound *wire.BoundHello, key []byte, d *wire.Digester,
	old []byte) bool {
	if bound == nil {
		return wire.SameProof(m.Proof, old)
	}
	if !bound.Proved(key, s.greeting, m.Reader != nil) {
		return false
	}
	if !s.conn.Secured() {
		s.conn.Secure(bound.Keys(key, s.greeting, d))
	}
	return true
}

// ledHere refuses a hello that was meant for another replica.
func (s *session) ledHere(h *wire.Header, m *wire.HelloMessage) bool {
	if m.Version < wire.BoundVersion {
		return false
	}
	err := m.Bound(s.r.cfg.Member, s.at)
	if err != nil {
		s.refuse(h, block.Refused, err.Error())
	}
	return err != nil
}

// proof is the replica's proof for an engine of an earlier version, nil for others, whom the tag of
// the frame tells.
func (s *session) proof(key []byte, m *wire.HelloMessage) []byte {
	if m.Version >= wire.BoundVersion {
		return nil
	}
	return wire.ReplicaProof(key, s.r.cfg.VolumeUUID, m.Epoch, s.nonce, m.Nonce)
}

func (s *session) refuse(h *wire.Header, code block.Code, text string) {
	s.r.cfg.Event("refused", text)
	s.send(h.Answer(code), wire.Marshal(wire.HelloReply{Error: text}))
	s.phase = sessionGreeted
}

// promising returns the session whose promise is on its way to the disk, nil if there is none.
func (r *Replica) promising() *session {
	for _, s := range r.conns {
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

// refuseOlder refuses an engine because of the one that has the promise. The proof says that it is
// this replica's word.
func (s *session) refuseOlder(h *wire.Header, m *wire.HelloMessage, epoch uint64, engine string) {
	s.send(h.Answer(block.Fenced), wire.Marshal(wire.HelloReply{Promised: epoch,
		Proof: s.proof(s.r.cfg.Secret, m),
		Error: fmt.Sprintf("epoch %d is promised to engine %s", epoch, engine)}))
}
