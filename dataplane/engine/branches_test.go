package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/engine"
)

// branches is what replica i reads at every snapshot, of all branches, and at the head.
func (g *scrubRig) everything(i int) string {
	g.t.Helper()
	c, err := chain.Open(g.disk(i), "/replicas/"+g.v.Replicas[i].Name, chain.Options{ReadOnly: true})
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	list, err := c.Snapshots()
	if err != nil {
		g.t.Fatal(err)
	}
	var out []string
	for _, s := range list {
		sum, err := c.HashAt(s.Name)
		out = append(out, fmt.Sprintf("%s<%s %v %v %x %v", s.Name, s.Parent, s.Removed, s.UserCreated, sum[:6], err))
	}
	return strings.Join(out, ", ")
}

func (g *scrubRig) revert(name string) {
	g.t.Helper()
	g.damage(g.ask(func(reply func(error)) any { return engine.DetachFrontend{Reply: reply} }))
	g.damage(g.ask(func(reply func(error)) any {
		return engine.Revert{Name: name, Created: "2026-11-21T12:00:00Z", Reply: reply}
	}))
	g.front.stop = false
	g.damage(g.attach())
}

// back starts a replica that was away and waits until it is rebuilt.
func (g *scrubRig) back(i int) {
	g.t.Helper()
	r := g.v.Replicas[i]
	if r.Alive() {
		r.Kill() // it has the directory's lock
	}
	r.Start()
	for _, o := range g.state.Replicas {
		if o.Member == r.Name {
			g.damage(g.ask(func(reply func(error)) any { return engine.RemoveReplica{Address: o.Address, Reply: reply} }))
		}
	}
	g.damage(g.ask(func(reply func(error)) any { return engine.AddReplica{Address: r.Addr(), Reply: reply} }))
	g.until("it is rebuilt", func() bool {
		for _, o := range g.state.Replicas {
			if o.Member == r.Name && o.Mode == engine.RW {
				return true
			}
		}
		return false
	})
}

// A rebuild brings the snapshots of every branch, whatever became of the chain while the replica
// was away.
func TestRebuildBringsBranches(t *testing.T) {
	away := func(g *scrubRig) {
		g.v.Replicas[1].Kill()
		g.until("it is dropped", func() bool { return g.count(engine.RW) == 1 && g.state.Reason == "" })
	}
	for name, do := range map[string]func(g *scrubRig){
		"reverted before": func(g *scrubRig) {
			g.revert("a")
			g.fill(1<<20, 8192, 20)
			g.snapshot("c")
			g.fill(0, 8192, 21)
			away(g)
			g.fill(4096, 4096, 22)
		},
		"reverted meanwhile": func(g *scrubRig) {
			away(g)
			g.revert("a")
			g.fill(1<<20, 8192, 20)
		},
		"a branch of a branch": func(g *scrubRig) {
			g.revert("a")
			g.fill(0, 8192, 20)
			g.snapshot("c")
			g.fill(0, 8192, 21)
			g.snapshot("d")
			g.revert("c")
			away(g)
			g.fill(0, 4096, 22)
			g.snapshot("e")
			g.revert("b")
			g.fill(8192, 4096, 23)
		},
		"there and back": func(g *scrubRig) {
			g.revert("a")
			away(g)
			g.revert("b")
			g.fill(8192, 4096, 23)
		},
		"everything lost": func(g *scrubRig) {
			g.revert("a")
			g.fill(0, 8192, 20)
			away(g)
			for _, f := range []string{"volume.meta"} {
				g.damage(g.disk(1).Remove("/replicas/" + g.v.Replicas[1].Name + "/" + f))
			}
			names, err := g.disk(1).List("/replicas/" + g.v.Replicas[1].Name)
			g.damage(err)
			for _, n := range names {
				g.damage(g.disk(1).Remove("/replicas/" + g.v.Replicas[1].Name + "/" + n))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newScrubRig(t, 2)
			do(g)
			g.back(1)
			if a, b := g.everything(0), g.everything(1); a != b {
				t.Fatalf("after the rebuild\n%s\n%s\n%s", a, b, strings.Join(g.events, "\n"))
			} else if !strings.Contains(a, "b<a") && name != "there and back" {
				t.Fatalf("the branch is not there: %s", a)
			}
			// The branch is worth something: the volume can go back to it, on both.
			g.revert("b")
			g.fill(65536, 4096, 30)
			if a, b := g.everything(0), g.everything(1); a != b {
				t.Fatalf("after reverting to the branch\n%s\n%s", a, b)
			}
		})
	}
}

func (g *rig) count(m engine.Mode) (n int) {
	for _, r := range g.state.Replicas {
		if r.Mode == m {
			n++
		}
	}
	return n
}
