package engine

import (
	"fmt"
	"math/bits"
	"slices"

	"ankole.storage/dataplane/block"
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
//
// Where a disk cannot read, or has no room for what another one holds, the piece is compared in
// halves, down to blocks, so that as little as possible is decided by that: see resyncpart.go.
type resync struct {
	// regions are those to compare, in order; all: every region of the volume instead. The next
	// piece begins at off in the one with index, or if all, number next.
	regions []uint32
	all     bool
	next    int
	off     int64
	// smaller are parts of pieces to compare before anything else.
	smaller []section
	// left and total count pieces, running those and parts that are under way.
	left, total, running int
	copied               int64
	// lost counts blocks that no replica can read.
	lost int
}

// section is a range that is compared at once, at most block.MaxTransfer.
type section struct {
	off, n int64
	// tried are replicas whose content the others have no room for.
	tried uint32
}

// allRegions is more than a replica's log can name: one that is asked to mark so many regions marks
// every one.
const allRegions = 1024 + 1

// startResync compares the marked regions, or all, and then serves.
func (e *Engine) startResync(dirty map[uint32]bool, all bool) {
	r := &resync{all: all}
	for n := range dirty {
		if beg := int64(n) * DirtyRegion; beg < e.size && !all {
			r.regions = append(r.regions, n)
			r.total += int((min(DirtyRegion, e.size-beg) + block.MaxTransfer - 1) / block.MaxTransfer)
		}
	}
	slices.Sort(r.regions)
	if all {
		r.total = int((e.size + block.MaxTransfer - 1) / block.MaxTransfer)
	}
	r.left = r.total
	if e.links.count(RW) < 2 {
		r.end()
	}
	e.resync = r
	if r.left == 0 {
		e.resyncMore()
		return
	}
	e.event("comparing", "", fmt.Sprintf("%d dirty regions", (int64(r.total)*block.MaxTransfer+DirtyRegion-1)/DirtyRegion))
	e.markEverywhere()
}

// markEverywhere gives every replica the marks of all before anything is compared. A replica can
// lack one whose region is then written there: the region would be on its account of no absent
// member, and no longer be compared if this start is interrupted and whoever had the mark is lost.
func (e *Engine) markEverywhere() {
	regions := e.resync.regions
	for n := uint32(0); e.resync.all && n < allRegions && int64(n)*DirtyRegion < e.size; n++ {
		regions = append(regions, n)
	}
	t := e.dirty.message(regions[:min(len(regions), allRegions)])
	e.tasks.start(t, e.links.mask(RW), func(t *task) {
		e.links.drop(t.full|t.bad, "cannot mark dirty regions: "+t.code.String())
		e.tasks.release(t)
		e.resyncMore()
	})
}

// take returns the next part to compare of a volume of the given size.
func (r *resync) take(size int64) (p section, ok bool) {
	if k := len(r.smaller); k > 0 {
		p, r.smaller = r.smaller[k-1], r.smaller[:k-1]
		return p, true
	}
	for r.left > 0 {
		beg := int64(r.next) * DirtyRegion
		if !r.all {
			beg = int64(r.regions[r.next]) * DirtyRegion
		}
		if p.off = beg + r.off; p.off >= min(beg+DirtyRegion, size) {
			r.next, r.off = r.next+1, 0
			continue
		}
		p.n = min(block.MaxTransfer, size-p.off)
		r.off += p.n
		r.left--
		return p, true
	}
	return p, false
}

// end gives up what is left.
func (r *resync) end() { r.left, r.smaller = 0, nil }

// resyncMore keeps pieces under way, until none is left or one replica only: a start whose last
// replica is lost ends as it does while it serves.
func (e *Engine) resyncMore() {
	r := e.resync
	if bits.OnesCount32(e.links.mask(RW)) < 2 {
		r.end() // there is nothing to compare with any more
	}
	for r.running < resyncWidth {
		p, ok := r.take(e.size)
		if !ok {
			break
		}
		r.running++
		e.compare(p)
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
	t := e.tasks.take(wire.Flush)
	e.tasks.start(t, e.links.mask(RW), func(t *task) {
		e.links.drop(t.full|t.bad, "flush failed: "+t.code.String())
		e.tasks.release(t)
		e.members.whenNoDropIsOpen(func() {
			e.links.controlAll(&wire.ControlRequest{ClearDirty: &wire.ClearDirty{Keep: []uint32{}}},
				"cannot clear dirty regions", func(bool) {
					e.resync = nil
					e.serve()
				})
		})
	})
}
