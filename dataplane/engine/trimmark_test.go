package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/wire"
)

// marked are the snapshots a replica was asked to mark, in order.
func (f *fake) markedSnapshots() (names []string) {
	for _, q := range f.controls {
		if q.RemoveSnapshot != nil {
			names = append(names, q.RemoveSnapshot.Name)
		}
	}
	return names
}

// TestDiscardMarksTheChain: only with the option, only down to the nearest branch, once, on every
// replica, and not by a write.
func TestDiscardMarksTheChain(t *testing.T) {
	head := func(parent string) wire.Layer { return wire.Layer{Parent: parent} }
	for _, row := range []struct {
		name   string
		layers []wire.Layer
		off    bool
		want   []string
	}{
		{"no snapshot", []wire.Layer{head("")}, false, nil},
		{"a chain, newest first", []wire.Layer{{Name: "a"}, {Name: "b", Parent: "a"}, head("b")}, false, []string{"b", "a"}},
		{"without the option", []wire.Layer{{Name: "a"}, {Name: "b", Parent: "a"}, head("b")}, true, nil},
		{"one is marked already", []wire.Layer{{Name: "a"}, {Name: "b", Parent: "a", Removed: true}, head("b")}, false,
			[]string{"a"}},
		{"a branch ends it", []wire.Layer{{Name: "a"}, {Name: "b", Parent: "a"}, {Name: "other", Parent: "a"},
			head("b")}, false, []string{"b"}},
		{"a branch at the head", []wire.Layer{{Name: "a"}, {Name: "other", Parent: "a"}, head("a")}, false, nil},
		{"a chain that goes in a circle", []wire.Layer{{Name: "a", Parent: "b"}, {Name: "b", Parent: "a"}, head("b")},
			false, nil},
	} {
		g := newRig(t, 2, 16<<20)
		for _, f := range g.fakes {
			f.layers = row.layers
		}
		g.start()
		g.until(row.name+": the chain is known", func() bool { return len(g.state.Snapshots) == len(row.layers) })
		on := !row.off
		g.proc.Post(engine.SetOptions{UnmapMarkSnapChainRemoved: &on, Reply: func(error) {}})
		g.until("option", func() bool { return g.state.Options.UnmapMarkSnapChainRemoved == on })
		g.finish(g.write(0, 1, 4096))
		if got := g.fakes[0].markedSnapshots(); got != nil {
			t.Errorf("%s: a write marked %q", row.name, got)
		}
		for range 3 {
			if code := g.finish(g.begin(block.Discard, 0, 1<<20, nil)); code != block.OK {
				t.Fatalf("%s: discard: %v", row.name, code)
			}
		}
		g.until(row.name+": marked", func() bool {
			return len(g.fakes[0].markedSnapshots()) >= len(row.want) && len(g.fakes[1].markedSnapshots()) >= len(row.want)
		})
		g.never(row.name+": more is marked", 500*time.Millisecond, func() bool {
			return !slices.Equal(g.fakes[0].markedSnapshots(), row.want) || !slices.Equal(g.fakes[1].markedSnapshots(), row.want)
		})
	}
}

// TestDiscardWhileTheChainCannotBeMarked: the discard succeeds, and a later one marks.
func TestDiscardWhileTheChainCannotBeMarked(t *testing.T) {
	g := newRig(t, 2, 16<<20)
	for _, f := range g.fakes {
		f.layers = []wire.Layer{{Name: "a"}, {Parent: "a"}}
	}
	g.start()
	g.until("the chain is known", func() bool { return len(g.state.Snapshots) == 2 })
	on := true
	g.proc.Post(engine.SetOptions{UnmapMarkSnapChainRemoved: &on, Reply: func(error) {}})
	for _, f := range g.fakes {
		f.script = controls(func() (block.Code, bool) { return block.NotFound, false })
	}
	discard := func() {
		t.Helper()
		if code := g.finish(g.begin(block.Discard, 0, 1<<20, nil)); code != block.OK {
			t.Fatal(code)
		}
	}
	discard()
	g.until("tried", func() bool {
		return slices.ContainsFunc(g.events, func(e string) bool { return strings.HasPrefix(e, "chain-not-marked a") })
	})
	for _, f := range g.fakes {
		f.script, f.controls = nil, nil
	}
	g.until("tried again", func() bool {
		discard()
		return len(g.fakes[0].markedSnapshots()) == 1 && len(g.fakes[1].markedSnapshots()) == 1
	})
	g.expectModes("a=RW b=RW")
}

// A block device asks for a discard by zeroes that may give space back. That marks the chain too,
// unless nothing was ever written there; zeroes of others, and those that keep their space, do not.
func TestTrimOfABlockDeviceMarksTheChain(t *testing.T) {
	for name, c := range map[string]struct {
		trim, unmap, empty, want bool
	}{
		"block device":                   {true, true, false, true},
		"block device, nothing is there": {true, true, true, false},
		"zeroes that may give up space":  {false, true, false, false},
		"zeroes":                         {false, false, false, false},
	} {
		g := newRig(t, 1, 16<<20)
		g.fakes[0].layers = []wire.Layer{{Name: "a"}, {Parent: "a"}}
		g.fakes[0].reply.Empty = c.empty
		g.start()
		g.until("the chain is known", func() bool { return len(g.state.Snapshots) == 2 })
		on := true
		g.proc.Post(engine.SetOptions{UnmapMarkSnapChainRemoved: &on, Reply: func(error) {}})
		g.until("option", func() bool { return g.state.Options.UnmapMarkSnapChainRemoved })
		call := &call{req: frontend.Request{Kind: block.WriteZeroes, Len: 1 << 20, Unmap: c.unmap, Trim: c.trim}}
		g.front.queue = append(g.front.queue, call)
		g.front.signal.Raise()
		if code := g.finish(call); code != block.OK {
			t.Fatal(code)
		}
		if c.want {
			g.until(name+": marked", func() bool { return len(g.fakes[0].markedSnapshots()) == 1 })
			continue
		}
		g.never(name+": marked", 2*time.Second, func() bool { return len(g.fakes[0].markedSnapshots()) > 0 })
	}
}

// A discard that follows a revert at once marks nothing of the branch that the head has left,
// whether the replica that is asked for the chain takes its time or is lost.
func TestDiscardAfterARevert(t *testing.T) {
	before := []wire.Layer{{Name: "s1"}, {Name: "s2", Parent: "s1"}, {Name: "s3", Parent: "s2"}, {Parent: "s3"}}
	after := []wire.Layer{{Name: "s1"}, {Name: "s2", Parent: "s1"}, {Name: "s3", Parent: "s2"}, {Parent: "s1"}}
	for _, lost := range []bool{false, true} {
		g := newRig(t, 2, 16<<20)
		g.offline = true
		for _, f := range g.fakes {
			f.layers = before
		}
		g.start()
		g.until("the chain is known", func() bool { return len(g.state.Snapshots) == len(before) })
		on := true
		g.proc.Post(engine.SetOptions{UnmapMarkSnapChainRemoved: &on, Reply: func(error) {}})
		for _, f := range g.fakes {
			f.judge = func(q *wire.ControlRequest) (block.Code, bool) {
				if q.Revert != nil && !q.Check {
					f.layers = after
				}
				return block.OK, q.Describe != nil
			}
		}
		if err := g.ask(func(reply func(error)) any { return engine.Revert{Name: "s1", Reply: reply} }); err != nil {
			t.Fatal(err)
		}
		g.until("a replica is asked for the chain", func() bool { return len(g.fakes[0].held)+len(g.fakes[1].held) > 0 })
		if err := g.ask(func(reply func(error)) any {
			return engine.AttachFrontend{Frontend: g.front, Reply: reply}
		}); err != nil {
			t.Fatal(err)
		}
		if lost {
			g.fakes[1].judge = nil
			g.fakes[0].proc.Kill()
			g.until("it is dropped", func() bool { return g.modes() == "a=ERR b=RW" })
		}
		if code := g.finish(g.begin(block.Discard, 0, 1<<20, nil)); code != block.OK {
			t.Fatal(code)
		}
		for _, f := range g.fakes {
			f.judge = nil
			f.release()
		}
		g.never("a snapshot of another branch is given up", 5*time.Second, func() bool {
			return slices.ContainsFunc(g.fakes[1].markedSnapshots(), func(name string) bool { return name[0] == 's' })
		})
		g.until("the state shows the chain", func() bool {
			return slices.ContainsFunc(g.state.Snapshots, func(s engine.Snapshot) bool {
				return s.Name == engine.HeadName && s.Parent == "s1"
			})
		})
	}
}
