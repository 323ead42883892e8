package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
)

// An engine that was replaced answers everything it has taken in, wherever that was waiting, and
// does not wait for replicas that say nothing: its frontend is taken down with all answered.
func TestReplacedEngineAnswersEverything(t *testing.T) {
	for name, kinds := range map[string][]wire.Type{
		"reads":      {wire.Read},
		"writes":     {wire.Write},
		"marks":      {wire.MarkDirty},
		"flushes":    {wire.Flush},
		"everything": {wire.Read, wire.Write, wire.MarkDirty, wire.Flush, wire.Control},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 3, 64*mib).start()
			g.finish(g.write(0, 1, 4096))
			for _, f := range g.fakes[1:] {
				f.script = func(h *wire.Header) (block.Code, bool) { return block.OK, slices.Contains(kinds, h.Type) }
			}
			var calls []*call
			for i := range int64(6) {
				calls = append(calls, g.write(i/2*4096, 2, 4096), g.write(8*mib+i*4*mib, 3, 512), g.begin(block.Flush, 0, 0, nil),
					g.begin(block.Read, i*4096, 4096, make([]byte, 4096)), g.begin(block.WriteZeroes, i*mib+512, 2*mib, nil))
			}
			g.never("everything is answered before", 100*time.Millisecond, func() bool { return allDone(calls) })
			g.replace()
			g.fakes[0].script = func(*wire.Header) (block.Code, bool) { return block.Fenced, false }
			calls = append(calls, g.write(4096, 4, 4096), g.begin(block.Flush, 0, 0, nil))
			g.until("the engine gives up", func() bool { return g.state.Fenced })
			g.never("a request stays unanswered", time.Second, func() bool { return false })
			for i, c := range calls {
				if !c.done {
					t.Errorf("call %d, %s of %d at %d, was never answered", i, c.req.Kind, c.req.Len, c.req.Off)
				}
			}
			late := g.write(0, 5, 4096)
			if code := g.finish(late); code != block.IOError {
				t.Errorf("a replaced engine answers %s", code)
			}
			detached := false
			g.proc.Post(engine.DetachFrontend{Reply: func(error) { detached = true }})
			g.until("the frontend is gone", func() bool { return detached })
		})
	}
}

// replace has the witness, which answers from now on, grant a newer epoch to another engine.
func (g *rig) replace() {
	g.t.Helper()
	g.witness.Down = false
	now, err := g.witness.Read()
	if err != nil {
		g.t.Fatal(err)
	}
	next := now
	next.Epoch += quorum.GrantStep
	if _, ok, _ := g.witness.Swap(now, next); !ok {
		g.t.Fatal("the witness did not take the other engine's record")
	}
}

func allDone(calls []*call) bool {
	for _, c := range calls {
		if !c.done {
			return false
		}
	}
	return true
}

// TestKeptUsersWaitForTheNextEngine: an engine whose users are kept for the next one ends as soon
// as it has lost its last replica, and tells none of them an error: what it held for a set to be
// agreed, what was under way and what waits. One that was replaced fails them, since no engine may
// carry that out any more.
func TestKeptUsersWaitForTheNextEngine(t *testing.T) {
	for name, row := range map[string]struct {
		kept, fenced bool
		answered     bool
	}{
		"kept":                     {kept: true},
		"kept, and replaced":       {kept: true, fenced: true, answered: true},
		"kept by nobody":           {answered: true},
		"replaced, kept by nobody": {fenced: true, answered: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 2, 16*mib).start()
			g.proc.Post(engine.FrontendKept{Kept: row.kept})
			g.witness.Down = true
			g.fakes[1].script = answerWith(wire.Write, block.IOError)
			calls := []*call{g.write(0, 1, 4096)}
			g.until("b is dropped", func() bool { return g.modes() == "a=RW b=ERR" })
			g.fakes[0].script = holding(wire.Write)
			calls = append(calls, g.write(mib, 2, 4096))
			g.until("a write is under way", func() bool { return len(g.fakes[0].held) > 0 })
			lost := g.w.Now()
			if row.fenced {
				g.replace()
			} else {
				g.fakes[0].proc.Kill()
			}
			calls = append(calls, g.write(2*mib, 3, 4096), g.begin(block.Flush, 0, 0, nil))
			g.until("the engine ends", func() bool { return g.state.Fatal })
			if waited := g.w.Now().Sub(lost); g.state.Fenced != row.fenced || row.kept && waited > time.Second {
				t.Errorf("ended after %v, fenced %v", waited, g.state.Fenced)
			}
			g.second()
			for i, c := range calls {
				if c.done != row.answered || c.done && c.code != block.IOError {
					t.Errorf("request %d: answered %v, %s", i, c.done, c.code)
				}
			}
		})
	}
}

// An engine that hears at one moment that it was replaced and that its last replica is gone was
// replaced: what its users have sent is no other engine's to answer.
func TestReplacedAndWithoutAReplicaAtOnce(t *testing.T) {
	for _, kept := range []bool{true, false} {
		for _, lostFirst := range []bool{true, false} {
			g := newRig(t, 2, 16*mib).start()
			a, b := g.fakes[0], g.fakes[1]
			g.proc.Post(engine.FrontendKept{Kept: kept})
			g.finish(g.write(0, 1, 4096))
			b.script = holding(wire.Write)
			c := g.write(0, 2, 4096)
			g.until("a write is under way", func() bool { return len(b.held) > 0 })
			g.replace()
			asked := false
			g.onSwap = func() {
				g.proc.Freeze()
				g.onSwap, asked = nil, true
			}
			a.proc.Kill()
			g.until("the witness is being asked", func() bool { return asked })
			if !lostFirst {
				g.pass(time.Second)
			}
			b.proc.Kill()
			g.pass(time.Second)
			g.proc.Thaw()
			g.until("the engine ends", func() bool { return g.state.Fatal })
			if !g.state.Fenced || strings.Contains(strings.Join(g.events, "\n"), "stopped  no replica left") {
				t.Errorf("kept %v, lost first %v: fenced %v\n%s", kept, lostFirst, g.state.Fenced, strings.Join(g.events, "\n"))
			}
			if code := g.finish(c); code != block.IOError {
				t.Errorf("kept %v: answered %s", kept, code)
			}
			g.pass(2 * noReplicaTimeout)
			if !g.state.Fenced {
				t.Errorf("kept %v: not fenced any more, later", kept)
			}
		}
	}
}

// A snapshot that waits for the writes under way repairs nothing of what they leave torn behind the
// last flush of an engine that ends: what it writes there would not be stable when the marks go.
func TestNothingIsRepairedAtTheEnd(t *testing.T) {
	g := newRig(t, 2, 8*mib).start()
	a, b := g.fakes[0], g.fakes[1]
	g.finish(g.write(0, 1, 4096))
	full := answerWith(wire.Write, block.NoSpace)
	a.script, a.keepsFailed = full, true
	b.script = func(h *wire.Header) (block.Code, bool) {
		code, _ := full(h)
		return code, h.Type == wire.Write
	}
	c := g.write(0, 2, 4096)
	g.until("a write is under way", func() bool { return len(b.held) > 0 })
	g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(error) {}})
	g.pass(time.Millisecond)
	ended, flushes := false, b.seen(wire.Flush)
	g.proc.Post(engine.Shutdown{Reply: func(error) { ended = true }})
	g.pass(time.Millisecond)
	a.script, b.script = nil, holding(wire.Flush) // there is space again
	b.let(0)
	g.until("the last flush", func() bool { return b.seen(wire.Flush) > flushes })
	if !c.done || c.code != block.NoSpace {
		t.Fatalf("the write: %v, %s", c.done, c.code)
	}
	g.pass(time.Second)
	b.release()
	g.until("it has ended", func() bool { return ended })
}

// TestRepairUnderWayIsGivenUpAtTheEnd: as TestNothingIsRepairedAtTheEnd, for a repair that has
// begun and waits for a read to give the next piece free.
func TestRepairUnderWayIsGivenUpAtTheEnd(t *testing.T) {
	g := newRig(t, 2, 8*mib).start()
	a, b := g.fakes[0], g.fakes[1]
	g.finish(g.write(mib, 1, 4096))
	full := answerWith(wire.Write, block.NoSpace)
	a.script, a.keepsFailed = full, true
	b.script = func(h *wire.Header) (block.Code, bool) {
		code, _ := full(h)
		return code, h.Type == wire.Write || h.Type == wire.Hash
	}
	// A write that a snapshot waits for fails: its region is repaired while writes are stopped.
	g.write(mib, 2, 4096)
	g.until("a write is under way", func() bool { return len(b.held) > 0 })
	g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(error) {}})
	g.pass(time.Millisecond)
	a.script = nil
	b.let(0)
	g.until("the region is compared", func() bool { return len(b.held) > 0 })
	a.script = holding(wire.Read)
	read := g.begin(block.Read, mib, 4096, make([]byte, 4096))
	g.until("the second piece is read", func() bool { return len(a.held) > 0 })
	b.script = holding(wire.Flush) // there is space again
	b.let(0)
	g.pass(time.Millisecond)
	ended, flushes := false, b.seen(wire.Flush)
	g.proc.Post(engine.Shutdown{Reply: func(error) { ended = true }})
	g.until("the last flush", func() bool { return b.seen(wire.Flush) > flushes })
	a.release()
	g.finish(read)
	g.pass(time.Second)
	b.release()
	g.until("it has ended", func() bool { return ended })
}

// Whoever asks for the end while it is under way hears of it too.
func TestEndIsAskedForTwice(t *testing.T) {
	g := newRig(t, 2, 8*mib).start()
	b := g.fakes[1]
	b.script = holding(wire.Flush)
	ended := 0
	for range 3 {
		g.proc.Post(engine.Shutdown{Reply: func(error) { ended++ }})
		g.pass(time.Millisecond)
	}
	if ended > 0 {
		t.Fatal("it has ended before its last flush")
	}
	b.release()
	g.until("all have heard", func() bool { return ended == 3 })
}
