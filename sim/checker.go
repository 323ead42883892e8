package sim

import (
	"fmt"

	"ankole.storage/block"
	"ankole.storage/clock"
)

// entry is one write to one sector: when it began, when it was acknowledged (Never while it is not), and when somebody
// first read it.
type entry struct {
	write           uint64
	begin, end      clock.Ticks
	seen            clock.Ticks
	zero            bool // the write made the sector zero
	flushed, failed bool
}

// Checker knows, sector by sector, which writes a read may return: the register is linearizable while power holds. After a
// loss of power an unflushed write may be gone, a flushed one never.
type Checker struct {
	sectors [][]entry
	// Reads and Writes count what was checked.
	Reads, Writes int
	// Err is the first violation.
	Err error
}

// NewChecker returns a checker of a volume of zeroes.
func NewChecker(size int64) *Checker {
	c := &Checker{sectors: make([][]entry, size/block.SectorSize)}
	for i := range c.sectors {
		c.sectors[i] = []entry{{zero: true, flushed: true}}
	}
	return c
}

func (c *Checker) each(off, n int64, f func(s *[]entry, sector int64)) {
	for s := off / block.SectorSize; s < (off+n)/block.SectorSize; s++ {
		f(&c.sectors[s], s)
	}
}

// Begin notes a write that is being sent.
func (c *Checker) Begin(now clock.Ticks, write uint64, off, n int64, zero bool) {
	c.each(off, n, func(s *[]entry, _ int64) {
		*s = append(*s, entry{write: write, begin: now, end: clock.Never, seen: clock.Never, zero: zero})
	})
}

// End notes that it was acknowledged, or failed: then it may take effect or not, at any time.
func (c *Checker) End(now clock.Ticks, write uint64, off, n int64, ok, fua bool) {
	c.Writes++
	c.each(off, n, func(s *[]entry, _ int64) {
		for i := range *s {
			if e := &(*s)[i]; e.write == write {
				if ok {
					e.end = now
					e.flushed = e.flushed || fua
				} else {
					e.failed = true
				}
			}
		}
		c.prune(s)
	})
}

// prune forgets writes that no read can return any more: those that ended before another acknowledged one began, unless a
// loss of power could still bring them back.
func (c *Checker) prune(s *[]entry) {
	stable := -1
	for i, e := range *s {
		if e.flushed && e.end != clock.Never && (stable < 0 || e.begin > (*s)[stable].begin) {
			stable = i
		}
	}
	if stable < 0 {
		return
	}
	limit := (*s)[stable].begin
	out := (*s)[:0]
	for i, e := range *s {
		if i == stable || e.end >= limit {
			out = append(out, e)
		}
	}
	*s = out
}

// Flushed notes a flush that succeeded: writes acknowledged before it began are stable.
func (c *Checker) Flushed(began clock.Ticks) {
	for i := range c.sectors {
		for j := range c.sectors[i] {
			if e := &c.sectors[i][j]; e.end <= began {
				e.flushed = true
			}
		}
		c.prune(&c.sectors[i])
	}
}

// Read checks what a read that began at began and ends now has returned.
func (c *Checker) Read(began, now clock.Ticks, off int64, data []byte) {
	c.Reads++
	c.each(off, int64(len(data)), func(s *[]entry, sector int64) {
		p := data[(sector*block.SectorSize - off):][:block.SectorSize]
		w, ok := unstamp(p, sector)
		if !ok {
			c.fail("sector %d holds a mixture that nobody wrote", sector)
			return
		}
		e := pick(*s, w)
		if e == nil {
			c.fail("sector %d: read write %d, which was overwritten long ago or never made", sector, w)
			return
		}
		// Nothing acknowledged or seen before this read began may have been written entirely after e.
		for i := range *s {
			o := &(*s)[i]
			if e.end < o.begin && min(o.end, o.seen) < began {
				c.fail("sector %d: read write %d [%d,%d], but write %d [%d,%d] (seen %d) came after it and before the read [%d,%d]",
					sector, w, e.begin, e.end, o.write, o.begin, o.end, o.seen, began, now)
				return
			}
		}
		e.seen = min(e.seen, now)
	})
}

// pick finds the entry a read value stands for: zeroes may come from several.
func pick(s []entry, w uint64) *entry {
	var best *entry
	for i := range s {
		e := &s[i]
		if (w != 0 && e.write == w && !e.zero) || (w == 0 && e.zero) {
			if best == nil || e.begin > best.begin {
				best = e
			}
		}
	}
	return best
}

// PowerLost forgets what reads have seen and makes everything unflushed uncertain.
func (c *Checker) PowerLost() {
	for i := range c.sectors {
		for j := range c.sectors[i] {
			e := &c.sectors[i][j]
			if !e.flushed {
				e.end = clock.Never
			}
			e.seen = clock.Never
		}
	}
}

func (c *Checker) fail(format string, args ...any) {
	if c.Err == nil {
		c.Err = fmt.Errorf(format, args...)
	}
}
