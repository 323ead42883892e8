// Package rebuild plans how the content of a good replica reaches one that has none, an old one, or
// an unknown one: what becomes of the files it has, which pieces of which layer to compare or to
// copy, in what order, and how far it is. It is pure; package engine carries the plan out.
//
// The target takes part in writes (mode WO) from the moment its chain has the right shape, so only
// what was there before has to be copied. The live chain is copied piece by piece under the range
// lock that orders writes. In the head a piece is either copied before a write to it, and the write
// then goes to both, or after it. Layers below never change, but what zeroes and discards make of
// the target's head depends on what lies below it, so that must not change meanwhile. At the end
// content is compared as a reader sees it before the target may serve. docs/design/rebuild.md has
// the states and the reasons.
package rebuild

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"ankole.storage/dataplane/block"
)

// PieceSize is the most that is copied or compared at once.
const PieceSize = block.MaxTransfer

// Piece is one range of one layer.
type Piece struct {
	Layer uint32
	Off   int64
	Len   int64
	// Locked says that the range must be locked against writes: the layer is of the live chain.
	Locked bool
	// Compare says that source and target are asked for sums first; otherwise the piece is copied
	// as it is.
	Compare bool
	// sources is how many sources the plan had when the piece was handed out.
	sources int
}

// Layer is one layer to bring about.
type Layer struct {
	Mode Mode
	// Size is the file's in bytes, Allocated what of it the source has.
	Size, Allocated int64
	// Branch: it is off the live chain. Nobody reads it through the head, so it comes before all
	// others.
	Branch bool
	// Removed: no user reads it. Replicas read the same at the layer above, and may have what is
	// read there in either of the two.
	Removed bool
	// number is its place in what New was given, by which pieces name it.
	number uint32
}

// Plan walks the branches, then the layers of the live chain bottom-up. Extents are given to it
// page by page as the replicas list them.
type Plan struct {
	layers []Layer
	size   int64 // of the volume
	layer  int
	begun  bool // the present layer's pieces or listing are prepared
	next   int64
	target bool // the target is being listed
	ranges [][2]int64
	pieces pieceSet // of layers that are compared
	first  int64    // before this one none of them is left
	retry  []Piece
	// again are pieces of the head to be compared once more, agains is how many.
	again  pieceSet
	agains int64
	delta  pieceSet // where source and target may differ at all; of use with Regions and for the verification
	all    bool     // the whole volume is verified
	done   int64
	total  int64
	verify int64 // number of the next piece to verify
	// recheck are pieces that may have changed after they were verified; nil: none.
	recheck pieceSet
	// sources counts those that have taken over. mixed: one has when everything was brought.
	sources int
	mixed   bool
}

// pieceSet is a set of pieces of PieceSize.
type pieceSet []uint64

func newPieceSet(size int64) pieceSet { return make(pieceSet, size/PieceSize/64+1) }

// add adds the pieces that a range touches and returns how many were not there.
func (s pieceSet) add(off, n int64) (added int64) {
	for p := off / PieceSize; p*PieceSize < off+n; p++ {
		if bit := uint64(1) << (p % 64); s[p/64]&bit == 0 {
			s[p/64] |= bit
			added++
		}
	}
	return added
}

// from returns the first piece at or after p, -1 without one.
func (s pieceSet) from(p int64) int64 {
	p = max(p, 0)
	for w := p / 64; w < int64(len(s)); w++ {
		word := s[w]
		if w == p/64 {
			word &= ^uint64(0) << (p % 64)
		}
		if word != 0 {
			return w*64 + int64(bits.TrailingZeros64(word))
		}
	}
	return -1
}

// New returns a plan for layers: those of the live chain, the head being the last of them, then
// those of branches, parents first. all: everything is verified at the end, otherwise what Differs
// was told of.
func New(size int64, layers []Layer, all bool) *Plan {
	p := &Plan{size: size, delta: newPieceSet(size), all: all}
	for _, branch := range []bool{true, false} {
		for i, l := range layers {
			if l.number = uint32(i); l.Branch == branch {
				p.layers = append(p.layers, l)
			}
		}
	}
	for _, l := range layers {
		if l.Mode == Copy || l.Mode == Compare {
			p.total += l.Allocated
		}
	}
	return p
}

// Differs adds a range of the volume in which source and target may differ. It has no effect on
// layers that were begun, but on the verification.
func (p *Plan) Differs(off, n int64) {
	added := p.delta.add(off, min(n, p.size-off))
	for _, l := range p.layers[p.layer:] {
		if l.Mode == Regions {
			p.total += added * PieceSize
		}
	}
}

// verifyAgain has what was verified of a range verified once more, after everything else.
func (p *Plan) verifyAgain(off, n int64) {
	for k := off / PieceSize; k*PieceSize < off+n && k < p.verify; k++ {
		if p.recheck == nil {
			p.recheck = newPieceSet(p.size)
		}
		p.recheck.add(k*PieceSize, 1)
	}
}

// Rotated is called when a snapshot has turned the heads of source and target into layers, each
// below an empty head, and no piece is under way. The layer that was the head goes on as it is; the
// new head can differ only in what Differs was told of, so that it is made equal there when all
// else is complete. Branches are numbered behind it.
func (p *Plan) Rotated() {
	head := *p.head()
	for p.agains > 0 {
		piece, _ := p.takeAgain()
		p.retry = append(p.retry, piece)
	}
	for i := range p.layers {
		if p.layers[i].Branch {
			p.layers[i].number++
		}
	}
	for i := range p.retry {
		if p.retry[i].Layer > head.number {
			p.retry[i].Layer++
		}
	}
	p.layers = append(p.layers, Layer{Mode: Regions, Size: p.size, number: head.number + 1})
	for k := p.delta.from(0); k >= 0; k = p.delta.from(k + 1) {
		p.total += PieceSize
	}
}

// Again adds a range in which the target's head has what the source's has not, whether or not it
// was copied: these pieces are handed out next, to be compared. CopyDone may become false by it.
func (p *Plan) Again(off, n int64) {
	p.Differs(off, n)
	p.verifyAgain(off, min(n, p.size-off))
	if p.mixed { // the head alone cannot be made equal to that of another source
		p.TakeOver()
		return
	}
	if p.again == nil {
		p.again = newPieceSet(p.size)
	}
	end := min(off+n, p.size, p.head().Size)
	for off -= off % PieceSize; off < end; off += PieceSize {
		if p.again.add(off, 1) > 0 {
			p.agains++
			p.total += min(PieceSize, p.head().Size-off)
		}
	}
}

func (p *Plan) head() *Layer { return &p.layers[len(p.layers)-1] }

// owed reports that pieces have to be handed out before anything else.
func (p *Plan) owed() bool { return len(p.retry) > 0 || p.agains > 0 }

// AtHead reports whether the head has been begun.
func (p *Plan) AtHead() bool { return p.layer >= len(p.layers)-1 && p.begun }

// NeedExtents reports which page of extents is wanted before Next can go on, of the target or of
// the source.
func (p *Plan) NeedExtents() (layer uint32, off int64, target, ok bool) {
	p.advance()
	if !p.begun || len(p.ranges) > 0 || p.owed() || p.next < 0 {
		return 0, 0, false, false
	}
	return p.layers[p.layer].number, p.next, p.target, true
}

// advance moves to the next layer when the present one is listed and handed out.
func (p *Plan) advance() {
	for p.layer < len(p.layers) && p.begun && len(p.ranges) == 0 && !p.owed() && p.next < 0 &&
		p.pieces.from(p.first) < 0 {
		p.layer++
		p.begun, p.pieces, p.target = false, nil, false
	}
}

// Waiting reports that the next layer has to be begun, which may happen when everything handed out
// before is done: a discard that the target resolves before it knows what lies below has then left
// its trace in the source's head, which is last.
func (p *Plan) Waiting() bool {
	p.advance()
	return p.layer < len(p.layers) && !p.begun && !p.owed()
}

// Begin begins the next layer.
func (p *Plan) Begin() {
	l := p.layers[p.layer]
	p.begun, p.next, p.first = true, -1, 0
	switch l.Mode {
	case Regions:
		p.pieces = append(pieceSet(nil), p.delta...)
		for k := p.delta.from(0); k >= 0; k = p.delta.from(k + 1) {
			p.verifyAgain(k*PieceSize, 1)
		}
	case Compare:
		p.pieces, p.next = newPieceSet(p.size), 0
	case Copy:
		p.next = 0
	}
}

// ErrExtents says that a list of extents cannot be one.
var ErrExtents = errors.New("rebuild: no list of extents")

// Check says what is wrong with a page that was asked for from off on: what comes from another
// process is not trusted to be a list of extents.
func (p *Plan) Check(off int64, ranges [][2]int64, next int64) error {
	if next != -1 && (next <= off || next >= p.size) {
		return fmt.Errorf("%w: after the page at %d comes that at %d, of %d bytes", ErrExtents, off, next, p.size)
	}
	for _, r := range ranges {
		if r[0] < 0 || r[0] >= r[1] || (r[0]|r[1])%block.Size != 0 {
			return fmt.Errorf("%w: data at [%d,%d)", ErrExtents, r[0], r[1])
		}
	}
	return nil
}

// Extents adds a page, which has been checked: ranges of the layer asked for, and where the next
// page begins, -1 at the end.
func (p *Plan) Extents(ranges [][2]int64, next int64) {
	p.next = next
	if p.layers[p.layer].Mode == Copy {
		p.ranges = append(p.ranges, ranges...)
		return
	}
	for _, r := range ranges {
		p.pieces.add(r[0], min(r[1], p.size)-r[0])
	}
	if next < 0 && !p.target {
		p.target, p.next = true, 0
	}
}

// Hides adds ranges, which have been checked as extents are, in which the layer asked for hides
// what is below it: these pieces are compared, also where the layer is copied.
func (p *Plan) Hides(ranges [][2]int64) {
	for _, r := range ranges {
		if p.pieces == nil {
			p.pieces = newPieceSet(p.size)
		}
		p.pieces.add(r[0], min(r[1], p.size)-r[0])
	}
}

// Next returns the next piece. ok false means that extents are needed, that lower layers must be
// completed first, or that everything is handed out.
func (p *Plan) Next() (piece Piece, ok bool) {
	piece, ok = p.take()
	piece.sources = p.sources
	return piece, ok
}

func (p *Plan) take() (piece Piece, ok bool) {
	if n := len(p.retry); n > 0 {
		piece = p.retry[n-1]
		p.retry = p.retry[:n-1]
		return piece, true
	}
	if piece, ok := p.takeAgain(); ok {
		return piece, true
	}
	if !p.begun {
		return Piece{}, false
	}
	locked := !p.layers[p.layer].Branch
	for len(p.ranges) > 0 {
		r := &p.ranges[0]
		if r[0] >= r[1] {
			p.ranges = p.ranges[1:]
			continue
		}
		n := min(r[1]-r[0], PieceSize-r[0]%PieceSize)
		piece = Piece{Layer: p.layers[p.layer].number, Off: r[0], Len: n, Locked: locked}
		r[0] += n
		return piece, true
	}
	if p.pieces == nil || p.next >= 0 {
		return Piece{}, false
	}
	for {
		n := p.pieces.from(p.first)
		if n < 0 {
			return Piece{}, false
		}
		p.first = n
		p.pieces[n/64] &^= 1 << (n % 64)
		off := n * PieceSize
		if end := min(off+PieceSize, p.layers[p.layer].Size); off < end {
			return Piece{Layer: p.layers[p.layer].number, Off: off, Len: end - off, Locked: locked, Compare: true}, true
		}
	}
}

// takeAgain returns a piece of the head to be compared once more.
func (p *Plan) takeAgain() (piece Piece, ok bool) {
	if p.agains == 0 {
		return piece, false
	}
	n := p.again.from(0)
	p.again[n/64] &^= 1 << (n % 64)
	p.agains--
	off := n * PieceSize
	return Piece{Layer: p.head().number, Off: off, Len: min(PieceSize, p.head().Size-off), Locked: true,
		Compare: true}, true
}

// Retry hands a piece out again, unless it is to be copied as another source had it: its layer is
// begun again.
func (p *Plan) Retry(piece Piece) {
	if piece.Compare || piece.sources == p.sources {
		p.retry = append(p.retry, piece)
	}
}

// TakeOver is called when another source takes over while something is left to bring. Sources read
// the same at every layer that is not removed, but may have it in different ones of that layer and
// the removed ones below it. So such a group comes from one source as a whole: the one at hand is
// begun again, and is compared, since the target holds a part of it. The same holds for all
// branches together.
func (p *Plan) TakeOver() {
	last := p.layer
	if !p.begun && last > 0 {
		last-- // pieces of it may be under way
	}
	first := last
	for first > 0 && (p.layers[first].Branch || p.layers[first-1].Removed && !p.layers[first-1].Branch) {
		first--
	}
	for i := first; i <= last; i++ {
		if l := &p.layers[i]; l.Mode == Copy || l.Mode == Compare {
			p.total += l.Allocated
			l.Mode = Compare
		}
	}
	p.layer, p.begun, p.next, p.target, p.ranges, p.pieces = first, false, -1, false, nil, nil
	p.sources, p.mixed = p.sources+1, false
	p.retry = slices.DeleteFunc(p.retry, func(piece Piece) bool { return !piece.Compare })
}

// Replaced is called instead of TakeOver when everything was brought and is being compared: nothing
// has to be brought again as long as Again adds nothing.
func (p *Plan) Replaced() { p.mixed = true }

// Expect adds bytes to what is to be brought, where the layers did not say.
func (p *Plan) Expect(n int64) { p.total += n }

// Copied counts bytes of pieces that are done.
func (p *Plan) Copied(n int64) { p.done += n }

// CopyDone reports that every piece was handed out.
func (p *Plan) CopyDone() bool {
	p.advance()
	return p.layer >= len(p.layers) && len(p.ranges) == 0 && !p.owed()
}

// NextVerify returns the next range of the volume to compare by hash.
func (p *Plan) NextVerify() (off, n int64, ok bool) {
	if !p.all {
		if p.verify = p.delta.from(p.verify); p.verify < 0 {
			p.verify = p.size/PieceSize + 1
		}
	}
	off = p.verify * PieceSize
	if off < p.size {
		p.verify++
		return off, min(PieceSize, p.size-off), true
	}
	k := p.recheck.from(0)
	if k < 0 {
		return 0, 0, false
	}
	p.recheck[k/64] &^= 1 << (k % 64)
	return k * PieceSize, min(PieceSize, p.size-k*PieceSize), true
}

// verifyShare is the part of the progress bar that stands for the final comparison, in percent.
const verifyShare = 20

// Progress returns percent, bytes done and bytes to do. It reaches 100 only when the target has
// joined.
func (p *Plan) Progress() (percent int, done, total int64) {
	total = max(p.total, p.done)
	copied := 100 - verifyShare
	if total > 0 {
		copied = int(p.done * int64(100-verifyShare) / total)
	}
	if !p.CopyDone() {
		return copied, p.done, total
	}
	verified := int(p.verify * PieceSize * (verifyShare - 1) / max(p.size, 1))
	return 100 - verifyShare + min(verified, verifyShare-1), p.done, total
}
