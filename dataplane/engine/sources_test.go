package engine_test

import (
	"fmt"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/engine"
)

// lift moves a block of replica i from the file of snapshot a, which is removed, to that of b above
// it, as it is after a start that has given up a snapshot which not all replicas had: b reads the
// same as before.
func (g *scrubRig) lift(i int, off int64) {
	g.t.Helper()
	from, err := g.disk(i).Open(g.image(i, "a"), 0)
	g.damage(err)
	defer from.Close()
	to, err := g.disk(i).Open(g.image(i, "b"), 0)
	g.damage(err)
	defer to.Close()
	p := make([]byte, block.Size)
	_, err = from.ReadAt(p, off)
	g.damage(err)
	_, err = to.WriteAt(p, off)
	g.damage(err)
	g.damage(from.Punch(off, block.Size))
}

// common returns what a replica's directory reads at the layers that all replicas have in common.
func (g *scrubRig) common(i int) string {
	g.t.Helper()
	c, err := chain.Open(g.disk(i), "/replicas/"+g.v.Replicas[i].Name,
		chain.Options{ReadOnly: true, AsItIs: true}) // lift has written to it
	g.damage(err)
	defer c.Close()
	b, err := c.HashAt("b")
	g.damage(err)
	head, err := c.HashAt(chain.HeadName)
	g.damage(err)
	return fmt.Sprintf("b %x, head %x", b[:6], head[:6])
}

// rebuilt reports how the rebuild of replica i stands.
func (g *scrubRig) rebuilt(i int) (r engine.Rebuild) {
	for _, o := range g.state.Replicas {
		if o.Member == g.v.Replicas[i].Name && o.Rebuild != nil {
			r = *o.Rebuild
		}
	}
	return r
}

// TestAnotherSourceHasItElsewhere: two replicas read the same at a snapshot, and have one block of
// it in different files, since the snapshot below is removed. The source of a rebuild is lost at
// any moment, and the other one takes over. The target reads at the snapshot what they read,
// although the head hides the block, so that no comparison of the head would show a difference.
func TestAnotherSourceHasItElsewhere(t *testing.T) {
	replaced := 0
	for _, lifted := range []int{0, 1} {
		for step := 0; ; step++ {
			g := newScrubRig(t, 3)
			x := g.v.Replicas[2]
			x.Kill()
			g.until("it is dropped", func() bool { return g.count(engine.RW) == 2 && g.state.Reason == "" })
			g.damage(g.ask(func(reply func(error)) any { return engine.RemoveSnapshot{Name: "a", Reply: reply} }))
			g.lift(lifted, block.Size)
			g.wipe(2)
			x.Start()
			g.damage(g.ask(func(reply func(error)) any { return engine.AddReplica{Address: x.Addr(), Reply: reply} }))
			g.until("the source is known", func() bool { return g.rebuilt(2).From != "" })
			g.w.Until(time.Duration(step)*time.Millisecond, func() bool { return false })
			if !g.rebuilt(2).Running {
				break
			}
			other := 1
			if g.v.Replicas[1].Addr() == g.rebuilt(2).From {
				other = 0
			}
			g.v.Replicas[1-other].Kill()
			g.until("the rebuild ends", func() bool { return !g.rebuilt(2).Running })
			if g.rebuilt(2).State != "complete" {
				g.back(2) // its source was lost too early for another one to take over
			} else {
				replaced++
			}
			if a, b := g.common(other), g.common(2); a != b {
				t.Errorf(
					"in the file of b at replica %d, source lost after %d steps: the source reads %s, the target %s",
					lifted, step, a, b)
			}
		}
	}
	if replaced < 10 {
		t.Errorf("another source took over in %d rebuilds only", replaced)
	}
}
