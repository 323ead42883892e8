package engine_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// The source of a rebuild is lost while pieces wait for memory: they are not read from its place
// any more, whoever has it then.
func TestSourceLostWhilePiecesWaitForMemory(t *testing.T) {
	for name, c := range map[string]struct{ remove bool }{"it is known as lost": {}, "it was removed": {remove: true}} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 2, 64*mib)
			g.memory = engine.MinArena
			g.start()
			for i := range int64(16) {
				g.finish(g.write(i*mib, byte(i+1), mib))
			}
			reads := holding(wire.LayerRead)
			for _, f := range g.fakes {
				f.script, f.joined = reads, true
			}
			x := newFake(g, "x")
			g.proc.Post(engine.AddReplica{Address: x.addr(), Reply: func(error) {}})
			source, other := g.fakes[0], g.fakes[1]
			g.until("a piece is read", func() bool {
				if len(other.held) > 0 {
					source, other = other, source
				}
				return len(source.held) > 0
			})
			other.script = nil
			if c.remove {
				if err := g.ask(func(reply func(error)) any {
					return engine.RemoveReplica{Address: source.addr(), Reply: reply}
				}); err != nil {
					t.Fatal(err)
				}
			} else {
				source.proc.Kill()
			}
			g.until("the rebuild goes on from the other", func() bool { return strings.Contains(g.modes(), "x=RW") })
			for i := range int64(16) {
				g.finish(g.write(i*mib, byte(i+1), 4096))
				if !bytes.Equal(x.read(i*mib, mib), other.read(i*mib, mib)) {
					t.Errorf("x differs at %d", i*mib)
				}
			}
		})
	}
}

// A replica gets a place among the engine's replicas in which another one was, while a flush is
// under way that was asked of that one: it is not taken for who has not flushed.
func TestJoinerIsNotTakenForWhoWasThere(t *testing.T) {
	g := newRig(t, 2, 8*mib).start()
	a, b := g.fakes[0], g.fakes[1]
	g.finish(g.write(0, 1, 4096))
	a.script, b.script = holding(wire.Flush), holding(wire.Flush)
	flush := g.begin(block.Flush, 0, 0, nil)
	g.until("both flush", func() bool { return len(a.held) > 0 && len(b.held) > 0 })
	if err := g.ask(func(reply func(error)) any {
		return engine.RemoveReplica{Address: a.addr(), Reply: reply}
	}); err != nil {
		t.Fatal(err)
	}
	x := newFake(g, "x")
	g.proc.Post(engine.AddReplica{Address: x.addr(), Reply: func(error) {}})
	g.until("x takes writes", func() bool {
		return strings.Contains(g.modes(), "x=WO") || strings.Contains(g.modes(), "x=RW")
	})
	b.release()
	if code := g.finish(flush); code != block.OK {
		t.Error(code)
	}
	g.until("x has joined", func() bool { return strings.Contains(g.modes(), "x=RW") })
}

// Who greets with the name of a member and then is not let in is not that member: nothing becomes
// of it.
func TestStrangerWithAMembersName(t *testing.T) {
	g := newRig(t, 2, 8*mib).start()
	a, b := g.fakes[0], g.fakes[1]
	g.finish(g.write(0, 1, 4096))
	x := newFake(g, "x")
	x.member, x.promised = "b", 1<<62 // it refuses the hello
	if err := g.ask(func(reply func(error)) any {
		return engine.AddReplica{Address: x.addr(), Reply: reply}
	}); err == nil {
		t.Fatal("it was let in")
	}
	g.never("the set has changed", time.Second, func() bool { return len(g.state.Record.Members) != 2 })
	a.proc.Kill()
	if code := g.finish(g.write(4096, 2, 4096)); code != block.OK {
		t.Error(code)
	}
	if got := b.read(4096, 1)[0]; got != 2 {
		t.Errorf("b holds %d", got)
	}
}

// An AddReplica that is refused changes nothing.
func TestRefusedAddForgetsNobody(t *testing.T) {
	g := newRig(t, 2, 8*mib).start()
	a, b := g.fakes[0], g.fakes[1]
	b.proc.Kill()
	g.finish(g.write(0, 1, 4096))
	g.until("b is dropped", func() bool { return len(g.state.Record.Members) == 1 && g.modes() == "a=RW b=ERR" })
	a.script = holding(wire.Control)
	g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(error) {}})
	g.until("the snapshot is asked for", func() bool { return len(a.held) > 0 })
	if err := g.ask(func(reply func(error)) any {
		return engine.AddReplica{Address: b.addr(), Reply: reply}
	}); !errors.Is(err, engine.ErrState) {
		t.Fatal(err)
	}
	g.never("b is forgotten", time.Second, func() bool { return g.modes() != "a=RW b=ERR" })
}

// A replica that has told its hash is removed before the others have: mending goes on without it.
func TestReplicaRemovedWhileARegionIsRepaired(t *testing.T) {
	g := newRig(t, 2, 8*mib).start()
	a, b := g.fakes[0], g.fakes[1]
	a.script, b.script, b.keepsFailed = answerWith(wire.Write, block.NoSpace), answerWith(wire.Write, block.NoSpace), true
	if code := g.finish(g.write(0, 2, 4096)); code != block.NoSpace {
		t.Fatal(code)
	}
	a.script, b.script = nil, holding(wire.Hash)
	g.finish(g.write(mib, 3, 4096))
	g.until("it is being repaired", func() bool { return len(b.held) > 0 && a.seen(wire.Hash) > 0 })
	if err := g.ask(func(reply func(error)) any {
		return engine.RemoveReplica{Address: a.addr(), Reply: reply}
	}); err != nil {
		t.Fatal(err)
	}
	b.release()
	g.until("b is what the volume is", func() bool { return g.state.Torn == 0 })
	if r, code := g.read(0, 4096); code != block.OK || r.data[0] != 2 {
		t.Errorf("%d, %s", r.data[0], code)
	}
}
