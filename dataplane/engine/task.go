package engine

import (
	"bytes"
	"fmt"

	"ankole.storage/block"
	"ankole.storage/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// task is one operation on replicas: a piece of a frontend's request, or something the engine does for itself.
type task struct {
	index, gen uint32
	used       bool
	kind       wire.Type
	fua        bool
	off, n     int64
	// arrived is when the frontend asked, sent when the replicas were asked last.
	arrived, sent clock.Ticks
	// seg is the payload of a write or the destination of a read.
	seg   loop.Seg
	layer uint32
	req   *request
	// Links by bit: asked, still pending, and how each answered.
	asked, pending, ok, full, bad uint32
	// tried links must not be asked again for this read.
	tried uint32
	// heal are links whose disks could not read this.
	heal uint32
	// locked says which range lock is held: 0 none, 1 shared, 2 exclusive.
	locked uint8
	// bounce marks a segment that belongs to the task rather than to a request.
	bounce bool
	// view: on the snapshot that a scrub has opened, not on the head.
	view bool
	// done continues an internal task; answer receives the payload of a single-link one.
	done   func(t *task)
	answer func(code block.Code, p []byte)
	code   block.Code
}

func (t *task) seg64() int64 { return int64(t.seg.Len) }

func (t *task) id() uint64 { return uint64(t.gen)<<32 | uint64(t.index) }

// writes reports whether the task changes the volume's content.
func (t *task) writes() bool {
	return t.kind == wire.Write || t.kind == wire.WriteZeroes || t.kind == wire.Discard
}

// reads reports whether the answer carries data for the task's segment.
func (t *task) reads() bool { return t.kind == wire.Read || t.kind == wire.LayerRead }

// newTask takes a task from the pool. Frontends bound their requests, so the pool stays bounded too.
func (e *Engine) newTask(kind wire.Type) *task {
	var t *task
	if n := len(e.freeTask); n > 0 {
		t = e.tasks[e.freeTask[n-1]]
		e.freeTask = e.freeTask[:n-1]
	} else {
		t = &task{index: uint32(len(e.tasks))}
		e.tasks = append(e.tasks, t)
	}
	*t = task{index: t.index, gen: t.gen + 1, used: true, kind: kind}
	return t
}

func (e *Engine) freeOf(t *task) {
	if t.bounce {
		e.arena.Release(t.seg.Buf)
	}
	t.used, t.req, t.done, t.answer = false, nil, nil, nil
	e.freeTask = append(e.freeTask, t.index)
}

// taskOf finds the task a response of link l belongs to, nil if there is none: a replica that answers twice.
func (e *Engine) taskOf(id uint64, l *link) *task {
	i := uint32(id)
	if int(i) >= len(e.tasks) {
		return nil
	}
	t := e.tasks[i]
	if !t.used || t.gen != uint32(id>>32) || t.pending&l.bit() == 0 {
		return nil
	}
	return t
}

// send asks the links in mask. The task's result is complete when all have answered.
func (e *Engine) send(t *task, mask uint32) {
	h := wire.Header{Type: t.kind, ID: t.id(), Epoch: e.quorum.Epoch(), Off: t.off, Len: t.n, Layer: t.layer}
	if t.fua {
		h.Flags |= wire.FUA
	}
	if t.view {
		h.Flags |= wire.AtView
	}
	payload := !t.reads() && t.seg.Len > 0
	inHeadroom := false
	if payload {
		wire.Prepare(e.arena, &h, t.seg)
		inHeadroom = wire.EncodeInHeadroom(e.arena, &h, t.seg)
	}
	t.sent = e.now
	t.asked |= mask
	t.pending |= mask
	for _, l := range e.links {
		if l == nil || mask&l.bit() == 0 {
			continue
		}
		if l.load == 0 {
			l.heard = e.now
		}
		l.load++
		if payload {
			e.arena.Retain(t.seg.Buf)
			l.conn.SendPayload(&h, t.seg, inHeadroom)
		} else {
			l.conn.Send(&h)
		}
	}
}

// answered takes the response of one link.
func (e *Engine) answered(l *link, h *wire.Header, p []byte) {
	t := e.taskOf(h.ID, l)
	if t == nil {
		l.conn.Fail(wire.ErrFrame)
		return
	}
	if h.Type != t.kind || (h.Code == block.OK && t.reads() && int64(h.Payload) != t.seg64()) {
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
		// The last failure counts: an answer of OK that comes later, from a replica that does not count, must not hide it.
		t.code = h.Code
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
		e.complete(t)
	}
}

// settleLink fails whatever link l still owed an answer for.
func (e *Engine) settleLink(l *link) {
	for _, t := range e.tasks {
		if !t.used || t.pending&l.bit() == 0 {
			continue
		}
		t.pending &^= l.bit()
		t.bad |= l.bit()
		t.code = block.Unavailable
		if t.answer != nil {
			t.answer(block.Unavailable, nil)
		}
		if t.pending == 0 {
			e.complete(t)
		}
	}
}

// complete routes a task whose links have all answered.
func (e *Engine) complete(t *task) {
	if t.done != nil {
		done := t.done
		done(t)
		return
	}
	switch {
	case t.req == nil:
		e.freeOf(t)
	case t.kind == wire.Read:
		e.readDone(t)
	case t.writes():
		e.writeDone(t)
	default:
		e.flushDone(t)
	}
}

// control sends a control request to one link; reply is called once.
func (e *Engine) control(l *link, r *wire.ControlRequest, reply func(block.Code, *wire.ControlReply)) {
	if l.phase != linkReady {
		reply(block.Unavailable, &wire.ControlReply{Error: "replica is not connected"})
		return
	}
	p := wire.Marshal(r)
	b, ok := e.arena.GetReserved(len(p))
	if !ok {
		reply(block.Unavailable, &wire.ControlReply{Error: "no buffer"})
		return
	}
	t := e.newTask(wire.Control)
	t.seg = loop.Seg{Buf: b, Len: int32(len(p))}
	t.bounce = true
	copy(e.arena.Seg(t.seg), p)
	t.answer = func(code block.Code, p []byte) {
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
	e.send(t, l.bit())
}

// askHashes starts a task that asks the links in mask for hashes; done gets them by the bits of those that told one, and owns the task.
func (e *Engine) askHashes(t *task, mask uint32, done func(t *task, sums map[uint32][]byte)) {
	sums := map[uint32][]byte{}
	left := mask
	t.answer = func(code block.Code, p []byte) {
		// Answers come one by one; the link is the one whose bit has just left pending.
		bit := left &^ t.pending
		left = t.pending
		if code == block.OK {
			sums[bit] = bytes.Clone(p)
		}
	}
	e.internal(t, mask, func(t *task) { done(t, sums) })
}

// internal starts a task of the engine's own on the links in mask; done owns the task and must free it.
func (e *Engine) internal(t *task, mask uint32, done func(t *task)) {
	t.done = done
	if mask == 0 {
		t.code = block.Unavailable
		done(t)
		return
	}
	e.send(t, mask)
}
