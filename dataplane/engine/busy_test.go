package engine_test

import (
	"errors"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// A replica that is to be added at a moment in which that is not possible is no replica that has
// failed: whoever asks is told whether the moment passes.
func TestReplicaIsAddedLater(t *testing.T) {
	moments := map[string]func(g *rig){
		"the volume is not served": func(g *rig) { g.proc.Kill(); g.fakes[0].slowHello = true; g.launch() },
		"a snapshot is taken": func(g *rig) {
			g.fakes[0].judge = holdControl(func(q *wire.ControlRequest) bool { return q.Snapshot != nil })
			g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(error) {}})
			g.until("the snapshot is asked for", func() bool { return len(g.fakes[0].held) > 0 })
		},
		"another one is rebuilt": func(g *rig) {
			x := newFake(g, "x")
			x.slowHello = true
			g.proc.Post(engine.AddReplica{Address: x.addr(), Reply: func(error) {}})
		},
		"the set without another one is not agreed": func(g *rig) {
			g.witness.Down = true
			g.fakes[1].script = answerWith(wire.Write, block.IOError)
			g.write(0, 1, 4096)
			g.until("b is dropped", func() bool { return g.modes() == "a=RW b=ERR" })
		},
	}
	for name, begin := range moments {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 2, 8*mib).start()
			begin(g)
			late := newFake(g, "late")
			err := g.ask(func(reply func(error)) any { return engine.AddReplica{Address: late.addr(), Reply: reply} })
			if !errors.Is(err, engine.ErrBusy) {
				t.Errorf("the answer is %v", err)
			}
		})
	}
}
