package engine_test

import (
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// A replica that answers everything but one kind of request, as with a disk that hangs, is dropped
// although it is never silent, and what it owes is answered without it.
func TestReplicaWhoseDiskHangsIsDropped(t *testing.T) {
	for _, kind := range []wire.Type{wire.Write, wire.Flush, wire.MarkDirty} {
		t.Run(kind.String(), func(t *testing.T) {
			g := newRig(t, 2, 16*mib).start()
			g.fakes[1].script = holding(kind)
			c := g.write(0, 1, 4096)
			if kind == wire.Flush {
				g.finish(c)
				c = g.begin(block.Flush, 0, 0, nil)
			}
			dropped := func() bool { return g.modes() == "a=RW b=ERR" }
			asked := 0
			for ; !dropped() && asked < 100; asked++ {
				if _, code := g.read(8*mib, 4096); code != block.OK {
					t.Fatalf("read %d: %s", asked, code)
				}
				g.second()
			}
			if !dropped() {
				t.Fatalf("not dropped after %d s: %s", asked, g.modes())
			}
			if asked < 16 {
				t.Errorf("dropped after %d s, before its bound", asked)
			}
			if code := g.finish(c); code != block.OK {
				t.Errorf("what it owed: %s", code)
			}
		})
	}
}

// The last replica is kept, however long it takes.
func TestLastReplicaWhoseDiskHangsIsKept(t *testing.T) {
	g := newRig(t, 1, 16*mib).start()
	g.fakes[0].script = holding(wire.Write)
	c := g.write(0, 1, 4096)
	for range 100 {
		if _, code := g.read(8*mib, 4096); code != block.OK {
			t.Fatal(code)
		}
		g.second()
		g.expectModes("a=RW")
	}
	g.fakes[0].script = nil
	g.fakes[0].release()
	if code := g.finish(c); code != block.OK {
		t.Error(code)
	}
}

// second lets a second pass.
func (g *rig) second() {
	over := false
	g.w.After(time.Second, func() { over = true })
	g.until("a second is over", func() bool { return over })
}
