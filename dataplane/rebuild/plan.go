// Package rebuild plans how the content of a good replica reaches a new one: which pieces of which layer to copy, in
// what order, and how far it is. It is pure; package engine carries the plan out.
//
// The target takes part in writes (mode WO) from the moment its empty chain exists, so only what was there before has to
// be copied. Layers below the head never change and are copied without hindering anybody. The head is copied piece by
// piece under the range lock that orders writes: a piece is either copied before a write to it, and the write then goes
// to both, or after it. At the end the whole volume is compared by hash before the target may serve.
package rebuild

import "ankole.storage/block"

// PieceSize is the most that is copied at once.
const PieceSize = block.MaxTransfer

// Piece is one range of one layer to copy.
type Piece struct {
	Layer uint32
	Off   int64
	Len   int64
	// Head says that the range must be locked against writes.
	Head bool
}

// Plan walks the layers of a chain bottom-up. Extents are given to it page by page as the source lists them.
type Plan struct {
	layers []int64 // allocated bytes per layer, for progress
	size   int64   // of the volume
	layer  int
	next   int64 // where the next page of extents of the present layer begins, -1 when listed
	ranges [][2]int64
	done   int64
	total  int64
	verify int64 // offset of the next piece to compare
}

// New returns a plan for layers with the given allocated sizes; the last one is the head.
func New(size int64, allocated []int64) *Plan {
	p := &Plan{layers: allocated, size: size}
	for _, n := range allocated {
		p.total += n
	}
	return p
}

// NeedExtents reports which page of extents is wanted before Next can go on.
func (p *Plan) NeedExtents() (layer uint32, off int64, ok bool) {
	p.advance()
	if p.layer >= len(p.layers) || len(p.ranges) > 0 {
		return 0, 0, false
	}
	return uint32(p.layer), p.next, true
}

// advance moves to the next layer when the present one is listed and handed out.
func (p *Plan) advance() {
	for p.layer < len(p.layers) && len(p.ranges) == 0 && p.next < 0 {
		p.layer++
		p.next = 0
	}
}

// Extents adds a page: ranges of the layer asked for, and where the next page begins, -1 at the end.
func (p *Plan) Extents(ranges [][2]int64, next int64) {
	p.ranges = append(p.ranges, ranges...)
	p.next = next
}

// Next returns the next piece to copy. ok false means that extents are needed, or that everything is handed out.
func (p *Plan) Next() (piece Piece, ok bool) {
	for len(p.ranges) > 0 {
		r := &p.ranges[0]
		if r[0] >= r[1] {
			p.ranges = p.ranges[1:]
			continue
		}
		n := min(r[1]-r[0], PieceSize-r[0]%PieceSize)
		piece = Piece{Layer: uint32(p.layer), Off: r[0], Len: n, Head: p.layer == len(p.layers)-1}
		r[0] += n
		return piece, true
	}
	return Piece{}, false
}

// Copied counts a piece as done.
func (p *Plan) Copied(n int64) { p.done += n }

// CopyDone reports that every piece was handed out.
func (p *Plan) CopyDone() bool {
	p.advance()
	return p.layer >= len(p.layers) && len(p.ranges) == 0
}

// NextVerify returns the next range of the volume to compare by hash.
func (p *Plan) NextVerify() (off, n int64, ok bool) {
	if p.verify >= p.size {
		return 0, 0, false
	}
	off, n = p.verify, min(PieceSize, p.size-p.verify)
	p.verify += n
	return off, n, true
}

// verifyShare is the part of the progress bar that stands for the final comparison, in percent.
const verifyShare = 20

// Progress returns percent, bytes copied and bytes to copy. It reaches 100 only when the target has joined.
func (p *Plan) Progress() (percent int, done, total int64) {
	total = max(p.total, p.done)
	copied := 100 - verifyShare
	if total > 0 {
		copied = int(p.done * int64(100-verifyShare) / total)
	}
	if !p.CopyDone() {
		return copied, p.done, total
	}
	verified := verifyShare
	if p.size > 0 {
		verified = int(p.verify * (verifyShare - 1) / p.size)
	}
	return 100 - verifyShare + min(verified, verifyShare-1), p.done, total
}
