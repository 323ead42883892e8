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

// Marks come before writes, are taken away only after a flush that began later, and never exceed
// the log (checked by the fake at every request). More regions than the log holds are written in
// the end.
func TestDirtyLogIsBounded(t *testing.T) {
	const regions = 1500
	g := newRig(t, 2, regions*engine.DirtyRegion).start()
	var calls []*call
	for i := range regions {
		calls = append(calls, g.write(int64(i)*engine.DirtyRegion, 1, 512))
		if i%100 == 50 {
			calls = append(calls, g.begin(block.Flush, 0, 0, nil))
		}
		// A region in constant use.
		calls = append(calls, g.write(8192, byte(i), 512))
	}
	for _, c := range calls {
		if code := g.finish(c); code != block.OK {
			t.Fatal(code)
		}
	}
	for _, f := range g.fakes {
		if f.mostMarks > 1024 {
			t.Errorf("%s was told of %d regions at once", f.name, f.mostMarks)
		}
		if f.mostMarks < 1000 {
			t.Errorf("%s never had more than %d marks: the bound was not tried", f.name, f.mostMarks)
		}
	}
}

// A log full of regions in which writes have failed leaves no room. Requests are told so, none
// waits for ever, and the volume stays readable and writable where the log has marks.
func TestLogFullOfFailedWrites(t *testing.T) {
	const regions = 1030
	g := newRig(t, 2, regions*engine.DirtyRegion).start()
	for _, f := range g.fakes {
		f.script = answerWith(wire.Write, block.NoSpace)
	}
	var calls []*call
	for i := range regions {
		calls = append(calls, g.write(int64(i)*engine.DirtyRegion, 1, 512))
	}
	for _, c := range calls {
		if code := g.finish(c); code != block.NoSpace {
			t.Fatal(code)
		}
	}
	g.expectModes("a=RW b=RW")
	for _, f := range g.fakes {
		f.script = nil
	}
	// Space is back: the log makes room by comparing what is torn, and a write to a new region
	// succeeds.
	if code := g.finish(g.write((regions-1)*engine.DirtyRegion, 3, 512)); code != block.OK {
		t.Errorf("write where there is no mark: %s", code)
	}
	last := calls[0]
	if code := g.finish(g.write(last.req.Off, 2, 512)); code != block.OK {
		t.Errorf("write where there is a mark: %s", code)
	}
	if _, code := g.read((regions-1)*engine.DirtyRegion, 512); code != block.OK {
		t.Errorf("read: %s", code)
	}
}

// clears counts the requests that take marks away.
func (f *fake) clears() int { return f.cleared }

// A flush that one replica failed must not take marks away before the set without that replica is
// agreed: until then the marks are all that says where it differs.
func TestMarksStayUntilTheDropIsAgreed(t *testing.T) {
	const regions = 900
	g := newRig(t, 2, regions*engine.DirtyRegion).start()
	before := g.fakes[0].clears()
	var calls []*call
	for i := range regions {
		calls = append(calls, g.write(int64(i)*engine.DirtyRegion, 1, 512))
	}
	for _, c := range calls {
		if code := g.finish(c); code != block.OK {
			t.Fatal(code)
		}
	}
	g.witness.Down = true
	g.fakes[1].script, g.fakes[1].refuses = answerWith(wire.Flush, block.IOError), true
	flush := g.begin(block.Flush, 0, 0, nil)
	g.until("b is dropped", func() bool { return g.modes() == "a=RW b=ERR" })
	g.never("marks were taken away, and b is still a member", time.Minute, func() bool {
		return g.fakes[0].clears() > before || flush.done
	})
	g.witness.Down = false
	if code := g.finish(flush); code != block.OK {
		t.Fatal(code)
	}
	g.until("marks are taken away", func() bool { return g.fakes[0].clears() > before })
}

// TestMarksStayWhileAReplicaJoins: a joiner may have stored a set that names a member which was
// dropped before that set was agreed. What is taken off its log before it stores the next one would
// be on no account.
func TestMarksStayWhileAReplicaJoins(t *testing.T) {
	const regions = 900
	g := newRig(t, 1, regions*engine.DirtyRegion).start()
	target := newFake(g, "x")
	target.judge = func(q *wire.ControlRequest) (block.Code, bool) { return block.OK, q.SetRecord != nil }
	g.proc.Post(engine.AddReplica{Address: target.addr(), Reply: func(error) {}})
	g.until("x is told that it is a member", func() bool { return len(target.held) > 0 })
	before := g.fakes[0].clears()
	var calls []*call
	for i := range regions {
		calls = append(calls, g.write(int64(i)*engine.DirtyRegion, 1, 512))
	}
	for _, c := range append(calls, g.begin(block.Flush, 0, 0, nil)) {
		if code := g.finish(c); code != block.OK {
			t.Fatal(code)
		}
	}
	g.never("marks were taken away while x joins", 2*time.Second, func() bool { return g.fakes[0].clears() > before })
	g.expectModes("a=RW x=WO")
	target.judge = nil
	target.release()
	g.until("marks are taken away", func() bool { return g.fakes[0].clears() > before })
	g.expectModes("a=RW x=RW")
}

// The same at a clean end: the replica keeps its marks.
func TestCleanEndWithAnOpenDropKeepsMarks(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	before := g.fakes[0].clears()
	g.finish(g.write(0, 1, 4096))
	g.witness.Down = true
	g.fakes[1].script = answerWith(wire.Write, block.IOError)
	g.write(0, 2, 4096)
	g.until("b is dropped", func() bool { return g.modes() == "a=RW b=ERR" })
	done := false
	g.proc.Post(engine.Shutdown{Reply: func(error) { done = true }})
	g.until("the end", func() bool { return done })
	if g.fakes[0].clears() > before {
		t.Error("marks were taken away, and b is still a member")
	}
}

// TestCleanEndWhileAReplicaJoinsKeepsMarks: as TestMarksStayWhileAReplicaJoins, at a clean end.
func TestCleanEndWhileAReplicaJoinsKeepsMarks(t *testing.T) {
	g := newRig(t, 1, 16*mib).start()
	target := newFake(g, "x")
	target.judge = func(q *wire.ControlRequest) (block.Code, bool) { return block.OK, q.SetRecord != nil }
	g.proc.Post(engine.AddReplica{Address: target.addr(), Reply: func(error) {}})
	g.until("x is told that it is a member", func() bool { return len(target.held) > 0 })
	g.finish(g.write(0, 1, 4096))
	before := g.fakes[0].clears() + target.clears()
	done := false
	g.proc.Post(engine.Shutdown{Reply: func(error) { done = true }})
	g.until("the end", func() bool { return done })
	if g.fakes[0].clears()+target.clears() > before {
		t.Error("marks were taken away at the end while x joins")
	}
}

// Compared regions stay marked until a replica that failed meanwhile is dropped for good.
func TestResyncKeepsMarksOfAFailedMember(t *testing.T) {
	g := newRig(t, 3, 64*mib)
	rec := &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 1, Members: []string{"a", "b", "c"}}
	for _, f := range g.fakes {
		f.record, f.reply.Blank, f.reply.Dirty = rec, false, []uint32{1}
	}
	w, _ := g.witness.Read()
	next := w
	next.Epoch = 1
	if _, ok, err := g.witness.Swap(w, next); !ok || err != nil {
		t.Fatal(ok, err)
	}
	g.fakes[1].script = func(h *wire.Header) (block.Code, bool) {
		if h.Type == wire.Hash {
			g.witness.Down = true
			g.fakes[1].refuses = true // it does not agree that it is dropped
			g.fakes[2].proc.Kill()
			return block.IOError, false
		}
		return block.OK, false
	}
	g.launch()
	g.until("two have failed", func() bool { return strings.Count(g.modes(), "ERR") == 2 })
	g.never("served or cleared before the drop is agreed", time.Minute, func() bool {
		return g.state.Serving || g.fakes[0].clears() > 0
	})
	g.witness.Down = false
	g.until("served", func() bool { return g.state.Serving && g.fakes[0].clears() > 0 })
}

// Where nobody flushes the engine does so itself before it takes marks away: the fake knows which
// writes were flushed.
func TestMarksOutliveUnflushedWrites(t *testing.T) {
	const regions = 1100
	g := newRig(t, 2, regions*engine.DirtyRegion).start()
	before := g.fakes[0].clears()
	var calls []*call
	for i := range regions {
		calls = append(calls, g.write(int64(i)*engine.DirtyRegion, 1, 512))
	}
	for _, c := range calls {
		if code := g.finish(c); code != block.OK {
			t.Fatal(code)
		}
	}
	if g.fakes[0].clears() == before {
		t.Error("no mark was taken away: nothing was tried")
	}
}

// A region in which a write has failed is made identical as soon as writes succeed there again; new
// failures keep it torn.
func TestTornRegionIsRepaired(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	g.finish(g.write(4*mib, 1, 8192))
	tear := func() {
		for _, f := range g.fakes {
			f.script = answerWith(wire.Write, block.NoSpace)
		}
		if code := g.finish(g.write(5*mib, 2, 4096)); code != block.NoSpace {
			t.Fatal(code)
		}
	}
	tear()
	g.fakes[1].write(5*mib, bytes.Repeat([]byte{2}, 2048)) // a part of it arrived there
	g.fakes[0].script, g.fakes[1].script = nil, nil
	if code := g.finish(g.write(6*mib, 3, 4096)); code != block.OK {
		t.Fatal(code)
	}
	same := func() bool { return bytes.Equal(g.fakes[0].read(4*mib, 4*mib), g.fakes[1].read(4*mib, 4*mib)) }
	g.until("made identical", same)
	if p := g.fakes[0].read(5*mib, 1); p[0] != 0 {
		t.Error("the content changed under the reader")
	}
	g.expectModes("a=RW b=RW")
	tear()
	g.fakes[1].write(5*mib, bytes.Repeat([]byte{2}, 2048))
	g.fakes[0].script = nil
	g.fakes[1].script = func(h *wire.Header) (block.Code, bool) { // full where it does not have the block yet
		if h.Type == wire.Write && h.Off == 5*mib {
			return block.NoSpace, false
		}
		return block.OK, false
	}
	if code := g.finish(g.write(6*mib, 4, 4096)); code != block.OK {
		t.Fatal(code)
	}
	g.never("made identical without space, or dropped for it", time.Second, func() bool {
		return same() || g.modes() != "a=RW b=RW"
	})
	g.fakes[1].script = nil
	g.pass(time.Minute) // it is left alone for so long
	g.finish(g.write(6*mib, 5, 4096))
	g.until("made identical when space is back", same)
}

// Regions that nobody writes to for a while lose their marks, by a flush of the log's own if need
// be; one in use keeps its. A quiet volume with nothing left to do is left alone.
func TestQuietMarksExpire(t *testing.T) {
	g := newRig(t, 2, 16*engine.DirtyRegion).start()
	marked := func(want ...uint32) func() bool { return func() bool { return g.marked(want...) } }
	for i := range int64(4) {
		if code := g.finish(g.write(i*engine.DirtyRegion, 1, 512)); code != block.OK {
			t.Fatal(code)
		}
	}
	if !marked(0, 1, 2, 3)() {
		t.Fatal("not marked")
	}
	pass := g.pass
	pass(50 * time.Second)
	if !marked(0, 1, 2, 3)() {
		t.Errorf("marks %v: some of regions that were just written to are gone", g.fakes[0].marked)
	}
	for range 30 { // region 3 is in use
		pass(5 * time.Second)
		if code := g.finish(g.write(3*engine.DirtyRegion, 2, 512)); code != block.OK {
			t.Fatal(code)
		}
	}
	if !marked(3)() {
		t.Errorf("marks %v, want region 3's alone", g.fakes[0].marked)
	}
	pass(3 * time.Minute)
	if !marked()() {
		t.Errorf("marks %v, want none", g.fakes[0].marked)
	}
	cleared := g.fakes[0].cleared
	pass(10 * time.Minute)
	if g.fakes[0].cleared != cleared {
		t.Error("marks of a quiet volume are taken away again")
	}
}

// marked tells whether every replica has marks of these regions and no others.
func (g *rig) marked(want ...uint32) bool {
	for _, f := range g.fakes {
		if len(f.marked) != len(want) {
			return false
		}
		for _, n := range want {
			if !f.marked[n] {
				return false
			}
		}
	}
	return true
}

// pass lets time pass.
func (g *rig) pass(d time.Duration) {
	over := false
	g.w.After(d, func() { over = true })
	g.w.Until(d, func() bool { return over })
}

// A region in which a write has failed is tried now and then, and settled when it is repaired.
func TestQuietTornRegionIsRepaired(t *testing.T) {
	g := newRig(t, 2, 16*engine.DirtyRegion).start()
	for _, f := range g.fakes {
		f.script = answerWith(wire.Write, block.NoSpace)
	}
	if code := g.finish(g.write(5*engine.DirtyRegion, 1, 512)); code != block.NoSpace {
		t.Fatal(code)
	}
	g.fakes[1].write(5*engine.DirtyRegion, bytes.Repeat([]byte{1}, 512)) // a part of it arrived there
	g.pass(5 * time.Minute)
	if !g.marked(5) || g.state.Torn != 1 {
		t.Errorf("marks %v, %d torn regions; there is no space to repair it", g.fakes[0].marked, g.state.Torn)
	}
	for _, f := range g.fakes {
		f.script = nil
	}
	g.pass(5 * time.Minute)
	if !g.marked() || g.state.Torn != 0 {
		t.Errorf("marks %v, %d torn regions; there is space again", g.fakes[0].marked, g.state.Torn)
	}
	if !bytes.Equal(g.fakes[0].read(5*engine.DirtyRegion, 4096), g.fakes[1].read(5*engine.DirtyRegion, 4096)) {
		t.Error("a torn region was settled and differs")
	}
}

// A replica that begins to take writes while marks are being taken away gets those that stay: it is
// not asked to take the others away, and with them it would come to hold more than a log has room
// for.
func TestTargetIsNotGivenMarksThatGo(t *testing.T) {
	const regions = 1400
	g := newRig(t, 1, regions*engine.DirtyRegion).start()
	var calls []*call
	write := func(from, to int) {
		for i := from; i < to; i++ {
			calls = append(calls, g.write(int64(i)*engine.DirtyRegion, 1, 512))
		}
		for _, c := range calls {
			if code := g.finish(c); code != block.OK {
				t.Fatal(code)
			}
		}
	}
	write(0, 800)
	a, before := g.fakes[0], g.fakes[0].cleared
	a.script = func(h *wire.Header) (block.Code, bool) { return block.OK, h.Type == wire.Control && len(a.held) == 0 }
	calls = append(calls, g.begin(block.Flush, 0, 0, nil))
	g.until("marks are about to go", func() bool { return len(a.held) > 0 })
	x := g.add("x")
	x.script = holding(wire.LayerWrite)
	g.until("x takes writes", func() bool { return g.modes() == "a=RW x=WO" })
	given := len(x.marked)
	a.release()
	g.until("marks are gone", func() bool { return a.cleared > before })
	if given != len(a.marked) {
		t.Errorf("x was given %d marks; %d are left of the log", given, len(a.marked))
	}
	write(800, 800+1024-len(a.marked))
	if a.mostMarks != 1024 || x.mostMarks > 1024 {
		t.Errorf("a was told of %d regions at once, x of %d; the log holds 1024", a.mostMarks, x.mostMarks)
	}
}
