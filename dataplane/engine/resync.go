package engine

import (
	"bytes"
	"fmt"
	"math/bits"
	"slices"

	"ankole.storage/block"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// resyncWidth is how many pieces are compared at once: enough to keep every disk busy, few enough to bound memory.
const resyncWidth = 4

// resync makes the RW replicas identical after an unclean end, before anything is served. Only regions that some
// replica has marked are compared, a piece of block.MaxTransfer at a time; where hashes differ, one replica's content is
// written to the others. A difference comes from writes that were never acknowledged, or that were never flushed and are gone
// where power was lost. So the first replica that did not lose it is taken: somebody may have read there since what the others
// have no more.
type resync struct {
	pieces  []int64 // offsets still to compare
	total   int
	running int
	copied  int64
}

// startResync compares the marked regions and then serves.
func (e *Engine) startResync(dirty map[uint32]bool) {
	r := &resync{}
	for n := range dirty {
		beg := int64(n) * DirtyRegion
		for off := beg; off < min(beg+DirtyRegion, e.size); off += block.MaxTransfer {
			r.pieces = append(r.pieces, off)
		}
	}
	slices.Sort(r.pieces)
	r.total = len(r.pieces)
	if e.count(RW) < 2 {
		r.pieces = nil
	}
	e.resync = r
	if len(r.pieces) > 0 {
		e.event("comparing", "", fmt.Sprintf("%d dirty regions", len(dirty)))
	}
	e.resyncMore()
}

func (e *Engine) resyncMore() {
	r := e.resync
	for r.running < resyncWidth && len(r.pieces) > 0 {
		off := r.pieces[0]
		r.pieces = r.pieces[1:]
		r.running++
		e.compare(off)
	}
	if r.running == 0 {
		e.resyncEnd()
	}
}

func (e *Engine) resyncNext() {
	e.resync.running--
	e.resyncMore()
}

// resyncEnd flushes what was copied, clears the marks and serves. A replica that fails on the way is dropped first: see
// dirtyLog.
func (e *Engine) resyncEnd() {
	r := e.resync
	if r.copied > 0 {
		e.event("compared", "", fmt.Sprintf("%d bytes made identical", r.copied))
	}
	t := e.newTask(wire.Flush)
	e.internal(t, e.mask(RW), func(t *task) {
		e.dropEach(t.full|t.bad, "flush failed: "+t.code.String())
		e.freeOf(t)
		e.whenSettled(func() {
			e.controlAll(&wire.ControlRequest{ClearDirty: &wire.ClearDirty{Keep: []uint32{}}}, "cannot clear dirty regions", func(bool) {
				e.resync = nil
				e.serve()
			})
		})
	})
}

// whenSettled calls f when no drop is open any more, at once if none is or if no replica is left that could agree to one.
func (e *Engine) whenSettled(f func()) {
	e.onSettled = append(e.onSettled, f)
	e.settled()
}

// settled continues what waits for the set of replicas to be agreed.
func (e *Engine) settled() {
	if e.quorum.Holding() && e.count(RW) > 0 {
		return
	}
	fs := e.onSettled
	e.onSettled = nil
	for _, f := range fs {
		f()
	}
	e.dirty.agreed(e)
}

// compare asks every RW replica for the hash of one piece.
func (e *Engine) compare(off int64) {
	n := min(block.MaxTransfer, e.size-off)
	t := e.newTask(wire.Hash)
	t.off, t.n = off, n
	e.askHashes(t, e.mask(RW), func(t *task, sums map[uint32][]byte) {
		e.dropEach(t.full|t.bad, "cannot hash: "+t.code.String())
		e.freeOf(t)
		e.equalise(off, n, sums)
	})
}

// believed chooses whose content is taken among the links in mask: the first that kept its power, else the first.
func (e *Engine) believed(mask uint32) uint32 {
	for _, l := range e.links {
		if l != nil && mask&l.bit() != 0 && !l.hello.PowerLost {
			return l.bit()
		}
	}
	return mask & -mask
}

// equalise copies the piece from one replica to those that differ from it.
func (e *Engine) equalise(off, n int64, sums map[uint32][]byte) {
	var told, differ uint32
	for bit := range sums {
		told |= bit & e.mask(RW)
	}
	src := e.believed(told)
	for m := told; m != 0; m &= m - 1 {
		if bit := m & -m; !bytes.Equal(sums[bit], sums[src]) {
			differ |= bit
		}
	}
	if differ == 0 {
		e.resyncNext()
		return
	}
	b, ok := e.arena.GetReserved(int(n))
	if !ok {
		e.dropEach(differ, "no buffer to compare")
		e.resyncNext()
		return
	}
	rd := e.newTask(wire.Read)
	rd.off, rd.n, rd.seg, rd.bounce = off, n, loop.Seg{Buf: b, Len: int32(n)}, true
	e.internal(rd, src, func(rd *task) {
		if rd.ok == 0 {
			// The source failed and was dropped: compare the rest again.
			e.dropEach(src, "cannot read: "+rd.code.String())
			e.freeOf(rd)
			e.compare(off)
			return
		}
		wr := e.newTask(wire.Write)
		wr.off, wr.n, wr.seg, wr.bounce = off, n, rd.seg, true
		rd.bounce = false
		e.freeOf(rd)
		e.resync.copied += n * int64(bits.OnesCount32(differ))
		e.internal(wr, differ&e.mask(RW), func(wr *task) {
			e.dropEach(wr.full|wr.bad, "cannot be made identical: "+wr.code.String())
			e.freeOf(wr)
			e.resyncNext()
		})
	})
}
