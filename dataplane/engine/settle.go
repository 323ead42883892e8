package engine

import (
	"time"

	"ankole.storage/clock"
)

// settleAfter is how long a region must have been left alone before its mark is taken away although there is room for it. A
// region that is written to again then costs one more mark, a write to stable storage, so once a minute at most. What is
// gained: a start after a crash compares, and a replica that was away a while is compared in, only what was written lately.
const settleAfter = time.Minute

// settleDue is when to look for regions to settle: never while there are none.
func (e *Engine) settleDue() clock.Ticks {
	if !e.serving || e.dirty.settled {
		return clock.Never
	}
	return e.dirty.looked.Add(settleAfter)
}

// settle takes away the marks of regions that nobody has written to for a while, and has torn ones mended. If some of them are not flushed yet, a flush of
// the log's own goes first and the next look takes them.
func (d *dirtyLog) settle(e *Engine) {
	d.looked = e.now
	if e.mask(RW) == 0 || d.clears || d.flushing || e.frozen > 0 || e.quorum.Holding() {
		return
	}
	var old []uint32
	unflushed, left := false, false
	for n, r := range d.regions {
		switch {
		case r.torn:
			left = true
		case r.state != marked || r.writes > 0 || e.now < r.at.Add(settleAfter):
			left = true
		case d.clearable(r):
			old = append(old, n)
		default:
			unflushed, left = true, true
		}
	}
	for _, n := range d.tornRegions() {
		if e.now >= d.regions[n].at.Add(settleAfter) {
			d.mendLater(n) // there may be space again
		}
	}
	d.settled = !left
	if unflushed {
		d.flushOwn(e)
	}
	if len(old) > 0 {
		d.clear(e, old, func(bool) {})
	}
}
