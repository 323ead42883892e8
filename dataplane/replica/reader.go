package replica

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/wire"
)

// maxReaders bounds read-only sessions: each holds a map of its snapshot and some files.
const maxReaders = 8

// A reader is the engine of another volume that copies a snapshot of this one. The engine of this
// volume has granted it that, and only that: it promises nothing, ends no session, outlives a
// change of epoch, and can change nothing. Its snapshot is pinned: a purge leaves it alone while it
// is read.

// admitReader checks a reader's grant, whose key it knows, and opens the snapshot.
func (s *session) admitReader(h *wire.Header) {
	c, g := &s.r.cfg, s.grant
	switch {
	case c.Unix == nil || c.Unix() > g.Expires:
		s.refuse(h, block.Refused,
			fmt.Sprintf("the grant to read snapshot %s has expired: ask the volume's engine for another one", g.Snapshot))
		return
	case s.r.sessions.readers() >= maxReaders:
		s.refuse(h, block.LimitReached, fmt.Sprintf("%d sessions read here already; try later, or another replica",
			maxReaders))
		return
	}
	s.phase, s.reader = sessionOpening, true
	hdr := *h
	id, snapshot := s.run, g.Snapshot
	s.r.ops.enqueue(&metaOp{s: s, run: func(w *worker) any { return w.openReader(id, snapshot) }, done: func(v any) {
		res := v.(readerView)
		s.view = res.view
		switch {
		case s.closing():
			s.r.leave(s)
		case res.err != nil:
			s.reader = false
			s.refuse(&hdr, codeOf(res.err), res.err.Error())
		default:
			s.phase, s.epoch = sessionReading, 0
			s.r.cfg.Event("reader", fmt.Sprintf("volume %s reads snapshot %s", g.For, g.Snapshot))
			s.send(hdr.Answer(block.OK), wire.Marshal(wire.HelloReply{Size: res.view.Size()}))
		}
	}})
}

var errStandby = fmt.Errorf("%w: another process has the directory; ask that one", chain.ErrInvalid)

// readerView is a snapshot that was opened for a reader.
type readerView struct {
	view *chain.Blocks
	err  error
}

// readers counts read-only sessions.
func (c *sessions) readers() (n int) {
	for _, s := range c.conns {
		if s != nil && s.reader && !s.closing() {
			n++
		}
	}
	return n
}

// endReaders ends them all.
func (c *sessions) endReaders(reason string) {
	for _, s := range c.conns {
		if s != nil && s.reader {
			s.end(reason)
		}
	}
}

// readerMay tells whether a request is one of those that a reader may send at all.
func readerMay(h *wire.Header) bool {
	switch h.Type {
	case wire.Read, wire.Hash:
		return h.Flags&wire.AtView != 0
	case wire.Control:
		return true // looked at more closely when it is decoded
	}
	return false
}

// viewExtents lists where a reader's snapshot has data, or what was changed since an older one,
// from the map that its reads use: nothing is kept between two pages.
func (r *Replica) viewExtents(s *session, h *wire.Header, m *wire.ViewExtents) {
	if !s.reader {
		r.reply(s, h, block.Invalid, wire.ControlReply{Error: "this session is not a reader's"})
		return
	}
	if m.Since != "" {
		r.viewChanges(s, h, m)
		return
	}
	ranges, next := s.view.Ranges(m.Off, maxRanges)
	r.reply(s, h, block.OK, wire.ControlReply{Extents: &wire.ExtentsReply{Ranges: ranges, Next: next}})
}

// viewChanges lists what was written since an older snapshot, by the map, and what was discarded,
// by whiteouts, which are in files.
func (r *Replica) viewChanges(s *session, h *wire.Header, m *wire.ViewExtents) {
	ranges, next, ok := s.view.RangesSince(m.Since, m.Off, maxRanges)
	if !ok {
		r.reply(s, h, block.NotFound,
			wire.ControlReply{Error: fmt.Sprintf("there is no snapshot %.255q below the one that is read", m.Since)})
		return
	}
	off, since, id := max(0, m.Off), m.Since, s.run
	r.ops.enqueue(&metaOp{s: s, run: func(w *worker) any {
		v := w.views[id]
		if v == nil {
			return listed{err: chain.ErrInvalid} // the session has ended
		}
		ranges, next, err := v.HiddenSince(since, ranges, off, next, maxRanges)
		return listed{&wire.ExtentsReply{Ranges: ranges, Next: next}, err}
	}, done: func(v any) {
		if res := v.(listed); res.err != nil {
			r.replyErr(s, h, res.err)
		} else {
			r.reply(s, h, block.OK, wire.ControlReply{Extents: res.page})
		}
	}})
}
