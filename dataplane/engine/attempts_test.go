package engine_test

import (
	"fmt"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/engine"
)

// readsAt is what replica i reads at a snapshot and at the head.
func (g *scrubRig) readsAt(i int, snapshot string) string {
	g.t.Helper()
	c, err := chain.Open(g.disk(i), "/replicas/"+g.v.Replicas[i].Name, chain.Options{ReadOnly: true})
	g.damage(err)
	defer c.Close()
	at, err := c.HashAt(snapshot)
	g.damage(err)
	head, err := c.HashAt(chain.HeadName)
	g.damage(err)
	return fmt.Sprintf("%s %x, head %x", snapshot, at[:6], head[:6])
}

// rejoin starts replica i again and asks for its rebuild.
func (g *scrubRig) rejoin(i int) {
	g.t.Helper()
	x := g.v.Replicas[i]
	x.Start()
	g.damage(g.ask(func(reply func(error)) any { return engine.AddReplica{Address: x.Addr(), Reply: reply} }))
}

// lose kills replica i and waits until so many others are the members.
func (g *scrubRig) lose(i, left int) {
	g.t.Helper()
	g.v.Replicas[i].Kill()
	g.until("it is dropped", func() bool { return g.count(engine.RW) == left && g.state.Reason == "" })
}

// TestSecondAttemptFromAnotherSource: while a replica is away a snapshot is merged into the one
// above it at one of the two others; the other one keeps it, since somebody reads it. The rebuild
// from the first is interrupted at any moment, and goes on from the second, which has changed
// nothing. What the first attempt has changed in the snapshot above is made good, also what was
// discarded there.
func TestSecondAttemptFromAnotherSource(t *testing.T) {
	second := 0
	for step := 0; ; step++ {
		g := newCloneRig(t, 3, 1, scrubSize)
		remove := func(name string) {
			g.damage(g.ask(func(reply func(error)) any { return engine.RemoveSnapshot{Name: name, Reply: reply} }))
		}
		purge := func() {
			before := g.seen("purged")
			g.damage(g.ask(func(reply func(error)) any { return engine.PurgeSnapshots{Reply: reply} }))
			g.until("purged", func() bool { return g.seen("purged") > before })
		}
		remove("b")
		if code := g.finish(g.rig.begin(block.Discard, 128<<10, 64<<10, nil)); code != block.OK {
			t.Fatal(code)
		}
		g.snapshot("c")
		purge()
		g.pass(3 * time.Minute) // no region is marked any more
		g.lose(2, 2)
		g.to.proc.Post(engine.SetRebuildBudget{BytesPerSecond: 1 << 10})
		g.damage(g.begin("a", func(c *engine.Clone) { c.From.Replicas = []string{g.v.Replicas[1].Addr()} }))
		g.to.until("it is read", func() bool { return g.to.state.Import != nil && g.to.state.Import.Done > 0 })
		remove("a")
		purge()
		g.rejoin(2)
		g.until("the source is known", func() bool { return g.rebuilt(2).From != "" })
		if g.rebuilt(2).From != g.v.Replicas[0].Addr() {
			t.Fatalf("the first source is %s", g.rebuilt(2).From)
		}
		g.w.Until(time.Duration(step)*4*time.Millisecond, func() bool { return false })
		if !g.rebuilt(2).Running {
			break
		}
		g.v.Replicas[2].Kill()
		g.lose(0, 1)
		g.until("the rebuild has ended", func() bool { return !g.rebuilt(2).Running })
		g.rejoin(2)
		g.until("it is rebuilt", func() bool { return g.count(engine.RW) == 2 })
		second++
		if want, got := g.readsAt(1, "c"), g.readsAt(2, "c"); want != got {
			t.Fatalf("interrupted after %d steps: the source reads %s, the target %s", step, want, got)
		}
	}
	if second < 5 {
		t.Errorf("%d second attempts only", second)
	}
}
