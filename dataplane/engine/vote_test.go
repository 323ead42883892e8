package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// Two copies, the witness away: when the second copy's connection breaks everything is held until
// it is back; nobody has to do anything for that. It stores the record without itself, takes part
// in nothing, and comes back through a rebuild of what changed.
func TestReplacedReplicaThatIsBackAgrees(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	b := g.fakes[1]
	g.finish(g.write(0, 1, 4096))
	g.witness.Down = true
	b.script = func(h *wire.Header) (block.Code, bool) {
		if h.Type == wire.Write {
			b.conn.Fail(wire.ErrClosed)
		}
		return block.OK, false
	}
	b.refuses = true
	c := g.write(4096, 2, 4096)
	g.never("acknowledged although b is not back", 10*time.Second, func() bool { return c.done })
	g.expectModes("a=RW b=ERR")
	writes := b.seen(wire.Write)
	b.script, b.refuses = nil, false
	if code := g.finish(c); code != block.OK {
		t.Fatal(code)
	}
	g.until("b is dropped", func() bool { return len(g.state.Record.Members) == 1 })
	g.expectModes("a=RW b=ERR")
	if r := b.record; r == nil || !slices.Equal(r.Members, []string{"a"}) || !slices.Equal(r.Replaces, []string{"b"}) {
		t.Errorf("b has the record %+v", r)
	}
	if b.seen(wire.Write) != writes {
		t.Error("b was written to")
	}
	if code := g.finish(g.write(8192, 3, 4096)); code != block.OK {
		t.Error(code)
	}
	// The record names b no more: it is rebuilt like any other.
	if err := g.ask(func(reply func(error)) any {
		return engine.AddReplica{Address: b.addr(), Reply: reply}
	}); err != nil {
		t.Fatal(err)
	}
	g.until("b is RW", func() bool { return g.modes() == "a=RW b=RW" })
}

// The second copy is lost and removed while the witness is away. Whoever has it removed waits for
// the set without it, as everybody does; when it is back it agrees.
func TestReplicaRemovedWhileItsAgreementIsWaitedFor(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	b := g.fakes[1]
	g.finish(g.write(0, 1, 4096))
	g.witness.Down = true
	b.refuses = true
	b.script = func(h *wire.Header) (block.Code, bool) {
		if h.Type == wire.Write {
			b.conn.Fail(wire.ErrClosed)
		}
		return block.OK, false
	}
	c := g.write(4096, 2, 4096)
	g.until("b is lost", func() bool { return g.modes() == "a=RW b=ERR" })
	removed := 0
	for range 2 { // whoever orders it orders it again
		g.proc.Post(engine.RemoveReplica{Address: b.addr(), Reply: func(err error) {
			if err != nil {
				t.Error(err)
			}
			removed++
		}})
	}
	g.never("acknowledged although b is not back", 10*time.Second, func() bool { return c.done || removed > 0 })
	b.script, b.refuses = nil, false
	if code := g.finish(c); code != block.OK {
		t.Fatal(code)
	}
	g.until("b is removed", func() bool { return removed == 2 && g.modes() == "a=RW" })
}

// A replica is asked for at an address where nobody answers yet, and again when somebody does.
func TestVoterThatIsNotThereYet(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	b := g.fakes[1]
	g.finish(g.write(0, 1, 4096))
	g.witness.Down = true
	b.proc.Kill()
	c := g.write(4096, 2, 4096)
	g.never("acknowledged although b is not back", 10*time.Second, func() bool { return c.done })
	moved := newFake(g, "moved")
	moved.member, moved.record, moved.reply = "b", b.record, wire.HelloReply{Size: g.size}
	add := func(reply func(error)) any { return engine.AddReplica{Address: moved.addr(), Reply: reply} }
	moved.refuses = true
	if err := g.ask(add); !errors.Is(err, engine.ErrBusy) {
		t.Fatal(err)
	}
	g.pass(10 * time.Second)
	moved.refuses = false
	if err := g.ask(add); !errors.Is(err, engine.ErrBusy) {
		t.Fatal(err)
	}
	if code := g.finish(c); code != block.OK {
		t.Fatal(code)
	}
}

// A replica that was started again has another address. Who asks for it to be added is told to try
// again, and by then it has agreed.
func TestReplacedReplicaAgreesFromAnotherAddress(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	b := g.fakes[1]
	g.finish(g.write(0, 1, 4096))
	g.witness.Down = true
	b.proc.Kill()
	c := g.write(4096, 2, 4096)
	g.never("acknowledged although b is not back", 10*time.Second, func() bool { return c.done })
	moved := newFake(g, "moved")
	moved.member, moved.record, moved.reply = "b", b.record, wire.HelloReply{Size: g.size}
	err := g.ask(func(reply func(error)) any { return engine.AddReplica{Address: moved.addr(), Reply: reply} })
	if err == nil || !strings.Contains(err.Error(), "agreed") {
		t.Fatal(err)
	}
	if code := g.finish(c); code != block.OK {
		t.Fatal(code)
	}
	g.until("the link is forgotten", func() bool { return g.modes() == "a=RW b=ERR" })
	if err := g.ask(func(reply func(error)) any {
		return engine.AddReplica{Address: moved.addr(), Reply: reply}
	}); err != nil {
		t.Fatal(err)
	}
}

// One whose record is void or that is an incomplete copy has no say: nobody could start from it.
func TestIncompleteReplicaDoesNotAgree(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	b := g.fakes[1]
	g.finish(g.write(0, 1, 4096))
	g.witness.Down = true
	b.proc.Kill()
	c := g.write(4096, 2, 4096)
	g.until("b is dropped", func() bool { return g.modes() == "a=RW b=ERR" })
	b.record, b.reply.Rebuilding = nil, true
	again := newFake(g, "moved")
	again.member, again.reply = "b", wire.HelloReply{Size: g.size, Rebuilding: true}
	g.proc.Post(engine.AddReplica{Address: again.addr(), Reply: func(error) {}})
	g.never("acknowledged", 10*time.Second, func() bool { return c.done || again.record != nil })
	g.witness.Down = false
	if code := g.finish(c); code != block.OK {
		t.Error(code)
	}
}
