package handover_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

// TestTakenBackWithTheReplicasOfNow: an engine's replicas have been started anew one after the
// other since its own start, each at another address, as it is with every replica that was lost and
// came back, or was replaced. An upgrade fails after the volume was offered: the old engine takes
// it back. It must do so with the replicas that it had when it gave the volume away, and serve as
// before; not ask at the addresses that it was started with, where nobody is any more.
func TestTakenBackWithTheReplicasOfNow(t *testing.T) {
	for _, transport := range []string{"nbd-unix", "fuse-loop"} {
		for _, moved := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d of 2 moved", transport, moved), func(t *testing.T) {
				if transport != "nbd-unix" {
					if err := blockdev.Available(); err != nil {
						lack.Skip(t, err)
					}
				}
				t.Parallel()
				v := open(t, rig.Config{Replicas: 2, Size: 64 << 20, Transport: transport, Keep: true})
				v.SpawnEngine()
				old := v.Engine()
				serves(t, "old engine", old)
				old.AwaitUp()
				d, err := old.Target()
				if err != nil {
					t.Fatal(err)
				}
				w := rig.StartLoad(t, d, v.Size, 1)
				for _, r := range v.Replicas[:moved] {
					w.AwaitMore(t, 50)
					move(t, v, old, r)
				}
				w.AwaitMore(t, 50)
				w.Check()
				next := standbys(v)
				failed := v.Upgrade([]string{"ANKOLE_STOP_AT=offered-to:die"}, next...)
				if code := failed.Exit(); code == 0 {
					t.Errorf("the new engine ended with 0\n%s", failed.Log())
				}
				wait.Until(t, "the old engine serves again, or has ended", func() bool {
					s, err := old.State()
					return !old.Alive() || err == nil && s.Epoch > 0 && !s.Suspended && s.FrontendState == "up"
				})
				if !old.Alive() {
					t.Fatalf("the old engine has ended with %d instead of taking the volume back", old.Exit())
				}
				wait.Until(t, "it serves with both replicas", func() bool {
					s, err := old.State()
					return err == nil && rig.Modes(s)[enginev1.Mode_MODE_RW] == 2
				})
				w.AwaitMore(t, 50)
				w.Finish()
				_ = d.Close()
			})
		}
	}
}

// move starts a replica anew, at another address, and has the engine rebuild it.
func move(t *testing.T, v *rig.Volume, old *rig.Engine, r *rig.Replica) {
	t.Helper()
	before := r.Addr
	r.Kill()
	r.Start()
	if r.Addr == before {
		t.Fatal("it has not moved")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	wait.Until(t, "it is seen to be lost", func() bool {
		s, err := old.State()
		if err != nil {
			return false
		}
		for _, x := range s.Replicas {
			if x.Address == "tcp://"+before {
				return x.Mode == enginev1.Mode_MODE_ERR
			}
		}
		return true
	})
	_, err := old.Control().ReplicaRemove(ctx, &enginev1.ReplicaRemoveRequest{Address: "tcp://" + before})
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	v.Rebuild(r)
}
