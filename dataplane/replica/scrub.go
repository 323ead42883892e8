package replica

import (
	"bytes"
	"errors"
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// scrubbing is a computation of checksums that is under way. It is touched by metadata operations
// only, of which one runs at a time; what says what it computes, by whose it is.
type scrubbing struct {
	hash *chain.Hash
	what wire.HashSnapshot
	by   uint64 // session.run
}

// close gives up the computation.
func (c *scrubbing) close() error {
	if c.hash == nil {
		return nil
	}
	return c.endHash()
}

// scrubControl carries out what serves scrubs and checksums; false: the message is none of these.
func (r *Replica) scrubControl(s *session, h *wire.Header, m *wire.ControlRequest) bool {
	switch {
	case m.OpenView != nil:
		r.openView(s, h, m.OpenView)
	case m.CloseView != nil:
		r.closeView(s, h)
	case m.Verify != nil:
		r.verify(s, h, m.Verify)
	case m.KeepView != nil:
		r.keepView(s, h, m.KeepView)
	case m.HashSnapshot != nil:
		r.hashSnapshot(s, h, m.HashSnapshot)
	case m.CancelHash != nil:
		r.cancelHash(s, h)
	case m.HashLock != nil:
		r.hashLock(s, h)
	default:
		return false
	}
	return true
}

// viewed is the result of opening a view.
type viewed struct {
	view *chain.Blocks
	err  error
}

// openView opens a snapshot for the session, instead of what was open before. Requests go on
// meanwhile: it takes a second for a million pieces, and all replicas open a snapshot at once. Only
// a view that may be in use is closed while nothing is in flight.
func (r *Replica) openView(s *session, h *wire.Header, m *wire.OpenView) {
	if s.view != nil {
		r.dropView(s, s, true, func(err error) {
			if err != nil {
				r.cfg.Event("view-failed", err.Error())
			}
		})
	}
	id, snapshot := s.run, m.Snapshot
	r.ops.enqueue(&metaOp{s: s, run: func(w *worker) any {
		view, err := w.openView(id, snapshot)
		return viewed{view, err}
	}, done: func(v any) {
		res := v.(viewed)
		if res.err != nil {
			r.replyErr(s, h, res.err)
			return
		}
		s.view = res.view
		r.reply(s, h, block.OK, wire.ControlReply{View: &wire.ViewReply{Size: res.view.Size()}})
		if s.closing() {
			r.leave(s)
		}
	}})
}

// dropView gives back the blocks of the session's view. The worker has closed it.
func (s *session) dropView() {
	if s.view != nil {
		s.view.Free()
	}
	s.view = nil
}

// replies answers with the result of a metadata operation.
func (r *Replica) replies(s *session, h *wire.Header) func(v any) {
	return func(v any) {
		res := v.(result)
		if res.err != nil {
			r.replyErr(s, h, res.err)
			return
		}
		r.reply(s, h, block.OK, res.reply)
	}
}

func (r *Replica) closeView(s *session, h *wire.Header) {
	r.dropView(s, s, true, func(err error) { r.replyErr(s, h, err) })
}

// leave closes what a session that has ended had open: no request of it is left that could read
// there.
func (r *Replica) leave(s *session) {
	if s.hashed {
		id := s.run
		r.ops.enqueue(&metaOp{run: func(w *worker) any { return result{err: w.scrub.leaveHash(id)} }, done: func(v any) {
			if err := v.(result).err; err != nil {
				r.cfg.Event("hash-failed", err.Error())
			}
		}})
	}
	if s.view == nil {
		return
	}
	r.dropView(nil, s, false, func(err error) {
		if err != nil {
			r.cfg.Event("view-failed", err.Error())
		}
	})
}

// dropView closes the view of a session. It is done for the session by, nil for nobody.
func (r *Replica) dropView(by, of *session, exclusive bool, done func(error)) {
	id := of.run
	r.ops.enqueue(&metaOp{exclusive: exclusive, s: by, run: func(w *worker) any {
		return result{err: w.closeView(id)}
	}, done: func(v any) {
		of.dropView()
		done(v.(result).err)
	}})
}

var errNoView = fmt.Errorf("%w: no snapshot is open here", chain.ErrInvalid)

func (r *Replica) verify(s *session, h *wire.Header, m *wire.Verify) {
	var where chain.Where
	var wrong error
	id, off, n := s.run, m.Off, m.Len
	r.ops.enqueue(&metaOp{s: s, begin: func() { where, wrong = s.where(off, n) }, run: func(w *worker) any {
		if wrong != nil {
			return result{err: wrong}
		}
		verdict, rot, err := w.views[id].Verify(off, n, where)
		return result{err: err,
			reply: wire.ControlReply{Verify: &wire.VerifyReply{Verdict: verdict.String(), Rot: rotOf(rot)}}}
	}, done: r.replies(s, h)})
}

// where looks up a range of the session's view. A view that is open here is open at the worker,
// too.
func (s *session) where(off, n int64) (chain.Where, error) {
	v := s.view
	switch {
	case v == nil:
		return chain.Where{}, errNoView
	case off < 0 || n <= 0 || n > wire.MaxPayload || off > v.Size() || n > v.Size()-off:
		return chain.Where{}, fmt.Errorf("%w: range [%d,+%d) of %d bytes", chain.ErrInvalid, off, n, v.Size())
	}
	return v.Where(off, n), nil
}

func rotOf(list []chain.LayerRot) []wire.Rot {
	var out []wire.Rot
	for _, l := range list {
		out = append(out, wire.Rot{Snapshot: l.Snapshot, Off: l.Off, Len: l.Len, Unreadable: l.Unreadable})
	}
	return out
}

// hashSnapshot does one piece of a computation, beside I/O.
func (r *Replica) hashSnapshot(s *session, h *wire.Header, m *wire.HashSnapshot) {
	s.hashed = true
	id, what := s.run, *m
	r.ops.enqueue(&metaOp{s: s, run: func(w *worker) any {
		reply, err := w.scrub.hashPiece(w.files, id, &what)
		return result{err: err, reply: wire.ControlReply{Hash: reply}}
	}, done: r.replies(s, h)})
}

// cancelHash ends the session's computation and so frees the disk's lock.
func (r *Replica) cancelHash(s *session, h *wire.Header) {
	id := s.run
	r.blocking(s, h, func(w *worker) error { return w.scrub.leaveHash(id) })
}

// hashLock tells whether anybody computes a checksum on this disk.
func (r *Replica) hashLock(s *session, h *wire.Header) {
	r.ops.enqueue(&metaOp{s: s, run: func(w *worker) any {
		locked, err := w.files.HashLocked()
		return result{err: err, reply: wire.ControlReply{HashLock: &wire.HashLockReply{Locked: locked}}}
	}, done: r.replies(s, h)})
}

// hashPiece begins the computation, or goes on with it, or ends it. One session's takes the place
// of another's.
func (c *scrubbing) hashPiece(ch *chain.Files, id uint64, m *wire.HashSnapshot) (*wire.HashReply, error) {
	if c.hash != nil && (c.by != id || c.what.Snapshot != m.Snapshot || c.what.Rehash != m.Rehash) {
		if err := c.endHash(); err != nil {
			return nil, err
		}
	}
	if c.hash == nil {
		h, err := ch.NewHash(m.Snapshot, m.Rehash)
		if errors.Is(err, chain.ErrInUse) {
			return &wire.HashReply{Waiting: true}, nil
		}
		if err != nil {
			return nil, err
		}
		c.hash, c.what, c.by = h, *m, id
	}
	done, err := c.hash.Work()
	if err == nil && !done {
		return &wire.HashReply{Progress: c.hash.Progress(), Read: c.hash.Position()}, nil
	}
	reply := &wire.HashReply{Done: true, Progress: 100, Read: c.hash.Position()}
	if err == nil {
		var res chain.HashResult
		res, err = c.hash.Finish(m.At)
		reply.Checksum, reply.Reused, reply.Corrupted = res.Checksum, res.Reused, res.Corrupted
		for _, rot := range res.Rot {
			reply.Rot = append(reply.Rot, wire.Rot{Snapshot: m.Snapshot, Off: rot.Off, Len: rot.Len, Unreadable: rot.Unreadable})
		}
	}
	return reply, errors.Join(err, c.endHash())
}

func (c *scrubbing) endHash() error {
	h := c.hash
	c.hash, c.what, c.by = nil, wire.HashSnapshot{}, 0
	return h.Close()
}

// leaveHash ends the computation if it is the session's.
func (c *scrubbing) leaveHash(id uint64) error {
	if c.hash == nil || c.by != id {
		return nil
	}
	return c.endHash()
}

// runView carries out a request on the open view. false: no buffer now, try again later.
func (r *Replica) runView(s *session, h *wire.Header, payload loop.Seg) bool {
	v := s.view
	if v == nil || h.Len <= 0 || h.Len > block.MaxTransfer || (h.Off|h.Len)%block.Size != 0 ||
		h.Off > v.Size() || h.Len > v.Size()-h.Off {
		return r.requests.refuse(s, h, payload)
	}
	switch h.Type {
	case wire.Read, wire.Hash:
		return r.readView(s, h, v, payload)
	case wire.Write:
		if int64(payload.Len) == h.Len {
			r.repair(s, h, payload)
			return true
		}
	}
	return r.requests.refuse(s, h, payload)
}

func (r *Replica) readView(s *session, h *wire.Header, v *chain.Blocks, room loop.Seg) bool {
	r.requests.plan = v.ReadPlan(h.Off, h.Len, r.requests.plan[:0])
	if plan := r.requests.plan; h.Type == wire.Hash && len(plan) == 1 && plan[0].Handle == chain.NoHandle &&
		h.Len == block.MaxTransfer {
		return r.requests.zeroHash(s, h)
	}
	b, ok := s.buffer(h.Len, room)
	if !ok {
		return false
	}
	j := r.requests.add(s, h, loop.Seg{})
	j.buf, j.base = b, h.Off
	j.next = r.requests.readDone
	j.pending++
	r.requests.readPlan(j, v, r.requests.plan, b, 0)
	r.requests.step(j)
	return true
}

// repair makes the open snapshot read the payload, while nothing else is in flight.
func (r *Replica) repair(s *session, h *wire.Header, payload loop.Seg) {
	hdr, data := *h, bytes.Clone(r.arena.Seg(payload))
	r.release(payload)
	r.writeView(s, viewWrite{off: hdr.Off, n: int64(len(data)), data: data},
		func(err error) { s.answer(&hdr, codeOf(err)) })
}

// keepView makes what the open snapshot reads independent of an older one.
func (r *Replica) keepView(s *session, h *wire.Header, m *wire.KeepView) {
	r.writeView(s, viewWrite{off: m.Off, n: m.Len, keep: true, below: m.Below},
		func(err error) { r.replyErr(s, h, err) })
}

// viewWrite is a write to the file of the open snapshot: of data, or to keep what it reads from the
// snapshot below and further down.
type viewWrite struct {
	off, n int64
	data   []byte
	keep   bool
	below  string
}

// writeView carries out a write to the file of the open snapshot, while nothing else is in flight.
func (r *Replica) writeView(s *session, q viewWrite, done func(err error)) {
	var where chain.Where
	var wrong error
	id := s.run
	r.ops.enqueue(&metaOp{exclusive: true, s: s, begin: func() {
		where, wrong = s.where(q.off, q.n)
	}, both: func(w *worker, l *sidecarSet) any {
		if wrong != nil {
			return repaired{err: wrong}
		}
		if q.keep {
			written, err := w.views[id].Keep(l.side, q.below, q.off, q.n, where)
			return repaired{written, err}
		}
		written, err := w.views[id].Repair(l.side, q.off, q.data, where)
		return repaired{written, err}
	}, done: func(v any) {
		res := v.(repaired)
		r.blocks.Repaired(res.Repaired)
		for _, o := range r.sessions.conns {
			if o != nil && o.view != nil {
				o.view.Repaired(res.Repaired)
			}
		}
		for _, w := range res.Written {
			r.cfg.Event("repaired", fmt.Sprintf("%d bytes at %d", w.Len, w.Off))
		}
		if res.err != nil {
			r.cfg.Event("repair-failed", res.err.Error())
		}
		done(res.err)
	}})
}

// repaired is the result of a repair.
type repaired struct {
	chain.Repaired
	err error
}
