package engine_test

import (
	"bytes"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

const region = engine.DirtyRegion

// fullLogRig is a volume whose log has room for four regions, in each of which a write has failed
// and replicas differ: a has it.
func fullLogRig(t *testing.T) *rig {
	g := newRig(t, 2, 16*region)
	g.log = engine.LogBounds{Max: 4, High: 3, Low: 2}
	g.start()
	a, b := g.fakes[0], g.fakes[1]
	a.script, b.script, a.keepsFailed = answerWith(wire.Write, block.NoSpace), answerWith(wire.Write, block.NoSpace), true
	for i := range int64(4) {
		if code := g.finish(g.write(i*region, byte(i+1), 4096)); code != block.NoSpace {
			t.Fatal(code)
		}
	}
	return g
}

// A log that is full of regions in which writes have failed makes room by repairing any of them:
// that there is no space for one says nothing about the others.
func TestFullLogGoesOnToOtherTornRegions(t *testing.T) {
	for left := range int64(4) { // the only region that can be repaired
		g := fullLogRig(t)
		a, b := g.fakes[0], g.fakes[1]
		a.script = nil
		b.script = func(h *wire.Header) (block.Code, bool) {
			if h.Type == wire.Write && h.Off < 4*region && h.Off/region != left {
				return block.NoSpace, false
			}
			return block.OK, false
		}
		if code := g.finish(g.write(8*region, 9, 4096)); code != block.OK {
			t.Errorf("region %d can be repaired: a write to a new one: %s", left, code)
		}
		if got := b.read(left*region, 1)[0]; got != byte(left+1) {
			t.Errorf("region %d: b has %d", left, got)
		}
		g.expectModes("a=RW b=RW")
	}
}

// A region that is written to all the time keeps a full log neither from being swept nor from
// telling that there is no space.
func TestFullLogWithABusyRegion(t *testing.T) {
	for _, tt := range []struct {
		name string
		room bool
		want block.Code
	}{{"and room to repair the others", true, block.OK}, {"and none", false, block.NoSpace}} {
		t.Run(tt.name, func(t *testing.T) {
			g := fullLogRig(t)
			a, b := g.fakes[0], g.fakes[1]
			a.script = func(h *wire.Header) (block.Code, bool) { return block.OK, h.Type == wire.Write && h.Off == 4096 }
			b.script = func(h *wire.Header) (block.Code, bool) {
				if !tt.room && h.Type == wire.Write && h.Off > 4096 && h.Off < 4*region {
					return block.NoSpace, false
				}
				return block.OK, false
			}
			busy := g.write(4096, 1, 4096)
			g.until("a write is in flight", func() bool { return len(a.held) > 0 })
			if code := g.finish(g.write(8*region, 9, 4096)); code != tt.want {
				t.Errorf("a write to a new region: %s, want %s", code, tt.want)
			}
			if busy.done {
				t.Error("the other write has ended")
			}
			a.release()
			if code := g.finish(busy); code != block.OK {
				t.Errorf("the other write: %s", code)
			}
			g.expectModes("a=RW b=RW")
		})
	}
}

// Beside the repair of a sweep nothing is flushed: it makes no room before the repair has ended.
func TestFullLogIsNotFlushedBesideItsRepair(t *testing.T) {
	g := fullLogRig(t)
	a, b := g.fakes[0], g.fakes[1]
	a.script = nil
	b.script = func(h *wire.Header) (block.Code, bool) { return block.OK, h.Type == wire.Hash }
	first := g.write(8*region, 9, 4096)
	g.until("a region is compared", func() bool { return len(b.held) > 0 })
	before := a.seen(wire.Flush)
	second := g.write(9*region, 9, 4096)
	g.never("a flush beside the repair", 3*time.Second, func() bool { return a.seen(wire.Flush) > before })
	b.release()
	if code := g.finish(first); code != block.OK {
		t.Errorf("the first write: %s", code)
	}
	if code := g.finish(second); code != block.OK {
		t.Errorf("the second write: %s", code)
	}
	g.expectModes("a=RW b=RW")
}

// A region in which a write fails while a sweep repairs it says nothing about space: it is repaired
// again, but not for ever.
func TestFullLogWithARegionTornAgain(t *testing.T) {
	for _, tt := range []struct {
		name  string
		times int
		want  block.Code
	}{{"once", 1, block.OK}, {"again and again", 100, block.NoSpace}} {
		t.Run(tt.name, func(t *testing.T) {
			g := fullLogRig(t)
			a, b := g.fakes[0], g.fakes[1]
			torn, holds := 0, false
			a.script = func(h *wire.Header) (block.Code, bool) {
				if h.Type == wire.Write && h.Off == 2*mib {
					return block.NoSpace, false
				}
				return block.OK, false
			}
			b.script = func(h *wire.Header) (block.Code, bool) {
				switch {
				case h.Type == wire.Write && h.Off < 4*region && (h.Off >= region || holds):
					return block.NoSpace, false
				case h.Type == wire.Hash && h.Off == 0 && h.Len == block.MaxTransfer && torn < tt.times:
					holds = true
				}
				return block.OK, h.Type == wire.Hash && holds
			}
			first := g.write(8*region, 9, 4096)
			for torn < tt.times && !first.done {
				g.until("the region is compared, or none", func() bool { return len(b.held) > 0 || first.done })
				if first.done {
					break
				}
				if code := g.finish(g.write(2*mib, 9, 4096)); code != block.NoSpace {
					t.Fatal(code)
				}
				torn, holds = torn+1, false
				b.let(0)
			}
			if code := g.finish(first); code != tt.want {
				t.Errorf("after the region was torn %d times again: %s, want %s", torn, code, tt.want)
			}
			g.expectModes("a=RW b=RW")
		})
	}
}

// Where no torn region can be repaired a write that needs room fails after each was tried once, the
// next ones after one; and as soon as there is space they succeed.
func TestFullLogOfFullDisksIsTriedOnce(t *testing.T) {
	g := fullLogRig(t)
	a, b := g.fakes[0], g.fakes[1]
	a.script = nil
	try := func(most int, want block.Code) {
		t.Helper()
		before := b.seen(wire.Hash)
		if code := g.finish(g.write(8*region, 9, 4096)); code != want {
			t.Errorf("a write to a new region: %s, want %s", code, want)
		}
		if n := b.seen(wire.Hash) - before; n < 1 || n > most {
			t.Errorf("%d pieces were compared, want 1 to %d", n, most)
		}
	}
	const found = 9 // questions that find the block that differs: of 1 MiB, of a half, a quarter, ...
	try(4*found, block.NoSpace)
	for range 5 {
		try(found, block.NoSpace)
	}
	g.pass(2 * time.Minute)
	try(4*found, block.NoSpace)
	b.script = nil
	try(2*found+region/block.MaxTransfer, block.OK)
	g.expectModes("a=RW b=RW")
}

// Beside a rebuild nothing is repaired, also when there is space again: a write that needs room in
// the log is told at once that there is none, and not when the rebuild is over. What is torn is the
// same on all afterwards, the rebuilt replica included.
func TestFullLogBesideARebuild(t *testing.T) {
	g := fullLogRig(t)
	a, b := g.fakes[0], g.fakes[1]
	a.script, b.script = nil, nil
	g.proc.Post(engine.SetRebuildBudget{BytesPerSecond: 1})
	x := g.add("x")
	g.until("x is being copied to", func() bool { return x.seen(wire.LayerWrite) > 0 })
	if code := g.finish(g.write(8*region, 9, 4096)); code != block.NoSpace {
		t.Errorf("a write to a new region: %s", code)
	}
	g.expectModes("a=RW b=RW x=WO")
	g.proc.Post(engine.SetRebuildBudget{})
	g.until("x is RW", func() bool { return g.modes() == "a=RW b=RW x=RW" })
	if code := g.finish(g.write(8*region, 9, 4096)); code != block.OK {
		t.Errorf("a write to a new region after the rebuild: %s", code)
	}
	if err := g.takeSnapshot(); err != nil { // for which what is torn is repaired
		t.Error(err)
	}
	for i := range int64(9) {
		want := a.read(i*region, region)
		if !bytes.Equal(want, b.read(i*region, region)) || !bytes.Equal(want, x.read(i*region, region)) {
			t.Errorf("replicas differ in region %d", i)
		}
	}
}
