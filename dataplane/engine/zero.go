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

// unwritten knows where nothing was ever written to the volume, which reads as zeroes there. A
// discard changes nothing then, so no replica is asked and no region marked: what mkfs discards of
// a new volume would be as many marks as the volume has regions. It is known from the start if
// every replica says that it is empty and on no image, and of nothing otherwise. Whoever asks is
// answered as a reader is: under the lease, so that no other engine has written there before.
type unwritten struct {
	e     *Engine
	known bool
	// written has a bit for each region that was written to; what is beyond it was.
	written []uint64
}

// begin takes in what the replicas say when the volume is first served.
func (u *unwritten) begin() {
	e := u.e
	*u = unwritten{e: e}
	for _, l := range e.links.all {
		if l != nil && l.mode == RW {
			if !l.helloReply.Empty || l.helloReply.OnImage {
				u.known = false
				return
			}
			u.known = true
		}
	}
	if u.known {
		u.written = make([]uint64, (e.agreedSize/DirtyRegion+63)/64)
	}
}

// note takes in that a task is sent to replicas.
func (u *unwritten) note(t *task) {
	if !u.known || t.kind != wire.Write && t.kind != wire.WriteZeroes {
		return
	}
	off, n, _ := t.extent()
	for r := off / DirtyRegion; r*DirtyRegion < off+n && r/64 < int64(len(u.written)); r++ {
		u.written[r/64] |= 1 << (r % 64)
	}
}

// skip returns from where on of [off, end) replicas have to be asked for a discard.
func (u *unwritten) skip(off, end int64) int64 {
	e := u.e
	if !u.known || !e.serving || e.fatal != "" || e.writes.frozen > 0 ||
		e.imports.incomplete != nil || e.links.mask(RW) == 0 || e.quorum.Holding() {
		return off
	}
	if e.lease.use(); !e.lease.covers(e.now) {
		return off
	}
	for off < end {
		r := off / DirtyRegion
		if r/64 >= int64(len(u.written)) || u.written[r/64]&(1<<(r%64)) != 0 {
			return off
		}
		off = min(end, (r+1)*DirtyRegion)
	}
	return end
}
