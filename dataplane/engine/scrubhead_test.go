package engine_test

import (
	"bytes"
	"fmt"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
)

// TestScrubKeepsTheHead: the file system of a replica loses a block of a snapshot, the replica is
// started anew, and the user zeroes or discards the block, for which this replica has nothing to
// write. When a scrub brings the block back, users go on reading zeroes, and so does whatever
// snapshot was taken meanwhile.
func TestScrubKeepsTheHead(t *testing.T) {
	const at, n = 131072, 8192
	for _, kind := range []block.Kind{block.WriteZeroes, block.Discard} {
		for _, later := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, snapshot %v", kind, later), func(t *testing.T) {
				g := newScrubRig(t, 2)
				g.clean(engine.ScrubEnabled)
				g.v.Replicas[0].Kill()
				g.v.Replicas[1].Kill()
				g.proc.Kill()
				g.damage(g.disk(1).Lose(g.image(1, "a"), at, n))
				g.v.Replicas[0].Start()
				g.v.Replicas[1].Start()
				g.restart()
				g.until("both serve", func() bool { return g.count(engine.RW) == 2 })
				if code := g.finish(g.begin(kind, at, n, nil)); code != block.OK {
					t.Fatal(code)
				}
				if later {
					g.snapshot("c")
				}
				s := g.scrub(engine.ScrubEnabled)
				if s.State != "complete" || s.Unrepaired != 0 || s.Repaired == 0 {
					t.Fatalf("%+v", s)
				}
				for range 4 { // from the one and from the other
					c, code := g.read(at, n)
					if code != block.OK || !bytes.Equal(c.data, make([]byte, n)) {
						t.Fatalf("users do not read the zeroes they have written: %s, %x", code, c.data[:8])
					}
				}
				g.clean(engine.ScrubEnabled)
				g.expectModes("r0=RW r1=RW")
				if a, b := g.sums(0), g.sums(1); a != b {
					t.Errorf("replicas have\n%s\n%s", a, b)
				}
			})
		}
	}
}
