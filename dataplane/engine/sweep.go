package engine

import (
	"cmp"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
)

// sweep makes room in a log in which every region is torn, or written to all the time: the torn
// ones are repaired one after the other until one can be, whose mark is taken away then. Which of
// them want space that there is not differs from region to region. If none can be repaired, or none
// at present since a replica is being rebuilt, waiting requests are told that there is no space
// instead of being kept for long.
type sweep struct {
	// began is when, 0 if none is under way; failed: there was no space for a region since.
	began  clock.Ticks
	failed bool
	// again counts how often a region was torn again during its repair.
	again map[uint32]int
}

// repairOne repairs the next region of the sweep, or ends it. No repair is under way.
func (d *dirtyLog) repairOne() {
	e := d.e
	if e.writes.frozen > 0 {
		return // thaw calls again
	}
	if d.sweep.began == 0 {
		d.sweep = sweep{began: max(e.now, 1), again: map[uint32]int{}}
	}
	n, ok := d.nextTorn(e.now)
	if !ok || e.stopping != nil || !e.torn.mayRepair() {
		for _, t := range d.takeFull() {
			e.requests.finish(t, block.NoSpace)
		}
		return
	}
	e.torn.repair(n, func(ok bool) {
		switch r := d.regions[n]; {
		case ok || r == nil || e.writes.frozen > 0: // repaired, or it gave way
		case r.gaveUp != 0:
			d.sweep.failed = true
		case d.sweep.began != 0:
			d.sweep.again[n]++
		}
		d.shrink()
	})
}

// passes reports that the sweep has done with a region: there was no space, in the last
// minute if there was none for another one either, or it was torn again too often.
func (s *sweep) passes(n uint32, r *region, now clock.Ticks) bool {
	return r.gaveUp != 0 && r.gaveUp >= s.began || s.failed && r.leftAlone(now) || s.again[n] >= repairTries
}

// nextTorn returns the torn region that a sweep has not tried for longest.
func (d *dirtyLog) nextTorn(now clock.Ticks) (n uint32, ok bool) {
	s := &d.sweep
	for i, r := range d.regions {
		if !r.quietlyTorn() || s.passes(i, r, now) {
			continue
		}
		best := d.regions[n]
		if !ok || cmp.Or(cmp.Compare(s.again[i], s.again[n]), cmp.Compare(r.gaveUp, best.gaveUp), cmp.Compare(i, n)) < 0 {
			n, ok = i, true
		}
	}
	return n, ok
}

// takeFull returns the requests that wait for room, which ends the sweep.
func (d *dirtyLog) takeFull() []*task {
	full := d.full
	d.full, d.sweep, d.inVain = nil, sweep{}, false
	return full
}
