package engine_test

import (
	"fmt"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/engine"
)

// sumAt is what a replica reads at a snapshot.
func (g *scrubRig) sumAt(i int, snapshot string) string {
	g.t.Helper()
	c, err := chain.Open(g.disk(i), "/replicas/"+g.v.Replicas[i].Name, chain.Options{ReadOnly: true})
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	sum, err := c.HashAt(snapshot)
	if err != nil {
		g.t.Fatal(err)
	}
	return fmt.Sprintf("%x", sum[:6])
}

// losesBlocks has replica 1 lose blocks of a snapshot while nothing runs.
func (g *scrubRig) losesBlocks(snapshot string, at, n int64) {
	g.t.Helper()
	for _, r := range g.v.Replicas {
		r.Kill()
	}
	g.proc.Kill()
	g.damage(g.disk(1).Lose(g.image(1, snapshot), at, n))
	for _, r := range g.v.Replicas {
		r.Start()
	}
	g.restart()
	g.until("all serve", func() bool { return g.count(engine.RW) == len(g.v.Replicas) })
}

// zero is a user's write of zeroes.
func (g *scrubRig) zero(at, n int64) {
	g.t.Helper()
	if code := g.finish(g.begin(block.WriteZeroes, at, n, nil)); code != block.OK {
		g.t.Fatal(code)
	}
}

// scrubEnds waits for the end of a scrub.
func (g *scrubRig) scrubEnds() engine.Scrubbing {
	g.t.Helper()
	g.until("end of the scrub", func() bool { return g.state.Scrub != nil && !g.state.Scrub.Running })
	return *g.state.Scrub
}

// TestScrubKeepsNewerSnapshots: a replica has lost blocks of snapshots a and b. The user zeroed the
// ones before snapshots c and d were taken, of which there are no checksums, and the others
// afterwards. A scrub that repairs a, or b, and ends then, leaves what is zeroed as it is, in c, in
// d, and in e, which is taken at any time beside it; and so does one that is cancelled, or whose
// engine is killed.
func TestScrubKeepsNewerSnapshots(t *testing.T) {
	const first, second, n = 131072, 2<<20 + 65536, 8192
	for replicas, tries := range map[int]int{2: 36, 3: 3} {
		for try := range tries {
			g := newScrubRig(t, replicas)
			g.clean(engine.ScrubEnabled)
			g.losesBlocks("a", first, n)
			g.zero(first, n)
			g.snapshot("c")
			g.fill(first, 4096, 9)
			g.snapshot("d")
			end, scrubbed := []string{"complete", "cancelled", "killed"}[try%3], "a"
			if end == "complete" {
				scrubbed = "b"
				g.losesBlocks("b", second, n)
				g.zero(second, n)
			}
			want := map[string]string{"c": g.sumAt(0, "c"), "d": g.sumAt(0, "d")}
			head := g.sumAt(0, chain.HeadName)
			if err := g.begun(engine.ScrubEnabled, scrubbed); err != nil {
				t.Fatal(err)
			}
			g.w.Until(time.Duration(try)*7*time.Millisecond, func() bool { return false })
			switch end {
			case "complete":
				g.snapshot("e")
				want["e"] = head
				if s := g.scrubEnds(); s.State != "complete" || s.Unrepaired != 0 || s.Repaired == 0 {
					t.Fatalf("%+v", s)
				}
			case "cancelled":
				_ = g.ask(func(reply func(error)) any { return engine.CancelScrub{Reply: reply} })
				g.scrubEnds()
			case "killed":
				g.proc.Kill()
				g.restart()
				g.until("all serve", func() bool { return g.count(engine.RW) == replicas })
			}
			for name, sum := range want {
				for i := range replicas {
					if got := g.sumAt(i, name); got != sum {
						t.Fatalf("%d replicas, try %d, %s: replica %d has %s at %s, want %s", replicas, try, end, i, got, name, sum)
					}
				}
			}
			if s := g.scrub(engine.ScrubEnabled); s.Unrepaired != 0 {
				t.Fatalf("the next scrub: %+v", s)
			}
		}
	}
}

// TestScrubFollowsNoRotInNewerSnapshots: a replica's copy of a snapshot has rotted, and another
// one's copy of a newer snapshot in the same MiB, of which there are no checksums. What of it is
// sound stays.
func TestScrubFollowsNoRotInNewerSnapshots(t *testing.T) {
	g := newScrubRig(t, 2)
	g.clean(engine.ScrubEnabled)
	g.fill(200<<10, 8192, 9)
	g.snapshot("c")
	want := g.sumAt(0, "c")
	g.damage(g.disk(0).Rot(g.image(0, "a"), 0, 1))
	g.damage(g.disk(1).Rot(g.image(1, "c"), 201<<10, 1))
	if s := g.scrub(engine.ScrubEnabled); s.State != "complete" || s.Repaired != 1 || s.Unrepaired != 2 {
		t.Errorf("%+v", s)
	}
	if got := g.sumAt(0, "c"); got != want {
		t.Errorf("the sound copy of c is %s, was %s", got, want)
	}
}
