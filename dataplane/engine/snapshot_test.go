package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// ask posts a message and waits for its reply.
func (g *rig) ask(message func(reply func(error)) any) error {
	g.t.Helper()
	done, err := false, error(nil)
	g.proc.Post(message(func(e error) { done, err = true, e }))
	g.until("answered", func() bool { return done })
	return err
}

func (g *rig) purge(skip bool) error {
	g.t.Helper()
	return g.ask(func(reply func(error)) any { return engine.PurgeSnapshots{SkipIfRunning: skip, Reply: reply} })
}

func (g *rig) remove(name string) error {
	g.t.Helper()
	return g.ask(func(reply func(error)) any { return engine.RemoveSnapshot{Name: name, Reply: reply} })
}

func (g *rig) purging() bool {
	for _, r := range g.state.Replicas {
		if r.Purge != nil && r.Purge.Running {
			return true
		}
	}
	return false
}

// controls lets script judge control messages only.
func controls(verdict func() (block.Code, bool)) func(h *wire.Header) (block.Code, bool) {
	return func(h *wire.Header) (block.Code, bool) {
		if h.Type != wire.Control {
			return block.OK, false
		}
		return verdict()
	}
}

// A removal is carried out by all or refused by all, as every change of the chain; the head is no
// snapshot.
func TestRemoveSnapshot(t *testing.T) {
	g := newRig(t, 3, 16<<20).start()
	if err := g.remove(engine.HeadName); !errors.Is(err, block.Invalid) {
		t.Errorf("the head was removed: %v", err)
	}
	if err := g.remove("s"); err != nil {
		t.Fatal(err)
	}
	for _, f := range g.fakes {
		if q := f.controls[len(f.controls)-1]; q.RemoveSnapshot == nil && q.Describe == nil {
			t.Errorf("%s was asked for %+v", f.name, q)
		}
		f.script = controls(func() (block.Code, bool) { return block.NotFound, false })
	}
	if err := g.remove("other"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("an unknown snapshot was removed: %v", err)
	}
	g.expectModes("a=RW b=RW c=RW")
	g.fakes[0].script, g.fakes[1].script = nil, nil
	if err := g.remove("other"); err != nil {
		t.Fatalf("two of three have removed it, the third has nothing to remove: %v", err)
	}
	g.expectModes("a=RW b=RW c=RW")
	g.fakes[2].script = controls(func() (block.Code, bool) { return block.IOError, false })
	if err := g.remove("third"); err != nil {
		t.Fatalf("two of three have removed it: %v", err)
	}
	g.until("who failed is dropped", func() bool { return g.modes() == "a=RW b=RW c=ERR" })
}

// The caller of a change hears of it only when the set that made it is agreed: before that the next
// start might choose a replica that did not make it.
func TestChangeIsAnsweredWhenTheSetIsAgreed(t *testing.T) {
	g := newRig(t, 2, 16<<20).start()
	g.witness.Down = true // from two to one needs it
	g.fakes[1].script = controls(func() (block.Code, bool) { return block.IOError, false })
	done, err := false, error(nil)
	g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(e error) {
		done, err = true, e
	}})
	g.until("the other is dropped", func() bool { return g.modes() == "a=RW b=ERR" })
	g.never("answered although nobody agreed", 3*time.Second, func() bool { return done })
	g.witness.Down = false
	g.until("answered", func() bool { return done })
	if err != nil {
		t.Error(err)
	}
}

// A purge asks every replica for one piece after the other; requests go on in between; it pauses
// while a snapshot is taken, refuses a second one, and a replica that cannot finish stays in the
// set.
func TestPurge(t *testing.T) {
	g := newRig(t, 3, 16<<20).start()
	for _, f := range g.fakes {
		f.pieces = 5
	}
	held := g.fakes[0]
	pieces := 0
	held.script = controls(func() (block.Code, bool) { pieces++; return block.OK, pieces == 3 })
	g.fakes[2].script = func(h *wire.Header) (block.Code, bool) {
		if h.Type == wire.Control && g.fakes[2].pieces == 3 {
			return block.IOError, false
		}
		return block.OK, false
	}
	if err := g.purge(false); err != nil {
		t.Fatal(err)
	}
	g.until("a piece is held", func() bool { return len(held.held) == 1 })
	if err := g.purge(false); !errors.Is(err, engine.ErrState) {
		t.Errorf("a second purge: %v", err)
	}
	if err := g.purge(true); err != nil {
		t.Errorf("a second purge that may be skipped: %v", err)
	}
	if code := g.finish(g.write(0, 1, 4096)); code != block.OK {
		t.Errorf("write during a purge: %s", code)
	}
	if !g.purging() {
		t.Error("the purge has ended without its pieces")
	}
	held.release()
	g.until("purge ended", func() bool { return !g.purging() })
	var states string
	for _, r := range g.state.Replicas {
		states += r.Purge.State + " "
	}
	if states != "complete complete error " {
		t.Errorf("purge came to %s", states)
	}
	g.expectModes("a=RW b=RW c=RW")
	if err := g.purge(false); err != nil {
		t.Errorf("purge after one that failed: %v", err)
	}
	g.until("second purge ended", func() bool { return !g.purging() })
}

// While a replica is rebuilt a purge does not begin; a rebuild that begins meanwhile makes it
// pause.
func TestPurgePausesForARebuild(t *testing.T) {
	g := newRig(t, 3, 16<<20).start()
	g.fakes[2].proc.Kill()
	g.begin(block.Write, 0, 4096, make([]byte, 4096))
	g.until("dropped", func() bool { return g.modes() == "a=RW b=RW c=ERR" })
	late := newFake(g, "d")
	g.until("set agreed", func() bool { return g.state.Reason == "" })
	for _, f := range g.fakes {
		f.pieces = 1 << 30
	}
	if err := g.purge(false); err != nil {
		t.Fatal(err)
	}
	late.script = func(h *wire.Header) (block.Code, bool) { return block.OK, h.Type == wire.Hash }
	g.proc.Post(engine.AddReplica{Address: late.addr(), Reply: func(error) {}})
	g.until("verifying", func() bool { return len(late.held) > 0 })
	before := g.fakes[0].pieces
	g.never("pieces go on", time.Second, func() bool { return g.fakes[0].pieces < before-1 })
	late.release()
	g.until("rebuilt", func() bool { return g.modes() == "a=RW b=RW c=ERR d=RW" || g.modes() == "a=RW b=RW d=RW" })
	g.until("pieces go on", func() bool { return g.fakes[0].pieces < before-10 })
	for _, f := range g.fakes {
		f.pieces = 0
	}
	g.until("purged", func() bool { return !g.purging() })
}

// A snapshot with labels that no description has room for is refused, and harms nobody.
func TestLongLabelsAreRefused(t *testing.T) {
	g := newScrubRig(t, 2)
	for i, n := range []int{300 << 10, 300 << 10, 300 << 10, 2 << 20} {
		err := g.ask(func(reply func(error)) any {
			return engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: fmt.Sprint("s", i), UserCreated: true,
				Labels: map[string]string{"a": strings.Repeat("x", n)}},
				Reply: reply}
		})
		if !errors.Is(err, block.Invalid) {
			t.Fatalf("labels of %d bytes: %v\n%s", n, err, strings.Join(g.events, "\n"))
		}
	}
	g.snapshot("c")
	g.expectModes("r0=RW r1=RW")
}

// A start gives up a snapshot with the label of an interrupted revert, and takes one with that of
// an import for its end. So a user's snapshot has neither.
func TestLabelsOfTheEngineAreRefused(t *testing.T) {
	g := newScrubRig(t, 2)
	for _, label := range []string{"ankole-revert", "ankole-import", "ankole-"} {
		err := g.ask(func(reply func(error)) any {
			return engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s", UserCreated: true,
				Labels: map[string]string{label: "c"}}, Reply: reply}
		})
		if !errors.Is(err, block.Invalid) {
			t.Errorf("label %s: %v", label, err)
		}
	}
	g.snapshot("c")
	g.expectModes("r0=RW r1=RW")
}
