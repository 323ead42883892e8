package engine_test

import (
	"bytes"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// A region in which a write has failed is read from one replica until that one is dropped, whoever
// joins meanwhile and whatever place among the engine's replicas the joiner takes.
func TestTornRegionIsReadFromOneReplica(t *testing.T) {
	g := newRig(t, 3, 8*mib).start()
	a, b, c := g.fakes[0], g.fakes[1], g.fakes[2]
	g.finish(g.write(0, 1, 4096))
	if err := g.ask(func(reply func(error)) any {
		return engine.RemoveReplica{Address: a.addr(), Reply: reply}
	}); err != nil {
		t.Fatal(err)
	}
	g.until("a's place is free", func() bool { return g.modes() == "b=RW c=RW" })
	b.script, c.script, b.keepsFailed = answerWith(wire.Write, block.NoSpace), answerWith(wire.Write, block.NoSpace), true
	if code := g.finish(g.write(0, 2, 4096)); code != block.NoSpace {
		t.Fatal(code)
	}
	expect := func(when string, want byte) {
		t.Helper()
		for range 4 {
			if r, code := g.read(0, 4096); code != block.OK || !bytes.Equal(r.data, bytes.Repeat([]byte{want}, 4096)) {
				t.Fatalf("%s: read %d (%s), want %d", when, r.data[0], code, want)
			}
		}
	}
	expect("after the write that failed", 2)
	b.script = holding(wire.Read) // so that c has less to do and is what x is copied from
	r := g.begin(block.Read, 1*mib, 4096, make([]byte, 4096))
	g.until("b is asked", func() bool { return len(b.held) > 0 })
	x := g.add("x")
	g.until("it is copied from c", func() bool { return x.seen(wire.LayerWrite)+c.seen(wire.LayerRead) > 0 })
	b.script = answerWith(wire.Write, block.NoSpace)
	b.let(0)
	g.finish(r)
	g.until("x is RW", func() bool { return g.modes() == "x=RW b=RW c=RW" })
	if got := x.read(0, 1)[0]; got != 1 {
		t.Fatalf("x holds %d: it was not copied from c", got)
	}
	expect("with x in the lower place", 2)
	c.script = nil
	for _, f := range []*fake{b, c, x} {
		f.script = nil
	}
	g.finish(g.write(4096, 3, 4096)) // there is space again: the others get what was read
	g.until("repaired", func() bool { return g.state.Torn == 0 })
	for _, f := range []*fake{b, c, x} {
		if got := f.read(0, 4096); !bytes.Equal(got, bytes.Repeat([]byte{2}, 4096)) {
			t.Errorf("%s holds %d, want 2", f.name, got[0])
		}
	}
	b.proc.Kill()
	g.until("b is dropped", func() bool { return g.modes() == "x=RW b=ERR c=RW" })
	expect("from the others", 2)
}

// TestFailedWritesHaveOneOutcome plays random histories in which writes fail on all replicas, and
// some of these have them all the same, while others are added: what a failed write has become is
// the same for all who read it.
func TestFailedWritesHaveOneOutcome(t *testing.T) {
	for seed := range uint64(200) {
		h := newHistory(t, seed, 3)
		h.failing, h.late = true, 2
		h.drop(h.fakes[0]) // a joiner gets a lower place
		h.w.Until(time.Second, func() bool { return false })
		for range 150 {
			h.one()
			h.pass()
		}
		if err := h.end(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
