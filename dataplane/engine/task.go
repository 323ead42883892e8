package engine

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// task is one operation on replicas: a piece of a frontend's request, or something the engine does
// for itself.
type task struct {
	e          *Engine
	index, gen uint32
	used       bool
	kind       wire.Type
	fua        bool
	// flags go into the frame as they are.
	flags  uint8
	off, n int64
	// arrived is when the frontend asked, sent when the replicas were asked last.
	arrived, sent clock.Ticks
	// seg is the payload of a write or the destination of a read; message a payload outside the
	// arena, which is not changed any more.
	seg     loop.Seg
	message []byte
	layer   uint32
	req     *request
	// Links by bit: asked, still pending, and how each answered.
	asked, pending, ok, full, bad uint32
	// tried links must not be asked again for this read. shared links have the data in a slot.
	tried, shared uint32
	// ioErrors are links whose disks have failed in this, of those in bad.
	ioErrors uint32
	// unreadable are links whose disks could not read this.
	unreadable uint32
	// stage is how far a write is. lock is what the task has as long as it holds its range lock.
	stage writeStage
	lock  holding
	// completed is how many writes had been completed when this flush began.
	completed uint64
	// undecided is a write that only a replica which is about to become a member has carried out: it
	// begins again when that is decided.
	undecided bool
	// bounce marks a segment that belongs to the task rather than to a request.
	bounce bool
	// view: on the snapshot that a scrub has opened, not on the head.
	view bool
	// done continues an internal task; answer receives the payload of a single-link one.
	done   func(t *task)
	answer func(code block.Code, p []byte)
	code   block.Code
}

// holding is one holding of a range lock. What was read under a lock is true as long as the lock is
// held, so it belongs to the holding and is given up with it: a task that has to wait without its
// lock begins again with nothing but its request.
type holding struct {
	mode lockMode
	// wide is the payload of a write below block.Size with what surrounds it: whole blocks. Empty
	// if it is written as it is.
	wide loop.Seg
}

type lockMode uint8

const (
	unlocked lockMode = iota
	shared
	exclusive
)

// extent is what the replicas are asked to read or write: the request's, or the whole blocks around
// it.
func (t *task) extent() (off, n int64, seg loop.Seg) {
	if t.lock.wide.Len == 0 {
		return t.off, t.n, t.seg
	}
	beg, end := widen(t.off, t.n)
	return beg, end - beg, t.lock.wide
}

func (t *task) seg64() int64 { return int64(t.seg.Len) }

func (t *task) id() uint64 { return uint64(t.gen)<<32 | uint64(t.index) }

// writes reports whether the task changes the volume's content.
func (t *task) writes() bool {
	return t.kind == wire.Write || t.kind == wire.WriteZeroes || t.kind == wire.Discard
}

// reads reports whether the answer carries data for the task's segment.
func (t *task) reads() bool { return t.kind == wire.Read || t.kind == wire.LayerRead }

// tasks are what replicas are asked for.
type tasks struct {
	e *Engine
	// all is the pool, unused the indices of those that nothing is done with.
	all    []*task
	unused []uint32
}

// take takes a task from the pool. Frontends bound their requests, so the pool stays bounded
// too.
func (k *tasks) take(kind wire.Type) *task {
	var t *task
	if n := len(k.unused); n > 0 {
		t = k.all[k.unused[n-1]]
		k.unused = k.unused[:n-1]
	} else {
		t = &task{e: k.e, index: uint32(len(k.all))}
		k.all = append(k.all, t)
	}
	*t = task{e: t.e, index: t.index, gen: t.gen + 1, used: true, kind: kind}
	return t
}

func (k *tasks) release(t *task) {
	if t.bounce {
		k.e.arena.Release(t.seg.Buf)
	}
	t.used, t.req, t.done, t.answer, t.message = false, nil, nil, nil, nil
	k.unused = append(k.unused, t.index)
}

// of finds the task a response of link l belongs to, nil if there is none: a replica that
// answers twice.
func (k *tasks) of(id uint64, l *link) *task {
	i := uint32(id)
	if int(i) >= len(k.all) {
		return nil
	}
	t := k.all[i]
	if !t.used || t.gen != uint32(id>>32) || t.pending&l.bit() == 0 {
		return nil
	}
	return t
}

// send asks the links in mask. The task's result is complete when all have answered.
func (k *tasks) send(t *task, mask uint32) {
	e := k.e
	off, n, seg := t.extent()
	h := wire.Header{Type: t.kind, ID: t.id(), Epoch: e.quorum.Epoch(), Off: off, Len: n, Layer: t.layer, Flags: t.flags}
	if t.fua {
		h.Flags |= wire.FUA
	}
	if t.view {
		h.Flags |= wire.AtView
	}
	message := t.message
	if t.lock.wide.Len > 0 {
		message = nil // it is in there
	}
	payload := !t.reads() && seg.Len > 0
	data := wire.NewPayload(e.arena, seg)
	e.unwritten.note(t)
	t.sent = e.now
	t.asked |= mask
	t.pending |= mask
	for _, l := range e.links.all {
		if l == nil || mask&l.bit() == 0 {
			continue
		}
		if l.load == 0 {
			l.heard = e.now
		}
		l.load++
		if shared := h; message == nil && l.share(t.id(), &shared, seg) {
			t.shared |= l.bit()
			l.conn.Send(&shared)
		} else if payload {
			e.arena.Retain(seg.Buf)
			l.conn.SendPayload(&h, &data, mask == l.bit())
		} else {
			l.conn.SendMessage(&h, message)
		}
	}
}

// answered takes the response of one link.
func (k *tasks) answered(l *link, h *wire.Header, p []byte) {
	t := k.of(h.ID, l)
	if t == nil {
		l.conn.Fail(wire.ErrFrame)
		return
	}
	into, want := loop.Seg{}, t.seg64()
	if t.reads() {
		into = t.seg
	}
	shared := t.shared&l.bit() != 0
	if t.shared &^= l.bit(); shared {
		want = 0
	}
	if h.Type != t.kind || !l.takeBack(shared, t.id(), h, into) ||
		(h.Code == block.OK && t.reads() && int64(h.Payload) != want) {
		l.conn.Fail(fmt.Errorf("%w: %s answered by %s with %d bytes", wire.ErrFrame, t.kind, h.Type, h.Payload))
		return
	}
	l.load--
	t.pending &^= l.bit()
	switch h.Code {
	case block.OK:
		t.ok |= l.bit()
	case block.NoSpace:
		t.full |= l.bit()
	default:
		t.bad |= l.bit()
	}
	if h.Code != block.OK {
		// The last failure counts: an answer of OK that comes later, from a replica that does not
		// count, must not hide it.
		t.code = h.Code
	}
	if h.Code == block.IOError {
		t.ioErrors |= l.bit()
	}
	if h.Code == block.Fenced {
		// A newer engine holds the epoch there. Whether it is allowed to is for the witness to say.
		l.conn.Fail(errFenced)
	} else {
		l.confirmed(t.sent)
	}
	if t.answer != nil {
		t.answer(h.Code, p)
	}
	if t.pending == 0 {
		k.complete(t)
	}
}

// failOwed fails whatever link l still owed an answer for.
func (k *tasks) failOwed(l *link) {
	for _, t := range k.all {
		if !t.used || t.pending&l.bit() == 0 {
			continue
		}
		t.pending &^= l.bit()
		t.shared &^= l.bit()
		t.bad |= l.bit()
		t.code = block.Unavailable
		if t.answer != nil {
			t.answer(block.Unavailable, nil)
		}
		if t.pending == 0 {
			k.complete(t)
		}
	}
}

// complete routes a task whose links have all answered.
func (k *tasks) complete(t *task) {
	e := k.e
	if t.done != nil {
		done := t.done
		done(t)
		return
	}
	switch {
	case t.req == nil:
		k.release(t)
	case t.kind == wire.Read:
		e.requests.readDone(t)
	case t.writes():
		e.requests.advance(t)
	default:
		e.requests.flushDone(t)
	}
}

// count is 1 for true.
func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// control sends a control request to the replica; reply is called once.
func (l *link) control(r *wire.ControlRequest, reply func(block.Code, *wire.ControlReply)) {
	if l.phase != sessionReady {
		reply(block.Unavailable, &wire.ControlReply{Error: "replica is not connected"})
		return
	}
	e := l.e
	t := e.tasks.take(wire.Control)
	t.message = wire.Marshal(r)
	slow, long := count(isSlow(r)), count(isLong(r))
	l.working, l.long = l.working+slow, l.long+long
	t.answer = func(code block.Code, p []byte) {
		l.working, l.long = l.working-slow, l.long-long
		r := &wire.ControlReply{}
		if len(p) > 0 {
			if err := wire.Unmarshal(p, r); err != nil {
				code, r.Error = block.Invalid, err.Error()
			}
		}
		if code == block.Unavailable && r.Error == "" {
			r.Error = l.err
		}
		reply(code, r)
	}
	e.tasks.send(t, l.bit())
}

// askHashes starts a task that asks the links in mask for hashes; done gets them by the bits of
// those that told one, and owns the task.
func (k *tasks) askHashes(t *task, mask uint32, done func(t *task, sums map[uint32][]byte)) {
	sums := map[uint32][]byte{}
	left := mask
	t.answer = func(code block.Code, p []byte) {
		// Answers come one by one; the link is the one whose bit has just left pending.
		bit := left &^ t.pending
		left = t.pending
		if code == block.OK {
			sums[bit] = p
		}
	}
	k.start(t, mask, func(t *task) { done(t, sums) })
}

// start starts a task of the engine's own on the links in mask; done owns the task and must free
// it.
func (k *tasks) start(t *task, mask uint32, done func(t *task)) {
	t.done = done
	if mask == 0 {
		t.code = block.Unavailable
		done(t)
		return
	}
	k.send(t, mask)
}
