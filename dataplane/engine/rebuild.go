package engine

import (
	"bytes"
	"fmt"
	"math/bits"

	"ankole.storage/block"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/rebuild"
	"ankole.storage/dataplane/wire"
)

// rebuildWidth is how many pieces are copied or compared at once.
const rebuildWidth = 8

// rebuildJob brings one replica from nothing to RW while the volume is in use.
type rebuildJob struct {
	e       *Engine
	target  *link
	source  *link
	plan    *rebuild.Plan
	running int
	listing bool
	stage   rebuildStage
	dead    bool
	status  *Rebuild
	reply   func(error)
}

type rebuildStage uint8

const (
	stageConnecting rebuildStage = iota
	stagePreparing
	stageCopying
	stageVerifying
	stageFinishing
	stageJoining
)

// addReplica admits the replica at addr. It answers as soon as the rebuild is under way or cannot begin.
func (e *Engine) addReplica(addr string, reply func(error)) {
	if !e.serving {
		reply(fmt.Errorf("volume is not serving yet: %s", e.why()))
		return
	}
	for _, l := range e.links {
		if l == nil || l.addr != addr {
			continue
		}
		if l.mode == RW || l.mode == WO || l.joining != nil {
			reply(nil)
			return
		}
		if l.phase != linkClosed || l.conn != nil {
			reply(fmt.Errorf("replica %s is being closed: try again", addr))
			return
		}
		e.forget(l)
	}
	if e.quorum.Holding() {
		// The replica may still be a member: its copy is worth keeping until the set without it is agreed.
		reply(fmt.Errorf("%w: %s", ErrState, e.why()))
		return
	}
	if e.changing != "" {
		reply(fmt.Errorf("%w: %s is under way; try again", ErrState, e.changing))
		return
	}
	if e.rebuilding() != nil {
		reply(fmt.Errorf("replica %s is being rebuilt: one at a time", e.rebuilding().target.addr))
		return
	}
	if len(e.links) >= maxLinks {
		reply(fmt.Errorf("the engine has %d replicas already", maxLinks))
		return
	}
	l := e.newLink(addr)
	j := &rebuildJob{e: e, target: l, reply: reply, status: &Rebuild{State: "in_progress", Running: true}}
	l.joining = j
	l.rebuild = j.status
	l.connect()
	e.changed = true
}

func (e *Engine) rebuilding() *rebuildJob {
	for _, l := range e.links {
		if l != nil && l.joining != nil {
			return l.joining
		}
	}
	return nil
}

func (j *rebuildJob) answer(err error) {
	if j.reply != nil {
		j.reply(err)
		j.reply = nil
	}
}

// abort ends the job; the target is ERR already.
func (j *rebuildJob) abort(reason string) {
	if j.dead {
		return
	}
	j.dead = true
	j.status.Running, j.status.State, j.status.Error = false, "error", reason
	j.answer(fmt.Errorf("replica %s: %s", j.target.addr, reason))
	j.e.event("rebuild-failed", j.target.addr, reason)
}

// finished is called when the target has become a member.
func (j *rebuildJob) finished() {
	j.dead = true
	j.status.Running, j.status.State, j.status.Progress = false, "complete", 100
	j.e.event("rebuilt", j.target.addr, "")
	j.e.refreshSnapshots()
}

func (j *rebuildJob) fail(format string, args ...any) {
	if !j.dead {
		j.target.fail(fmt.Sprintf(format, args...))
	}
}

// ready begins the rebuild once the target has promised the epoch.
func (j *rebuildJob) ready() {
	j.stage = stagePreparing
	rw := j.e.mask(RW)
	if rw == 0 {
		j.fail("no replica to copy from")
		return
	}
	j.source = j.e.links[bits.TrailingZeros32(rw)]
	j.status.From = j.source.addr
	j.answer(nil)
	j.e.event("rebuilding", j.target.addr, "from "+j.source.addr)
	j.e.control(j.source, &wire.ControlRequest{Describe: &wire.DescribeRequest{}}, func(code block.Code, r *wire.ControlReply) {
		switch {
		case j.dead:
		case code != block.OK || r.Chain == nil:
			j.fail("source cannot describe its chain: %s: %s", code, r.Error)
		case j.e.quorum.Holding():
			j.fail("the set of replicas is changing")
		default:
			j.prepare(r.Chain)
		}
	})
}

// prepare makes the target an empty copy of the chain and lets it take part in writes.
func (j *rebuildJob) prepare(desc *wire.ChainDescription) {
	allocated := make([]int64, len(desc.Layers))
	for i, l := range desc.Layers {
		allocated[i] = l.Allocated
	}
	j.plan = rebuild.New(j.e.size, allocated)
	j.e.control(j.target, &wire.ControlRequest{BeginRebuild: desc}, func(code block.Code, r *wire.ControlReply) {
		switch {
		case j.dead:
		case code != block.OK:
			j.fail("cannot begin: %s: %s", code, r.Error)
		default:
			j.e.freeze(j.mirror)
		}
	})
}

// mirror runs while no write is in flight: whatever is written from here on reaches the target.
func (j *rebuildJob) mirror() {
	if j.dead {
		j.e.thaw()
		return
	}
	j.e.dirty.markAll(j.e, j.target, func(ok bool) {
		switch {
		case j.dead:
		case !ok:
			j.fail("cannot mark dirty regions")
		default:
			j.target.mode = WO
			j.e.changed = true
			j.stage = stageCopying
		}
		j.e.thaw()
		j.more()
	})
}

// more keeps rebuildWidth pieces under way.
func (j *rebuildJob) more() {
	j.progress()
	switch {
	case j.dead:
	case j.stage == stageCopying:
		j.moreCopies()
	case j.stage == stageVerifying:
		j.moreVerifies()
	}
}

func (j *rebuildJob) progress() {
	if j.plan == nil || j.dead {
		return
	}
	p, done, total := j.plan.Progress()
	if p != j.status.Progress {
		j.e.changed = true
	}
	j.status.Progress, j.status.Done, j.status.Total = p, done, total
}

func (j *rebuildJob) moreCopies() {
	for j.running < rebuildWidth && !j.dead {
		piece, ok := j.plan.Next()
		if !ok {
			break
		}
		j.running++
		j.copy(piece)
	}
	// A layer is listed when the ones below it are complete: a discard that the target resolves before it knows what lies
	// below has then left its trace in the source's head, which is listed last.
	if layer, off, ok := j.plan.NeedExtents(); ok && !j.listing && !j.dead && (off > 0 || j.running == 0) {
		j.list(layer, off)
	}
	if j.plan.CopyDone() && j.running == 0 && !j.listing && j.stage == stageCopying {
		j.stage = stageVerifying
		j.moreVerifies()
	}
}

func (j *rebuildJob) list(layer uint32, off int64) {
	j.listing = true
	j.e.control(j.source, &wire.ControlRequest{Extents: &wire.ExtentsRequest{Layer: layer, Off: off}}, func(code block.Code, r *wire.ControlReply) {
		j.listing = false
		switch {
		case j.dead:
		case code != block.OK || r.Extents == nil:
			j.fail("source cannot list its extents: %s: %s", code, r.Error)
		default:
			j.plan.Extents(r.Extents.Ranges, r.Extents.Next)
			j.moreCopies()
		}
	})
}

// copy moves one piece. The head's are locked against writes meanwhile.
func (j *rebuildJob) copy(p rebuild.Piece) {
	if !p.Head {
		j.transfer(p, func() {})
		return
	}
	j.e.ranges.lock(p.Off, p.Len, true, func() {
		j.transfer(p, func() { j.e.ranges.unlock(p.Off, p.Len, true) })
	})
}

func (j *rebuildJob) transfer(p rebuild.Piece, unlock func()) {
	e := j.e
	done := func() {
		unlock()
		j.running--
		j.more()
	}
	b, ok := e.arena.GetReserved(int(p.Len))
	if j.dead || !ok {
		if ok {
			e.arena.Release(b)
		}
		j.fail("no buffer to copy with")
		done()
		return
	}
	rd := e.newTask(wire.LayerRead)
	rd.layer, rd.off, rd.n, rd.bounce = p.Layer, p.Off, p.Len, true
	rd.seg = loop.Seg{Buf: b, Len: int32(p.Len)}
	e.internal(rd, j.source.readyBit(), func(rd *task) {
		if rd.ok == 0 || j.dead {
			j.fail("source cannot be read: %s", rd.code)
			e.freeOf(rd)
			done()
			return
		}
		wr := e.newTask(wire.LayerWrite)
		wr.layer, wr.off, wr.n, wr.seg, wr.bounce = p.Layer, p.Off, p.Len, rd.seg, true
		rd.bounce = false
		e.freeOf(rd)
		e.internal(wr, j.target.readyBit(), func(wr *task) {
			if wr.ok == 0 {
				j.fail("target cannot be written: %s", wr.code)
			} else {
				j.plan.Copied(p.Len)
			}
			e.freeOf(wr)
			done()
		})
	})
}

func (l *link) readyBit() uint32 {
	if l.phase != linkReady {
		return 0
	}
	return l.bit()
}

func (j *rebuildJob) moreVerifies() {
	for j.running < rebuildWidth && !j.dead {
		off, n, ok := j.plan.NextVerify()
		if !ok {
			break
		}
		j.running++
		j.e.ranges.lock(off, n, true, func() { j.verify(off, n) })
	}
	if j.running == 0 && !j.dead && j.stage == stageVerifying {
		j.stage = stageFinishing
		j.finish()
	}
}

// verify compares one range of source and target by hash.
func (j *rebuildJob) verify(off, n int64) {
	e := j.e
	t := e.newTask(wire.Hash)
	t.off, t.n = off, n
	var sums [][]byte
	t.answer = func(code block.Code, p []byte) {
		if code == block.OK {
			sums = append(sums, bytes.Clone(p))
		}
	}
	e.internal(t, j.source.readyBit()|j.target.readyBit(), func(t *task) {
		switch {
		case j.dead:
		case len(sums) != 2:
			j.fail("cannot be compared: %s", t.code)
		case !bytes.Equal(sums[0], sums[1]):
			j.fail("content differs from %s at %d after the copy", j.source.addr, off)
		}
		e.freeOf(t)
		e.ranges.unlock(off, n, true)
		j.running--
		j.more()
	})
}

// finish makes the target complete on its disk, then proposes it as a member.
func (j *rebuildJob) finish() {
	j.e.control(j.target, &wire.ControlRequest{FinishRebuild: &wire.FinishRebuild{}}, func(code block.Code, r *wire.ControlReply) {
		switch {
		case j.dead:
		case code != block.OK:
			j.fail("cannot finish: %s: %s", code, r.Error)
		default:
			j.stage = stageJoining
			j.e.quorum.Join(j.target.member)
		}
	})
}

// sourceLost ends rebuilds that copy from l: the control plane adds the target again and another source is taken.
func (e *Engine) sourceLost(l *link) {
	if j := e.rebuilding(); j != nil && j.source == l && !j.dead && (j.stage != stageJoining || e.count(RW) == 0) && e.quorum.Phase() == quorum.Serving {
		j.fail("its source %s was lost", l.addr)
	}
}
