package engine_test

import (
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// silentBut makes every fake keep its answers for itself, but for reads of the one named.
func silentBut(g *rig, name string) {
	for _, f := range g.fakes {
		f.script = func(h *wire.Header) (block.Code, bool) { return block.OK, f.name != name }
	}
}

// idle lets the lease run out.
func idle(g *rig) { pass(g, 11*time.Second) }

func pass(g *rig, d time.Duration) {
	over := false
	g.w.After(d, func() { over = true })
	g.until("time passes", func() bool { return over })
}

// readAt reads until the replica in question was asked.
func readAt(g *rig, name string) *call {
	var c *call
	for _, f := range g.fakes {
		for range len(g.fakes) {
			if f.name == name && f.seen(wire.Read) == 0 {
				c = g.begin(block.Read, 0, 4096, make([]byte, 4096))
				pass(g, 10*time.Millisecond)
			}
		}
	}
	return c
}

// An engine that hears from one replica of three alone answers no reads once its lease has ended,
// since a successor may have begun with the others.
func TestReadWaitsForTheLease(t *testing.T) {
	g := newRig(t, 3, 16*mib).start()
	idle(g)
	g.witness.Down = true
	silentBut(g, "c")
	c := readAt(g, "c")
	for range 40 {
		pass(g, 100*time.Millisecond)
		if c.done {
			t.Fatal("read answered without a lease")
		}
	}
	if !strings.Contains(g.state.Reason, "lease") && !strings.Contains(g.state.Reason, "no other engine") {
		t.Errorf("state says %q", g.state.Reason)
	}
	g.fakes[0].release()
	if code := g.finish(c); code != block.OK {
		t.Fatal(code)
	}
}

// The witness confirms the lease when the replicas do not.
func TestWitnessConfirmsTheLease(t *testing.T) {
	g := newRig(t, 3, 16*mib).start()
	idle(g)
	silentBut(g, "c")
	began := g.w.Now()
	c := readAt(g, "c")
	if code := g.finish(c); code != block.OK {
		t.Fatal(code)
	}
	if took := g.w.Now().Sub(began); took >= replicaTimeout {
		t.Errorf("it took until the silent replicas were dropped: %s", took)
	}
}

// Under load nobody is asked for the lease's sake, and on an idle volume neither.
func TestNoHeartbeats(t *testing.T) {
	g := newRig(t, 3, 16*mib).start()
	idle(g)
	for range 30 {
		g.finish(g.write(0, 1, 4096))
		if _, code := g.read(0, 4096); code != block.OK {
			t.Fatal(code)
		}
		pass(g, time.Second)
	}
	for _, f := range g.fakes {
		for _, q := range f.controls {
			if q.Ping != nil {
				t.Fatalf("%s was pinged", f.name)
			}
		}
	}
	// Reads alone go to one replica at a time; the others are pinged now and then.
	idle(g)
	if _, code := g.read(0, 4096); code != block.OK {
		t.Fatal(code)
	}
}
