package engine

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// zeroWindow is the piece size of zeroing and discard: one dirty region.
const zeroWindow = DirtyRegion

// zeroPieces is how many of them are under way for one request, which may be for terabytes.
const zeroPieces = 8

// beginZeroes writes zeroes at unaligned edges and asks for whole blocks in between: where the
// space may be given back by a discard, after which they read zero as well.
func (q *requests) beginZeroes(r *request) {
	end := r.Off + r.Len
	beg, mid := (r.Off+block.Size-1)&^(block.Size-1), end&^(block.Size-1)
	if beg > mid { // within one block
		beg, mid = end, end
	}
	q.zeroEdge(r, r.Off, beg)
	kind := wire.WriteZeroes
	if r.Unmap {
		kind = wire.Discard
	}
	if beg < mid {
		r.kind, r.next, r.end = kind, beg, mid
		q.moreZeroes(r)
	}
	q.zeroEdge(r, mid, end)
}

// moreZeroes begins the next pieces of a request that zeroes or discards. Nobody has a claim to
// what is not begun: a write that comes meanwhile may be before or after it, since neither is
// answered. When one has failed, so has the request.
func (q *requests) moreZeroes(r *request) {
	for r.next < r.end && r.pieces <= zeroPieces && r.code == block.OK {
		if r.kind == wire.Discard {
			if r.next = q.e.unwritten.skip(r.next, r.end); r.next == r.end {
				return
			}
		}
		off, n := r.next, min(r.end-r.next, zeroWindow-r.next%zeroWindow)
		r.next += n
		q.start(q.piece(r, r.kind, off, n))
	}
}

// zeroes are written over the edges of what is zeroed.
var zeroes [block.Size]byte

// zeroEdge writes zeroes over [beg, end), which is part of one block: a task never spans two
// regions of the dirty log.
func (q *requests) zeroEdge(r *request, beg, end int64) {
	if beg >= end {
		return
	}
	t := q.piece(r, wire.Write, beg, end-beg)
	t.message = zeroes[:end-beg]
	q.start(t)
}
