package engine

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
)

// sweep makes room in a log in which every region is torn, or written to all the time: the torn
// ones are repaired one after the other until one can be, whose mark is taken away then. Which of
// them want space that there is not differs from region to region. If none can be repaired, or none
// at present since a replica is being rebuilt, waiting requests are told that there is no space
// instead of being kept for long.
type sweep struct {
	// began is when, 0 if none is under way; failed: a region could not be repaired since.
	began  clock.Ticks
	failed bool
}

// repairOne repairs the next region of the sweep, or ends it. No repair is under way.
func (d *dirtyLog) repairOne(e *Engine) {
	if e.frozen > 0 {
		return // thaw calls again
	}
	if d.sweep.began == 0 {
		d.sweep.began = max(e.now, 1)
	}
	n, ok := d.nextTorn()
	if !ok || e.stopping != nil || !e.mayRepair() || d.sweep.over(d.regions[n], e.now) {
		for _, t := range d.takeFull() {
			e.finish(t, block.NoSpace)
		}
		return
	}
	e.repairRegion(n, func(ok bool) {
		if r := d.regions[n]; !ok && r != nil && e.frozen == 0 { // else it gave way
			r.gaveUp, d.sweep.failed = max(e.now, 1), true
		}
		d.shrink(e)
	})
}

// over reports that no region is left to try, r being the one that was tried longest ago.
func (s *sweep) over(r *region, now clock.Ticks) bool {
	return r.gaveUp != 0 && (r.gaveUp >= s.began || s.failed && r.leftAlone(now))
}

// nextTorn returns the torn region that a sweep has not tried for longest.
func (d *dirtyLog) nextTorn() (n uint32, ok bool) {
	for i, r := range d.regions {
		if !r.torn || r.state != marked || r.writes > 0 {
			continue
		}
		if best := d.regions[n]; !ok || r.gaveUp < best.gaveUp || r.gaveUp == best.gaveUp && i < n {
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
