package engine

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"ankole.storage/block"
	"ankole.storage/dataplane/wire"
)

// resyncWidth is how many pieces are compared at once: enough to keep every disk busy, few enough
// to bound memory.
const resyncWidth = 4

// resync makes the RW replicas identical after an unclean end, before anything is served. Only
// regions that some replica has marked are compared, a piece of block.MaxTransfer at a time; where
// hashes differ, one replica's content is written to the others. A difference comes from writes
// that were never acknowledged, or that were never flushed and are gone where power was lost. So
// the first replica that did not lose it is taken: somebody may have read there since what the
// others have no more.
type resync struct {
	pieces  []int64 // offsets still to compare
	total   int
	running int
	copied  int64
}

// allRegions is more than a replica's log can name: one that is asked to mark so many regions marks
// every one.
const allRegions = 1024 + 1

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
	if len(r.pieces) == 0 {
		e.resyncMore()
		return
	}
	e.event("comparing", "", fmt.Sprintf("%d dirty regions", len(dirty)))
	e.markEverywhere(slices.Sorted(maps.Keys(dirty)))
}

// markEverywhere gives every replica the marks of all before anything is compared. A replica can
// lack one whose region is then written there: the region would be on its account of no absent
// member, and no longer be compared if this start is interrupted and whoever had the mark is lost.
func (e *Engine) markEverywhere(regions []uint32) {
	t := e.dirty.message(e, regions[:min(len(regions), allRegions)])
	e.internal(t, e.mask(RW), func(t *task) {
		e.dropEach(t.full|t.bad, "cannot mark dirty regions: "+t.code.String())
		e.freeOf(t)
		e.resyncMore()
	})
}

// resyncMore keeps pieces under way, until none is left or one replica only: a start whose last
// replica is lost ends as it does while it serves.
func (e *Engine) resyncMore() {
	r := e.resync
	if bits.OnesCount32(e.mask(RW)) < 2 {
		r.pieces = nil // there is nothing to compare with any more
	}
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

// resyncEnd flushes what was copied, clears the marks and serves. A replica that fails on the way
// is dropped first: see dirtyLog.
func (e *Engine) resyncEnd() {
	r := e.resync
	if r.copied > 0 {
		e.event("compared", "", fmt.Sprintf("%d bytes made identical", r.copied))
	}
	t := e.newTask(wire.Flush)
	e.internal(t, e.mask(RW), func(t *task) {
		e.dropEach(t.full|t.bad, "flush failed: "+t.code.String())
		e.freeOf(t)
		e.whenNoDropIsOpen(func() {
			e.controlAll(&wire.ControlRequest{ClearDirty: &wire.ClearDirty{Keep: []uint32{}}},
				"cannot clear dirty regions", func(bool) {
					e.resync = nil
					e.serve()
				})
		})
	})
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

// resyncSource chooses whose content is taken among the links in mask: the first that kept its
// power, else the first.
func (e *Engine) resyncSource(mask uint32) uint32 {
	for _, l := range e.links {
		if l != nil && mask&l.bit() != 0 && !l.said.PowerLost {
			return l.bit()
		}
	}
	return mask & -mask
}

// equalise copies the piece from one replica to those that differ from it.
func (e *Engine) equalise(off, n int64, sums map[uint32][]byte) {
	var told uint32
	for bit := range sums {
		told |= bit & e.mask(RW)
	}
	src := e.resyncSource(told)
	differ := others(sums, src) & told
	if differ == 0 {
		e.resyncNext()
		return
	}
	e.transfer(&transfer{off: off, n: n, from: e.linkOf(src),
		to: func() uint32 { return differ & e.mask(RW) },
		done: func(r transferred) {
			if r.read != block.OK {
				// The source failed and is dropped: compare the rest again.
				e.dropEach(src, "cannot read: "+r.read.String())
				e.compare(off)
				return
			}
			e.resync.copied += n * int64(bits.OnesCount32(r.to))
			e.dropEach(r.failed(), "cannot be made identical: "+r.write.String())
			e.resyncNext()
		}})
}
