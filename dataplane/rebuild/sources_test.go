package rebuild

import (
	"testing"

	"pgregory.net/rapid"
)

// files is what the files of a replica hold, by layer and block: 0 is a hole, -1 a block of zeroes.
type files [][]int

const (
	sourceBlock  = 4096
	sourceBlocks = 600
	sourceSize   = sourceBlocks * sourceBlock
)

// read is what a reader finds at a layer.
func (f files) read(layer, b int) int {
	for ; layer >= 0; layer-- {
		if f[layer][b] != 0 {
			return max(0, f[layer][b])
		}
	}
	return 0
}

func (f files) extents(layer int, off int64, most int) (ranges [][2]int64, next int64) {
	for b := int(off / sourceBlock); b < sourceBlocks; b++ {
		if f[layer][b] == 0 {
			continue
		}
		if len(ranges) == most {
			return ranges, int64(b) * sourceBlock
		}
		ranges = append(ranges, [2]int64{int64(b) * sourceBlock, int64(b+1) * sourceBlock})
	}
	return ranges, -1
}

// bring does with the files what a piece asks for.
func bring(p *Piece, source, target files) {
	for b := p.Off / sourceBlock; b < (p.Off+p.Len)/sourceBlock; b++ {
		v := source[p.Layer][b]
		if v == 0 && !p.Compare {
			v = -1 // what is read of a hole is zeroes
		}
		target[p.Layer][b] = v
	}
}

func empty(layers int) files {
	f := make(files, layers)
	for i := range f {
		f[i] = make([]int, sourceBlocks)
	}
	return f
}

// drawSources returns files of two sources that read the same at every layer that is not removed.
func drawSources(t *rapid.T, layers []Layer) (sources [2]files) {
	sources = [2]files{empty(len(layers)), empty(len(layers))}
	for first := 0; first < len(layers); {
		top := first
		for layers[top].Removed {
			top++
		}
		for _, b := range rapid.SliceOfNDistinct(rapid.IntRange(0, sourceBlocks-1), 0, 12, rapid.ID).Draw(t, "blocks") {
			v := rapid.IntRange(1, 1000).Draw(t, "content")
			for _, s := range sources {
				at := rapid.IntRange(first, top).Draw(t, "file")
				s[at][b] = v
				for below := first; below < at; below++ {
					s[below][b] = rapid.IntRange(0, 1).Draw(t, "hidden") * 5000
				}
			}
		}
		first = top + 1
	}
	return sources
}

// TestSourcesHaveItInDifferentFiles: sources take over from each other at any moment, with pieces
// under way that come to their end or do not. In the end the target reads what they read at every
// layer that is not removed.
func TestSourcesHaveItInDifferentFiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layers := make([]Layer, rapid.IntRange(1, 5).Draw(t, "layers"))
		target := empty(len(layers))
		for i := range layers {
			layers[i] = Layer{Mode: Copy, Size: sourceSize, Removed: i < len(layers)-1 && rapid.Bool().Draw(t, "removed")}
			if rapid.Bool().Draw(t, "compared") {
				layers[i].Mode = Compare
				for range 10 {
					target[i][rapid.IntRange(0, sourceBlocks-1).Draw(t, "block")] = 7000
				}
			}
		}
		sources := drawSources(t, layers)
		p, now, left := New(sourceSize, layers, true), 0, rapid.IntRange(0, 4).Draw(t, "changes of the source")
		var running []Piece
		finish := func(done bool) {
			piece := running[0]
			running = running[1:]
			if done {
				bring(&piece, sources[now], target)
			} else {
				p.Retry(piece)
			}
		}
		for !p.CopyDone() || len(running) > 0 {
			if left > 0 && rapid.IntRange(0, 5).Draw(t, "lost") == 0 {
				left--
				for n := rapid.IntRange(0, len(running)).Draw(t, "finished"); n > 0; n-- {
					finish(true)
				}
				p.TakeOver()
				now = 1 - now
				for len(running) > 0 {
					finish(false)
				}
			}
			piece, ok := p.Next()
			switch {
			case ok:
				running = append(running, piece)
				if len(running) < 3 {
					continue
				}
			case len(running) == 0 && p.Waiting():
				p.Begin()
			}
			if layer, off, ofTarget, ok := p.NeedExtents(); ok {
				from := sources[now]
				if ofTarget {
					from = target
				}
				p.Extents(from.extents(int(layer), off, 4))
			}
			if len(running) > 0 {
				finish(rapid.IntRange(0, 5).Draw(t, "fails") > 0)
			}
		}
		for i := range layers {
			for b := range sourceBlocks {
				if want, got := sources[0].read(i, b), target.read(i, b); want != got && !layers[i].Removed {
					t.Fatalf("layer %d of %+v, block %d: %d, want %d", i, layers, b, got, want)
				}
			}
		}
	})
}
