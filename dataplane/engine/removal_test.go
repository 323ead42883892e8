package engine_test

import (
	"errors"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// While replicas release their directories for another engine the set of members stays as it is: to
// remove one, or one after the other, is refused. Whoever is told that a replica is removed deletes
// it.
func TestNobodyIsRemovedDuringARelease(t *testing.T) {
	g := newRig(t, 2, 16*mib)
	g.giving = &giving{}
	g.start()
	for _, f := range g.fakes {
		f.judge = func(q *wire.ControlRequest) (block.Code, bool) { return block.OK, q.Release != nil }
	}
	a := g.asks("a", "b")
	g.until("the replicas are asked to release", func() bool {
		return len(g.fakes[0].held) > 0 && len(g.fakes[1].held) > 0
	})
	for _, f := range g.fakes {
		err := g.ask(func(reply func(error)) any {
			return engine.RemoveReplica{Address: f.addr(), Reply: reply}
		})
		if !errors.Is(err, engine.ErrState) {
			t.Errorf("removal of %s, a member of the volume that is being left: %v", f.name, err)
		}
	}
	for _, f := range g.fakes {
		f.judge = nil
		f.release()
	}
	g.until("it has left", func() bool { return a.done })
	if a.left == nil || a.err != nil || len(g.state.Record.Members) != 2 {
		t.Errorf("%+v, %v", a.left, a.err)
	}
	err := g.ask(func(reply func(error)) any {
		return engine.RemoveReplica{Address: g.fakes[0].addr(), Reply: reply}
	})
	if !errors.Is(err, engine.ErrState) {
		t.Errorf("removal at an engine that has ended: %v", err)
	}
}

// Who removes a replica while the volume starts is answered when it serves, or cannot.
func TestRemovedWhileTheVolumeStarts(t *testing.T) {
	for name, serves := range map[string]bool{"it serves": true, "it cannot": false} {
		g := newRig(t, 3, 16*mib)
		c := g.fakes[2]
		for _, f := range g.fakes {
			f.record = &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 1, Members: []string{"a", "b", "c"}}
			f.reply.Blank = false
		}
		g.granted()
		c.slowHello = true
		g.launch()
		g.until(name+": c is asked", func() bool { return c.hellos > 0 })
		if !serves {
			g.fakes[0].proc.Kill()
			g.fakes[1].proc.Kill()
		}
		err := g.ask(func(reply func(error)) any { return engine.RemoveReplica{Address: c.addr(), Reply: reply} })
		if (err == nil) != serves || g.state.Serving != serves {
			t.Errorf("%s: %v, %s", name, err, g.state.Reason)
		}
	}
}

// A replica that is removed while the engine asks what it has promised is not asked again, and
// nobody waits for it.
func TestRemovedIsNotContactedAgain(t *testing.T) {
	g := takeoverRig(t, "im")
	c := newFake(g, "c")
	c.mute = true
	g.fakes = append(g.fakes, c)
	g.launch()
	g.pass(time.Second)
	c.mute = false
	began := g.w.Now()
	err := g.ask(func(reply func(error)) any { return engine.RemoveReplica{Address: c.addr(), Reply: reply} })
	if err != nil {
		t.Fatal(err)
	}
	g.expectModes("a=RW b=RW")
	if took := g.w.Now().Sub(began); c.hellos > 0 || took > time.Second {
		t.Errorf("the removed replica was asked %d times, and the start took %s", c.hellos, took)
	}
}
