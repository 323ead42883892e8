package engine

import (
	"fmt"
	"slices"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
)

// tornRegions repairs regions in which a write has failed, one at a time.
type tornRegions struct {
	untimed
	e *Engine
	// job is the repair under way, nil for none; waiting are called when it has ended.
	job     *regionRepair
	waiting []func()
}

// regionRepair is a repair under way. A write that failed leaves its region torn: replicas may
// differ there, so the region is read from one of them until that one is dropped, and stays marked.
// It is repaired online, piece by piece under the range lock: once a write to it succeeds again,
// when nobody has written to it for a while, when the log has no room left, and before a snapshot
// would freeze the difference. The others get the content of the replica that is read from, of the
// blocks that differ. If one of them still has no space the region stays torn. A replica that fails
// otherwise is no reason: what its disk cannot read it gets from another one, and who fails in any
// other way is dropped.
type regionRepair struct {
	region uint32
	// frozen: writes are stopped for it. Otherwise it gives way to whoever stops them.
	frozen bool
	// tears is how often a write to the region had failed when this began: if one fails meanwhile
	// it stays torn.
	tears int
	next  int64
	end   int64
	// smaller are parts of pieces to make the same before the next piece.
	smaller []section
	// lost counts blocks that no replica can read.
	lost   int
	failed bool
	// gaveWay: that is why it failed, not want of space.
	gaveWay bool
	done    func(ok bool)
}

// repair begins to make a torn region identical. done is called with whether it is.
func (k *tornRegions) repair(n uint32, done func(ok bool)) {
	e := k.e
	r := e.dirty.regions[n]
	r.writes++ // keeps its mark
	r.gaveUp = 0
	beg := int64(n) * DirtyRegion
	k.job = &regionRepair{region: n, frozen: e.writes.frozen > 0, tears: r.tears, next: beg,
		end: min(beg+DirtyRegion, e.size), done: done}
	k.next()
}

// mayRepair tells whether a repair may begin now: not beside a rebuild. Its target may have been
// given what the one or the other replica holds, so that the region has to be torn until the target
// is compared too.
func (k *tornRegions) mayRepair() bool { return k.e.rebuilds.job() == nil }

// step begins to repair regions in which writes succeed again.
func (k *tornRegions) step() {
	e := k.e
	d := &e.dirty
	for len(d.repairable) > 0 && k.job == nil && e.serving && e.writes.frozen == 0 &&
		k.mayRepair() && e.links.mask(RW) != 0 {
		n := d.repairable[0]
		d.repairable = d.repairable[1:]
		if r := d.regions[n]; r != nil && r.torn && r.state == marked && !r.leftAlone(e.now) {
			k.repair(n, func(bool) { d.agreed() })
		}
	}
}

// repairPause is how long a region that there was no space to repair is left alone, so that on full
// disks neither every write to it has it compared, nor every write that wants room in the log all
// of them.
const repairPause = time.Minute

func (r *region) leftAlone(now clock.Ticks) bool {
	return r.gaveUp != 0 && now < r.gaveUp.Add(repairPause)
}

// next compares the next piece, or ends.
func (k *tornRegions) next() {
	e := k.e
	m := k.job
	p, more := m.take()
	if m.failed || !more || e.links.count(RW) < 2 {
		k.job = nil
		r := e.dirty.regions[m.region]
		r.writes--
		e.dirty.seq++
		r.last, r.at = e.dirty.seq, e.now
		ok := !m.failed && r.tears == m.tears && e.links.mask(RW) != 0
		if ok {
			r.torn, r.reader = false, nil
		}
		if m.failed && !m.gaveWay {
			r.gaveUp = max(e.now, 1)
		}
		e.dirty.noneToExpire, e.changed = false, true
		m.done(ok)
		if len(e.dirty.full) > 0 {
			e.dirty.shrink()
		}
		k.ended()
		return
	}
	e.requests.ranges.lock(p.off, p.n, true, grantFunc(func() {
		if e.stopping != nil || e.writes.frozen > 0 && !m.frozen {
			e.requests.ranges.unlock(p.off, p.n, true)
			e.dirty.repairLater(m.region)
			m.failed, m.gaveWay = true, true
			k.next()
			return
		}
		e.writes.inFlight++ // whoever wants no write in flight waits for this one
		k.repairPart(m, p, func() {
			e.requests.ranges.unlock(p.off, p.n, true)
			e.writes.inFlight--
			k.next()
			e.writes.quiet()
		})
	}))
}

// take returns the next part to make the same.
func (m *regionRepair) take() (p section, ok bool) {
	if k := len(m.smaller); k > 0 {
		p, m.smaller = m.smaller[k-1], m.smaller[:k-1]
		return p, true
	}
	p = section{off: m.next, n: min(block.MaxTransfer, m.end-m.next)}
	m.next += p.n
	return p, p.n > 0
}

// repairTries bounds how often a pass over the torn regions repairs the same one, which a write may
// tear again meanwhile: what is left then is few.
const repairTries = 3

// repairAll repairs every torn region that can be repaired, and then calls f. An engine that
// ends begins no repair, and goes on with none: it would be written behind the last flush.
func (k *tornRegions) repairAll(f func()) { k.repairRemaining(map[uint32]int{}, f) }

func (k *tornRegions) repairRemaining(tried map[uint32]int, f func()) {
	e := k.e
	if k.job != nil {
		k.waiting = append(k.waiting, func() { k.repairRemaining(tried, f) })
		return
	}
	for _, n := range e.dirty.tornRegions() {
		again := tried[n] == 0 || tried[n] < repairTries && e.dirty.regions[n].gaveUp == 0
		if again && e.serving && e.stopping == nil && k.mayRepair() && e.links.mask(RW) != 0 {
			tried[n]++
			k.repair(n, func(bool) { k.repairRemaining(tried, f) })
			return
		}
	}
	f()
}

// ended calls whoever waits for the repair that was under way.
func (k *tornRegions) ended() {
	fs := k.waiting
	k.waiting = nil
	for _, f := range fs {
		f()
	}
}

// errTorn refuses what would freeze a difference between replicas.
func (k *tornRegions) errTorn() error { return k.errNoRoom(k.e.dirty.tornRegions()) }

// errStaysTorn is errTorn while writes go on, for regions that have no space to be repaired. What
// was torn since it was repaired can be, when writes are stopped.
func (k *tornRegions) errStaysTorn() error {
	return k.errNoRoom(slices.DeleteFunc(k.e.dirty.tornRegions(), func(n uint32) bool {
		return k.e.dirty.regions[n].gaveUp == 0
	}))
}

func (k *tornRegions) errNoRoom(torn []uint32) error {
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
func (k *tornRegions) reader(off int64, mask uint32) uint32 {
	first := mask & -mask
	r := k.e.dirty.regions[regionOf(off)]
	if r == nil || !r.torn || mask == 0 {
		return first
	}
	if l := r.reader; l == nil || l.mode != RW || l.phase != sessionReady {
		r.reader = k.e.links.of(first)
	}
	if bit := r.reader.bit(); mask&bit != 0 {
		return bit
	}
	return first // it has failed to read this before the region was torn
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
