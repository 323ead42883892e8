package engine

import (
	"crypto/md5"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/wire"
	"ankole.storage/test/seeded"
)

// modelLayer is a piece of a layer: what each block holds, 0 for nothing and 1 for zeroes, and
// whether it hides what is below.
type modelLayer struct {
	held  [256]byte
	hides [256]bool
}

func (m *modelLayer) sums(n int) []byte {
	p := make([]byte, wire.LayerSumsSize)
	for i := range n {
		if m.held[i] != 0 {
			p[i/8] |= 1 << (i % 8)
		}
	}
	const blocks = wire.SumChunk / block.Size
	for i := 0; i < n; i += blocks {
		var content []byte
		for _, b := range m.held[i:min(i+blocks, n)] {
			content = append(content, max(b, 1)-1) // a hash does not tell nothing from zeroes
		}
		sum := md5.Sum(content)
		copy(p[wire.SumBlocks+i/blocks*wire.SumSize:], sum[:])
	}
	for i := range n {
		if m.hides[i] {
			p[wire.WhiteoutsAt+i/8] |= 1 << (i % 8)
		}
	}
	return p
}

// Whatever the two layers held and hid, the changes leave the target holding what the source holds
// and hiding what the source hides where it holds nothing. A target that cannot read what it holds
// is written anew.
func TestCompareLayers(t *testing.T) {
	src := seeded.New(t, "P4: a rebuild's target holds and hides what its source does, layer by layer")
	for seed := range src.Seeds(500) {
		r := src.Rand(1)
		n := 1 + r.IntN(256)
		var source, target modelLayer
		for i := range n {
			source.held[i], target.held[i] = byte(max(0, r.IntN(4)-1)), byte(max(0, r.IntN(4)-1))
			source.hides[i], target.hides[i] = r.IntN(3) == 0, r.IntN(3) == 0
			if r.IntN(4) > 0 {
				target.held[i], target.hides[i] = source.held[i], source.hides[i]
			}
		}
		const off = 7 << 20
		sums := target.sums(n)
		if seed%7 == 0 {
			sums = nil
		}
		d := compareLayers(off, int64(n)*block.Size, source.sums(n), sums)
		each := func(ranges [][2]int64, f func(i int64)) {
			for _, x := range ranges {
				for b := (x[0] - off) / block.Size; b < (x[1]-off)/block.Size; b++ {
					f(b)
				}
			}
		}
		var written [256]bool
		each(d.holes, func(i int64) { target.held[i], target.hides[i], written[i] = 0, false, true })
		each(d.hidden, func(i int64) { target.held[i], target.hides[i], written[i] = 0, true, true })
		each(d.copies, func(i int64) { target.held[i] = source.held[i]; written[i] = true })
		for i := range n {
			if target.held[i] != source.held[i] || source.held[i] == 0 && target.hides[i] != source.hides[i] {
				t.Fatalf("seed %d, block %d: holds %d and hides %v, want %d and %v", seed, i, target.held[i],
					target.hides[i], source.held[i], source.hides[i])
			}
			if sums == nil && !written[i] {
				t.Fatalf("seed %d, block %d is not written, and the target cannot read it", seed, i)
			}
		}
	}
}

// A request for zeroes that may give space back is a discard of whole blocks, and zeroes at its
// edges; another one is not.
func TestZeroesThatMayGiveSpaceBack(t *testing.T) {
	for unmap, want := range map[bool]wire.Type{true: wire.Discard, false: wire.WriteZeroes} {
		e := &Engine{serving: true}
		e.assemble()
		e.writes.frozen = 1 // they are parked
		e.requests.begin(&frontend.Request{Kind: block.WriteZeroes, Off: 512, Len: 16384, Unmap: unmap})
		kinds := map[wire.Type]int64{}
		for _, t := range e.requests.backlog {
			kinds[t.kind] += t.n
		}
		if kinds[want] != 12288 || kinds[wire.Write] != 4096 || len(kinds) != 2 {
			t.Errorf("may give space back %v: %v", unmap, kinds)
		}
	}
}
