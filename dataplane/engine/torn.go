package engine

import (
	"bytes"
	"fmt"
	"slices"

	"ankole.storage/block"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// A write that failed leaves its region torn: replicas may differ there, so the region is read from one of them and stays
// marked. It is mended online, piece by piece under the range lock: once a write to it succeeds again, when nobody has written to
// it for a while, when the log has no room left, and before a snapshot would freeze the difference. The others get the content of
// the replica that is read from. If one of them still has no space the region stays torn.
type mending struct {
	region uint32
	// frozen: writes are stopped for it. Otherwise it gives way to whoever stops them.
	frozen bool
	// tears is how often a write to the region had failed when this began: if one fails meanwhile it stays torn.
	tears  int
	next   int64
	end    int64
	failed bool
	done   func(ok bool)
}

// mend begins to make a torn region identical. done is called with whether it is.
func (e *Engine) mend(n uint32, done func(ok bool)) {
	r := e.dirty.regions[n]
	r.writes++ // keeps its mark
	beg := int64(n) * DirtyRegion
	e.mending = &mending{region: n, frozen: e.frozen > 0, tears: r.tears, next: beg, end: min(beg+DirtyRegion, e.size), done: done}
	e.mendNext()
}

// mendMore begins to mend regions in which writes succeed again. It is called at the end of every step.
func (e *Engine) mendMore() {
	d := &e.dirty
	for len(d.mendable) > 0 && e.mending == nil && e.serving && e.frozen == 0 && e.rebuilding() == nil && e.mask(RW) != 0 {
		n := d.mendable[0]
		d.mendable = d.mendable[1:]
		if r := d.regions[n]; r != nil && r.torn && r.state == marked {
			e.mend(n, func(bool) { d.agreed(e) })
		}
	}
}

// mendNext compares the next piece, or ends.
func (e *Engine) mendNext() {
	m := e.mending
	if m.failed || m.next >= m.end || e.count(RW) < 2 {
		e.mending = nil
		r := e.dirty.regions[m.region]
		r.writes--
		e.dirty.seq++
		r.last, r.at = e.dirty.seq, e.now
		ok := !m.failed && r.tears == m.tears && e.mask(RW) != 0
		r.torn = r.torn && !ok
		e.dirty.settled, e.changed = false, true
		m.done(ok)
		e.mended()
		return
	}
	off, n := m.next, min(block.MaxTransfer, m.end-m.next)
	m.next += n
	e.ranges.lock(off, n, true, func() {
		if e.frozen > 0 && !m.frozen {
			e.ranges.unlock(off, n, true)
			e.dirty.mendLater(m.region)
			m.failed = true
			e.mendNext()
			return
		}
		e.writes++ // whoever wants no write in flight waits for this one
		e.mendPiece(off, n, func(ok bool) {
			m.failed = m.failed || !ok
			e.ranges.unlock(off, n, true)
			e.writes--
			e.mendNext()
			e.quiet()
		})
	})
}

// mendAll mends every torn region that can be mended, and then calls f.
func (e *Engine) mendAll(f func()) { e.mendRest(map[uint32]bool{}, f) }

func (e *Engine) mendRest(tried map[uint32]bool, f func()) {
	if e.mending != nil {
		e.onMended = append(e.onMended, func() { e.mendRest(tried, f) })
		return
	}
	for _, n := range e.dirty.tornRegions() {
		if !tried[n] && e.serving && e.rebuilding() == nil && e.mask(RW) != 0 {
			tried[n] = true
			e.mend(n, func(bool) { e.mendRest(tried, f) })
			return
		}
	}
	f()
}

// mended calls whoever waits for the mending that was under way.
func (e *Engine) mended() {
	fs := e.onMended
	e.onMended = nil
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
	return fmt.Errorf("%w: a write has failed in the %d MiB from offset %d on (%d such places), replicas may differ there, and now they "+
		"cannot be made the same; free space where they are and try again", block.NoSpace, DirtyRegion>>20, int64(torn[0])*DirtyRegion, len(torn))
}

// mendPiece makes one piece identical; the lowest replica is the one that is read from.
func (e *Engine) mendPiece(off, n int64, done func(ok bool)) {
	t := e.newTask(wire.Hash)
	t.off, t.n = off, n
	asked := e.mask(RW)
	e.askHashes(t, asked, func(t *task, sums map[uint32][]byte) {
		ok := t.ok == asked
		e.freeOf(t)
		src := asked & -asked
		var differ uint32
		for m := asked; m != 0; m &= m - 1 {
			if bit := m & -m; ok && !bytes.Equal(sums[bit], sums[src]) {
				differ |= bit
			}
		}
		if !ok || differ == 0 {
			done(ok)
			return
		}
		e.mendCopy(off, n, src, differ, done)
	})
}

func (e *Engine) mendCopy(off, n int64, src, differ uint32, done func(ok bool)) {
	b, ok := e.arena.GetReserved(int(n))
	if !ok {
		done(false)
		return
	}
	rd := e.newTask(wire.Read)
	rd.off, rd.n, rd.seg, rd.bounce = off, n, loop.Seg{Buf: b, Len: int32(n)}, true
	e.internal(rd, src&e.mask(RW), func(rd *task) {
		if rd.ok == 0 {
			e.freeOf(rd)
			done(false)
			return
		}
		wr := e.newTask(wire.Write)
		wr.off, wr.n, wr.seg, wr.bounce = off, n, rd.seg, true
		rd.bounce = false
		e.freeOf(rd)
		e.internal(wr, differ&e.mask(RW), func(wr *task) {
			ok := wr.full|wr.bad == 0 && wr.ok != 0
			e.freeOf(wr)
			done(ok)
		})
	})
}

// mendLater notes that a region may be mended when there is time.
func (d *dirtyLog) mendLater(n uint32) {
	if !slices.Contains(d.mendable, n) {
		d.mendable = append(d.mendable, n)
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

// lowestTorn returns a torn region that can be mended now.
func (d *dirtyLog) lowestTorn() (n uint32, ok bool) {
	best := ^uint32(0)
	for i, r := range d.regions {
		if r.torn && r.state == marked && r.writes == 0 && i < best {
			best, ok = i, true
		}
	}
	return best, ok
}
