package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// trims is how many pieces of trims a replica was asked for.
func (f *fake) trims() (n int) {
	for _, q := range f.controls {
		if q.Trim != nil {
			n++
		}
	}
	return n
}

// trimRig is a volume with snapshot a, whose engine gives snapshots up for discards.
func trimRig(t *testing.T) *rig {
	g := newRig(t, 2, 16<<20)
	for _, f := range g.fakes {
		f.layers = []wire.Layer{{Name: "a"}, {Parent: "a"}}
	}
	g.start()
	g.until("the chain is known", func() bool { return len(g.state.Snapshots) == 2 })
	on := true
	g.proc.Post(engine.SetOptions{UnmapMarkSnapChainRemoved: &on, Reply: func(error) {}})
	g.until("option", func() bool { return g.state.Options.UnmapMarkSnapChainRemoved })
	return g
}

func (g *rig) discards() {
	g.t.Helper()
	if code := g.finish(g.begin(block.Discard, 0, 1<<20, nil)); code != block.OK {
		g.t.Fatal(code)
	}
}

func (g *rig) trimmed(n int) func() bool {
	return func() bool { return g.fakes[0].trims() >= n && g.fakes[1].trims() >= n }
}

// TestDiscardTrimsTheChain: every replica is asked once for the discards of a burst, after the
// marks, and who asks for sizes hears of them afterwards.
func TestDiscardTrimsTheChain(t *testing.T) {
	g := trimRig(t)
	for range 3 {
		g.discards()
	}
	if err := g.ask(func(reply func(error)) any { return engine.Refresh{Reply: reply} }); err != nil {
		t.Fatal(err)
	}
	for _, f := range g.fakes {
		mark := slices.IndexFunc(f.controls, func(q wire.ControlRequest) bool { return q.RemoveSnapshot != nil })
		trim := slices.IndexFunc(f.controls, func(q wire.ControlRequest) bool { return q.Trim != nil })
		if f.trims() != 1 || mark < 0 || trim < mark {
			t.Errorf("%d trims, the first at %d, marked at %d", f.trims(), trim, mark)
		}
	}
	g.never("more is trimmed", 2*time.Second, func() bool { return g.fakes[0].trims() > 1 })
	g.discards()
	g.until("trimmed again", g.trimmed(2))
}

// TestTrimGoesOnByPieces: as long as a replica says where to go on, and no longer if it says so of
// where it was.
func TestTrimGoesOnByPieces(t *testing.T) {
	for _, row := range []struct {
		next []int64
		want int
	}{{[]int64{5, 9, -1}, 3}, {[]int64{5, 5, 5}, 2}} {
		g := trimRig(t)
		for _, f := range g.fakes {
			f.tells = func(r *wire.ControlReply) {
				if r.Trim != nil {
					r.Trim.Next = row.next[f.trims()-1]
				}
			}
		}
		g.discards()
		g.until("trimmed", g.trimmed(row.want))
		g.never("more", 2*time.Second, func() bool { return g.fakes[0].trims() > row.want })
	}
}

// TestTrimThatAReplicaDoesNotKnow: an older one keeps its place.
func TestTrimThatAReplicaDoesNotKnow(t *testing.T) {
	g := trimRig(t)
	for _, f := range g.fakes {
		f.judge = func(q *wire.ControlRequest) (block.Code, bool) {
			if q.Trim != nil {
				return block.Invalid, false
			}
			return block.OK, false
		}
	}
	g.discards()
	g.until("it is told", func() bool {
		return slices.ContainsFunc(g.events, func(e string) bool { return strings.HasPrefix(e, "trim-failed") })
	})
	if err := g.ask(func(reply func(error)) any { return engine.Refresh{Reply: reply} }); err != nil {
		t.Fatal(err)
	}
	g.expectModes("a=RW b=RW")
}

// TestTrimWaitsForAPurge, which changes the same files; nobody who asks for sizes waits for that.
func TestTrimWaitsForAPurge(t *testing.T) {
	g := trimRig(t)
	for _, f := range g.fakes {
		f.pieces = 2
		f.judge = func(q *wire.ControlRequest) (block.Code, bool) {
			return block.OK, q.Purge != nil && !q.Purge.Begin
		}
	}
	if err := g.ask(func(reply func(error)) any { return engine.PurgeSnapshots{Reply: reply} }); err != nil {
		t.Fatal(err)
	}
	g.until("a piece is under way", func() bool { return len(g.fakes[0].held) > 0 && len(g.fakes[1].held) > 0 })
	g.discards()
	if err := g.ask(func(reply func(error)) any { return engine.Refresh{Reply: reply} }); err != nil {
		t.Fatal(err)
	}
	g.never("trimmed", 2*time.Second, g.trimmed(1))
	for _, f := range g.fakes {
		f.judge = nil
		f.release()
	}
	g.until("trimmed", g.trimmed(1))
}

// TestDiscardBeforeASnapshot: a snapshot that is taken before the marks are made is not given up,
// also when these were refused at first; those of the time of the discard are.
func TestDiscardBeforeASnapshot(t *testing.T) {
	g := trimRig(t)
	for _, f := range g.fakes {
		f.script = controls(func() (block.Code, bool) { return block.NotFound, false })
	}
	g.discards()
	g.until("tried", func() bool {
		return slices.ContainsFunc(g.events, func(e string) bool { return strings.HasPrefix(e, "chain-not-marked a") })
	})
	for _, f := range g.fakes {
		f.script, f.controls = nil, nil
		f.layers = []wire.Layer{{Name: "a"}, {Name: "later", Parent: "a"}, {Parent: "later"}}
	}
	g.until("tried again", func() bool { return len(g.fakes[0].markedSnapshots()) > 0 })
	g.never("the later one is given up", 30*time.Second, func() bool {
		return !slices.Equal(g.fakes[0].markedSnapshots(), []string{"a"})
	})
	if !slices.Equal(g.fakes[1].markedSnapshots(), []string{"a"}) {
		t.Errorf("the other replica was asked to mark %q", g.fakes[1].markedSnapshots())
	}
}
