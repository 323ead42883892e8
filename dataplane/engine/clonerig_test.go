package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/engine"
	"ankole.storage/test/sim"
)

const cloneUUID = "9d7a1c0e-5c1b-4a52-8d5e-0c8f4ec1a4b2"

// cloneRig is a volume with snapshots a and b, and an empty one in the same world.
type cloneRig struct {
	*scrubRig
	to *scrubRig
}

func newCloneRig(t *testing.T, from, to int, size int64) *cloneRig {
	g := &cloneRig{scrubRig: newScrubRig(t, from)}
	v := sim.NewVolumeOf(g.w, sim.Identity{Name: "target", UUID: cloneUUID}, "t", to, size)
	t.Cleanup(v.Close)
	g.to = &scrubRig{rig: &rig{t: t, w: g.w, size: size, uuid: cloneUUID, offline: true}, v: v}
	g.to.restart()
	return g
}

// restart starts the target's engine with every replica that runs.
func (g *scrubRig) restart() {
	g.t.Helper()
	if g.proc != nil {
		g.proc.Kill()
		g.state = engine.State{}
	}
	g.real = nil
	for _, r := range g.v.Replicas {
		if r.Alive() {
			g.real = append(g.real, r.Addr())
		}
	}
	g.start()
}

// grant asks the source for what it takes to read a snapshot.
func (g *cloneRig) grant(snapshot string) (engine.CloneSource, error) {
	g.t.Helper()
	var s engine.CloneSource
	var err error
	done := false
	g.proc.Post(engine.GrantClone{Snapshot: snapshot, For: cloneUUID, Expires: g.w.Unix() + 3600,
		Reply: func(r engine.CloneSource, e error) {
			s, err, done = r, e, true
		}})
	g.until("grant", func() bool { return done })
	return s, err
}

func (g *cloneRig) begin(snapshot string, change func(*engine.Clone)) error {
	g.t.Helper()
	s, err := g.grant(snapshot)
	if err != nil {
		g.t.Fatal(err)
	}
	return g.to.ask(func(reply func(error)) any {
		c := engine.Clone{From: s, Name: "copy", Created: "2026-11-21T12:00:00Z", Reply: reply}
		if change != nil {
			change(&c)
		}
		return c
	})
}

// clone clones to the end.
func (g *cloneRig) clone(snapshot string) engine.Importing {
	g.t.Helper()
	if err := g.begin(snapshot, nil); err != nil {
		g.t.Fatalf("%v\n%s", err, strings.Join(g.to.events, "\n"))
	}
	g.to.ended()
	return *g.to.state.Import
}

func (g *scrubRig) ended() {
	g.t.Helper()
	g.until("end of the clone", func() bool { return g.state.Import != nil && !g.state.Import.Running })
}

// hashes is the content of every replica of a volume at a snapshot.
func (g *scrubRig) hashes(snapshot string) string {
	g.t.Helper()
	all := map[string]bool{}
	for i, r := range g.v.Replicas {
		c, err := chain.Open(g.disk(i), "/replicas/"+r.Name, chain.Options{ReadOnly: true})
		if err != nil {
			g.t.Fatal(err)
		}
		sum, err := c.HashAt(snapshot)
		if err != nil {
			g.t.Fatalf("%s: %v", r.Name, err)
		}
		all[fmt.Sprintf("%x", sum)] = true
		g.damage(c.Close())
	}
	if len(all) != 1 {
		g.t.Fatalf("replicas differ at %s: %v", snapshot, all)
	}
	for sum := range all {
		return sum
	}
	return ""
}

// whole checks that the target has what the source has at a snapshot, as a snapshot and as a head,
// and nothing else.
func (g *cloneRig) whole(snapshot string) {
	g.t.Helper()
	i := g.to.state.Import
	if i.State != "complete" || i.Progress != 100 || i.Error != "" || i.Incomplete || i.Name != "copy" ||
		i.Snapshot != snapshot {
		g.t.Fatalf("%+v\n%s", i, strings.Join(g.to.events, "\n"))
	}
	want := g.hashes(snapshot)
	for _, name := range []string{"copy", chain.HeadName} {
		if got := g.to.hashes(name); got != want {
			g.t.Errorf("%s of the clone differs from %s", name, snapshot)
		}
	}
	g.damage(g.to.ask(func(reply func(error)) any { return engine.Refresh{Reply: reply} }))
	var names []string
	for _, s := range g.to.state.Snapshots {
		names = append(names, s.Name+"<"+s.Parent)
	}
	if got := strings.Join(names, " "); got != "volume-head<copy copy<" && got != "copy< volume-head<copy" {
		g.t.Errorf("chain of the clone: %s", got)
	}
}
