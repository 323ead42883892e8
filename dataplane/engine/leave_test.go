package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// leave tells the engine to leave to a successor that has reached the members, and returns how it
// came out.
func (g *rig) leave(members ...string) (draining bool, left *engine.Left, err error) {
	g.t.Helper()
	done := false
	g.proc.Post(engine.Leave{Members: members, Draining: func() { draining = true },
		Reply: func(l *engine.Left, e error) { done, left, err = true, l, e }})
	g.until("it is answered", func() bool { return done })
	return draining, left, err
}

// giving is a frontend that can be left to another engine. It is suspended when the test says so.
type giving struct {
	*front
	suspended, continued bool
	slow                 bool
}

func (f *giving) Suspend(*[]loop.Op)  { f.suspended = true }
func (f *giving) Suspended() bool     { return f.suspended && !f.slow }
func (f *giving) Continue(*[]loop.Op) { f.continued = true }

// While something is under way that cannot pass the engine says so, and goes on as if nobody had
// asked.
func TestLeaveRefused(t *testing.T) {
	both := []string{"a", "b"}
	for name, c := range map[string]struct {
		before, after func(g *rig)
		members       []string
		says          string
	}{
		"a member was not reached": {members: []string{"a"},
			says: "the volume's members are a, b, the successor has reached a"},
		"somebody else was too": {members: []string{"a", "b", "c"}, says: "has reached a, b, c"},
		"nobody was reached":    {says: "has reached nobody"},
		"a frontend that stays": {before: func(g *rig) { g.giving = nil }, members: both, says: "frontend"},
		"a device that is not kept": {after: func(g *rig) { g.proc.Post(engine.FrontendKept{}) }, members: both,
			says: "the frontend is not kept"},
		"no replica is left": {after: (*rig).loseAll, members: both, says: "no replica left"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 2, 16*mib)
			g.giving = &giving{}
			if c.before != nil {
				c.before(g)
			}
			g.start()
			if c.after != nil {
				c.after(g)
			}
			draining, left, err := g.leave(c.members...)
			if left != nil || draining || !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("draining %v, left %v: %v", draining, left, err)
			}
			if g.giving != nil && g.giving.suspended {
				t.Error("the frontend was paused")
			}
		})
	}
}

// controlsForEver makes a replica answer no control message any more.
func (g *rig) controlsForEver() {
	g.fakes[0].script = func(h *wire.Header) (block.Code, bool) { return block.OK, h.Type == wire.Control }
}

// snapshotForEver begins a snapshot that one replica does not answer until it is released.
func (g *rig) snapshotForEver() (taken *bool) {
	g.controlsForEver()
	taken = new(bool)
	g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(err error) {
		*taken = err == nil
	}})
	return taken
}

func (g *rig) loseAll() {
	for _, f := range g.fakes {
		f.proc.Kill()
	}
	g.until("the replicas are lost", func() bool { return strings.Contains(g.state.Reason, "no replica") })
}

// asked is an engine that was told to leave.
type asked struct {
	draining, done bool
	left           *engine.Left
	err            error
}

func (g *rig) asks(members ...string) *asked {
	a := &asked{}
	g.proc.Post(engine.Leave{Members: members, Draining: func() { a.draining = true },
		Reply: func(l *engine.Left, err error) { a.done, a.left, a.err = true, l, err }})
	return a
}

// An engine that leaves waits for what is soon over, while requests go on.
func TestLeaveWaitsForASnapshot(t *testing.T) {
	g := newRig(t, 2, 16*mib)
	g.giving = &giving{}
	g.start()
	taken := g.snapshotForEver()
	a := g.asks("a", "b")
	g.never("it goes on, or is answered", time.Second, func() bool { return a.done || a.draining || g.giving.suspended })
	if err := g.purge(false); !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "live upgrade") {
		t.Errorf("a purge meanwhile: %v", err)
	}
	g.fakes[0].release()
	g.until("it has left", func() bool { return a.done })
	if a.err != nil || a.left == nil || !*taken {
		t.Errorf("%+v, %v, the snapshot was taken: %v", a.left, a.err, *taken)
	}
}

// It stays after the time that whoever tells it to leave gives it, and says what it has waited for;
// nothing has changed.
func TestLeaveDoesNotWaitForEver(t *testing.T) {
	g := newRig(t, 2, 16*mib)
	g.giving = &giving{}
	g.start()
	taken := g.snapshotForEver()
	a := g.asks("a", "b")
	g.never("it is answered", time.Second, func() bool { return a.done })
	g.proc.Post(engine.Stay{Reason: "it takes too long"})
	g.until("it is given up", func() bool { return a.done })
	if a.left != nil || !errors.Is(a.err, engine.ErrState) ||
		!strings.Contains(a.err.Error(), "snapshot s is under way: it takes too long") {
		t.Errorf("%+v, %v", a.left, a.err)
	}
	if a.draining || g.giving.suspended || g.giving.continued {
		t.Error("the frontend was paused")
	}
	g.fakes[0].release()
	g.until("the snapshot is taken", func() bool { return *taken })
	if code := g.finish(g.write(0, 1, 4096)); code != 0 {
		t.Errorf("write: %s", code)
	}
	if _, left, err := g.leave("a", "b"); err != nil || left.Purge {
		t.Errorf("a second try: %v, a purge is said to be under way: %v", err, left.Purge)
	}
}

// A purge pauses between two pieces, and the next engine is told to go on with it.
func TestLeavePausesAPurge(t *testing.T) {
	g := newRig(t, 2, 16*mib)
	g.giving = &giving{}
	g.start()
	g.fakes[0].pieces, g.fakes[1].pieces = 1000000, 1000000
	if err := g.purge(false); err != nil {
		t.Fatal(err)
	}
	g.until("pieces are done", func() bool { return g.fakes[0].pieces < 1000000-5 })
	_, left, err := g.leave("a", "b")
	if err != nil || left == nil || !left.Purge {
		t.Fatalf("%+v, %v", left, err)
	}
	for _, f := range g.fakes {
		if last := f.controls[len(f.controls)-1]; last.Release == nil {
			t.Errorf("%s: %+v was asked after the release", f.name, last)
		}
	}
}

// Where the engine stays the purge goes on by itself.
func TestPurgeGoesOnInAnEngineThatStays(t *testing.T) {
	g := newRig(t, 2, 16*mib)
	g.giving = &giving{slow: true}
	g.start()
	g.fakes[0].pieces, g.fakes[1].pieces = 1000000, 1000000
	if err := g.purge(false); err != nil {
		t.Fatal(err)
	}
	a := g.asks("a", "b")
	g.until("it drains", func() bool { return a.draining })
	before := g.fakes[0].pieces
	g.never("pieces go on", time.Second, func() bool { return g.fakes[0].pieces < before })
	g.proc.Post(engine.Stay{Reason: "too slow"})
	g.until("pieces go on", func() bool { return g.fakes[0].pieces < before-5 })
}

// An engine that is told of a purge begins it again once it may change something, and says all the
// time that it is under way.
func TestPurgeGoesOnInTheNextEngine(t *testing.T) {
	g := newRig(t, 2, 16*mib)
	g.giving = &giving{}
	g.start()
	if _, left, err := g.leave("a", "b"); left == nil || err != nil {
		t.Fatal(err)
	}
	g.fakes[0].pieces, g.fakes[1].pieces = 30, 40
	g.succeed(engine.Left{Purge: true})
	g.until("the next engine serves", func() bool { return g.state.Serving })
	if !g.purging() {
		t.Error("the state does not tell of the purge")
	}
	g.until("the purge is done", func() bool { return !g.purging() })
	if g.fakes[0].pieces > 0 || g.fakes[1].pieces > 0 {
		t.Errorf("%d and %d pieces are left", g.fakes[0].pieces, g.fakes[1].pieces)
	}
}

// An engine that takes too long to leave stays, and requests go on, with marks for what they write.
func TestStay(t *testing.T) {
	g := newRig(t, 2, 16*mib)
	g.giving = &giving{}
	g.start()
	g.finish(g.write(0, 1, 4096))
	g.giving.slow = true
	var err error
	done := false
	g.proc.Post(engine.Leave{Members: []string{"a", "b"}, Draining: func() {}, Reply: func(_ *engine.Left, e error) {
		done, err = true, e
	}})
	g.never("it is answered before the frontend is paused", time.Second, func() bool { return done })
	g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(e error) {
		if !errors.Is(e, engine.ErrState) {
			t.Errorf("a snapshot meanwhile: %v", e)
		}
	}})
	g.proc.Post(engine.Stay{Reason: "too slow"})
	g.until("it stays", func() bool { return done })
	if err == nil || !strings.Contains(err.Error(), "too slow") || !g.giving.continued {
		t.Errorf("%v, the frontend goes on: %v", err, g.giving.continued)
	}
	if code := g.finish(g.write(4096, 2, 4096)); code != 0 {
		t.Errorf("write: %s", code)
	}
}

// The same when the marks are being taken away already: what is written afterwards is marked again,
// which the replicas check.
func TestStayLate(t *testing.T) {
	g := newRig(t, 2, 16*mib)
	g.giving = &giving{}
	g.start()
	g.finish(g.write(0, 1, 4096))
	g.finish(g.write(8*mib, 1, 4096))
	g.controlsForEver()
	var err error
	done := false
	g.proc.Post(engine.Leave{Members: []string{"a", "b"}, Draining: func() {}, Reply: func(_ *engine.Left, e error) {
		done, err = true, e
	}})
	g.until("marks are taken away", func() bool { return g.fakes[1].cleared > 1 })
	g.proc.Post(engine.Stay{Reason: "too slow"})
	g.until("it stays", func() bool { return done && err != nil })
	g.fakes[0].release()
	for i := range int64(3) {
		if code := g.finish(g.write(i*4*mib, 2, 4096)); code != 0 {
			t.Errorf("write: %s", code)
		}
	}
	for _, f := range g.fakes {
		if len(f.marked) != 3 {
			t.Errorf("%s: marked %v", f.name, f.marked)
		}
	}
}

// Everything is flushed and no mark is left when the replicas are released; requests that were
// taken in are answered before.
func TestLeaveLeavesNothing(t *testing.T) {
	g := newRig(t, 2, 16*mib)
	g.giving = &giving{}
	g.start()
	w := g.write(0, 1, 4096)
	draining, left, err := g.leave("b", "a")
	if err != nil || !draining || left == nil || left.Purge {
		t.Fatalf("draining %v, left %+v: %v", draining, left, err)
	}
	if !w.done || w.code != 0 {
		t.Error("the write was not answered")
	}
	for _, f := range g.fakes {
		if last := f.controls[len(f.controls)-1]; last.Release == nil || len(f.marked) > 0 || f.flushed != f.writes {
			t.Errorf("%s: last asked for %+v, marked %v, %d of %d writes flushed", f.name, last, f.marked, f.flushed, f.writes)
		}
	}
}

// TestSilentReplicaHoldsAReleaseUp for a bounded time only: users wait meanwhile.
func TestSilentReplicaHoldsAReleaseUp(t *testing.T) {
	g := newRig(t, 2, 16*mib)
	g.giving = &giving{}
	g.start()
	g.finish(g.write(0, 1, 4096))
	f := g.fakes[0]
	f.script = func(h *wire.Header) (block.Code, bool) { return block.OK, h.Type == wire.Control && f.cleared > 1 }
	const bound = 2 * time.Second // less than a replica's timeout
	a := &asked{}
	g.proc.Post(engine.Leave{Members: []string{"a", "b"}, Draining: func() {}, ReleaseTime: bound,
		Reply: func(l *engine.Left, err error) { a.done, a.left, a.err = true, l, err }})
	g.until("the other one has released", func() bool {
		return g.fakes[1].controls[len(g.fakes[1].controls)-1].Release != nil
	})
	g.never("it is answered before", bound-time.Second/2, func() bool { return a.done })
	if !g.w.Until(bound+time.Second, func() bool { return a.done }) {
		t.Fatalf("users wait for longer than they should\n%s", strings.Join(g.events, "\n"))
	}
	if a.left == nil || a.err == nil || !strings.Contains(a.err.Error(), f.addr()) {
		t.Errorf("%+v, %v", a.left, a.err)
	}
}
