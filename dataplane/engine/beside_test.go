package engine_test

import (
	"bytes"
	"errors"
	"runtime/debug"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
)

// holdControl keeps one kind of control message unanswered.
func holdControl(which func(q *wire.ControlRequest) bool) func(q *wire.ControlRequest) (block.Code, bool) {
	return func(q *wire.ControlRequest) (block.Code, bool) { return block.OK, which(q) }
}

// Nobody is let in while the content is replaced: who comes meanwhile comes afterwards.
func TestAttachWaitsForARevert(t *testing.T) {
	g := newRig(t, 2, 16*mib)
	g.offline = true
	g.start()
	b := g.fakes[1]
	b.judge = holdControl(func(q *wire.ControlRequest) bool { return q.Revert != nil && !q.Check })
	var reverted, attached bool
	g.proc.Post(engine.Revert{Name: "s", Reply: func(error) { reverted = true }})
	g.until("b is asked", func() bool { return len(b.held) > 0 })
	g.proc.Post(engine.AttachFrontend{Frontend: g.front, Reply: func(err error) {
		if attached = true; err != nil {
			t.Error(err)
		}
	}})
	g.never("somebody sees the content change", time.Second, func() bool { return attached })
	b.judge = nil
	b.release()
	g.until("both are answered", func() bool { return reverted && attached })
	if _, code := g.read(0, 4096); code != block.OK {
		t.Error(code)
	}
}

// The same when it is the mark of an import that is being made, and the import is cancelled.
func TestAttachWaitsForTheMarkOfAnImport(t *testing.T) {
	g := newCloneRig(t, 1, 2, scrubSize)
	var began, attached error
	done := 0
	s, err := g.grant("b")
	if err != nil {
		t.Fatal(err)
	}
	g.to.proc.Post(engine.Clone{From: s, Name: "copy", Reply: func(err error) { began = err; done++ }})
	g.to.until("the mark is being made", func() bool { return g.to.mark() != "" })
	if g.to.state.Import == nil || done > 0 {
		t.Fatal("it is made already")
	}
	g.to.proc.Post(engine.CancelClone{Reply: func(error) {}})
	g.to.proc.Post(engine.AttachFrontend{Frontend: g.to.front, Reply: func(err error) { attached = err; done++ }})
	g.to.until("both are answered", func() bool { return done == 2 })
	if attached == nil || began == nil {
		t.Errorf("an incomplete clone is offered: %v; the clone: %v", attached, began)
	}
}

// A sector that a disk could not read is not written again once a write there has failed: what it
// is to hold is another question.
func TestUnreadableSectorOfATornRegionStays(t *testing.T) {
	g := newRig(t, 2, 8*mib).start()
	a, b := g.fakes[0], g.fakes[1]
	g.finish(g.write(0, 1, 4096))
	full := answerWith(wire.Write, block.NoSpace)
	unreadable := func(h *wire.Header) (block.Code, bool) {
		if h.Type == wire.Read {
			return block.IOError, true
		}
		return full(h)
	}
	a.script, b.script = unreadable, func(h *wire.Header) (block.Code, bool) {
		code, _ := full(h)
		return code, h.Type == wire.Read
	}
	a.keepsFailed = true // so a has the write that fails, b has not
	r := g.begin(block.Read, 0, 4096, make([]byte, 4096))
	g.until("one is asked", func() bool { return len(a.held)+len(b.held) > 0 })
	if len(a.held) == 0 { // replicas take turns
		b.let(0)
		g.finish(r)
		r = g.begin(block.Read, 0, 4096, make([]byte, 4096))
		g.until("a is asked", func() bool { return len(a.held) > 0 })
	}
	a.let(0)
	g.until("b is asked instead", func() bool { return len(b.held) > 0 })
	w := g.write(0, 2, 4096)
	after := g.begin(block.Read, 0, 4096, make([]byte, 4096))
	g.pass(time.Millisecond)
	a.script, b.script = full, full
	b.let(0)
	if code := g.finish(r); code != block.OK {
		t.Fatal(code)
	}
	if code := g.finish(w); code != block.NoSpace {
		t.Fatal(code)
	}
	if code := g.finish(after); code != block.OK {
		t.Fatal(code)
	}
	a.script, b.script = nil, nil
	g.pass(time.Second)
	for range 4 {
		if again, code := g.read(0, 4096); code != block.OK || !bytes.Equal(again.data, after.data) {
			t.Fatalf("read %d (%s), and %d before", again.data[0], code, after.data[0])
		}
	}
}

// What a write that failed has left different is made the same before the volume is left to
// another engine, whose choice would be another one, or the volume stays.
func TestLeaveOfATornRegion(t *testing.T) {
	g := newRig(t, 2, 8*mib)
	g.giving = &giving{}
	g.start()
	a, b := g.fakes[0], g.fakes[1]
	g.finish(g.write(0, 1, 4096))
	full := answerWith(wire.Write, block.NoSpace)
	a.script, b.script, b.keepsFailed = full, full, true
	if code := g.finish(g.write(0, 2, 4096)); code != block.NoSpace {
		t.Fatal(code)
	}
	before, _ := g.read(0, 4096)
	if _, left, err := g.leave("a", "b"); left != nil || !errors.Is(err, engine.ErrState) {
		t.Errorf("left %+v, %v", left, err)
	}
	if again, code := g.read(0, 4096); code != block.OK || !bytes.Equal(again.data, before.data) {
		t.Errorf("afterwards: %d, %s", again.data[0], code)
	}
	a.script, b.script, g.giving.suspended = nil, nil, false
	if _, left, err := g.leave("a", "b"); left == nil || err != nil {
		t.Fatal(err)
	}
	for _, f := range g.fakes {
		if got := f.read(0, 4096); !bytes.Equal(got, before.data) || len(f.marked) > 0 {
			t.Errorf("%s holds %d, with %d marks; what was read is %d", f.name, got[0], len(f.marked), before.data[0])
		}
	}
}

// A replica that has answered a start and is lost before the others have answered counts once.
func TestReplicaLostWhileOthersAreGathered(t *testing.T) {
	g := newRig(t, 3, 8*mib)
	a, c := g.fakes[0], g.fakes[2]
	g.start()
	g.finish(g.write(0, 1, 4096))
	g.proc.Kill()
	g.state = engine.State{}
	for _, f := range g.fakes {
		f.reply.Blank = false
	}
	c.slowHello = true
	g.launch()
	g.until("two have answered", func() bool { return a.hellos > 1 && c.hellos > 1 && g.fakes[1].hellos > 1 })
	g.pass(100 * time.Millisecond)
	a.proc.Kill()
	g.never("it begins without c", 2*time.Second, func() bool { return g.state.Serving })
	c.release()
	g.until("engine serves", func() bool { return g.state.Serving })
	g.until("a is dropped", func() bool { return len(g.state.Record.Members) == 2 })
	g.expectModes("a=ERR b=RW c=RW")
}

// A clone that is cancelled while it connects leaves no session with its source.
func TestCancelledCloneLeavesNoSession(t *testing.T) {
	g := newCloneRig(t, 1, 1, scrubSize)
	before := g.to.arena.InUse()
	for range 5 {
		s, err := g.grant("b")
		if err != nil {
			t.Fatal(err)
		}
		answers := 0
		g.to.proc.Post(engine.Clone{From: s, Name: "copy", Reply: func(error) { answers++ }})
		g.to.proc.Post(engine.CancelClone{Reply: func(error) { answers++ }})
		g.to.until("answered", func() bool { return answers == 2 })
	}
	g.to.pass(time.Minute)
	if n := g.to.arena.InUse(); n != before {
		t.Errorf("%d bytes are used, %d before", n, before)
	}
}

// While a live upgrade is waited for or under way nothing new begins.
func TestNothingBeginsWhileAnEngineLeaves(t *testing.T) {
	messages := map[string]func(reply func(error)) any{
		"a scrub":   func(reply func(error)) any { return engine.Scrub{Mode: engine.ScrubEnabled, Reply: reply} },
		"a rebuild": func(reply func(error)) any { return engine.AddReplica{Address: "new:10", Reply: reply} },
		"a purge":   func(reply func(error)) any { return engine.PurgeSnapshots{Reply: reply} },
		"another option": func(reply func(error)) any {
			return engine.SetOptions{RebuildConcurrency: new(int), Reply: reply}
		},
		"a clone": func(reply func(error)) any {
			return engine.Clone{From: engine.CloneSource{Replicas: []string{"x:10"}, VolumeUUID: "other", Key: []byte("k"),
				Grant: wire.Grant{For: volumeUUID, Snapshot: "s"}}, Name: "s", Reply: reply}
		},
	}
	for name, message := range messages {
		for _, stage := range []string{"waited for", "mending", "draining", "released"} {
			if name == "another option" && stage != "released" {
				continue // what the new engine gets is not made up yet
			}
			if (name == "a clone" || name == "a purge") && stage == "waited for" {
				continue // a purge is what is waited for
			}
			t.Run(name+" "+stage, func(t *testing.T) {
				g := newRig(t, 2, 16*mib)
				g.giving = &giving{}
				g.start()
				newFake(g, "new")
				if stage == "mending" {
					for _, f := range g.fakes {
						f.script = answerWith(wire.Write, block.NoSpace)
					}
					g.finish(g.write(0, 1, 4096))
					for _, f := range g.fakes {
						f.script = holding(wire.Hash)
					}
				}
				if name == "a clone" {
					if err := g.ask(func(reply func(error)) any { return engine.DetachFrontend{Reply: reply} }); err != nil {
						t.Fatal(err)
					}
				}
				switch stage {
				case "waited for":
					g.fakes[0].pieces, g.fakes[1].pieces = 10, 10
					g.fakes[0].judge = holdControl(func(q *wire.ControlRequest) bool { return q.Purge != nil && !q.Purge.Begin })
					if err := g.purge(false); err != nil {
						t.Fatal(err)
					}
					g.until("a piece is under way", func() bool { return len(g.fakes[0].held) > 0 })
				case "draining":
					// A request of somebody else is under way.
					g.fakes[0].judge = holdControl(func(q *wire.ControlRequest) bool { return q.HashLock != nil })
					g.proc.Post(engine.HashLocks{Reply: func(map[string]bool, error) {}})
					g.until("it is asked", func() bool { return len(g.fakes[0].held) > 0 })
				case "released":
					g.fakes[0].judge = holdControl(func(q *wire.ControlRequest) bool { return q.Release != nil })
				}
				h := g.asks("a", "b")
				g.until("it is there", func() bool {
					return stage == "waited for" || (h.draining || stage == "mending") && len(g.fakes[0].held) > 0
				})
				if err := g.ask(message); !errors.Is(err, engine.ErrState) {
					t.Errorf("accepted, or tried: %v", err)
				}
				for _, f := range g.fakes {
					f.judge = nil
					f.release()
				}
				g.until("it has left", func() bool { return h.done })
				if h.err != nil {
					t.Error(h.err)
				}
			})
		}
	}
}

// A second request for an expansion says nothing about the one under way.
func TestExpansionUnderWayIsTold(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	b := g.fakes[1]
	b.judge = holdControl(func(q *wire.ControlRequest) bool { return q.Expand != nil && !q.Check })
	expand := func(reply func(error)) any { return engine.Expand{Size: 32 * mib, Created: "now", Reply: reply} }
	done := false
	g.proc.Post(expand(func(err error) { done = err == nil }))
	g.until("b is asked", func() bool { return len(b.held) > 0 })
	if err := g.ask(expand); !errors.Is(err, engine.ErrState) {
		t.Error(err)
	}
	g.pass(time.Second)
	if x := g.state.Expansion; !x.Running || x.Error != "" {
		t.Errorf("%+v", x)
	}
	b.release()
	g.until("it is over", func() bool { return done && !g.state.Expansion.Running })
}

// A replica that is lost while a purge pauses purges no more.
func TestPurgeOfALostReplicaEnds(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	a, b := g.fakes[0], g.fakes[1]
	a.pieces, b.pieces = 100000, 100000
	a.judge = holdControl(func(q *wire.ControlRequest) bool { return q.Snapshot != nil })
	begun := false
	g.proc.Post(engine.PurgeSnapshots{Reply: func(error) { begun = true }})
	g.until("both have begun", func() bool { return begun && g.purging() })
	g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(error) {}})
	g.until("the purge pauses", func() bool { return len(a.held) > 0 })
	g.pass(100 * time.Millisecond)
	b.proc.Kill()
	g.until("b is dropped", func() bool { return g.modes() == "a=RW b=ERR" })
	a.judge, a.pieces = nil, 1
	a.release()
	g.until("nobody purges", func() bool { return !g.purging() })
}

// When one replica is left there is nothing to compare, and nobody is kept waiting for it.
func TestResyncEndsWithTheLastButOne(t *testing.T) {
	g := newRig(t, 2, 64*mib)
	a, b := g.fakes[0], g.fakes[1]
	for _, f := range g.fakes {
		f.reply = wire.HelloReply{Size: g.size, DirtyAll: true}
		f.record = &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1000, Generation: 1, Members: []string{"a", "b"},
			Agreed: true}
	}
	if _, ok, err := g.witness.Swap(quorum.WitnessRecord{}, quorum.WitnessRecord{Epoch: 1000, Engine: "old",
		Record: quorum.Record{Epoch: 1000, Generation: 1, Members: []string{"a", "b"}}}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	b.script = holding(wire.Hash)
	g.launch()
	g.until("they are compared", func() bool { return len(b.held) > 0 })
	g.pass(100 * time.Millisecond) // what was asked of both has come to both
	asked := a.seen(wire.Hash)
	b.proc.Kill()
	g.until("engine serves", func() bool { return g.state.Serving })
	if n := a.seen(wire.Hash); n > asked {
		t.Errorf("%d hashes were asked of the one that is left", n-asked)
	}
}

// A clone that keeps to no budget loses its source while pieces are under way: it goes on from the
// other one, at every stage.
func TestCloneWithoutABudgetLosesItsSource(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(32 << 20)) // a call without end is noticed soon
	for name, there := range map[string]func(s *engine.Importing) bool{
		"copying":   func(s *engine.Importing) bool { return s.Total > 0 },
		"comparing": func(s *engine.Importing) bool { return s.Total > 0 && s.Done == s.Total },
	} {
		t.Run(name, func(t *testing.T) {
			g := newCloneRig(t, 2, 2, scrubSize)
			if err := g.begin("b", nil); err != nil {
				t.Fatal(err)
			}
			g.to.until("it is there", func() bool { return g.to.state.Import != nil && there(g.to.state.Import) })
			from := g.to.state.Import.From
			for _, r := range g.v.Replicas {
				if r.Addr() == from {
					r.Kill()
				}
			}
			g.to.ended()
			if s := g.to.state.Import; s.State != "complete" || s.From == from {
				t.Errorf("%+v", s)
			}
		})
	}
}
