package engine

import (
	"fmt"
	"math/bits"

	"ankole.storage/block"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// A sector that a disk cannot read any more is usually well again when it is written: the disk puts it elsewhere. So a read
// that fails with an i/o error on one replica is answered by another one, and the range is then written to the first with
// what the other has. That makes no difference to anybody who reads, so it needs neither marks nor a rebuild. What lies in a
// snapshot stays unreadable there, hidden below the head, until a scrub.

// maxHeals bounds how many ranges of one replica are written again before it is dropped after all: a disk that goes on
// failing is better replaced.
const maxHeals = 64

// mayHeal tells whether the links in bad are kept although they failed to read.
func (e *Engine) mayHeal(t *task, bad uint32) bool {
	if t.code != block.IOError || bad == 0 || e.count(RW) < 2 || e.dirty.torn(t.off, t.n) {
		// In a region in which a write has failed, another replica may have another content.
		return false
	}
	for _, l := range e.links {
		if l != nil && bad&l.bit() != 0 && l.heals >= maxHeals {
			return false
		}
	}
	return true
}

// heal writes the whole blocks around a range to the links in mask with what another replica has.
func (e *Engine) heal(mask uint32, off, n int64) {
	beg, end := widen(off, n)
	e.ranges.lock(beg, end-beg, true, func() {
		mask &= e.mask(RW)
		source := e.mask(RW) &^ mask
		b, ok := loop.Buf(0), false
		if mask != 0 && source != 0 && e.frozen == 0 {
			b, ok = e.arena.GetReserved(int(end - beg))
		}
		if !ok {
			// Not now. The next read of the range will ask again.
			e.ranges.unlock(beg, end-beg, true)
			return
		}
		e.writes++ // whoever wants no write in flight waits for this one
		rd := e.newTask(wire.Read)
		rd.off, rd.n, rd.seg, rd.bounce = beg, end-beg, loop.Seg{Buf: b, Len: int32(end - beg)}, true
		e.internal(rd, 1<<bits.TrailingZeros32(source), func(rd *task) { e.healWrite(rd, mask) })
	})
}

func (e *Engine) healWrite(rd *task, mask uint32) {
	off, n := rd.off, rd.n
	done := func() {
		e.ranges.unlock(off, n, true)
		e.writes--
		e.quiet()
	}
	mask &= e.mask(RW)
	if rd.ok == 0 || mask == 0 {
		e.freeOf(rd)
		done()
		return
	}
	wr := e.newTask(wire.Write)
	wr.off, wr.n, wr.seg, wr.bounce = rd.off, rd.n, rd.seg, true
	rd.bounce = false
	e.freeOf(rd)
	e.internal(wr, mask, func(wr *task) {
		for _, l := range e.links {
			if l == nil || mask&l.bit() == 0 || wr.ok&l.bit() == 0 {
				continue
			}
			l.heals++
			e.event("rewritten", l.addr, fmt.Sprintf("[%d,+%d) could not be read from its disk", wr.off, wr.n))
		}
		e.dropEach((wr.bad|wr.full)&mask, "its disk could neither read nor write: "+wr.code.String())
		e.freeOf(wr)
		done()
	})
}
