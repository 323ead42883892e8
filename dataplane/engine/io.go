package engine

import (
	"errors"
	"math/bits"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

var errFenced = errors.New("fenced: the replica has promised a newer epoch")

// request is a frontend's request while its pieces are under way.
type request struct {
	frontend.Request
	pieces  int
	code    block.Code
	arrived clock.Ticks
	// kind is how [next, end), which is not begun, is zeroed or discarded.
	kind      wire.Type
	next, end int64
	// trims: it is a discard that the chain is to be trimmed for (chainMarks).
	trims bool
	// done, unless nil, gets the result instead of the frontend: a request of the engine's own.
	done func(code block.Code)
}

// begin splits a request into tasks. Pieces of reads and writes end at multiples of
// block.MaxTransfer, so that even when widened to whole blocks a piece fits into one frame.
func (e *Engine) begin(fr *frontend.Request) { e.carryOut(&request{Request: *fr}) }

func (e *Engine) carryOut(r *request) {
	r.pieces, r.arrived = 1, e.now
	switch r.Kind {
	case block.Read, block.Write:
		kind := wire.Read
		if r.Kind == block.Write {
			kind = wire.Write
		}
		e.windows(r.Off, r.Len, block.MaxTransfer, func(off, n int64) {
			t := e.piece(r, kind, off, n)
			t.seg = loop.Seg{Buf: r.Buf, Off: int32(off - r.Off), Len: int32(n)}
			e.start(t)
		})
	case block.Flush:
		e.start(e.piece(r, wire.Flush, 0, 0))
	case block.WriteZeroes:
		e.beginZeroes(r)
		if r.Trim && r.pieces > 1 { // not of what was never written
			e.chainMarks.begin(r)
		}
	case block.Discard:
		// Only whole blocks are given back; the edges keep their content, which discard allows.
		beg, end := (r.Off+block.Size-1)&^(block.Size-1), (r.Off+r.Len)&^(block.Size-1)
		if beg < end {
			r.kind, r.next, r.end = wire.Discard, beg, end
			e.moreZeroes(r)
			e.chainMarks.begin(r)
		}
	default:
		r.code = block.Invalid
	}
	e.pieceDone(r, block.OK)
}

// windows cuts [off, off+n) at multiples of size.
func (e *Engine) windows(off, n, size int64, f func(off, n int64)) {
	for n > 0 {
		k := min(n, size-off%size)
		f(off, k)
		off, n = off+k, n-k
	}
}

func (e *Engine) piece(r *request, kind wire.Type, off, n int64) *task {
	t := e.newTask(kind)
	t.req, t.off, t.n, t.fua, t.arrived = r, off, n, r.FUA, e.now
	r.pieces++
	e.foreground++
	return t
}

// pieceDone counts one piece down; the last one answers the frontend.
func (e *Engine) pieceDone(r *request, code block.Code) {
	if code != block.OK && r.code == block.OK {
		r.code = code
	}
	e.moreZeroes(r) // while this piece still counts
	r.pieces--
	if r.pieces > 0 {
		return
	}
	if r.trims {
		e.chainMarks.trimLater()
	}
	if r.done != nil {
		r.done(r.code)
		return
	}
	e.countRequest(r)
	if e.users.fe != nil {
		e.users.fe.Complete(r.ID, r.code, e.out)
	}
}

// start runs a task from its beginning, or parks it while nothing can be served.
func (e *Engine) start(t *task) {
	switch {
	case e.fatal != "", e.serving && e.imports.incomplete != nil && t.req.done == nil:
		e.finish(t, block.IOError) // half an import is shown to nobody
	case !e.serving || e.links.mask(RW) == 0 || e.writes.frozen > 0 && t.writes() || t.undecided && e.rebuilds.closing():
		e.backlog = append(e.backlog, t)
	case t.kind == wire.Flush:
		e.startFlush(t)
	case t.kind == wire.Read:
		t.lock.mode = shared
		e.lease.use()
		e.ranges.lock(t.off, t.n, false, func() { e.startRead(t) })
	default:
		t.lock.mode = exclusive
		e.ranges.lock(t.off, t.n, true, func() { e.startWrite(t) })
	}
}

// park gives up what the task holds and queues it to start again, which never comes once the engine
// has stopped.
func (e *Engine) park(t *task) {
	if e.fatal != "" {
		e.finish(t, block.IOError)
		return
	}
	e.unlock(t)
	t.asked, t.ok, t.full, t.bad, t.tried, t.code = 0, 0, 0, 0, 0, block.OK
	e.backlog = append(e.backlog, t)
}

// unlock gives up the range lock, and with it what was read under it.
func (e *Engine) unlock(t *task) {
	e.narrow(t)
	h := t.lock
	t.lock = holding{}
	if h.mode != unlocked {
		e.ranges.unlock(t.off, t.n, h.mode == exclusive)
	}
}

// narrow gives up what was read around a write.
func (e *Engine) narrow(t *task) {
	if t.lock.wide.Len > 0 {
		e.arena.Release(t.lock.wide.Buf)
		t.lock.wide = loop.Seg{}
	}
}

func (e *Engine) retryBacklog() {
	if !e.serving || e.links.mask(RW) == 0 {
		return
	}
	tasks := e.backlog
	e.backlog = nil
	for _, t := range tasks {
		e.start(t)
	}
}

// failBacklog ends everything that waits for a replica.
func (e *Engine) failBacklog(code block.Code) {
	tasks := e.backlog
	e.backlog = nil
	for _, t := range tasks {
		e.finish(t, code)
	}
}

// localLead is how many requests more than the others a replica on this node may have under way
// before reads go to those too: it answers without a network between, but its disk is no faster.
const localLead = 32

// nextReader chooses whom of several replicas in sync to read from: in turn, but one on this node
// first. Those that do not answer have requests under way, so that the local one goes on being
// asked.
func (k *links) nextReader(mask uint32) int {
	local := (*link)(nil)
	for _, l := range k.all {
		if l != nil && l.local && mask&l.bit() != 0 {
			local = l
		}
	}
	if local != nil && mask != local.bit() {
		mask &^= local.bit()
	}
	// The first candidate after the one used last.
	next := k.last + 1
	pick := (bits.TrailingZeros32(bits.RotateLeft32(mask, -next)) + next) % maxLinks
	if local != nil && local.load < k.all[pick].load+localLead {
		return local.index
	}
	k.last = pick
	return pick
}

// startRead asks the next RW replica in turn, or the one that a torn region is read from.
func (e *Engine) startRead(t *task) {
	mask := e.links.mask(RW) &^ t.tried
	if mask == 0 {
		if e.links.mask(RW) != 0 {
			e.finish(t, block.IOError)
			return
		}
		e.park(t)
		return
	}
	pick := bits.TrailingZeros32(e.torn.reader(t.off, mask))
	if !e.dirty.torn(t.off) {
		pick = e.links.nextReader(mask)
	}
	t.ok, t.full, t.bad, t.code = 0, 0, 0, block.OK
	t.tried |= 1 << pick
	e.send(t, 1<<pick)
}

func (e *Engine) readDone(t *task) {
	if t.ok != 0 {
		if t.unreadable != 0 {
			e.repairSector(t.unreadable, t.off, t.n)
		}
		e.hold(t, block.OK)
		return
	}
	if t.code == block.Invalid {
		e.finish(t, block.Invalid)
		return
	}
	// The replica failed to read: another one may have the data. What a disk cannot read is written
	// again once it is known; any other replica that cannot read is dropped unless it is the last,
	// and repaired by a rebuild.
	if bad := (t.bad | t.full) & e.links.mask(RW); e.mayRepairSector(t, bad) {
		t.unreadable |= bad
	} else if e.links.count(RW) > 1 {
		e.links.drop(bad, "read failed: "+t.code.String())
	}
	e.startRead(t)
}

// startWrite sends a write to every replica, after its dirty regions are marked and, while a
// replica is being rebuilt, after its edges are filled up to whole blocks.
func (e *Engine) startWrite(t *task) {
	if e.writes.frozen > 0 {
		e.park(t) // it was waiting for a lock, a mark or the blocks around it when writes were stopped
		return
	}
	if !e.dirty.marked(t.off) {
		e.narrow(t) // who waits for the log holds no memory that others wait for
	}
	if !e.dirty.ready(e, t) {
		return
	}
	rw := e.links.mask(RW)
	if rw == 0 {
		e.park(t)
		return
	}
	wo := e.links.mask(WO)
	if wo != 0 && t.kind == wire.Write && (t.off%block.Size != 0 || t.n%block.Size != 0) && t.lock.wide.Len == 0 {
		e.widenWrite(t)
		return
	}
	e.mirror(t)
}

func (e *Engine) mirror(t *task) {
	rw := e.links.mask(RW)
	if rw == 0 {
		e.park(t)
		return
	}
	e.writes.inFlight++
	e.dirty.begin(t)
	wo := e.links.mask(WO)
	if j := e.rebuilds.job(); wo != 0 && j != nil && t.kind != wire.Write {
		j.zeroed(t.off, t.n)
	}
	e.send(t, rw|wo)
}

// widenWrite reads the whole blocks around a write from an RW replica and lays the write over them:
// a replica that is being rebuilt does not have the bytes around it. What was read is true as long
// as the range lock is held.
func (e *Engine) widenWrite(t *task) {
	beg, end := widen(t.off, t.n)
	e.memory.buffer(&e.memory.edges, end-beg, func(seg loop.Seg) { e.readAround(t, seg) })
}

// readAround begins the read for a write that is widened, unless that has changed while it waited
// for memory.
func (e *Engine) readAround(t *task, seg loop.Seg) {
	if e.writes.frozen > 0 || e.links.mask(RW) == 0 || e.links.mask(WO) == 0 {
		e.arena.Release(seg.Buf)
		e.startWrite(t)
		return
	}
	mask := e.links.mask(RW) &^ t.tried
	if mask == 0 { // none of those that are left can be asked for ever
		e.arena.Release(seg.Buf)
		e.finish(t, t.code)
		return
	}
	rd := e.newTask(wire.Read)
	rd.off, rd.n = widen(t.off, t.n)
	rd.n -= rd.off
	rd.seg, rd.bounce = seg, true
	e.writes.inFlight++ // whoever stops writes waits for it: what is read must not be from before a change of the chain
	e.internal(rd, e.torn.reader(t.off, mask), func(rd *task) {
		e.writes.inFlight--
		e.widened(t, rd)
		e.writes.quiet()
	})
}

// widened goes on with a write when the blocks around it were read.
func (e *Engine) widened(t, rd *task) {
	if rd.ok == 0 {
		// Another replica may have them. Where a disk could not read them the write itself, which
		// is of whole blocks then, has them written again.
		bad, keep := rd.full|rd.bad, e.mayRepairSector(rd, rd.bad&e.links.mask(RW))
		t.tried, t.code = t.tried|bad, rd.code
		e.freeOf(rd)
		if keep {
			e.links.countSectorRepair(bad)
		} else {
			e.links.dropSpare(bad, "read failed: "+t.code.String())
		}
		e.startWrite(t)
		return
	}
	wide := rd.seg
	p := t.message
	if p == nil {
		p = e.arena.Seg(t.seg)
	}
	copy(e.arena.Seg(wide)[t.off-rd.off:], p)
	rd.bounce = false
	e.freeOf(rd)
	t.lock.wide = wide
	e.startWrite(t) // meanwhile the region may have been cleared or writes stopped
}

// writeDone judges a write when all replicas have answered.
func (e *Engine) writeDone(t *task) {
	e.writes.inFlight--
	rw := e.links.mask(RW)
	code := block.OK
	switch {
	case t.ok&rw != 0:
		e.links.drop((t.full|t.bad)&(rw|e.links.mask(WO)), "write failed: "+t.code.String())
	case t.full&rw != 0:
		// Everybody who is left is full: the write fails, nobody is dropped for it.
		e.links.drop(t.bad&rw|(t.full|t.bad)&e.links.mask(WO), "write failed: "+t.code.String())
		code = block.NoSpace
	case t.bad&rw != 0:
		// Nobody took it. One replica is kept, since dropping all would end the volume for one bad
		// sector.
		first := t.bad & rw & -(t.bad & rw)
		e.links.drop(t.bad&rw&^first|(t.full|t.bad)&e.links.mask(WO), "write failed: "+t.code.String())
		code = t.code
	default:
		e.dirty.end(e, t, true)
		e.park(t)
		e.writes.quiet()
		return
	}
	if j := e.rebuilds.job(); code != block.OK && j != nil && t.ok&e.links.mask(WO) != 0 {
		if e.rebuilds.closing() {
			// The target has it for good. If that one becomes a member the write succeeds.
			e.dirty.end(e, t, true)
			e.park(t)
			t.undecided = true
			e.writes.quiet()
			return
		}
		off, n, _ := t.extent()
		j.tookAlone(off, n)
	}
	e.dirty.end(e, t, code != block.OK)
	e.narrow(t)
	e.hold(t, code)
	e.writes.quiet()
}

func (k *links) drop(mask uint32, reason string) {
	for _, l := range k.all {
		if l != nil && mask&l.bit() != 0 {
			l.fail(reason)
		}
	}
}

// dropSpare is drop but for the last replica that has everything.
func (k *links) dropSpare(mask uint32, reason string) {
	for _, l := range k.all {
		if l != nil && mask&l.bit() != 0 && k.spare(l) {
			l.fail(reason)
		}
	}
}

func (e *Engine) startFlush(t *task) {
	t.ok, t.full, t.bad = 0, 0, 0
	t.completed = e.dirty.flushBegin()
	// A replica that is being rebuilt flushes too: when it joins, flushes answered before must hold
	// on it as well.
	e.send(t, e.links.mask(RW)|e.links.mask(WO))
}

func (e *Engine) flushDone(t *task) {
	rw := e.links.mask(RW)
	if t.ok&rw == 0 {
		if rw != 0 {
			// Every replica that is left refused to flush: it has ended itself or is about to.
			e.links.drop(t.full|t.bad, "flush failed: "+t.code.String())
		}
		e.park(t)
		return
	}
	e.links.drop((t.full|t.bad)&(rw|e.links.mask(WO)), "flush failed: "+t.code.String())
	e.dirty.flushed(e, t.completed)
	e.hold(t, block.OK)
}

// hold finishes a task, or keeps it while a member that missed it is still part of the committed
// set.
func (e *Engine) hold(t *task, code block.Code) {
	if e.fatal != "" {
		e.finish(t, block.IOError)
		return
	}
	if !e.answerable(t) {
		t.code = code
		e.held = append(e.held, t)
		return
	}
	e.finish(t, code)
}

func (e *Engine) releaseHeld() {
	if e.quorum.Holding() {
		return
	}
	tasks := e.held
	e.held = nil
	for _, t := range tasks {
		if !e.answerable(t) {
			e.held = append(e.held, t)
			continue
		}
		e.finish(t, t.code)
	}
	e.agreed(nil)
}

func (e *Engine) failHeld() {
	tasks := e.held
	e.held = nil
	for _, t := range tasks {
		e.finish(t, block.IOError)
	}
	e.agreed(errNotAgreed)
}

// finish answers a piece and frees the task.
func (e *Engine) finish(t *task, code block.Code) {
	e.unlock(t)
	r := t.req
	e.freeOf(t)
	if r != nil {
		e.foreground--
		e.pieceDone(r, code)
	}
}
