package rebuild

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

const testSize = 16 << 20

// drawRanges returns sorted block-aligned ranges that do not touch.
func drawRanges(t *rapid.T, label string) [][2]int64 {
	var ranges [][2]int64
	for off := int64(0); off < testSize; {
		beg := off + 4096*rapid.Int64Range(0, 400).Draw(t, label+" gap")
		end := beg + 4096*rapid.Int64Range(1, 700).Draw(t, label+" length")
		if end > testSize {
			break
		}
		ranges = append(ranges, [2]int64{beg, end})
		off = end + 4096
	}
	return ranges
}

type testLayer struct {
	Layer
	source, target [][2]int64
}

func (l *testLayer) has(ranges [][2]int64, off int64) bool {
	return slices.ContainsFunc(ranges, func(r [2]int64) bool { return r[0] <= off && off < r[1] })
}

// Every block that a layer needs by its mode is handed out, bottom layer first, in pieces that end
// at multiples of the piece size; the next layer begins when the one below is complete; all are
// locked; what was handed out again comes again.
func TestPlanCoversWhatEachModeNeeds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var layers []testLayer
		var plain []Layer
		for range rapid.IntRange(1, 4).Draw(t, "layers") {
			l := testLayer{source: drawRanges(t, "source"), target: drawRanges(t, "target")}
			l.Mode = Mode(rapid.IntRange(0, 3).Draw(t, "mode"))
			l.Size = rapid.SampledFrom([]int64{testSize, 5 << 20}).Draw(t, "size")
			layers, plain = append(layers, l), append(plain, l.Layer)
		}
		all := rapid.Bool().Draw(t, "all")
		p := New(testSize, plain, all)
		delta := drawRanges(t, "delta")
		for _, r := range delta {
			p.Differs(r[0], r[1]-r[0])
		}
		got := carryOut(t, p, layers)
		for i := range layers {
			checkLayer(t, &layers[i], i, got[i], delta)
		}
		if _, _, _, ok := p.NeedExtents(); ok {
			t.Fatal("a finished plan wants more")
		}
		checkVerify(t, p, all, delta)
	})
}

// carryOut hands out everything and returns the pieces by layer.
func carryOut(t *rapid.T, p *Plan, layers []testLayer) [][]Piece {
	page := rapid.IntRange(1, 5).Draw(t, "ranges per page")
	got := make([][]Piece, len(layers))
	at := -1
	for {
		if piece, ok := p.Next(); ok {
			if rapid.IntRange(0, 9).Draw(t, "fails") == 0 {
				p.Retry(piece)
				if p.CopyDone() {
					t.Fatal("done although a piece failed")
				}
				continue
			}
			if int(piece.Layer) != at || !piece.Locked || piece.Len <= 0 ||
				piece.Off/PieceSize != (piece.Off+piece.Len-1)/PieceSize {
				t.Fatalf("piece %+v in layer %d", piece, at)
			}
			got[at] = append(got[at], piece)
			p.Copied(piece.Len)
			continue
		}
		layer, off, target, ok := p.NeedExtents()
		switch {
		case ok && int(layer) != at:
			t.Fatalf("extents of layer %d while at %d", layer, at)
		case ok && target:
			p.Extents(pageOf(layers[at].target, off, page))
		case ok:
			p.Extents(pageOf(layers[at].source, off, page))
		case p.Waiting():
			p.Begin()
			at++
			for at < p.layer {
				at++
			}
		case p.CopyDone():
			return got
		default:
			t.Fatal("no piece, no extents wanted, and not done")
		}
		if percent, done, total := p.Progress(); percent < 0 || percent > 99 || done > total {
			t.Fatalf("progress %d %%, %d of %d", percent, done, total)
		}
	}
}

func checkLayer(t *rapid.T, l *testLayer, i int, pieces []Piece, delta [][2]int64) {
	for off := int64(0); off < l.Size; off += 4096 {
		n, compared := 0, false
		for _, p := range pieces {
			if p.Off <= off && off < p.Off+p.Len {
				n++
				compared = p.Compare
			}
		}
		want := false
		switch l.Mode {
		case Regions:
			want = l.has(delta, off)
		case Compare:
			want = l.has(l.source, off) || l.has(l.target, off)
		case Copy:
			want = l.has(l.source, off)
		}
		switch {
		case want && n != 1:
			t.Fatalf("layer %d (%s): block at %d handed out %d times", i, l.Mode, off, n)
		case n > 0 && compared != (l.Mode != Copy):
			t.Fatalf("layer %d (%s): block at %d compared: %v", i, l.Mode, off, compared)
		case n > 0 && (l.Mode == Skip || (l.Mode == Copy && !want)):
			t.Fatalf("layer %d (%s): block at %d handed out", i, l.Mode, off)
		}
	}
}

// pageOf answers as a replica does.
func pageOf(ranges [][2]int64, off int64, n int) (page [][2]int64, next int64) {
	for i, r := range ranges {
		if r[1] <= off {
			continue
		}
		page = slices.Clone(ranges[i:])
		if len(page) > n {
			return page[:n], page[n][0]
		}
		return page, -1
	}
	return nil, -1
}

func checkVerify(t *rapid.T, p *Plan, all bool, delta [][2]int64) {
	seen, before, last := map[int64]bool{}, 0, int64(-1)
	for {
		off, n, ok := p.NextVerify()
		if !ok {
			break
		}
		if off <= last || n <= 0 || n > PieceSize {
			t.Fatalf("compare %d+%d after %d", off, n, last)
		}
		last = off
		seen[off/PieceSize] = true
		percent, _, _ := p.Progress()
		if percent < before || percent > 99 {
			t.Fatalf("progress went from %d to %d %%", before, percent)
		}
		before = percent
	}
	for off := int64(0); off < testSize; off += 4096 {
		inDelta := slices.ContainsFunc(delta, func(r [2]int64) bool { return r[0] <= off && off < r[1] })
		if (all || inDelta) && !seen[off/PieceSize] {
			t.Fatalf("block at %d is not verified", off)
		}
	}
}

// Data written while the rebuild runs makes more to copy than was announced; progress must bear it.
func TestProgressWithMoreThanAnnounced(t *testing.T) {
	p := New(8<<20, []Layer{{Mode: Copy, Size: 8 << 20, Allocated: 4096}}, true)
	p.Begin()
	p.Extents([][2]int64{{0, 2 << 20}}, -1)
	for {
		piece, ok := p.Next()
		if !ok {
			break
		}
		p.Copied(piece.Len)
	}
	if percent, done, total := p.Progress(); percent > 99 || done != 2<<20 || total < done {
		t.Errorf("progress %d %%, %d of %d", percent, done, total)
	}
}

func TestArrange(t *testing.T) {
	for name, c := range map[string]struct {
		source, target Side
		same           bool
		modes          []Mode
		becomes        string
		newHead        bool
	}{
		"blank": {source: Side{Names: []string{"a"}}, target: Side{Blank: true},
			modes: []Mode{Copy, Copy}, newHead: true},
		"blank, no snapshots": {target: Side{Blank: true}, modes: []Mode{Copy}},
		"unknown": {source: Side{Names: []string{"a", "b"}},
			target: Side{Names: []string{"a", "b"}}, modes: []Mode{Compare, Compare, Compare}},
		"unknown, other snapshots": {source: Side{Names: []string{"a", "b"}},
			target: Side{Names: []string{"a", "x"}}, modes: []Mode{Compare, Compare, Copy}, becomes: "b"},
		"unknown, none in common": {source: Side{Names: []string{"a"}}, target: Side{Names: []string{"x"}},
			modes: []Mode{Compare, Copy}, becomes: "a"},
		"unknown, another order": {source: Side{Names: []string{"a", "b"}},
			target: Side{Names: []string{"b", "a"}}, modes: []Mode{Compare, Copy, Copy}, becomes: "a"},
		"same": {source: Side{Names: []string{"a"}}, target: Side{Names: []string{"a"}},
			same: true, modes: []Mode{Skip, Regions}},
		"same, a snapshot since": {source: Side{Names: []string{"a", "b"}, First: "b"},
			target: Side{Names: []string{"a"}}, same: true, modes: []Mode{Skip, Regions, Copy}, becomes: "b"},
		"same, two snapshots since": {source: Side{Names: []string{"b", "c"}, First: "b",
			Changed: []string{"c"}}, same: true, modes: []Mode{Regions, Copy, Copy}, becomes: "b"},
		"same, merged since": {source: Side{Names: []string{"b"}, Changed: []string{"a", "b"}},
			target: Side{Names: []string{"a", "b"}}, same: true, modes: []Mode{Compare, Regions}},
		"same, reverted since": {source: Side{Names: []string{"a"}, Gone: true},
			target: Side{Names: []string{"a"}}, same: true, modes: []Mode{Skip, Compare}},
		"same, too much since": {source: Side{Names: []string{"a"}, AllChanged: true},
			target: Side{Names: []string{"a"}}, same: true, modes: []Mode{Compare, Compare}},
		"same, a name used again": {source: Side{Names: []string{"a"}, First: "x", Gone: true,
			Changed: []string{"a"}}, target: Side{Names: []string{"a"}}, same: true, modes: []Mode{Compare, Compare}},
		"interrupted": {source: Side{Names: []string{"a"}}, target: Side{Names: []string{"a"}},
			same: true, modes: []Mode{Skip, Regions}},
		"interrupted, after a snapshot": {source: Side{Names: []string{"a", "b"}, First: "b"},
			target: Side{Names: []string{"a", "b"}, First: "b", Changed: []string{HeadName}}, same: true,
			modes: []Mode{Skip, Regions, Compare}},
		"interrupted, new layers": {source: Side{Names: []string{"b", "c"}, First: "b",
			Changed: []string{"c"}}, target: Side{Names: []string{"b", "c"}, First: "b",
			Changed: []string{"c", HeadName}}, same: true, modes: []Mode{Regions, Compare, Compare}},
		"interrupted, and another snapshot": {source: Side{Names: []string{"b", "c"}, First: "b",
			Changed: []string{"c"}}, target: Side{Names: []string{"b"}, First: "b", Changed: []string{HeadName}},
			same: true, modes: []Mode{Regions, Compare, Copy}, becomes: "c"},
		"removed below the head": {source: Side{Names: []string{"a", "b"}, Removed: []string{"b"}},
			target: Side{Names: []string{"a", "b"}}, same: true, modes: []Mode{Skip, Regions, Regions}},
		"removed, a snapshot since": {source: Side{Names: []string{"a", "b"}, Removed: []string{"a"},
			First: "b"}, target: Side{Names: []string{"a"}}, same: true, modes: []Mode{Regions, Regions, Copy}, becomes: "b"},
		"removed and pruned since": {source: Side{Names: []string{"a"}, Removed: []string{"a"},
			Changed: []string{"a"}}, target: Side{Names: []string{"a"}}, same: true, modes: []Mode{Compare, Compare}},
		"removed below a snapshot": {source: Side{Names: []string{"a", "b"}, Removed: []string{"a"}},
			target: Side{Names: []string{"a", "b"}}, same: true, modes: []Mode{Skip, Skip, Regions}},
		"removed below a new layer": {source: Side{Names: []string{"a", "b"}, Removed: []string{"a", "b"},
			First: "b"}, target: Side{Names: []string{"a"}}, same: true, modes: []Mode{Regions, Regions, Copy}, becomes: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			a := Arrange(c.source, c.target, c.same)
			if !slices.Equal(a.Modes, c.modes) || a.HeadBecomes != c.becomes || a.NewHead != c.newHead {
				t.Errorf("modes %v, head becomes %q, new head %v; want %v, %q, %v", a.Modes, a.HeadBecomes, a.NewHead,
					c.modes, c.becomes, c.newHead)
			}
		})
	}
}
