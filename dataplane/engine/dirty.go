package engine

import (
	"cmp"
	"encoding/binary"
	"slices"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/wire"
)

// DirtyRegion is the grain of the dirty log in bytes: after a crash a marked region is compared
// between replicas.
const DirtyRegion = 4 << 20

// LogBounds bound the dirty log, in regions. Max may be marked at once; above High the oldest
// flushed ones are cleared down to Low.
type LogBounds struct{ Max, High, Low int }

// defaultLogBounds: 4 GiB of marks fit into one preallocated slot of every replica.
var defaultLogBounds = LogBounds{Max: 1024, High: 768, Low: 512}

// LogUse counts what the dirty log's bounds have led to.
type LogUse struct {
	// Shrinks is how often marks were taken away to make room, Waits how many writes have waited
	// for room.
	Shrinks, Waits uint64
}

type regionState uint8

const (
	marking  regionState = iota // being made durable; writes wait
	marked                      // writes may go
	clearing                    // being cleared; writes wait and mark again
)

// region is one marked piece of the volume.
type region struct {
	state   regionState
	writes  int         // in flight
	last    uint64      // sequence of the last completed write
	at      clock.Ticks // when it completed
	torn    bool        // a write failed: replicas may differ until they are compared
	tears   int         // how many have failed
	gaveUp  clock.Ticks // when the last repair failed, if that was for want of space
	reader  *link       // the replica that a torn region is read from, while it is RW
	waiters []*task
}

// dirtyLog knows which regions are marked on every replica. The mark is durable before the first
// write to the region goes to any replica. It is cleared only after a flush begun after the
// region's last write, and never while a replica has failed that is still a member: each replica
// keeps account of what it misses only from the record on that drops it, and until then the mark is
// all that says where it may differ.
type dirtyLog struct {
	e          *Engine
	bounds     LogBounds
	use        LogUse
	regions    map[uint32]*region
	queued     []uint32 // to be marked with the next message
	busy       bool     // a mark message is under way
	clears     bool     // a clear message is under way
	flushing   bool     // a flush of the log's own is under way
	inVain     bool     // the last one made nothing clearable, and there has been no more room since
	full       []*task  // waiting for room
	sweep      sweep    // of torn regions, to make room for them
	seq        uint64   // completed writes
	stable     uint64   // writes up to this one are flushed
	repairable []uint32 // torn regions in which writes succeed again
	// noneToExpire: no mark is left that could expire; looked is when that was looked for last.
	noneToExpire bool
	looked       clock.Ticks
}

func (d *dirtyLog) init(b LogBounds) {
	d.regions, d.noneToExpire, d.bounds = map[uint32]*region{}, true, b
	if b == (LogBounds{}) {
		d.bounds = defaultLogBounds
	}
}

func regionOf(off int64) uint32 { return uint32(off / DirtyRegion) }

// marked reports whether the region of an offset is marked.
func (d *dirtyLog) marked(off int64) bool {
	r := d.regions[regionOf(off)]
	return r != nil && r.state == marked
}

// ready reports whether the region of t is marked; if not, t is started again when it is. A task
// never spans regions: pieces are cut at divisors of the region size.
func (d *dirtyLog) ready(t *task) bool {
	n := regionOf(t.off)
	r := d.regions[n]
	switch {
	case r == nil && len(d.regions) >= d.bounds.Max:
		d.full = append(d.full, t)
		d.use.Waits++
		d.shrink()
		return false
	case r == nil:
		r = &region{}
		d.regions[n] = r
		d.queued = append(d.queued, n)
	case r.state == marked:
		return true
	}
	r.waiters = append(r.waiters, t)
	d.mark()
	return false
}

// mark makes the queued regions durable on every replica that takes writes.
func (d *dirtyLog) mark() {
	e := d.e
	if d.busy || len(d.queued) == 0 {
		return
	}
	batch := d.queued
	d.queued = nil
	d.busy = true
	t := d.message(batch)
	e.tasks.start(t, e.links.mask(RW)|e.links.mask(WO), func(t *task) {
		ok := t.ok&e.links.mask(RW) != 0
		e.links.drop(t.full|t.bad, "cannot mark dirty regions: "+t.code.String())
		e.tasks.release(t)
		d.busy = false
		d.give(batch, ok)
		d.mark()
	})
}

// message builds the mark message for regions.
func (d *dirtyLog) message(regions []uint32) *task {
	e := d.e
	t := e.tasks.take(wire.MarkDirty)
	t.message = make([]byte, 0, 4*len(regions))
	for _, n := range regions {
		t.message = binary.LittleEndian.AppendUint32(t.message, n)
	}
	return t
}

// give lets the writes waiting for batch go, or parks them when no replica is left to mark
// anything.
func (d *dirtyLog) give(batch []uint32, ok bool) {
	e := d.e
	for _, n := range batch {
		r := d.regions[n]
		waiters := r.waiters
		r.waiters = nil
		if ok {
			r.state = marked
		} else {
			delete(d.regions, n)
		}
		for _, t := range waiters {
			if ok {
				e.requests.advance(t)
			} else {
				e.requests.park(t)
			}
		}
	}
}

func (d *dirtyLog) begin(t *task) { d.regions[regionOf(t.off)].writes++ }

// end counts a write down; failed ones leave the region torn.
func (d *dirtyLog) end(t *task, failed bool) {
	e := d.e
	r := d.regions[regionOf(t.off)]
	r.writes--
	d.seq++
	r.last, r.at = d.seq, e.now
	if d.noneToExpire {
		d.noneToExpire, d.looked = false, e.now
	}
	switch {
	case failed:
		e.changed = e.changed || !r.torn
		r.torn = true
		r.tears++
	case r.torn:
		d.repairLater(regionOf(t.off))
	}
}

// torn reports whether replicas may differ in the region of off.
func (d *dirtyLog) torn(off int64) bool {
	r := d.regions[regionOf(off)]
	return r != nil && r.torn
}

// flushBegin returns the mark to hand to flushed when the flush that begins now has succeeded.
func (d *dirtyLog) flushBegin() uint64 { return d.seq }

// flushed notes that every write completed before the mark is stable on all RW replicas.
func (d *dirtyLog) flushed(mark uint64) {
	d.stable = max(d.stable, mark)
	if d.crowded() {
		d.shrink()
	}
}

// clearAll takes away every mark that a flush begun at the mark has made needless.
func (d *dirtyLog) clearAll(mark uint64, done func()) {
	d.stable = max(d.stable, mark)
	d.clear(d.allClearable(), func(bool) { done() })
}

// crowded reports that room is wanted.
func (d *dirtyLog) crowded() bool { return len(d.regions) > d.bounds.High || len(d.full) > 0 }

func (d *dirtyLog) allClearable() (out []uint32) {
	for n, r := range d.regions {
		if d.clearable(r) {
			out = append(out, n)
		}
	}
	return out
}

func (d *dirtyLog) clearable(r *region) bool {
	return r.state == marked && r.writes == 0 && !r.torn && r.last <= d.stable
}

// waitsForFlush reports that a flush makes room: a region is quiet and not torn.
func (d *dirtyLog) waitsForFlush() bool {
	for _, r := range d.regions {
		if r.state == marked && r.writes == 0 && !r.torn {
			return true
		}
	}
	return false
}

func (r *region) quietlyTorn() bool { return r.torn && r.state == marked && r.writes == 0 }

// anyTorn reports that a region is quiet and torn.
func (d *dirtyLog) anyTorn() bool {
	for _, r := range d.regions {
		if r.quietlyTorn() {
			return true
		}
	}
	return false
}

// stuck reports that no flush will ever make room: writes to every marked region have failed, as on
// full disks.
func (d *dirtyLog) stuck() bool {
	for _, r := range d.regions {
		if !r.quietlyTorn() {
			return false
		}
	}
	return true
}

// shrink clears the regions that were written longest ago and are flushed, or flushes to make some.
func (d *dirtyLog) shrink() {
	e := d.e
	if e.links.mask(RW) == 0 {
		d.parkFull()
		return
	}
	if d.clears || d.marksStay() {
		return // agreed goes on
	}
	old := d.allClearable()
	switch {
	case len(old) > 0:
	case d.waitsForFlush():
		d.flushOwn()
		return
	case e.torn.job != nil:
		return // its end looks again
	case d.stuck(), d.inVain && d.anyTorn():
		d.repairOne()
		return
	default: // writes in flight end meanwhile
		d.flushOwn()
		return
	}
	slices.SortFunc(old, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(d.regions[a].last, d.regions[b].last), cmp.Compare(a, b))
	})
	old = old[:min(len(old), max(1, len(d.regions)-d.bounds.Low))]
	d.use.Shrinks++
	e.changed = true
	d.clear(old, func(bool) {})
}

// marksStay reports that no mark may be taken away: a member that has failed is not dropped for
// good yet, or a replica is joining. A joiner may have stored a set that names a member which was
// dropped before that set was agreed. Its account of that one begins with the next set it stores,
// and would lack what is taken away before.
func (d *dirtyLog) marksStay() bool {
	j := d.e.rebuilds.job()
	return d.e.quorum.Holding() || (j != nil && j.stage == stageJoining)
}

// clear takes the marks of old away on every replica.
func (d *dirtyLog) clear(old []uint32, done func(ok bool)) {
	e := d.e
	d.clears = true
	slices.Sort(old)
	for _, n := range old {
		d.regions[n].state = clearing
	}
	keep := make([]uint32, 0, len(d.regions))
	for n, r := range d.regions {
		if r.state != clearing {
			keep = append(keep, n)
		}
	}
	slices.Sort(keep)
	e.links.controlAll(&wire.ControlRequest{ClearDirty: &wire.ClearDirty{Keep: keep}}, "cannot clear dirty regions",
		func(ok bool) {
			d.clears, d.inVain = false, false
			for _, n := range old {
				r := d.regions[n]
				delete(d.regions, n)
				for _, t := range r.waiters {
					e.requests.advance(t)
				}
			}
			for _, t := range d.takeFull() {
				e.requests.advance(t)
			}
			done(ok)
		})
}

// agreed goes on with what had to wait for the set of replicas to be agreed.
func (d *dirtyLog) agreed() {
	if d.crowded() {
		d.shrink()
	}
}

// parkFull gives up waiting for room: no replica is left to make any.
func (d *dirtyLog) parkFull() {
	e := d.e
	for _, t := range d.takeFull() {
		e.requests.park(t)
	}
}

// flushOwn makes completed writes stable so that their regions can be cleared.
func (d *dirtyLog) flushOwn() {
	e := d.e
	if d.flushing {
		return
	}
	d.flushing = true
	t := e.tasks.take(wire.Flush)
	mark := d.flushBegin()
	// A replica that is being rebuilt too: it may have joined by the time its regions are cleared.
	e.tasks.start(t, e.links.mask(RW)|e.links.mask(WO), func(t *task) {
		ok := t.ok&e.links.mask(RW) != 0
		e.links.drop(t.full|t.bad, "flush failed: "+t.code.String())
		e.tasks.release(t)
		d.flushing = false
		if ok {
			d.stable = max(d.stable, mark)
			d.inVain = len(d.allClearable()) == 0
			d.flushed(mark)
			return
		}
		d.parkFull()
	})
}

// markAll makes the whole present log durable on one link: a replica that begins to take writes. It
// is not asked to take away what is being taken away now, and writes to that wait and mark it
// again: a replica's log never names what the engine's does not.
func (d *dirtyLog) markAll(l *link, done func(ok bool)) {
	e := d.e
	regions := make([]uint32, 0, len(d.regions))
	for n, r := range d.regions {
		if r.state != clearing {
			regions = append(regions, n)
		}
	}
	if len(regions) == 0 {
		done(true)
		return
	}
	t := d.message(regions)
	e.tasks.start(t, l.bit(), func(t *task) {
		ok := t.ok != 0
		e.tasks.release(t)
		done(ok)
	})
}

// controlAll sends r to every replica that takes writes; those that refuse are dropped. ok: an RW
// replica carried it out.
func (k *links) controlAll(r *wire.ControlRequest, what string, done func(ok bool)) {
	var asked []*link
	for _, l := range k.all {
		if l != nil && (l.mode == RW || l.mode == WO) && l.phase == sessionReady {
			asked = append(asked, l)
		}
	}
	left := len(asked)
	if left == 0 {
		done(false)
		return
	}
	ok := false
	for _, l := range asked {
		l.control(r, func(code block.Code, reply *wire.ControlReply) {
			if code == block.OK {
				ok = ok || l.mode == RW
			} else {
				l.fail(what + ": " + code.String() + ": " + reply.Error)
			}
			if left--; left == 0 {
				done(ok)
			}
		})
	}
}
