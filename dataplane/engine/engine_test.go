package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// answerWith makes a replica answer one type of request with code.
func answerWith(typ wire.Type, code block.Code) func(*wire.Header) (block.Code, bool) {
	return func(h *wire.Header) (block.Code, bool) {
		if h.Type == typ {
			return code, false
		}
		return block.OK, false
	}
}

func holding(typ wire.Type) func(*wire.Header) (block.Code, bool) {
	return func(h *wire.Header) (block.Code, bool) { return block.OK, h.Type == typ }
}

const mib = 1 << 20

// A write is acknowledged when every RW replica has it, not before.
func TestWriteWaitsForEveryReplica(t *testing.T) {
	g := newRig(t, 3, 16*mib).start()
	g.fakes[1].script = holding(wire.Write)
	c := g.write(4096, 7, 4096)
	g.never("acknowledged although b has not answered", 5*time.Second, func() bool { return c.done })
	g.fakes[1].release()
	if code := g.finish(c); code != block.OK {
		t.Fatal(code)
	}
	for _, f := range g.fakes {
		if !bytes.Equal(f.read(4096, 4096), bytes.Repeat([]byte{7}, 4096)) {
			t.Errorf("%s does not have it", f.name)
		}
	}
	g.expectModes("a=RW b=RW c=RW")
}

// A replica that keeps a write without a sign of life is dropped, and the write is acknowledged
// when that is agreed.
func TestSilentReplicaIsDropped(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	g.fakes[1].script, g.fakes[1].refuses = holding(wire.Write), true
	g.witness.Down = true
	c := g.write(0, 1, 4096)
	g.never("acknowledged before the set without b is agreed", 3*replicaTimeout, func() bool { return c.done })
	g.expectModes("a=RW b=ERR")
	g.witness.Down = false
	if code := g.finish(c); code != block.OK {
		t.Fatal(code)
	}
	if g.fakes[0].record == nil || len(g.fakes[0].record.Members) != 1 {
		t.Errorf("a's record is %+v", g.fakes[0].record)
	}
}

// No space is judged when all have answered: P5.
func TestNoSpace(t *testing.T) {
	t.Run("one is full", func(t *testing.T) {
		g := newRig(t, 3, 16*mib).start()
		g.fakes[0].script = answerWith(wire.Write, block.NoSpace)
		g.fakes[2].script = holding(wire.Write)
		c := g.write(0, 1, 4096)
		g.never("judged before all have answered", time.Second, func() bool {
			return c.done || g.modes() != "a=RW b=RW c=RW"
		})
		g.fakes[2].release()
		if code := g.finish(c); code != block.OK {
			t.Fatal(code)
		}
		g.expectModes("a=ERR b=RW c=RW")
	})
	t.Run("all are full", func(t *testing.T) {
		g := newRig(t, 3, 16*mib).start()
		if code := g.finish(g.write(0, 1, 4096)); code != block.OK {
			t.Fatal(code)
		}
		for _, f := range g.fakes {
			f.script = answerWith(wire.Write, block.NoSpace)
		}
		if code := g.finish(g.write(0, 2, 4096)); code != block.NoSpace {
			t.Fatal(code)
		}
		g.expectModes("a=RW b=RW c=RW")
		if c, code := g.read(0, 4096); code != block.OK || c.data[0] != 1 {
			t.Errorf("the volume cannot be read: %s", code)
		}
	})
	t.Run("full or broken", func(t *testing.T) {
		g := newRig(t, 3, 16*mib).start()
		g.fakes[0].script = answerWith(wire.Write, block.NoSpace)
		g.fakes[1].script = answerWith(wire.Write, block.IOError)
		g.fakes[2].script = answerWith(wire.Write, block.NoSpace)
		if code := g.finish(g.write(0, 2, 4096)); code != block.NoSpace {
			t.Fatal(code)
		}
		g.expectModes("a=RW b=ERR c=RW")
	})
}

// When everybody fails one replica is kept: one bad sector must not end a volume.
func TestLastReplicaIsKept(t *testing.T) {
	g := newRig(t, 3, 16*mib).start()
	for _, f := range g.fakes {
		f.script = answerWith(wire.Write, block.IOError)
	}
	if code := g.finish(g.write(0, 2, 4096)); code != block.IOError {
		t.Fatal(code)
	}
	g.until("two are dropped", func() bool { return strings.Count(g.modes(), "ERR") == 2 })
	if strings.Count(g.modes(), "RW") != 1 {
		t.Fatal(g.modes())
	}
	g.fakes[0].script = nil
	if code := g.finish(g.write(0, 3, 4096)); code != block.OK {
		t.Errorf("the volume does not go on: %s", code)
	}
}

// Reads take turns: every replica does its share.
func TestReadsTakeTurns(t *testing.T) {
	g := newRig(t, 3, 16*mib).start()
	for range 30 {
		if _, code := g.read(0, 4096); code != block.OK {
			t.Fatal(code)
		}
	}
	for _, f := range g.fakes {
		if n := f.seen(wire.Read); n != 10 {
			t.Errorf("%s was asked %d times", f.name, n)
		}
	}
}

// A read that fails is made elsewhere, and the replica is dropped; the last one is kept.
func TestReadErrorFallsOver(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	g.finish(g.write(0, 5, 8192))
	g.fakes[0].script = answerWith(wire.Read, block.Corrupt)
	for range 2 { // reads take turns
		c, code := g.read(0, 8192)
		if code != block.OK || !bytes.Equal(c.data, bytes.Repeat([]byte{5}, 8192)) {
			t.Fatalf("read: %s", code)
		}
	}
	g.expectModes("a=ERR b=RW")
	g.fakes[1].script = answerWith(wire.Read, block.IOError)
	if _, code := g.read(0, 4096); code != block.IOError {
		t.Errorf("read from the last one: %s", code)
	}
	g.expectModes("a=ERR b=RW")
	g.fakes[1].script = nil
	if _, code := g.read(0, 4096); code != block.OK {
		t.Errorf("read after that: %s", code)
	}
}

// What breaks the protocol drops the replica and nothing else.
func TestReplicaThatBreaksTheProtocol(t *testing.T) {
	for name, spoil := range map[string]func(h *wire.Header){
		"answers another request":  func(h *wire.Header) { h.ID += 1000 },
		"answers by another type":  func(h *wire.Header) { h.Type = wire.Flush },
		"asks instead of answers":  func(h *wire.Header) { h.Flags = 0 },
		"claims to be out of date": func(h *wire.Header) { h.Code = block.Fenced },
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 2, 16*mib).start()
			g.fakes[0].spoil = func(h *wire.Header) {
				if h.Type == wire.Write {
					spoil(h)
				}
			}
			if code := g.finish(g.write(0, 1, 4096)); code != block.OK {
				t.Fatal(code)
			}
			g.expectModes("a=ERR b=RW")
		})
	}
}

// An answer of OK without data must not pass for a read.
func TestReadAnswerWithoutData(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	g.finish(g.write(0, 5, 4096))
	g.fakes[0].spoil = func(h *wire.Header) {
		if h.Type == wire.Read {
			h.Code = block.OK
		}
	}
	g.fakes[0].script = answerWith(wire.Read, block.IOError) // answered without data, and then called OK
	for range 4 {
		if c, code := g.read(0, 4096); code != block.OK || c.data[0] != 5 {
			t.Fatalf("read %s, first byte %d", code, c.data[0])
		}
	}
	g.expectModes("a=ERR b=RW")
}

func TestStartRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(f *fake)
		says  string
	}{
		"wrong secret":    {func(f *fake) { f.impostor = true }, "no replica answered"},
		"smaller":         {func(f *fake) { f.reply.Size, f.reply.Blank = 4096, false }, "every replica has 4096 bytes"},
		"nobody is there": {func(f *fake) { f.proc.Kill() }, "no replica answered"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 1, 16*mib)
			c.spoil(g.fakes[0])
			g.launch()
			g.until("engine gives up", func() bool { return g.state.Fatal })
			if g.state.Serving || g.state.Reason == "" || !strings.Contains(g.state.Reason, c.says) {
				t.Errorf("reason %q", g.state.Reason)
			}
			if c := g.write(0, 1, 4096); g.finish(c) != block.IOError {
				t.Error("a dead volume takes writes")
			}
		})
	}
}

// Without any replica requests wait a while, then fail.
func TestNoReplicaLeft(t *testing.T) {
	g := newRig(t, 1, 16*mib).start()
	g.fakes[0].proc.Kill()
	c := g.write(0, 1, 4096)
	g.never("failed at once", noReplicaTimeout-time.Second, func() bool { return c.done })
	if code := g.finish(c); code != block.IOError {
		t.Fatal(code)
	}
	g.until("the engine gives up", func() bool { return g.state.Fatal && !g.state.Fenced })
}

// A replica that is removed counts until the set without it is agreed, and so long nobody is told
// that it is gone.
func TestRemovedWhenAgreed(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	g.witness.Down, g.fakes[1].refuses = true, true // nor does it agree itself
	done := false
	g.proc.Post(engine.RemoveReplica{Address: g.fakes[1].addr(), Reply: func(err error) { done = err == nil }})
	g.until("b is dropped", func() bool { return g.modes() == "a=RW b=ERR" || g.modes() == "a=RW" })
	g.never("told before it is agreed", 3*time.Second, func() bool { return done })
	g.witness.Down = false
	g.until("told", func() bool { return done })
}

// An idle engine that has lost its only replica ends too, so that another one can start when the
// replica is back.
func TestIdleEngineWithoutReplicasEnds(t *testing.T) {
	g := newRig(t, 1, 16*mib).start()
	g.fakes[0].proc.Kill()
	g.until("the engine gives up", func() bool { return g.state.Fatal })
}

// A write that was taken by one and is held for the set to be agreed must not wait for ever when
// that one fails too.
func TestHeldWriteFailsWithTheLastReplica(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	g.witness.Down = true
	g.fakes[1].script = answerWith(wire.Write, block.IOError)
	c := g.write(0, 1, 4096)
	g.until("b is dropped", func() bool { return g.modes() == "a=RW b=ERR" })
	g.fakes[0].proc.Kill()
	if code := g.finish(c); code != block.IOError {
		t.Fatal(code)
	}
}

// With one RW replica and one being rebuilt, a write that only the latter takes is a failed write.
func TestWriteThatOnlyTheTargetTookFails(t *testing.T) {
	g := newRig(t, 1, 16*mib).start()
	g.finish(g.write(0, 1, 4096))
	target := newFake(g, "x")
	target.script = holding(wire.LayerWrite)
	g.proc.Post(engine.AddReplica{Address: target.addr(), Reply: func(err error) {
		if err != nil {
			t.Error(err)
		}
	}})
	g.until("rebuild copies", func() bool { return len(target.held) > 0 })
	g.expectModes("a=RW x=WO")
	g.fakes[0].script = answerWith(wire.Write, block.IOError)
	target.script = holding(wire.Write)
	c := g.write(mib, 2, 4096)
	g.until("x has it", func() bool { return target.seen(wire.Write) > 0 })
	g.never("acknowledged", time.Second, func() bool { return c.done })
	target.release() // answers OK, last of all
	if code := g.finish(c); code != block.IOError {
		t.Fatalf("acknowledged with %s, and no RW replica has it", code)
	}
	// It is copied over again where it was copied already, and the rebuild goes on to its end.
	g.fakes[0].script, target.script = nil, nil
	target.release()
	g.until("x joins", func() bool { return g.modes() == "a=RW x=RW" || strings.Contains(g.modes(), "ERR") })
	g.expectModes("a=RW x=RW")
	if !bytes.Equal(g.fakes[0].read(mib, 4096), target.read(mib, 4096)) {
		t.Error("the target has what failed elsewhere")
	}
}

// A replica is rebuilt while the volume is used, gets unaligned writes as whole blocks, and joins.
func TestRebuild(t *testing.T) {
	g := newRig(t, 1, 4*mib).start()
	g.finish(g.write(0, 1, 8192))
	target := newFake(g, "x")
	target.script = holding(wire.LayerWrite)
	g.proc.Post(engine.AddReplica{Address: target.addr(), Reply: func(error) {}})
	g.until("rebuild copies", func() bool { return len(target.held) > 0 })
	if code := g.finish(g.write(65536+512, 2, 512)); code != block.OK {
		t.Fatal(code)
	}
	if last := target.log[len(target.log)-1]; last != "write 65536+4096" {
		t.Errorf("the target was sent %q", last)
	}
	target.release()
	g.until("x is RW", func() bool { return g.modes() == "a=RW x=RW" })
	for _, off := range []int64{0, 65536} {
		if !bytes.Equal(target.read(off, 8192), g.fakes[0].read(off, 8192)) {
			t.Errorf("x differs at %d", off)
		}
	}
	if r := target.record; r == nil || fmt.Sprint(r.Members) != "[a x]" {
		t.Errorf("x's record is %+v", r)
	}
}

// Where a rebuild copies a piece nothing is written meanwhile. In the head a write that came
// between reading and writing the piece would be undone on the target; below it zeroes and discards
// would be made by what the target had below before. Reads go on.
func TestCopiedUnderLock(t *testing.T) {
	for name, below := range map[string][]wire.Layer{"the head": nil,
		"below the head": {{Name: "s", Size: 4 * mib, Allocated: 4096}}} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 1, 4*mib).start()
			g.fakes[0].below = below
			g.finish(g.write(0, 1, 8192))
			target := newFake(g, "x")
			target.below = below
			target.script = holding(wire.LayerWrite)
			g.proc.Post(engine.AddReplica{Address: target.addr(), Reply: func(error) {}})
			g.until("rebuild copies", func() bool { return len(target.held) > 0 })
			if _, code := g.read(0, 4096); code != block.OK {
				t.Fatalf("read: %s", code)
			}
			calls := []*call{g.write(4096, 2, 4096), g.begin(block.Discard, 0, 4096, nil)}
			g.never("written where a piece is being copied", time.Second, func() bool {
				return target.seen(wire.Write)+target.seen(wire.Discard) > 0 || calls[0].done || calls[1].done
			})
			target.release()
			for _, c := range calls {
				if code := g.finish(c); code != block.OK {
					t.Fatal(code)
				}
			}
			g.until("x is RW", func() bool { return g.modes() == "a=RW x=RW" })
			if !bytes.Equal(target.read(0, 8192), g.fakes[0].read(0, 8192)) {
				t.Error("x differs")
			}
		})
	}
}

// While the set without a replica is not agreed its copy is worth keeping: it must not be wiped for
// a rebuild.
func TestNoRebuildBeforeTheDropIsAgreed(t *testing.T) {
	g := newRig(t, 2, 4*mib).start()
	g.witness.Down = true
	g.fakes[1].script = answerWith(wire.Write, block.IOError)
	g.write(0, 1, 4096)
	g.until("b is dropped", func() bool { return g.modes() == "a=RW b=ERR" })
	g.fakes[1].script = nil
	var err error
	answered := false
	g.proc.Post(engine.AddReplica{Address: g.fakes[1].addr(), Reply: func(e error) { answered, err = true, e }})
	g.until("answer", func() bool { return answered })
	if err == nil {
		t.Error("b is rebuilt although it may still be a member")
	}
}

// A witness that was set back: replicas have promised epochs that it never granted. The engine
// gathers again with a higher one, and whoever had answered before is counted once.
func TestStartAfterTheWitnessWasSetBack(t *testing.T) {
	for _, promised := range [][]uint64{{7, 0, 0}, {7, 7, 0}, {7, 9, 8}, {0, 0, 7}} {
		t.Run(fmt.Sprint(promised), func(t *testing.T) {
			g := newRig(t, 3, 16*mib)
			rec := &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 7, Generation: 3, Members: []string{"a", "b", "c"}}
			for i, f := range g.fakes {
				f.record, f.reply.Blank, f.promised = rec, false, promised[i]
			}
			g.start()
			g.expectModes("a=RW b=RW c=RW")
			if g.state.Epoch <= 7 {
				t.Errorf("epoch %d", g.state.Epoch)
			}
		})
	}
}

// Writes to the same block reach every replica in one order; the last one asked for wins nowhere
// differently.
func TestSameBlockSameOrder(t *testing.T) {
	g := newRig(t, 3, 16*mib).start()
	var calls []*call
	for i := range 200 {
		calls = append(calls, g.write(int64(i%7)*512, byte(i), 512*(1+i%9)))
	}
	for _, c := range calls {
		if code := g.finish(c); code != block.OK {
			t.Fatal(code)
		}
	}
	want := g.fakes[0].read(0, 16384)
	for _, f := range g.fakes[1:] {
		if !bytes.Equal(f.read(0, 16384), want) {
			t.Errorf("%s differs", f.name)
		}
	}
}

// A snapshot taken by some and not by others would leave two chains: who failed is dropped. A limit
// that one replica has reached is found out before anybody takes it.
func TestSnapshotTakenByAllOrNone(t *testing.T) {
	take := func(g *rig) error {
		var err error
		done := false
		g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(e error) {
			done, err = true, e
		}})
		g.until("snapshot answered", func() bool { return done })
		return err
	}
	t.Run("some", func(t *testing.T) {
		g := newRig(t, 2, 16*mib).start()
		g.fakes[1].script = answerWith(wire.Control, block.LimitReached)
		if err := take(g); !errors.Is(err, block.LimitReached) {
			t.Errorf("one replica is at its limit: %v", err)
		}
		g.expectModes("a=RW b=RW")
		g.fakes[1].script = answerWith(wire.Control, block.IOError)
		if err := take(g); err != nil {
			t.Error(err)
		}
		g.until("b is dropped", func() bool { return g.modes() == "a=RW b=ERR" })
	})
	t.Run("none", func(t *testing.T) {
		g := newRig(t, 2, 16*mib).start()
		for _, f := range g.fakes {
			f.script = answerWith(wire.Control, block.Exists)
		}
		if err := take(g); err == nil || !strings.Contains(err.Error(), "exists") {
			t.Errorf("error %v", err)
		}
		g.expectModes("a=RW b=RW")
	})
}
