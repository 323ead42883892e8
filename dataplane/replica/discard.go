package replica

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// A discard sets whiteouts where something is below the head, waits until they are written, and
// punches what the head holds. Written is enough for an answer, as for a write; only before the
// head's own blocks go the whiteouts must be durable, since a crash would bring back what they
// hide, and that is older than what was there.

// whiteouts is the writing of the head's whiteouts: one write at a time, for everybody who waits.
type whiteouts struct {
	// write is under way, for those in now; later are for the next one.
	write      *chain.WhiteoutWrite
	now, later []whiteoutWait
	// asked: an operation makes room for more. refused is the request for which there was none, and
	// why.
	asked   bool
	refused struct {
		s    *session
		id   uint64
		code block.Code
	}
}

// whiteoutWait is somebody who waits for all whiteouts set so far, and, if sync is set, for their
// durability.
type whiteoutWait struct {
	sync bool
	done func(code block.Code)
}

// whiteoutsDone is the result of a write.
type whiteoutsDone struct{ err error }

// settleWhiteouts calls done when all whiteouts set so far are written, or durable.
func (r *Replica) settleWhiteouts(sync bool, done func(code block.Code)) {
	r.white.later = append(r.white.later, whiteoutWait{sync, done})
	r.startWhiteouts()
}

func (r *Replica) startWhiteouts() {
	w := &r.white
	for w.write == nil && len(w.later) > 0 {
		w.now, w.later = w.later, nil
		sync := false
		for _, x := range w.now {
			sync = sync || x.sync
		}
		if w.write = r.blocks.PendingWhiteouts(sync); w.write == nil {
			r.whiteoutsSettled(block.OK)
			continue
		}
		do := w.write.Do
		r.op(loop.Op{Kind: loop.Call, Tag: loop.Tag(ownerWhiteouts, 0), Fn: func() any { return whiteoutsDone{do()} }})
	}
}

func (r *Replica) whiteoutsDone(d *loop.Done) {
	w := r.white.write
	err := d.Value.(whiteoutsDone).err
	r.white.write = nil
	r.tookWhiteouts(w, err)
	code := block.OK
	if err != nil {
		code = block.IOError // also where it is no space: it was made before
		r.cfg.Event("io-error", "whiteouts: "+err.Error())
	}
	r.whiteoutsSettled(code)
	if err != nil && w.Synced() {
		r.fail("whiteouts could not be synced: the content of the disk is no longer known")
		return
	}
	r.startWhiteouts()
}

// tookWhiteouts enters how a write ended.
func (r *Replica) tookWhiteouts(w *chain.WhiteoutWrite, err error) {
	r.blocks.WhiteoutsWritten(w, err)
	if lost := w.Uncopied(); lost != nil {
		r.cfg.Event("io-error", "whiteouts are in one slot only: "+lost.Error())
	}
}

func (r *Replica) whiteoutsSettled(code block.Code) {
	now := r.white.now
	r.white.now = nil
	for _, x := range now {
		x.done(code)
	}
}

// whiteoutRoom reports whether a plan has room for its whiteouts. If not it is being made, beside
// I/O, and the request has to try again; ok is false then, with the code why it never will be.
func (r *Replica) whiteoutRoom(s *session, h *wire.Header, plan []chain.ZeroRange) (ok bool, code block.Code) {
	w := &r.white
	want, missing := r.blocks.WhiteoutsWanted(plan)
	if !missing {
		return true, block.OK
	}
	if w.asked {
		return false, block.OK
	}
	refused := w.refused
	w.refused.s = nil
	if refused.s == s && refused.id == h.ID {
		return false, refused.code
	}
	w.asked = true
	id := h.ID
	// For nobody's session: whoever asked may be gone when the room is there.
	r.enqueue(&metaOp{run: func(w *worker) any { return w.whiteoutRoom(want) }, done: func(v any) {
		r.white.asked = false
		r.retryPostponed()
		res := v.(roomMade)
		switch {
		case r.blocks == nil:
		case res.err == nil:
			r.blocks.TakeRoom(res.room)
		default:
			r.white.refused.s, r.white.refused.id, r.white.refused.code = s, id, codeOf(res.err)
			r.cfg.Event("whiteouts-failed", res.err.Error())
		}
	}})
	return false, block.OK
}

// postpone keeps a request until room for whiteouts has been made, or refused. Others go on
// meanwhile: the operation that makes it may wait behind one that takes longer than an engine waits
// for any answer.
func (s *session) postpone(h *wire.Header, payload loop.Seg) {
	s.postponed = append(s.postponed, frame{h: *h, payload: payload})
}

// retryPostponed lets requests that were postponed try again, at the end of the step.
func (r *Replica) retryPostponed() {
	for _, s := range r.conns {
		if s != nil && len(s.postponed) > 0 {
			s.waiting, s.postponed = append(s.postponed, s.waiting...), nil
		}
	}
}

// roomMade is the result of worker.whiteoutRoom.
type roomMade struct {
	room chain.WhiteoutRoom
	err  error
}

func (w *worker) whiteoutRoom(want chain.WhiteoutsWanted) roomMade {
	if w.files == nil {
		return roomMade{err: errStandby}
	}
	room, err := w.files.WhiteoutRoom(want)
	return roomMade{room, err}
}

// discard makes whole blocks read zero and gives their space back.
func (r *Replica) discard(s *session, h *wire.Header, payload loop.Seg) bool {
	r.discards = r.blocks.DiscardPlan(h.Off, h.Len, r.discards[:0])
	if ok, code := r.whiteoutRoom(s, h, r.discards); !ok {
		if code == block.OK {
			s.postpone(h, payload)
			return true
		}
		s.answer(h, code)
		r.release(payload)
		return true
	}
	j := r.newJob(s, h, payload)
	j.zeros = append(j.zeros, r.discards...)
	hides, sync := false, false
	for _, z := range j.zeros {
		if z.Whiteout {
			r.blocks.SetWhiteouts(z.Off, z.Len, true)
			hides, sync = true, sync || z.Punch
		}
	}
	if !hides {
		r.punch(j)
		return true
	}
	r.settleWhiteouts(sync, func(code block.Code) {
		if j.code = code; code != block.OK {
			r.hidden(j)
			r.finish(j, code, loop.Seg{})
			return
		}
		r.punch(j)
	})
	return true
}

// punch makes the holes of a discard; whatever they would show is hidden.
func (r *Replica) punch(j *job) {
	j.next = r.discarded
	j.pending++
	for _, z := range j.zeros {
		if z.Punch {
			r.punchHead(j, z.Off, z.Len)
		}
	}
	r.step(j)
}

// hidden enters the whiteouts of a discard that failed into the map. Their bits are set, and the
// next write of the page brings them to the disk, even if this one did not: a block that is read
// from below until then would become zeroes later, without a request.
func (r *Replica) hidden(j *job) {
	for _, z := range j.zeros {
		if z.Whiteout && !z.Punch { // the others are in the head
			r.blocks.MarkHidden(z.Off, z.Len)
		}
	}
}

func (r *Replica) discarded(j *job) {
	if j.code != block.OK {
		r.hidden(j)
		r.remap(j, j.h.Off, j.h.Len)
		return
	}
	for _, z := range j.zeros {
		if z.Whiteout {
			r.blocks.MarkHidden(z.Off, z.Len)
		} else {
			r.blocks.MarkPunched(z.Off, z.Len)
		}
	}
	r.written(j)
}
