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

// requests are those of the frontend, and the engine's own.
type requests struct {
	untimed
	e *Engine
	// backlog waits for a replica, for the start, or for the end of a stop of writes.
	backlog []*task
	ranges  rangeLocks
	// foreground counts pieces of the frontend's requests that are not answered.
	foreground int
	counters   Counters
	seconds    seconds
	// unused are those of the frontend that are answered, for the next ones.
	unused []*request
}

// step begins again what waits: a replica may have come.
func (q *requests) step() {
	if len(q.backlog) > 0 && q.e.writes.frozen == 0 {
		q.retryBacklog()
	}
}

// begin splits a request into tasks. Pieces of reads and writes end at multiples of
// block.MaxTransfer, so that even when widened to whole blocks a piece fits into one frame.
func (q *requests) begin(fr *frontend.Request) {
	var r *request
	if n := len(q.unused); n > 0 {
		r, q.unused = q.unused[n-1], q.unused[:n-1]
	} else {
		r = &request{}
	}
	*r = request{Request: *fr}
	q.carryOut(r)
}

func (q *requests) carryOut(r *request) {
	e := q.e
	r.pieces, r.arrived = 1, e.now
	switch r.Kind {
	case block.Read, block.Write:
		kind := wire.Read
		if r.Kind == block.Write {
			kind = wire.Write
		}
		q.windows(r.Off, r.Len, block.MaxTransfer, func(off, n int64) {
			t := q.piece(r, kind, off, n)
			t.seg = loop.Seg{Buf: r.Buf, Off: int32(off - r.Off), Len: int32(n)}
			q.start(t)
		})
	case block.Flush:
		q.start(q.piece(r, wire.Flush, 0, 0))
	case block.WriteZeroes:
		q.beginZeroes(r)
		if r.Trim && r.pieces > 1 { // not of what was never written
			e.chainMarks.begin(r)
		}
	case block.Discard:
		// Only whole blocks are given back; the edges keep their content, which discard allows.
		beg, end := (r.Off+block.Size-1)&^(block.Size-1), (r.Off+r.Len)&^(block.Size-1)
		if beg < end {
			r.kind, r.next, r.end = wire.Discard, beg, end
			q.moreZeroes(r)
			e.chainMarks.begin(r)
		}
	default:
		r.code = block.Invalid
	}
	q.pieceDone(r, block.OK)
}

// windows cuts [off, off+n) at multiples of size.
func (q *requests) windows(off, n, size int64, f func(off, n int64)) {
	for n > 0 {
		k := min(n, size-off%size)
		f(off, k)
		off, n = off+k, n-k
	}
}

func (q *requests) piece(r *request, kind wire.Type, off, n int64) *task {
	t := q.e.tasks.take(kind)
	t.req, t.off, t.n, t.fua, t.arrived = r, off, n, r.FUA, q.e.now
	r.pieces++
	q.foreground++
	return t
}

// pieceDone counts one piece down; the last one answers the frontend.
func (q *requests) pieceDone(r *request, code block.Code) {
	e := q.e
	if code != block.OK && r.code == block.OK {
		r.code = code
	}
	q.moreZeroes(r) // while this piece still counts
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
	q.countRequest(r)
	if e.users.fe != nil {
		e.users.fe.Complete(r.ID, r.code, e.out)
	}
	q.unused = append(q.unused, r)
}

// start runs a task from its beginning, or parks it while nothing can be served.
func (q *requests) start(t *task) {
	e := q.e
	switch {
	case e.fatal != "", e.serving && e.imports.incomplete != nil && t.req.done == nil:
		q.finish(t, block.IOError) // half an import is shown to nobody
	case !e.serving || e.links.mask(RW) == 0 || e.writes.frozen > 0 && t.writes() || t.undecided && e.rebuilds.closing():
		q.backlog = append(q.backlog, t)
	case t.kind == wire.Flush:
		q.startFlush(t)
	case t.kind == wire.Read:
		t.lock.mode = shared
		e.lease.use()
		q.ranges.lock(t.off, t.n, false, t)
	default:
		q.advance(t)
	}
}

// park gives up what the task holds and queues it to start again, which never comes once the engine
// has stopped.
func (q *requests) park(t *task) {
	if q.e.fatal != "" {
		q.finish(t, block.IOError)
		return
	}
	q.unlock(t)
	t.stage = writeWaiting
	t.asked, t.ok, t.full, t.bad, t.tried, t.code = 0, 0, 0, 0, 0, block.OK
	q.backlog = append(q.backlog, t)
}

// unlock gives up the range lock, and with it what was read under it.
func (q *requests) unlock(t *task) {
	q.narrow(t)
	h := t.lock
	t.lock = holding{}
	if h.mode != unlocked {
		q.ranges.unlock(t.off, t.n, h.mode == exclusive)
	}
}

// narrow gives up what was read around a write.
func (q *requests) narrow(t *task) {
	if t.lock.wide.Len > 0 {
		q.e.arena.Release(t.lock.wide.Buf)
		t.lock.wide = loop.Seg{}
	}
}

func (q *requests) retryBacklog() {
	if !q.e.serving || q.e.links.mask(RW) == 0 {
		return
	}
	tasks := q.backlog
	q.backlog = nil
	for _, t := range tasks {
		q.start(t)
	}
}

// failBacklog ends everything that waits for a replica.
func (q *requests) failBacklog(code block.Code) {
	tasks := q.backlog
	q.backlog = nil
	for _, t := range tasks {
		q.finish(t, code)
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
func (q *requests) startRead(t *task) {
	e := q.e
	mask := e.links.mask(RW) &^ t.tried
	if mask == 0 {
		if e.links.mask(RW) != 0 {
			q.finish(t, block.IOError)
			return
		}
		q.park(t)
		return
	}
	pick := bits.TrailingZeros32(e.torn.reader(t.off, mask))
	if !e.dirty.torn(t.off) {
		pick = e.links.nextReader(mask)
	}
	t.ok, t.full, t.bad, t.code = 0, 0, 0, block.OK
	t.tried |= 1 << pick
	e.tasks.send(t, 1<<pick)
}

func (q *requests) readDone(t *task) {
	e := q.e
	if t.ok != 0 {
		if t.unreadable != 0 {
			q.repairSector(t.unreadable, t.off, t.n)
		}
		e.held.add(t, block.OK)
		return
	}
	if t.code == block.Invalid {
		q.finish(t, block.Invalid)
		return
	}
	// The replica failed to read: another one may have the data. What a disk cannot read is written
	// again once it is known; any other replica that cannot read is dropped unless it is the last,
	// and repaired by a rebuild.
	if bad := (t.bad | t.full) & e.links.mask(RW); q.mayRepairSector(t, bad) {
		t.unreadable |= bad
	} else if e.links.count(RW) > 1 {
		e.links.dropFailed(bad, "read failed", t.code)
	}
	q.startRead(t)
}

// writeStage is how far a write is.
type writeStage uint8

const (
	// writeWaiting: it has nothing but its request.
	writeWaiting writeStage = iota
	// writeLocking: it waits for its range.
	writeLocking
	// writeMarking: it has its range, and waits for the mark of its region, or for room for one.
	writeMarking
	// writeWidening: the blocks around it are read, since a replica is being rebuilt.
	writeWidening
	// writeSent: the replicas have it.
	writeSent
)

// advance takes a write as far as it can go now. Whoever it waits for calls it again: its range,
// the mark of its region, the blocks around it, the answers of the replicas. park sets it back.
func (q *requests) advance(t *task) {
	switch t.stage {
	case writeWaiting:
		t.stage, t.lock.mode = writeLocking, exclusive
		q.ranges.lock(t.off, t.n, true, t)
	case writeSent:
		q.writeDone(t)
	default:
		q.mirror(t)
	}
}

// granted implements granter.
func (t *task) granted() {
	if t.kind == wire.Read {
		t.e.requests.startRead(t)
	} else {
		t.e.requests.advance(t)
	}
}

// mirror sends a write that has its range to every replica, after its dirty regions are marked and,
// while a replica is being rebuilt, after its edges are filled up to whole blocks. What was there
// before it had to wait for something may have gone meanwhile, so everything is looked at again.
func (q *requests) mirror(t *task) {
	e := q.e
	if e.writes.frozen > 0 {
		q.park(t)
		return
	}
	t.stage = writeMarking
	if !e.dirty.marked(t.off) {
		q.narrow(t) // who waits for the log holds no memory that others wait for
	}
	if !e.dirty.ready(t) {
		return
	}
	rw, wo := e.links.mask(RW), e.links.mask(WO)
	switch {
	case rw == 0:
		q.park(t)
		return
	case wo != 0 && t.kind == wire.Write && (t.off%block.Size != 0 || t.n%block.Size != 0) && t.lock.wide.Len == 0:
		t.stage = writeWidening
		q.widenWrite(t)
		return
	}
	t.stage = writeSent
	e.writes.inFlight++
	e.dirty.begin(t)
	if j := e.rebuilds.job(); wo != 0 && j != nil && t.kind != wire.Write {
		j.zeroed(t.off, t.n)
	}
	e.tasks.send(t, rw|wo)
}

// widenWrite reads the whole blocks around a write from an RW replica and lays the write over them:
// a replica that is being rebuilt does not have the bytes around it. What was read is true as long
// as the range lock is held.
func (q *requests) widenWrite(t *task) {
	beg, end := widen(t.off, t.n)
	q.e.memory.buffer(&q.e.memory.edges, end-beg, func(seg loop.Seg) { q.readAround(t, seg) })
}

// readAround begins the read for a write that is widened, unless that has changed while it waited
// for memory.
func (q *requests) readAround(t *task, seg loop.Seg) {
	e := q.e
	if e.writes.frozen > 0 || e.links.mask(RW) == 0 || e.links.mask(WO) == 0 {
		e.arena.Release(seg.Buf)
		q.advance(t)
		return
	}
	mask := e.links.mask(RW) &^ t.tried
	if mask == 0 { // none of those that are left can be asked for ever
		e.arena.Release(seg.Buf)
		q.finish(t, t.code)
		return
	}
	rd := e.tasks.take(wire.Read)
	rd.off, rd.n = widen(t.off, t.n)
	rd.n -= rd.off
	rd.seg, rd.bounce = seg, true
	e.writes.inFlight++ // whoever stops writes waits for it: what is read must not be from before a change of the chain
	e.tasks.start(rd, e.torn.reader(t.off, mask), func(rd *task) {
		e.writes.inFlight--
		q.widened(t, rd)
		e.writes.quiet()
	})
}

// widened goes on with a write when the blocks around it were read.
func (q *requests) widened(t, rd *task) {
	e := q.e
	if rd.ok == 0 {
		// Another replica may have them. Where a disk could not read them the write itself, which
		// is of whole blocks then, has them written again.
		bad, keep := rd.full|rd.bad, q.mayRepairSector(rd, rd.bad&e.links.mask(RW))
		t.tried, t.code = t.tried|bad, rd.code
		e.tasks.release(rd)
		if keep {
			e.links.countSectorRepair(bad)
		} else {
			e.links.dropSpare(bad, "read failed: "+t.code.String())
		}
		q.advance(t)
		return
	}
	wide := rd.seg
	p := t.message
	if p == nil {
		p = e.arena.Seg(t.seg)
	}
	copy(e.arena.Seg(wide)[t.off-rd.off:], p)
	rd.bounce = false
	e.tasks.release(rd)
	t.lock.wide = wide
	q.advance(t) // meanwhile the region may have been cleared or writes stopped
}

// writeDone judges a write when all replicas have answered.
func (q *requests) writeDone(t *task) {
	e := q.e
	e.writes.inFlight--
	rw := e.links.mask(RW)
	code := block.OK
	switch {
	case t.ok&rw != 0:
		e.links.dropFailed((t.full|t.bad)&(rw|e.links.mask(WO)), "write failed", t.code)
	case t.full&rw != 0:
		// Everybody who is left is full: the write fails, nobody is dropped for it.
		e.links.dropFailed(t.bad&rw|(t.full|t.bad)&e.links.mask(WO), "write failed", t.code)
		code = block.NoSpace
	case t.bad&rw != 0:
		// Nobody took it. One replica is kept, since dropping all would end the volume for one bad
		// sector.
		first := t.bad & rw & -(t.bad & rw)
		e.links.dropFailed(t.bad&rw&^first|(t.full|t.bad)&e.links.mask(WO), "write failed", t.code)
		code = t.code
	default:
		e.dirty.end(t, true)
		q.park(t)
		e.writes.quiet()
		return
	}
	if j := e.rebuilds.job(); code != block.OK && j != nil && t.ok&e.links.mask(WO) != 0 {
		if e.rebuilds.closing() {
			// The target has it for good. If that one becomes a member the write succeeds.
			e.dirty.end(t, true)
			q.park(t)
			t.undecided = true
			e.writes.quiet()
			return
		}
		off, n, _ := t.extent()
		j.tookAlone(off, n)
	}
	e.dirty.end(t, code != block.OK)
	q.narrow(t)
	e.held.add(t, code)
	e.writes.quiet()
}

func (q *requests) startFlush(t *task) {
	e := q.e
	t.ok, t.full, t.bad = 0, 0, 0
	t.completed = e.dirty.flushBegin()
	// A replica that is being rebuilt flushes too: when it joins, flushes answered before must hold
	// on it as well.
	e.tasks.send(t, e.links.mask(RW)|e.links.mask(WO))
}

func (q *requests) flushDone(t *task) {
	e := q.e
	rw := e.links.mask(RW)
	if t.ok&rw == 0 {
		if rw != 0 {
			// Every replica that is left refused to flush: it has ended itself or is about to.
			e.links.dropFailed(t.full|t.bad, "flush failed", t.code)
		}
		q.park(t)
		return
	}
	e.links.dropFailed((t.full|t.bad)&(rw|e.links.mask(WO)), "flush failed", t.code)
	e.dirty.flushed(t.completed)
	e.held.add(t, block.OK)
}

// finish answers a piece and frees the task.
func (q *requests) finish(t *task, code block.Code) {
	q.unlock(t)
	r := t.req
	q.e.tasks.release(t)
	if r != nil {
		q.foreground--
		q.pieceDone(r, code)
	}
}
