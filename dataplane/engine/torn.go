package engine

import (
	"fmt"
	"slices"

	"ankole.storage/block"
	"ankole.storage/dataplane/wire"
)

// A write that failed leaves its region torn: replicas may differ there, so the region is read from
// one of them until that one is dropped, and stays marked. It is repaired online, piece by piece
// under the range lock: once a write to it succeeds again, when nobody has written to it for a
// while, when the log has no room left, and before a snapshot would freeze the difference. The
// others get the content of the replica that is read from. If one of them still has no space the
// region stays torn.
type regionRepair struct {
	region uint32
	// frozen: writes are stopped for it. Otherwise it gives way to whoever stops them.
	frozen bool
	// tears is how often a write to the region had failed when this began: if one fails meanwhile
	// it stays torn.
	tears  int
	next   int64
	end    int64
	failed bool
	done   func(ok bool)
}

// repairRegion begins to make a torn region identical. done is called with whether it is.
func (e *Engine) repairRegion(n uint32, done func(ok bool)) {
	r := e.dirty.regions[n]
	r.writes++ // keeps its mark
	beg := int64(n) * DirtyRegion
	e.repairing = &regionRepair{region: n, frozen: e.frozen > 0, tears: r.tears, next: beg,
		end: min(beg+DirtyRegion, e.size), done: done}
	e.repairNextPiece()
}

// repairMore begins to repair regions in which writes succeed again. It is called at the end of
// every step.
func (e *Engine) repairMore() {
	d := &e.dirty
	for len(d.repairable) > 0 && e.repairing == nil && e.serving && e.frozen == 0 && e.rebuilding() == nil &&
		e.mask(RW) != 0 {
		n := d.repairable[0]
		d.repairable = d.repairable[1:]
		if r := d.regions[n]; r != nil && r.torn && r.state == marked {
			e.repairRegion(n, func(bool) { d.agreed(e) })
		}
	}
}

// repairNextPiece compares the next piece, or ends.
func (e *Engine) repairNextPiece() {
	m := e.repairing
	if m.failed || m.next >= m.end || e.count(RW) < 2 {
		e.repairing = nil
		r := e.dirty.regions[m.region]
		r.writes--
		e.dirty.seq++
		r.last, r.at = e.dirty.seq, e.now
		ok := !m.failed && r.tears == m.tears && e.mask(RW) != 0
		if ok {
			r.torn, r.reader = false, nil
		}
		e.dirty.noneToExpire, e.changed = false, true
		m.done(ok)
		e.repaired()
		return
	}
	off, n := m.next, min(block.MaxTransfer, m.end-m.next)
	m.next += n
	e.ranges.lock(off, n, true, func() {
		if e.stopping != nil || e.frozen > 0 && !m.frozen {
			e.ranges.unlock(off, n, true)
			e.dirty.repairLater(m.region)
			m.failed = true
			e.repairNextPiece()
			return
		}
		e.writes++ // whoever wants no write in flight waits for this one
		e.repairPiece(off, n, func(ok bool) {
			m.failed = m.failed || !ok
			e.ranges.unlock(off, n, true)
			e.writes--
			e.repairNextPiece()
			e.quiet()
		})
	})
}

// repairAllRegions repairs every torn region that can be repaired, and then calls f. An engine that
// ends begins no repair, and goes on with none: it would be written behind the last flush.
func (e *Engine) repairAllRegions(f func()) { e.repairRemaining(map[uint32]bool{}, f) }

func (e *Engine) repairRemaining(tried map[uint32]bool, f func()) {
	if e.repairing != nil {
		e.onRepaired = append(e.onRepaired, func() { e.repairRemaining(tried, f) })
		return
	}
	for _, n := range e.dirty.tornRegions() {
		if !tried[n] && e.serving && e.stopping == nil && e.rebuilding() == nil && e.mask(RW) != 0 {
			tried[n] = true
			e.repairRegion(n, func(bool) { e.repairRemaining(tried, f) })
			return
		}
	}
	f()
}

// repaired calls whoever waits for the repair that was under way.
func (e *Engine) repaired() {
	fs := e.onRepaired
	e.onRepaired = nil
	for _, f := range fs {
		f()
	}
}

// errTorn refuses what would freeze a difference between replicas.
func (e *Engine) errTorn() error {
	torn := e.dirty.tornRegions()
	if len(torn) == 0 {
		return nil
	}
	return fmt.Errorf("%w: a write has failed in the %d MiB from offset %d on (%d such places), replicas may differ "+
		"there, and now they "+
		"cannot be made the same; free space where they are and try again", block.NoSpace, DirtyRegion>>20,
		int64(torn[0])*DirtyRegion, len(torn))
}

// reader is the replica in mask, by its bit, to read from where one has to be chosen. A torn region
// is bound to one for as long as that one is RW, whoever joins in a lower place, so that two reads
// cannot see two outcomes of the write that failed.
func (e *Engine) reader(off int64, mask uint32) uint32 {
	first := mask & -mask
	r := e.dirty.regions[regionOf(off)]
	if r == nil || !r.torn || mask == 0 {
		return first
	}
	if l := r.reader; l == nil || l.mode != RW || l.phase != sessionReady {
		r.reader = e.linkOf(first)
	}
	if bit := r.reader.bit(); mask&bit != 0 {
		return bit
	}
	return first // it has failed to read this before the region was torn
}

// repairPiece makes one piece identical with what is read.
func (e *Engine) repairPiece(off, n int64, done func(ok bool)) {
	t := e.newTask(wire.Hash)
	t.off, t.n = off, n
	asked := e.mask(RW)
	e.askHashes(t, asked, func(t *task, sums map[uint32][]byte) {
		told := asked & e.mask(RW) // who was dropped meanwhile counts no more
		ok := told&^t.ok == 0
		e.freeOf(t)
		src := e.reader(off, told)
		differ := others(sums, src) & told
		if !ok || differ == 0 {
			done(ok)
			return
		}
		e.transfer(&transfer{off: off, n: n, from: e.linkOf(src),
			to:   func() uint32 { return differ & e.mask(RW) },
			done: func(r transferred) { done(r.ok != 0 && r.failed() == 0) }})
	})
}

// repairLater notes that a region may be repaired when there is time.
func (d *dirtyLog) repairLater(n uint32) {
	if !slices.Contains(d.repairable, n) {
		d.repairable = append(d.repairable, n)
	}
}

// tornRegions returns the torn regions in order. They stay marked.
func (d *dirtyLog) tornRegions() (out []uint32) {
	for n, r := range d.regions {
		if r.torn && r.state == marked {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// lowestTorn returns a torn region that can be repaired now.
func (d *dirtyLog) lowestTorn() (n uint32, ok bool) {
	best := ^uint32(0)
	for i, r := range d.regions {
		if r.torn && r.state == marked && r.writes == 0 && i < best {
			best, ok = i, true
		}
	}
	return best, ok
}
