package engine_test

import (
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// A replica that never answers a request of the engine's own, while it answers reads, keeps writes
// waiting: those to a range that is being compared, to a region whose mark is being taken away, or
// all of them. It is dropped, and the writes are acknowledged without it.
func TestReplicaThatKeepsWritesWaitingIsDropped(t *testing.T) {
	asks := func(is func(q *wire.ControlRequest) bool) func(f *fake) {
		return func(f *fake) {
			f.judge = func(q *wire.ControlRequest) (block.Code, bool) { return block.OK, is(q) }
		}
	}
	for name, c := range map[string]struct {
		hang func(f *fake)
		// begin makes the engine ask, and returns a request that waits for the answer.
		begin func(g *rig) *call
	}{
		"snapshot": {
			hang:  asks(func(q *wire.ControlRequest) bool { return q.Snapshot != nil && !q.Check }),
			begin: func(g *rig) *call { return g.snapshotThen() },
		},
		"check of a snapshot": {
			hang:  asks(func(q *wire.ControlRequest) bool { return q.Snapshot != nil }),
			begin: func(g *rig) *call { return g.snapshotThen() },
		},
		"marks are taken away": {
			hang: asks(func(q *wire.ControlRequest) bool { return q.ClearDirty != nil }),
			begin: func(g *rig) *call {
				g.finish(g.write(0, 1, 4096))
				g.finish(g.begin(block.Flush, 0, 0, nil))
				f := g.fakes[1]
				for range 3 * 60 { // marks expire after a minute
					if len(f.held) > 0 {
						break
					}
					g.second()
				}
				return g.write(0, 2, 4096)
			},
		},
		"comparison in a rebuild": {
			hang:  func(f *fake) { f.script = holding(wire.Hash) },
			begin: func(g *rig) *call { return g.rebuildThen() },
		},
		"copy in a rebuild": {
			hang:  func(f *fake) { f.script = holding(wire.LayerHash) },
			begin: func(g *rig) *call { return g.rebuildThen() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 3, 16*mib).start()
			g.finish(g.write(0, 9, mib))
			c.hang(g.fakes[1])
			w := c.begin(g)
			g.until("it is asked", func() bool { return len(g.fakes[1].held) > 0 })
			for n := 0; !w.done; n++ {
				if n == 100 {
					t.Fatalf("the write waits after %d s; replicas %s", n, g.modes())
				}
				for range 3 { // reads take turns: all three are heard
					if _, code := g.read(8*mib, 4096); code != block.OK {
						t.Fatalf("read: %s", code)
					}
				}
				g.second()
			}
			if w.code != block.OK || g.count(engine.RW) < 2 {
				t.Errorf("write: %s; replicas %s", w.code, g.modes())
			}
		})
	}
}

// snapshotThen begins a snapshot and a write behind it.
func (g *rig) snapshotThen() *call {
	g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(error) {}})
	g.until("the snapshot is asked for", func() bool { return len(g.fakes[1].held) > 0 })
	return g.write(0, 2, 4096)
}

// rebuildThen adds a replica that knows nothing of its content, so that it is compared with b, and
// writes where it is compared.
func (g *rig) rebuildThen() *call {
	b := g.fakes[1]
	script := b.script
	b.script = nil
	for _, f := range g.fakes { // all but b have something to do when the source is chosen
		if f != b {
			f.script = holding(wire.Read)
		}
	}
	for range 6 {
		g.begin(block.Read, 12*mib, 4096, make([]byte, 4096))
	}
	g.until("the others are reading", func() bool {
		return len(g.fakes[0].held) > 1 && len(g.fakes[2].held) > 1
	})
	b.script = script
	x := newFake(g, "x")
	x.reply.Blank = false
	x.write(0, make([]byte, 4096))
	g.proc.Post(engine.AddReplica{Address: x.addr(), Reply: func(error) {}})
	g.until("b is asked", func() bool { return len(b.held) > 0 })
	g.fakes[0].release()
	g.fakes[2].release()
	return g.write(0, 2, 4096)
}

// A replica that is at work on something whose length the size of the volume decides, and says so
// when it is asked, is waited for: it is not silent.
func TestReplicaAtWorkIsNotSilent(t *testing.T) {
	const length = 3 * replicaTimeout
	late := func(g *rig, f *fake, is func(q *wire.ControlRequest) bool) {
		f.judge = func(q *wire.ControlRequest) (block.Code, bool) {
			if !is(q) {
				return block.OK, false
			}
			n := len(f.held)
			g.w.After(length, func() {
				f.judge = nil
				f.let(n)
			})
			return block.OK, true
		}
	}
	t.Run("revert", func(t *testing.T) {
		g := newRig(t, 2, 16*mib)
		g.offline = true
		g.start()
		for _, f := range g.fakes {
			late(g, f, func(q *wire.ControlRequest) bool { return q.Revert != nil && !q.Check })
		}
		if err := g.ask(func(reply func(error)) any { return engine.Revert{Name: "s", Reply: reply} }); err != nil {
			t.Error(err)
		}
		g.expectModes("a=RW b=RW")
	})
	t.Run("rebuild", func(t *testing.T) {
		g := newRig(t, 1, 16*mib).start()
		g.finish(g.write(0, 1, 4096))
		x := newFake(g, "x")
		late(g, x, func(q *wire.ControlRequest) bool { return q.BeginRebuild != nil })
		g.proc.Post(engine.AddReplica{Address: x.addr(), Reply: func(error) {}})
		g.until("x is rebuilt or given up", func() bool {
			return g.modes() == "a=RW x=RW" || g.count(engine.ERR) > 0
		})
		g.expectModes("a=RW x=RW")
	})
	t.Run("scrub", func(t *testing.T) {
		g := newRig(t, 2, 16*mib).start()
		for _, f := range g.fakes {
			f.layers = []wire.Layer{{Name: "s", Size: 16 * mib}}
			late(g, f, func(q *wire.ControlRequest) bool { return q.OpenView != nil })
		}
		if err := g.ask(func(reply func(error)) any {
			return engine.Scrub{Mode: engine.ScrubEnabled, Reply: reply}
		}); err != nil {
			t.Fatal(err)
		}
		g.until("the scrub ends", func() bool { return g.state.Scrub != nil && !g.state.Scrub.Running })
		g.expectModes("a=RW b=RW")
	})
	t.Run("for ever", func(t *testing.T) {
		g := newRig(t, 2, 16*mib)
		g.offline = true
		g.start()
		f := g.fakes[1]
		f.judge = func(q *wire.ControlRequest) (block.Code, bool) {
			return block.OK, q.Revert != nil && !q.Check
		}
		done := false
		g.proc.Post(engine.Revert{Name: "s", Reply: func(error) { done = true }})
		for range 20 {
			g.never("b is dropped early", 10*time.Second, func() bool { return g.modes() != "a=RW b=RW" })
		}
		for range 30 {
			if done {
				break
			}
			g.w.Until(time.Minute, func() bool { return done })
		}
		if !done || g.modes() != "a=RW b=ERR" {
			t.Errorf("a revert that b never ends: answered %v, replicas %s", done, g.modes())
		}
	})
}
