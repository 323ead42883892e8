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

// carrying is a plan that is carried out with two sources, a piece at a time.
type carrying struct {
	*Plan
	sources [2]files
	now     int
	target  files
	running []Piece
}

// finish ends the first piece that is under way.
func (c *carrying) finish(done bool) {
	piece := c.running[0]
	c.running = c.running[1:]
	if done {
		bring(&piece, c.sources[c.now], c.target)
	} else {
		c.Retry(piece)
	}
}

func (c *carrying) verifying() bool { return c.CopyDone() && len(c.running) == 0 }

// lose has the other source take over, after some pieces have come to their end.
func (c *carrying) lose(finished int) {
	for range finished {
		c.finish(true)
	}
	if c.verifying() {
		c.Replaced()
	} else {
		c.TakeOver()
	}
	c.now = 1 - c.now
	for len(c.running) > 0 {
		c.finish(false)
	}
}

// fails leaves something in a block of the target's head.
func (c *carrying) fails(b int) {
	c.target[len(c.target)-1][b] = 9000
	c.Again(int64(b)*sourceBlock, sourceBlock)
}

// next begins what there is to begin, and reports whether a piece is under way that was not.
func (c *carrying) next() bool {
	piece, ok := c.Next()
	switch {
	case ok:
		c.running = append(c.running, piece)
	case len(c.running) == 0 && c.Waiting():
		c.Begin()
	}
	if layer, off, ofTarget, ok := c.NeedExtents(); ok {
		from := c.sources[c.now]
		if ofTarget {
			from = c.target
		}
		c.Extents(from.extents(int(layer), off, 4))
	}
	return ok
}

// all carries out what is left.
func (c *carrying) all() {
	for !c.verifying() {
		if c.next() {
			c.finish(true)
		}
	}
}

// TestSourcesHaveItInDifferentFiles: sources take over from each other at any moment, with pieces
// under way that come to their end or do not, and while all that is left is comparison. Writes fail
// and leave something in the target's head. In the end the target reads what the sources read at
// every layer that is not removed.
func TestSourcesHaveItInDifferentFiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { carry(t, 0) })
}

// TestPlanWithRotations: the same with snapshots meanwhile, whatever is brought and whatever is
// verified by then. Zeroes in the heads since are made by the sources and not by the target, which
// lacks what is below.
func TestPlanWithRotations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { carry(t, rapid.IntRange(1, 4).Draw(t, "snapshots")) })
}

// rotate ends what is under way and turns the heads into layers.
func (c *carrying) rotate() {
	for len(c.running) > 0 {
		c.finish(true)
	}
	for _, f := range []*files{&c.sources[0], &c.sources[1], &c.target} {
		*f = append(*f, empty(1)...)
	}
	c.Rotated()
}

// zero has zeroes written to a block of the heads, of which the target makes a hole.
func (c *carrying) zero(b int) {
	if c.AtHead() || c.CopyDone() {
		return // it has what is below, and makes of it what the sources make
	}
	head := len(c.target) - 1
	c.sources[0][head][b], c.sources[1][head][b], c.target[head][b] = -1, -1, 0
	c.Differs(int64(b)*sourceBlock, sourceBlock)
}

func carry(t *rapid.T, rotations int) {
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
	c := &carrying{Plan: New(sourceSize, layers, true), sources: drawSources(t, layers), target: target}
	left := rapid.IntRange(1, 4).Draw(t, "changes of the source")
	for writes := rapid.IntRange(1, 6).Draw(t, "writes that fail"); !c.verifying() || writes > 0 || rotations > 0; {
		rarely := 5
		if c.verifying() {
			rarely = 1
		}
		if left > 0 && rapid.IntRange(0, rarely).Draw(t, "lost") == 0 {
			left--
			c.lose(rapid.IntRange(0, len(c.running)).Draw(t, "finished"))
		}
		if writes > 0 && (c.verifying() || rapid.IntRange(0, 9).Draw(t, "fails now") == 0) {
			writes--
			c.fails(rapid.IntRange(0, sourceBlocks-1).Draw(t, "written"))
		}
		if rotations > 0 && (c.verifying() || rapid.IntRange(0, 9).Draw(t, "snapshot") == 0) {
			rotations--
			c.rotate()
			layers = append(layers, Layer{})
			for range rapid.IntRange(0, 3).Draw(t, "zeroes") {
				c.zero(rapid.IntRange(0, sourceBlocks-1).Draw(t, "zeroed"))
			}
		}
		if c.next() && len(c.running) < 3 {
			continue
		}
		if len(c.running) > 0 {
			c.finish(rapid.IntRange(0, 5).Draw(t, "fails") > 0)
		}
	}
	for i := range layers {
		for b := range sourceBlocks {
			if want, got := c.sources[0].read(i, b), c.target.read(i, b); want != got && !layers[i].Removed {
				t.Fatalf("layer %d of %+v, block %d: %d, want %d", i, layers, b, got, want)
			}
		}
	}
}

// A source that has a block in its head is lost when everything is brought; then a write fails, and
// only the target has it. The other source has the block in the removed layer below its head.
func TestWriteFailsAfterTheSourceWasReplaced(t *testing.T) {
	for _, mode := range []Mode{Copy, Compare, Regions} {
		layers := []Layer{{Mode: mode, Size: sourceSize, Removed: true}, {Mode: mode, Size: sourceSize}}
		sources, target := [2]files{empty(2), empty(2)}, empty(2)
		sources[0][1][7], sources[1][0][7] = 5, 5
		c := &carrying{Plan: New(sourceSize, layers, false), sources: sources, target: target}
		c.Differs(0, PieceSize)
		c.all()
		c.lose(0)
		c.fails(9)
		c.all()
		if got := target.read(1, 7); got != 5 || target.read(1, 9) != 0 {
			t.Errorf("%s: the block beside it reads %d, what was written %d", mode, got, target.read(1, 9))
		}
	}
}

// TestAgainIsBounded: however many writes fail at one place, it is compared once more, and once
// more than that where it fails again after that.
func TestAgainIsBounded(t *testing.T) {
	p := New(3*PieceSize+4096, []Layer{{Mode: Copy, Size: 3*PieceSize + 4096}}, true)
	p.Begin()
	p.Extents(nil, -1)
	for round := range 2 {
		for range 1000 {
			p.Again(PieceSize-4096, 8192)
			p.Again(3*PieceSize, 4096)
		}
		var got []Piece
		for piece, ok := p.Next(); ok; piece, ok = p.Next() {
			got = append(got, piece)
		}
		if len(got) != 3 || got[0].Off != 0 || got[1].Off != PieceSize || got[2].Off != 3*PieceSize || got[2].Len != 4096 {
			t.Fatalf("round %d: %v", round, got)
		}
	}
}
