package engine_test

import (
	"bytes"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
)

// TestZeroesAcrossARegion: less than two blocks are zeroed, half of a block on each side of the
// border between two regions of the dirty log. A replica that was away for that comes back by its
// account, and has to have both halves.
func TestZeroesAcrossARegion(t *testing.T) {
	const border = engine.DirtyRegion
	g := newScrubRigOf(t, 2, 4*engine.DirtyRegion)
	g.fill(border-block.Size, 2*block.Size, 7)
	g.fill(3*border, block.Size, 7) // the last one to expire
	if code := g.finish(g.begin(block.Flush, 0, 0, nil)); code != block.OK {
		t.Fatal(code)
	}
	g.w.Until(5*time.Minute, func() bool { return false }) // all marks expire
	g.lose(1, 1)
	const at, n = border - block.SectorSize, 2 * block.SectorSize
	if code := g.finish(g.begin(block.WriteZeroes, at, n, nil)); code != block.OK {
		t.Fatal(code)
	}
	if code := g.finish(g.begin(block.Flush, 0, 0, nil)); code != block.OK {
		t.Fatal(code)
	}
	g.rejoin(1)
	g.until("it is rebuilt", func() bool { return g.count(engine.RW) == 2 && g.state.Reason == "" })
	r := g.rebuilt(1)
	t.Logf("%+v", r)
	zeroes := make([]byte, block.SectorSize)
	for range 2 { // from the one and from the other
		if c, code := g.read(border, block.SectorSize); code != block.OK || !bytes.Equal(c.data, zeroes) {
			t.Errorf("zeroed, acknowledged and flushed, and read otherwise: %s", code)
		}
	}
	if a, b := g.everything(0), g.everything(1); a != b {
		t.Errorf("replicas in sync differ:\n%s\n%s", a, b)
	}
}

// TestRequestsAcrossBorders: requests of every kind that begin in any sector before a border of
// blocks, of frames or of regions, and end in any sector after it. The replicas' fakes hold the
// engine to the rules of the dirty log: no request to a replica spans two regions.
func TestRequestsAcrossBorders(t *testing.T) {
	sectors := []int64{1, 2, 7, 8, 9, 15}
	for _, border := range []int64{block.Size, block.MaxTransfer, engine.DirtyRegion} {
		g := newRig(t, 2, 4*engine.DirtyRegion).start()
		for _, kind := range []block.Kind{block.Write, block.WriteZeroes, block.Discard} {
			for _, before := range sectors {
				for _, after := range append(sectors, 0) {
					off, n := border-before*block.SectorSize, (before+after)*block.SectorSize
					if off < 0 {
						continue
					}
					var data []byte
					if kind == block.Write {
						data = bytes.Repeat([]byte{byte(before)}, int(n))
					}
					if code := g.finish(g.begin(kind, off, n, data)); code != block.OK {
						t.Fatalf("%s [%d,+%d): %s", kind, off, n, code)
					}
				}
			}
		}
	}
}
