package replica_test

import (
	"math"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
	"ankole.storage/test/wait"
)

// A replica that changes its chain, for however long, tells an engine that asks that it is alive:
// what carries no data is answered at once, also behind requests that wait for the end of the
// change.
func TestPingIsAnsweredDuringAChange(t *testing.T) {
	// A revert first opens the chain as it will be, and then takes it in place of the present one.
	for call, what := range []string{"while the chain is opened", "while the chain is replaced"} {
		var slow *slowCall
		c, end := onLoop(t, 16<<20, func(core loop.Core, p loop.Poster) loop.Core {
			slow = &slowCall{Core: core, Poster: p, begun: make(chan loop.Op, 1)}
			slow.skip.Store(math.MaxInt64)
			return slow
		})
		must(t, c.ok(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "s", Created: "2026-01-01T00:00:00Z"}}))
		slow.skip.Store(int64(call))
		reverted, pinged := make(chan error, 1), make(chan error, 3)
		go func() {
			reverted <- c.ok(wire.ControlRequest{Revert: &wire.RevertRequest{Name: "s", Created: "2026-01-01T00:00:00Z"}})
		}()
		op := <-slow.begun
		for range 3 {
			go func() { pinged <- c.ok(wire.ControlRequest{Ping: &wire.PingRequest{}}) }()
			select {
			case err := <-pinged:
				must(t, err)
			case <-wait.Late():
				wait.RanOut(t, "the answer to a ping")
				t.Errorf("a ping waits %s", what)
			}
		}
		slow.Post(op)
		must(t, <-reverted)
		end()
	}
}

// That a record begins with a person's decision is kept until it is agreed.
func TestDecisionIsKeptUntilItIsAgreed(t *testing.T) {
	g := newRig(t)
	for _, agreed := range []bool{false, true} {
		epoch := uint64(2)
		if agreed {
			epoch = 5
		}
		rec := &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: epoch, Generation: 5, Members: []string{"r0"},
			Agreed: agreed, Accepted: !agreed}
		e := g.engine(epoch, "e")
		if code, r := e.control(wire.ControlRequest{SetRecord: rec}); code != block.OK {
			t.Fatal(code, r.Error)
		}
		g.r.Kill()
		g.r.Disk.Crash()
		g.r.Start()
		_, r, _ := g.connect().sayHello(epoch+1, "x", nil)
		if r.Record == nil || r.Record.Accepted == agreed || r.Record.Agreed != agreed {
			t.Errorf("agreed %v: the replica tells %+v", agreed, r.Record)
		}
	}
}
