package engine

import (
	"time"

	"ankole.storage/dataplane/clock"
)

// expireAfter is how long a region must have been left alone before its mark is taken away although
// there is room for it. A region that is written to again then costs one more mark, a write to
// stable storage, so once a minute at most. What is gained: a start after a crash compares, and a
// replica that was away a while is compared in, only what was written lately.
const expireAfter = time.Minute

// due is when to look for marks to expire: never while there are none.
func (d *dirtyLog) due() clock.Ticks {
	e := d.e
	if !e.serving || e.dirty.noneToExpire {
		return clock.Never
	}
	return e.dirty.looked.Add(expireAfter)
}

// step looks for them when it is time.
func (d *dirtyLog) step() {
	if d.due() <= d.e.now {
		d.expire()
	}
}

// expire takes away the marks of regions that nobody has written to for a while, and has torn ones
// repaired. If some of them are not flushed yet, a flush of the log's own goes first and the next
// look takes them.
func (d *dirtyLog) expire() {
	e := d.e
	d.looked = e.now
	if e.links.mask(RW) == 0 || d.clears || d.flushing || e.writes.frozen > 0 || d.marksStay() {
		return
	}
	var old []uint32
	unflushed, left := false, false
	for n, r := range d.regions {
		switch {
		case r.torn:
			left = true
		case r.state != marked || r.writes > 0 || e.now < r.at.Add(expireAfter):
			left = true
		case d.clearable(r):
			old = append(old, n)
		default:
			unflushed, left = true, true
		}
	}
	for _, n := range d.tornRegions() {
		if e.now >= d.regions[n].at.Add(expireAfter) {
			d.repairLater(n) // there may be space again
		}
	}
	d.noneToExpire = !left
	if unflushed {
		d.flushOwn()
	}
	if len(old) > 0 {
		d.clear(old, func(bool) {})
	}
}
