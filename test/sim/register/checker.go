// Package register judges what reads of a volume return, by the writes, flushes and losses of power
// that came before: each sector is a register that is linearizable while power holds. It knows
// nothing of engines and replicas.
package register

import (
	"errors"
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
)

// entry is one write to one sector: when it began, when it was over (Never while it is not), when
// the first read that saw it ended, and when the last one that saw it began. It has its effect at
// one moment, between begin and end, before seen and before another write has its effect after
// which nobody sees this one.
type entry struct {
	write uint64
	// value is the number that the sector carries then: that of the write, but for a revert.
	value      uint64
	begin, end clock.Ticks
	seen, last clock.Ticks
	zero       bool // the write made the sector zero
	flushed    bool
	// optional writes may have had no effect: they failed, were never answered, or were not flushed
	// when power was lost.
	optional, failed bool
}

// sector is the register of one sector.
type sector struct {
	entries []entry
	// open: it is on the list of sectors with writes that are not known to be stable.
	open bool
}

// Checker knows, sector by sector, which writes a read may return: the register is linearizable
// while power holds. After a loss of power an unflushed write may be gone, a flushed one never.
type Checker struct {
	sectors []sector
	// open lists the sectors that a flush concerns.
	open []int64
	// Touched lists all sectors that were ever written: most of a volume never is.
	Touched   []int64
	powerLost clock.Ticks // the last time
	// Oldest tells when the oldest read began that may still be answered: what it may return is not
	// forgotten.
	Oldest func() clock.Ticks
	// Pins tells whether what is read now has to stay. It need not while an engine counts on a
	// replica that has lost power and has not heard of it: if the others are lost to it first, that
	// one is all that is left.
	Pins func() bool
	// Image is the value of a sector that nobody has written, 0 for zeroes; nil: all are zeroes.
	Image func(sector int64) uint64
	// Reads, Writes and Flushes count what was checked.
	Reads, Writes, Flushes int
	// Err is the first violation, At the sector it was found in.
	Err error
	At  int64
}

// New returns a checker of a volume of zeroes.
func New(size int64) *Checker {
	return &Checker{sectors: make([]sector, size/block.SectorSize), At: -1, powerLost: -1,
		Oldest: func() clock.Ticks { return clock.Never }, Pins: func() bool { return true }}
}

// Grow notes that the volume has become larger, to size bytes.
func (c *Checker) Grow(size int64) {
	if n := int(size/block.SectorSize) - len(c.sectors); n > 0 {
		c.sectors = append(c.sectors, make([]sector, n)...)
	}
}

// initial is what a sector holds that nobody has written.
func (c *Checker) initial(sector int64) entry {
	v := uint64(0)
	if c.Image != nil {
		v = c.Image(sector)
	}
	return entry{value: v, zero: v == 0, flushed: true}
}

func (c *Checker) each(off, n int64, f func(s *sector, i int64)) {
	for i := off / block.SectorSize; i < (off+n)/block.SectorSize; i++ {
		f(&c.sectors[i], i)
	}
}

// Begin notes a write that is being sent.
func (c *Checker) Begin(now clock.Ticks, write uint64, off, n int64, zero bool) {
	c.each(off, n, func(s *sector, i int64) {
		if s.entries == nil {
			s.entries = append(make([]entry, 0, 4), c.initial(i))
			c.Touched = append(c.Touched, i)
		}
		c.add(i, entry{write: write, value: write, begin: now, zero: zero})
	})
}

// add notes a write to one sector that is being sent.
func (c *Checker) add(i int64, e entry) {
	s := &c.sectors[i]
	e.end, e.seen = clock.Never, clock.Never
	s.entries = append(s.entries, e)
	if !s.open {
		s.open = true
		c.open = append(c.open, i)
	}
}

// Revert notes a revert that is being asked for, as a write to every sector that was ever written.
// value tells the number that a sector carries afterwards, 0 for zeroes.
func (c *Checker) Revert(now clock.Ticks, write uint64, value func(sector int64) uint64) {
	for _, i := range c.Touched {
		v := value(i)
		c.add(i, entry{write: write, value: v, begin: now, zero: v == 0})
	}
}

// Again notes a write that is sent once more: it may have its effect twice. One that was over,
// since another engine has served, is not sent again.
func (c *Checker) Again(now clock.Ticks, write, before uint64, off, n int64) {
	c.each(off, n, func(s *sector, i int64) {
		e := s.find(before)
		if e == nil || e.end != clock.Never {
			c.Fail(i, "sector %d: write %d is sent again, and it was over: another engine has served", i, before)
			return
		}
		c.add(i, entry{write: write, value: e.value, begin: now, zero: e.zero})
	})
}

// End notes that it was acknowledged.
func (c *Checker) End(now clock.Ticks, write uint64, off, n int64, fua bool) {
	c.Writes++
	var oldest clock.Ticks
	if fua {
		oldest = c.Oldest()
	}
	c.each(off, n, func(s *sector, _ int64) {
		if e := s.find(write); e != nil {
			e.end = min(e.end, now)
			// A replica may have answered before the loss of power that took the write from it.
			e.optional = e.optional && !fua && e.begin <= c.powerLost
			e.flushed = e.flushed || fua
		}
		if fua {
			s.prune(oldest)
		}
	})
}

// Maybe notes that a write is over, and that it may have had no effect: it failed, or was never
// answered and can have none any more. It may still be acknowledged, by an engine whose answer is
// late.
func (c *Checker) Maybe(now clock.Ticks, write uint64, off, n int64) {
	c.each(off, n, func(s *sector, _ int64) {
		if e := s.find(write); e != nil && e.end == clock.Never {
			e.end, e.optional, e.failed = now, true, true
		}
	})
}

func (s *sector) find(write uint64) *entry {
	for i := range s.entries {
		if s.entries[i].write == write {
			return &s.entries[i]
		}
	}
	return nil
}

// prune forgets writes that no read can return any more, the oldest still open included: those that
// ended before another acknowledged one began, unless a loss of power could still bring them back.
func (s *sector) prune(oldest clock.Ticks) {
	stable := -1
	for i := range s.entries {
		if e := &s.entries[i]; e.flushed && !e.optional && e.end < oldest &&
			(stable < 0 || e.begin > s.entries[stable].begin) {
			stable = i
		}
	}
	if stable < 0 {
		return
	}
	limit := s.entries[stable].begin
	out := s.entries[:0]
	for i := range s.entries {
		if e := s.entries[i]; i == stable || e.end >= limit {
			out = append(out, e)
		}
	}
	s.entries = out
}

// Flushed notes a flush that succeeded: writes acknowledged before it began are stable.
func (c *Checker) Flushed(began clock.Ticks) {
	c.Flushes++
	oldest := c.Oldest()
	left := c.open[:0]
	for _, i := range c.open {
		s := &c.sectors[i]
		s.open = false
		for j := range s.entries {
			e := &s.entries[j]
			if e.end <= began {
				e.flushed = true
				// What survived a loss of power, and was read, is there to stay.
				e.optional = e.optional && (e.failed || e.seen > began)
			}
			s.open = s.open || !e.flushed
		}
		s.prune(oldest)
		if s.open {
			left = append(left, i)
		}
	}
	c.open = left
}

// Read checks what a read that began at began and ends now has returned.
func (c *Checker) Read(began, now clock.Ticks, off int64, data []byte) {
	c.Reads++
	pins := began > c.powerLost && c.Pins()
	c.each(off, int64(len(data)), func(s *sector, i int64) {
		p := data[(i*block.SectorSize - off):][:block.SectorSize]
		w, ok := Unstamp(p, i)
		if !ok {
			c.Fail(i, "sector %d holds a mixture that nobody wrote", i)
			return
		}
		if s.entries == nil {
			if w != c.initial(i).value {
				c.Fail(i, "sector %d: read write %d, and nobody has written there", i, w)
			}
			return
		}
		e, only, err := s.read(w, began, now)
		if err != nil {
			c.Fail(i, "sector %d: read write %d %v and before the read [%d,%d]", i, w, err, began, now)
			return
		}
		if pins && only {
			e.seen, e.last = min(e.seen, now), max(e.last, began)
		}
	})
}

// read finds the write that a read from began to now which saw the value w can have seen, and
// tells whether it is the only one: zeroes may come from several, and so may what a revert has
// brought back.
func (s *sector) read(w uint64, began, now clock.Ticks) (e *entry, only bool, err error) {
	err = errors.New("which was overwritten long ago or never made")
	for i := range s.entries {
		x := &s.entries[i]
		if w != x.value && !(w == 0 && x.zero) || w != 0 && x.zero {
			continue
		}
		if o := s.over(x, began, now); o != nil {
			err = fmt.Errorf("[%d,%d] (seen [%d,%d]), but write %d [%d,%d] (seen [%d,%d]) came after it", x.begin,
				x.end, x.seen, x.last, o.write, o.begin, o.end, o.seen, o.last)
			continue
		}
		e, only = x, e == nil
	}
	if e != nil {
		err = nil
	}
	return e, only, err
}

// over finds a write that came after e and before a read from began to now, which thus cannot have
// seen e. One write comes after another if something that shows the first one, its own end or that
// of a read, was over before something began that shows the second one. Of two writes of which each
// comes after the other there is no order: that this never happens makes the register linearizable
// (Gibbons and Korach, Testing Shared Memories).
func (s *sector) over(e *entry, began, now clock.Ticks) *entry {
	first, last := min(e.end, e.seen, now), max(e.begin, e.last, began)
	for i := range s.entries {
		o := &s.entries[i]
		done := o.seen
		if !o.optional {
			done = min(done, o.end)
		}
		if o != e && first < max(o.begin, o.last) && done < last {
			return o
		}
	}
	return nil
}

// PowerLost makes everything uncertain that was not flushed, writes still under way included, and
// forgets which reads have seen it.
func (c *Checker) PowerLost(now clock.Ticks) {
	c.powerLost = now
	for _, i := range c.Touched {
		s := &c.sectors[i]
		for j := range s.entries {
			e := &s.entries[j]
			e.optional = e.optional || !e.flushed
			if e.optional {
				e.seen, e.last = clock.Never, 0
			}
		}
	}
}

// Fail notes the first violation; at is the sector concerned, -1 for none.
func (c *Checker) Fail(at int64, format string, args ...any) {
	if c.Err == nil {
		c.Err, c.At = fmt.Errorf(format, args...), at
	}
}
