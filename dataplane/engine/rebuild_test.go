package engine_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// add asks the engine to take a new replica in.
func (g *rig) add(name string) *fake {
	g.t.Helper()
	f := newFake(g, name)
	g.proc.Post(engine.AddReplica{Address: f.addr(), Reply: func(err error) {
		if err != nil {
			g.t.Error(err)
		}
	}})
	return f
}

// A rebuild sends no more per second than its budget allows, and the budget can be changed while it
// runs.
func TestRebuildKeepsItsBudget(t *testing.T) {
	g := newRig(t, 1, 8*mib).start()
	g.finish(g.write(0, 1, mib))
	g.proc.Post(engine.SetRebuildBudget{BytesPerSecond: 64 << 10})
	began := g.w.Now()
	x := g.add("x")
	g.until("a part is copied", func() bool { return x.seen(wire.LayerWrite) >= 64 })
	if took := g.w.Now().Sub(began); took < 3*time.Second {
		t.Errorf("256 KiB with 64 KiB a second took %s", took)
	}
	g.proc.Post(engine.SetRebuildBudget{})
	began = g.w.Now()
	g.until("x is RW", func() bool { return g.modes() == "a=RW x=RW" })
	if took := g.w.Now().Sub(began); took > 3*time.Second {
		t.Errorf("the rest without a budget took %s", took)
	}
}

// A budget that is raised holds at once for what the old one has charged too, and what was sent
// counts against the new one, however often it is changed.
func TestRebuildBudgetIsRaised(t *testing.T) {
	begin := func(t *testing.T, budget int64) (*rig, *fake) {
		g := newRig(t, 1, 8*mib).start()
		g.fakes[0].joined = true // pieces as large as they get
		for i := range int64(8) {
			g.finish(g.write(i*mib, 1, mib))
		}
		g.proc.Post(engine.SetRebuildBudget{BytesPerSecond: budget})
		x := g.add("x")
		g.until("a piece is copied", func() bool { return x.seen(wire.LayerWrite) > 0 })
		return g, x
	}
	set := func(g *rig, options bool, budget int64) {
		if options {
			g.proc.Post(engine.SetOptions{RebuildBudget: &budget, Reply: func(error) {}})
			return
		}
		g.proc.Post(engine.SetRebuildBudget{BytesPerSecond: budget})
	}
	for _, budget := range []int64{0, 8 * mib} {
		for _, options := range []bool{false, true} {
			for _, before := range []int64{10, 1 << 10} {
				g, _ := begin(t, before)
				set(g, options, budget)
				began := g.w.Now()
				g.until("x is RW", func() bool { return g.modes() == "a=RW x=RW" })
				if took := g.w.Now().Sub(began); took > 3*time.Second {
					t.Errorf("from %d to %d bytes a second, by options %v: took %s", before, budget, options, took)
				}
			}
		}
	}
	g, x := begin(t, mib)
	began := g.w.Now()
	for i := int64(0); g.w.Now().Sub(began) < 3*time.Second; i++ {
		set(g, i%2 == 0, mib+i%2)
		g.w.Until(50*time.Millisecond, func() bool { return false })
	}
	if n := x.seen(wire.LayerWrite); n > 5 {
		t.Errorf("%d pieces of 1 MiB in 3 s at 1 MiB a second, set again and again", n)
	}
	g.until("x is RW", func() bool { return g.modes() == "a=RW x=RW" })
}

// Removing the target ends its rebuild at once and touches nobody else.
func TestRebuildIsCancelled(t *testing.T) {
	g := newRig(t, 1, 8*mib).start()
	g.finish(g.write(0, 1, 8192))
	x := g.add("x")
	x.script = holding(wire.LayerWrite)
	g.until("rebuild copies", func() bool { return len(x.held) > 0 })
	if err := g.ask(func(reply func(error)) any {
		return engine.RemoveReplica{Address: x.addr(), Reply: reply}
	}); err != nil {
		t.Fatal(err)
	}
	g.until("x is gone", func() bool { return g.modes() == "a=RW" })
	if code := g.finish(g.write(0, 2, 512)); code != block.OK {
		t.Error(code)
	}
}

// A source that fails midway is followed by another one, by its connection or by an answer; without
// another the rebuild ends and says why.
func TestSourceFailsMidway(t *testing.T) {
	for name, fail := range map[string]func(f *fake){
		"lost":       func(f *fake) { f.proc.Kill() },
		"bad answer": func(f *fake) { f.script = answerWith(wire.LayerRead, block.IOError); f.releaseWith(block.IOError) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 2, 8*mib).start()
			g.finish(g.write(0, 1, mib))
			for _, f := range g.fakes {
				f.script = holding(wire.LayerRead)
			}
			x := g.add("x")
			g.until("rebuild reads", func() bool { return len(g.fakes[0].held)+len(g.fakes[1].held) > 0 })
			source, other := g.fakes[0], g.fakes[1]
			if len(other.held) > 0 {
				source, other = other, source
			}
			other.script = nil
			fail(source)
			g.until("x is RW", func() bool { return strings.Contains(g.modes(), "x=RW") })
			if !bytes.Equal(x.read(0, mib), other.read(0, mib)) {
				t.Error("x differs")
			}
		})
	}
}

// releaseWith answers what was held with code.
func (f *fake) releaseWith(code block.Code) {
	f.heldCode = code
	held := f.held
	f.held = nil
	for _, h := range held {
		f.proc.Post(h)
	}
}
