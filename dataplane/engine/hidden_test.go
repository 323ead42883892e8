package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// What a revert keeps for its own safety is in no list, neither while something stands on it nor
// afterwards: no snapshot has a child that users do not know.
func TestRevertsSnapshotIsNotListed(t *testing.T) {
	own := map[string]string{"ankole-revert": "s1"}
	for name, layers := range map[string][]wire.Layer{
		"left by an earlier build": {{Name: "s1"}, {Name: "s2", Parent: "s1"},
			{Name: "revert-1", Parent: "s2", Removed: true, Labels: own}, {Parent: "s2"}},
		"two": {{Name: "s1"}, {Name: "s2", Parent: "s1"}, {Name: "revert-1", Parent: "s2", Removed: true, Labels: own},
			{Name: "revert-2", Parent: "revert-1", Labels: own}, {Parent: "revert-2"}},
	} {
		g := newRig(t, 1, 16<<20)
		g.fakes[0].layers = layers
		g.start()
		g.until("the chain is known", func() bool { return len(g.state.Snapshots) > 0 })
		var got []string
		for _, s := range g.state.Snapshots {
			got = append(got, fmt.Sprint(s.Name, s.Parent, s.Children))
		}
		want := []string{"s1[s2]", "s2s1[volume-head]", engine.HeadName + "s2[]"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A revert asks for its own snapshot to go at once.
func TestRevertTakesItsSnapshotAway(t *testing.T) {
	g := newRig(t, 2, 16<<20)
	g.offline = true
	for _, f := range g.fakes {
		f.layers = []wire.Layer{{Name: "s1"}, {Parent: "s1"}}
	}
	g.start()
	if err := g.ask(func(reply func(error)) any { return engine.Revert{Name: "s1", Reply: reply} }); err != nil {
		t.Fatal(err)
	}
	for i, f := range g.fakes {
		now := slices.ContainsFunc(f.controls, func(q wire.ControlRequest) bool {
			return q.RemoveSnapshot != nil && q.RemoveSnapshot.Now
		})
		if names := f.markedSnapshots(); len(names) != 1 || !now {
			t.Errorf("replica %d: %q, at once: %v", i, names, now)
		}
	}
}
