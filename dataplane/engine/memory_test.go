package engine_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// TestRebuildUnderUnalignedWrites: more writes than there is memory for, none of whole blocks, are
// under way when a replica is added. It does not answer those that reach it, so what is read around
// them uses up all that there is for it; then another replica is lost. The engine has as little
// memory as it can work with. All the same the replica that is left stays, the set without the lost
// one is agreed, the rebuild comes to its end and so do all writes.
func TestRebuildUnderUnalignedWrites(t *testing.T) {
	const writes, size, small = 40, mib - block.Size, 400
	g := newRig(t, 2, (writes+2)*mib)
	g.memory = engine.MinArena
	g.start()
	var calls []*call
	write := func(fill byte) {
		for i := range writes {
			calls = append(calls, g.write(int64(i)*mib+512, fill+byte(i), size))
		}
		for i := range small {
			calls = append(calls, g.write(int64(writes*mib+i*block.Size+512), fill, 512))
		}
	}
	write(1)
	x := newFake(g, "x")
	x.script = func(h *wire.Header) (block.Code, bool) {
		return block.OK, h.Type == wire.Write || h.Type == wire.LayerWrite
	}
	g.proc.Post(engine.AddReplica{Address: x.addr(), Reply: func(err error) {
		if err != nil {
			t.Error(err)
		}
	}})
	g.until("the rebuild copies", func() bool { return len(x.held) > 0 })
	write(101)
	g.never("all is answered", time.Second, func() bool {
		return !slices.ContainsFunc(calls, func(c *call) bool { return !c.done })
	})
	g.fakes[1].proc.Kill()
	g.until("the set without b is agreed", func() bool { return len(g.fakes[0].record.Members) == 1 })
	x.release()
	g.until("x is RW", func() bool { return strings.Contains(g.modes(), "x=RW") })
	for _, c := range calls {
		if code := g.finish(c); code != block.OK {
			t.Fatalf("write at %d: %s", c.req.Off, code)
		}
	}
	g.expectModes("a=RW b=ERR x=RW")
	for _, f := range []*fake{g.fakes[0], x} {
		for i := range int64(writes) {
			if got := f.read(i*mib+512, size); !bytes.Equal(got, bytes.Repeat(got[:1], size)) ||
				!bytes.Equal(got, g.fakes[0].read(i*mib+512, size)) {
				t.Fatalf("%s has a mixture at %d, or not what a has", f.name, i*mib+512)
			}
		}
	}
}

// TestLongDiscardGoesByPieces: a discard of any length has a few pieces under way at a time, and
// reaches all of its range once.
func TestLongDiscardGoesByPieces(t *testing.T) {
	for _, kind := range []block.Kind{block.Discard, block.WriteZeroes} {
		const size = 32 * engine.DirtyRegion
		g := newRig(t, 1, size+8*mib).start()
		f := g.fakes[0]
		f.script = func(h *wire.Header) (block.Code, bool) {
			return block.OK, h.Type == wire.Discard || h.Type == wire.WriteZeroes
		}
		c := g.begin(kind, mib, size, nil)
		pieces := 0
		for !c.done {
			g.until("a piece comes", func() bool { return len(f.held) > 0 || c.done })
			if n := len(f.held); n > 8 {
				t.Fatalf("%d pieces under way", n)
			}
			pieces += len(f.held)
			held := f.held
			f.held = nil
			for _, answer := range held {
				f.proc.Post(answer)
			}
		}
		if c.code != block.OK || pieces != 33 || len(f.pages) != size/block.Size {
			t.Errorf("%s: %s after %d pieces and %d blocks", kind, c.code, pieces, len(f.pages))
		}
	}
}
