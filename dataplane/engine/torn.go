package engine

import (
	"bytes"

	"ankole.storage/block"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// A write that failed leaves its region torn: replicas may differ there, so the region is read from one of them and stays
// marked. It is mended online, piece by piece under the range lock, once a write to it succeeds again or the log has no room
// left: the others get the content of the replica that is read from. If one of them still has no space the region stays torn.
type mending struct {
	region uint32
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
	e.mending = &mending{region: n, tears: r.tears, next: beg, end: min(beg+DirtyRegion, e.size), done: done}
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
		r.last = e.dirty.seq
		ok := !m.failed && r.tears == m.tears && e.mask(RW) != 0
		r.torn = r.torn && !ok
		m.done(ok)
		return
	}
	off, n := m.next, min(block.MaxTransfer, m.end-m.next)
	m.next += n
	e.ranges.lock(off, n, true, func() {
		e.mendPiece(off, n, func(ok bool) {
			m.failed = m.failed || !ok
			e.ranges.unlock(off, n, true)
			e.mendNext()
		})
	})
}

// mendPiece makes one piece identical; the lowest replica is the one that is read from.
func (e *Engine) mendPiece(off, n int64, done func(ok bool)) {
	t := e.newTask(wire.Hash)
	t.off, t.n = off, n
	sums := map[uint32][]byte{}
	asked := e.mask(RW)
	left := asked
	t.answer = func(code block.Code, p []byte) {
		bit := left &^ t.pending
		left = t.pending
		if code == block.OK {
			sums[bit] = bytes.Clone(p)
		}
	}
	e.internal(t, asked, func(t *task) {
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
