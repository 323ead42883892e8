package rebuild

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawLayers returns layers as sorted block-aligned ranges that do not touch.
func drawLayers(t *rapid.T, size int64) [][][2]int64 {
	var layers [][][2]int64
	for range rapid.IntRange(1, 4).Draw(t, "layers") {
		var ranges [][2]int64
		for off := int64(0); off < size; {
			beg := off + 4096*rapid.Int64Range(0, 400).Draw(t, "gap")
			end := beg + 4096*rapid.Int64Range(1, 700).Draw(t, "length")
			if end > size {
				break
			}
			ranges = append(ranges, [2]int64{beg, end})
			off = end + 4096
		}
		layers = append(layers, ranges)
	}
	return layers
}

// Every allocated byte of every layer is handed out exactly once, bottom layer first, in pieces that end at multiples of the
// piece size; only the head's are locked.
func TestPlanCoversEveryLayerOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 16 << 20
		layers := drawLayers(t, size)
		var allocated []int64
		for _, l := range layers {
			n := int64(0)
			for _, r := range l {
				n += r[1] - r[0]
			}
			allocated = append(allocated, n)
		}
		page := rapid.IntRange(1, 5).Draw(t, "ranges per page")
		p := New(size, allocated)
		got := make([][][2]int64, len(layers))
		at, last := 0, -1
		for !p.CopyDone() {
			if piece, ok := p.Next(); ok {
				checkPiece(t, piece, len(layers), at)
				got[at] = appendRange(got[at], piece)
				p.Copied(piece.Len)
				continue
			}
			layer, off, ok := p.NeedExtents()
			if !ok {
				if !p.CopyDone() {
					t.Fatal("no piece, no extents wanted, and not done")
				}
				break
			}
			if at = int(layer); at < last {
				t.Fatalf("layer %d after layer %d", at, last)
			}
			last = at
			ranges, next := pageOf(layers[at], off, page)
			p.Extents(ranges, next)
			checkProgress(t, p)
		}
		for i := range layers {
			if !slices.Equal(got[i], layers[i]) {
				t.Fatalf("layer %d: copied %v of %v", i, got[i], layers[i])
			}
		}
		if _, _, ok := p.NeedExtents(); ok {
			t.Fatal("a finished plan wants more")
		}
		checkVerify(t, p, size)
	})
}

func checkPiece(t *rapid.T, piece Piece, layers, at int) {
	if piece.Len <= 0 || piece.Off/PieceSize != (piece.Off+piece.Len-1)/PieceSize || piece.Off%4096 != 0 || piece.Len%4096 != 0 {
		t.Fatalf("piece %+v", piece)
	}
	if piece.Layer != uint32(at) || piece.Head != (at == layers-1) {
		t.Fatalf("piece %+v of layer %d of %d", piece, at, layers)
	}
}

func appendRange(ranges [][2]int64, p Piece) [][2]int64 {
	if n := len(ranges); n > 0 && ranges[n-1][1] == p.Off {
		ranges[n-1][1] += p.Len
		return ranges
	}
	return append(ranges, [2]int64{p.Off, p.Off + p.Len})
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

func checkProgress(t *rapid.T, p *Plan) {
	percent, done, total := p.Progress()
	if percent < 0 || percent > 99 || done > total {
		t.Fatalf("progress %d %%, %d of %d", percent, done, total)
	}
}

func checkVerify(t *rapid.T, p *Plan, size int64) {
	end, before := int64(0), 0
	for {
		off, n, ok := p.NextVerify()
		if !ok {
			break
		}
		if off != end || n <= 0 || n > PieceSize {
			t.Fatalf("compare %d+%d after %d", off, n, end)
		}
		end = off + n
		percent, _, _ := p.Progress()
		if percent < before || percent > 99 {
			t.Fatalf("progress went from %d to %d %%", before, percent)
		}
		before = percent
	}
	if end != size {
		t.Fatalf("compared up to %d of %d", end, size)
	}
}

// Data written while the rebuild runs makes more to copy than was announced; progress must bear it.
func TestProgressWithMoreThanAnnounced(t *testing.T) {
	p := New(8<<20, []int64{4096})
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

func TestEmptyVolumeIsOnlyCompared(t *testing.T) {
	p := New(1<<20, []int64{0, 0})
	for range 2 {
		if _, _, ok := p.NeedExtents(); !ok {
			t.Fatal("a layer was not listed")
		}
		p.Extents(nil, -1)
	}
	if !p.CopyDone() {
		t.Error("nothing to copy, and not done")
	}
	if _, n, ok := p.NextVerify(); !ok || n != 1<<20 {
		t.Errorf("compare %d, %v", n, ok)
	}
}
