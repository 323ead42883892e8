package engine_test

import (
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// standStill lets engine and fake stop for longer than replicas may be silent. The engine goes on
// first: deadlines have passed then, and the fake has not done anything yet.
func standStill(g *rig, f *fake) {
	f.proc.Freeze()
	pass(g, time.Second)
	g.proc.Freeze()
	pass(g, 3*replicaTimeout)
	g.proc.Thaw()
	pass(g, 10*time.Millisecond)
	f.proc.Thaw()
}

// A replica that has answered while the engine stood still, and one that stood still with it, are
// not dropped.
func TestStandstillIsNoSilence(t *testing.T) {
	g := newRig(t, 3, 16*mib).start()
	c := g.write(0, 1, 4096)
	standStill(g, g.fakes[1])
	if code := g.finish(c); code != block.OK {
		t.Fatal(code)
	}
	g.expectModes("a=RW b=RW c=RW")
}

// A start does not go on without those that could not be heard.
func TestStandstillDuringAStart(t *testing.T) {
	g := newRig(t, 2, 16*mib)
	g.launch()
	standStill(g, g.fakes[1])
	g.until("engine serves", func() bool { return g.state.Serving })
	g.expectModes("a=RW b=RW")
}

// A dead replica is dropped all the same, by an engine too that stands still again and again.
func TestStandstillsDoNotKeepADeadReplica(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	g.fakes[1].script = holding(wire.Write)
	c := g.write(0, 1, 4096)
	began := g.w.Now()
	for !c.done && g.w.Now().Sub(began) < patience {
		g.proc.Freeze()
		pass(g, replicaTimeout*3/4)
		g.proc.Thaw()
		pass(g, replicaTimeout/16)
	}
	if !c.done || c.code != block.OK {
		t.Fatalf("not acknowledged after %s", g.w.Now().Sub(began))
	}
	if took := g.w.Now().Sub(began); took > 4*replicaTimeout {
		t.Errorf("dropped after %s", took)
	}
	g.expectModes("a=RW b=ERR")
}
