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
//
// Its own are all fields here. What it needs of the blocks it asks for when its turn comes.
type whiteouts struct {
	r *Replica
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
	// discards is the plan of the request that is being looked at.
	discards []chain.ZeroRange
}

// whiteoutWait is somebody who waits for all whiteouts set so far, and, if sync is set, for their
// durability.
type whiteoutWait struct {
	sync bool
	done func(code block.Code)
}

// whiteoutsDone is the result of a write.
type whiteoutsDone struct{ err error }

// settle calls done when all whiteouts set so far are written, or durable.
func (w *whiteouts) settle(sync bool, done func(code block.Code)) {
	w.later = append(w.later, whiteoutWait{sync, done})
	w.start()
}

func (w *whiteouts) start() {
	for w.write == nil && len(w.later) > 0 {
		w.now, w.later = w.later, nil
		sync := false
		for _, x := range w.now {
			sync = sync || x.sync
		}
		if w.write = w.r.blocks.PendingWhiteouts(sync); w.write == nil {
			w.settled(block.OK)
			continue
		}
		do := w.write.Do
		w.r.op(loop.Op{Kind: loop.Call, Tag: loop.Tag(ownerWhiteouts, 0), Fn: func() any { return whiteoutsDone{do()} }})
	}
}

func (w *whiteouts) finished(d *loop.Done) {
	write := w.write
	err := d.Value.(whiteoutsDone).err
	w.write = nil
	w.took(write, err)
	code := block.OK
	if err != nil {
		code = block.IOError // also where it is no space: it was made before
		w.r.cfg.Event("io-error", "whiteouts: "+err.Error())
	}
	w.settled(code)
	if err != nil && write.Synced() {
		w.r.fail("whiteouts could not be synced: the content of the disk is no longer known")
		return
	}
	w.start()
}

// took enters how a write ended.
func (w *whiteouts) took(write *chain.WhiteoutWrite, err error) {
	w.r.blocks.WhiteoutsWritten(write, err)
	if lost := write.Uncopied(); lost != nil {
		w.r.cfg.Event("io-error", "whiteouts are in one slot only: "+lost.Error())
	}
}

func (w *whiteouts) settled(code block.Code) {
	now := w.now
	w.now = nil
	for _, x := range now {
		x.done(code)
	}
}

// room reports whether a plan has room for its whiteouts. If not it is being made, beside
// I/O, and the request has to try again; ok is false then, with the code why it never will be.
func (w *whiteouts) room(s *session, h *wire.Header, plan []chain.ZeroRange) (ok bool, code block.Code) {
	want, missing := w.r.blocks.WhiteoutsWanted(plan)
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
	w.r.ops.enqueue(&metaOp{run: func(w *worker) any { return w.whiteoutRoom(want) }, done: func(v any) {
		w.asked = false
		w.retryPostponed()
		res := v.(roomMade)
		switch {
		case w.r.blocks == nil:
		case res.err == nil:
			w.r.blocks.TakeRoom(res.room)
		default:
			w.refused.s, w.refused.id, w.refused.code = s, id, codeOf(res.err)
			w.r.cfg.Event("whiteouts-failed", res.err.Error())
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
func (w *whiteouts) retryPostponed() {
	for _, s := range w.r.sessions.conns {
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
func (w *whiteouts) discard(s *session, h *wire.Header, payload loop.Seg) bool {
	w.discards = w.r.blocks.DiscardPlan(h.Off, h.Len, w.discards[:0])
	if ok, code := w.room(s, h, w.discards); !ok {
		if code == block.OK {
			s.postpone(h, payload)
			return true
		}
		s.answer(h, code)
		w.r.release(payload)
		return true
	}
	j := w.r.requests.add(s, h, payload)
	j.zeros = append(j.zeros, w.discards...)
	hides, sync := false, false
	for _, z := range j.zeros {
		if z.Whiteout {
			w.r.blocks.SetWhiteouts(z.Off, z.Len, true)
			hides, sync = true, sync || z.Punch
		}
	}
	if !hides {
		w.punch(j)
		return true
	}
	w.settle(sync, func(code block.Code) {
		if j.code = code; code != block.OK {
			w.hidden(j)
			w.r.requests.finish(j, code, loop.Seg{})
			return
		}
		w.punch(j)
	})
	return true
}

// punch makes the holes of a discard; whatever they would show is hidden.
func (w *whiteouts) punch(j *job) {
	j.next = w.discarded
	j.pending++
	for _, z := range j.zeros {
		if z.Punch {
			w.r.requests.punchHead(j, z.Off, z.Len)
		}
	}
	w.r.requests.step(j)
}

// hidden enters the whiteouts of a discard that failed into the map. Their bits are set, and the
// next write of the page brings them to the disk, even if this one did not: a block that is read
// from below until then would become zeroes later, without a request.
func (w *whiteouts) hidden(j *job) {
	for _, z := range j.zeros {
		if z.Whiteout && !z.Punch { // the others are in the head
			w.r.blocks.MarkHidden(z.Off, z.Len)
		}
	}
}

func (w *whiteouts) discarded(j *job) {
	if j.code != block.OK {
		w.hidden(j)
		w.r.requests.remap(j, j.h.Off, j.h.Len)
		return
	}
	for _, z := range j.zeros {
		if z.Whiteout {
			w.r.blocks.MarkHidden(z.Off, z.Len)
		} else {
			w.r.blocks.MarkPunched(z.Off, z.Len)
		}
	}
	w.r.requests.written(j)
}
