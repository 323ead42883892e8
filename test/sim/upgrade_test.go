package sim

import (
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/test/seeded"
	"ankole.storage/test/sim/register"
)

// Block maps are handed over in live upgrades, and every one that is used is compared with the
// files (Replica.open).
func TestMapsAreHandedOver(t *testing.T) {
	taken := 0
	for seed := range uint64(20) {
		r := Run(seed)
		if r.Err != nil {
			t.Fatalf("seed %d: %v", seed, r.Err)
		}
		taken += r.MapsTaken
	}
	if taken == 0 {
		t.Error("no replica has taken a block map over in 20 seeds")
	}
}

// A live upgrade fails and its engine takes the volume back, but stands still before it has its
// replicas. Another engine serves meanwhile. What clients had asked the first one for comes too
// late then, although that engine is the newest when it goes on: it must not be carried out over
// what was acknowledged since.
func TestTakenBackAfterAnotherEngine(t *testing.T) {
	for _, another := range []bool{false, true} {
		w := NewWorld(1)
		v := NewVolume(w, 3, 1<<20)
		defer v.Close()
		v.Witness.noOrders = true
		r := &run{w: w, v: v, check: register.New(1 << 20)}
		until := func(what string, cond func() bool) {
			t.Helper()
			if !w.Until(time.Minute, cond) {
				t.Fatalf("%s: did not happen\n%s", what, v.History())
			}
		}
		v.StartEngine(v.Replicas[0].Node)
		until("start", v.Healthy)
		old := v.Current
		src := seeded.New(t, "P7: an upgrade costs no I/O error")
		src.Seed(1)
		u := &upgrade{r: r, rnd: src.Rand(1), done: func() {}, old: old,
			next: make([]*Replica, len(v.Replicas))}
		var left *engine.Left
		old.Post(engine.HandOver{Members: old.state.Record.Members, Draining: func() {},
			Reply: func(l *engine.Left, err error) {
				left = l
			}})
		until("the engine has left", func() bool { return left != nil })
		answered := false
		old.front.Submit(&Call{Kind: block.Write, Len: 4096, Fill: func(p []byte) {
			p[0] = 1
		}, Done: func(block.Code, []byte) { answered = true }})
		u.takeBack(left)
		back := v.Current
		if another {
			back.Freeze()
			v.StartEngine(v.Replicas[2].Node)
			done := false
			v.Current.front.Submit(&Call{Kind: block.Write, Len: 4096, Fill: func(p []byte) {
				p[0] = 2
			}, Done: func(code block.Code, _ []byte) { done = code == block.OK }})
			until("the other one has written", func() bool { return done })
			back.Thaw()
			until("it goes on, or ends", func() bool { return answered || !back.Alive() })
		} else {
			until("it goes on", func() bool { return answered })
		}
		if answered == another {
			t.Errorf("another engine has served: %v; the write that waited was carried out: %v\n%s", another, answered,
				v.History())
		}
	}
}
