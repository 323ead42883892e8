package engine

import (
	"time"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/rebuild"
)

// copyWidth is how many pieces, of 1 MiB each, are copied or compared at once while nobody uses the
// volume.
const copyWidth = 8

// copying carries out a plan (package rebuild): pieces are brought to their target, several at once
// and at the pace that the budget allows, then source and target are compared. A rebuild and an
// import are each one of these; copyWork is what differs.
type copying struct {
	e    *Engine
	work copyWork
	plan *rebuild.Plan // nil before it begins
	// running counts pieces and comparisons under way; listing: a page of extents is asked for.
	running int
	listing bool
	// verifying: every piece was brought, the rest is comparison. ended: that is done too.
	verifying, ended bool
	// again are ranges whose comparison was interrupted.
	again [][2]int64
	// paceAt is when the next piece may begin, by the bandwidth budget.
	paceAt clock.Ticks
}

// copyWork is what a copy does in its own way. Everything that it begins ends in one call of a
// method of copying.
type copyWork interface {
	// width is how many pieces may be under way now: 0 while there is nothing to copy from, and
	// when the work was given up.
	width() int
	// list asks for extents as rebuild.Plan.NeedExtents says, and ends with listed.
	list(layer uint32, off int64, target bool)
	// bring brings one piece to the target, and ends with brought.
	bring(p rebuild.Piece)
	// verify compares a range of source and target, and ends with compared.
	verify(off, n int64)
	// verified is called when nothing is left to do.
	verified()
	// progress is told percent, and bytes done and to do.
	progress(percent int, done, total int64)
}

// more keeps pieces under way.
func (c *copying) more() {
	if c.plan == nil || c.ended || c.work.width() == 0 {
		return
	}
	c.work.progress(c.plan.Progress())
	if !c.verifying {
		c.bringMore()
	}
	if c.verifying {
		c.verifyMore()
	}
}

// free reports whether another piece may begin.
func (c *copying) free() bool { return c.running < c.work.width() && c.e.now >= c.paceAt }

func (c *copying) bringMore() {
	for c.free() {
		p, ok := c.plan.Next()
		if ok {
			c.running++
			c.work.bring(p)
			continue
		}
		if c.running > 0 || c.listing || !c.plan.Waiting() {
			break
		}
		c.plan.Begin()
		if c.listMore() {
			break
		}
	}
	if c.work.width() > 0 && !c.listing && !c.listMore() && c.running == 0 && c.plan.CopyDone() {
		c.verifying = true
	}
}

// listMore asks for the next page of extents, if one is wanted.
func (c *copying) listMore() bool {
	layer, off, target, ok := c.plan.NeedExtents()
	if !ok || c.listing || c.work.width() == 0 {
		return false
	}
	c.listing = true
	c.work.list(layer, off, target)
	return true
}

// listed takes a page of extents, or nothing where it has to be asked for again.
func (c *copying) listed(ranges [][2]int64, next int64, ok bool) {
	c.listing = false
	if ok {
		c.plan.Extents(ranges, next)
	}
	c.more()
}

// brought ends a piece: done, or to be done again.
func (c *copying) brought(p rebuild.Piece, done bool) {
	c.running--
	if done {
		c.plan.Copied(p.Len)
	} else {
		c.plan.Retry(p)
	}
	c.more()
}

func (c *copying) verifyMore() {
	for c.free() {
		off, n, ok := c.nextVerify()
		if !ok {
			break
		}
		c.running++
		c.work.verify(off, n)
	}
	if c.running > 0 || c.ended || !c.verifying || c.work.width() == 0 {
		return
	}
	if off, n, ok := c.nextVerify(); ok {
		c.again = append(c.again, [2]int64{off, n}) // the budget did not allow it yet
		return
	}
	c.ended = true
	c.work.verified()
}

// nextVerify returns the next range to compare, those first whose comparison was interrupted.
func (c *copying) nextVerify() (off, n int64, ok bool) {
	if k := len(c.again); k > 0 {
		r := c.again[k-1]
		c.again = c.again[:k-1]
		return r[0], r[1], true
	}
	return c.plan.NextVerify()
}

// compared ends a comparison: done, or to be done again.
func (c *copying) compared(off, n int64, done bool) {
	c.running--
	if !done {
		c.again = append(c.again, [2]int64{off, n})
	}
	c.more()
}

// due is when the budget lets the copy go on.
func (c *copying) due() clock.Ticks {
	if c.plan != nil && !c.ended && c.paceAt > c.e.now {
		return c.paceAt
	}
	return clock.Never
}

// paced takes n bytes from the budget.
func (c *copying) paced(n int64) {
	if budget := c.e.rebuilds.budget; budget > 0 {
		c.paceAt = max(c.paceAt, c.e.now).Add(takes(n, budget))
	}
}

// setBudget bounds what rebuilds and clones send, in bytes per second; 0 means no bound. It
// holds at once: what was sent already counts against the new budget, not the old one.
func (b *rebuilds) setBudget(n int64) {
	before := b.budget
	b.budget = n
	if j := b.job(); j != nil {
		j.paceAnew(before)
	}
	if j := b.e.imports.job; j != nil {
		j.paceAnew(before)
	}
}

// paceAnew turns the time that is left of the budget before into that of the present one.
func (c *copying) paceAnew(before int64) {
	owed := c.paceAt.Sub(c.e.now).Seconds() * float64(before)
	if c.paceAt = min(c.paceAt, c.e.now); owed > 0 {
		c.paced(int64(owed))
	}
}

// takes is how long n bytes take at so many a second.
func takes(n, bytesPerSecond int64) time.Duration {
	return time.Duration(float64(n) / float64(bytesPerSecond) * float64(time.Second))
}
