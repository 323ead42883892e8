package simulated_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/volume"
)

func TestCreateAttachDetachAttachElsewhereDelete(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.makeVolume(3, nil)
		w.settle()
		w.expect(`detached unknown at ""`)
		if len(w.onNodes()) != 3 {
			w.failf("replicas are not on three nodes")
		}
		w.tickets("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		w.expect(`attached healthy at "n1"`)
		w.tickets("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		w.expect(`attached healthy at "n2"`)
		w.tickets("ui", "", "")
		w.settle()
		w.expect(`detached unknown at ""`)
		if alive, failed := w.running(); len(alive)+len(failed) != 0 {
			w.failf("processes left after detaching")
		}
		w.deleteVolume(w.volumes["v"])
		w.settle()
		w.expect("gone")
		for dir, c := range w.copies {
			if !c.gone() {
				t.Errorf("directory %s is left on %s", dir, c.node)
			}
		}
		if n := len(w.replicas()); n != 0 {
			t.Errorf("%d replica objects left", n)
		}
	})
}

func TestLostReplicaProcessIsRebuiltWhereItIs(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		before := w.replicaNames()
		w.killFirst(replicaOn("n3"))
		w.settle()
		w.expect(`attached degraded at "n1"`)
		if m := w.modes(); m[v1beta2.ReplicaModeRW] != 2 || m[v1beta2.ReplicaModeWO] != 1 {
			w.failf("modes %v", m)
		}
		w.rebuilt()
		w.settle()
		w.expect(`attached healthy at "n1"`)
		if after := w.replicaNames(); !slices.Equal(before, after) {
			t.Errorf("replicas changed from %v to %v although the failed one could be reused", before, after)
		}
	})
}

func TestLostNodeIsReplacedAfterTheWaitInterval(t *testing.T) {
	scene(t, 4, func(t *testing.T, w *world) {
		w.attached(3)
		victim := w.elsewhere("n1")
		w.cut(victim)
		w.settle()
		w.expect(`attached degraded at "n1"`)
		w.run(8 * time.Minute)
		if len(w.replicas()) != 3 {
			w.failf("replaced before the wait interval")
		}
		w.run(2 * time.Minute)
		if len(w.replicas()) != 4 {
			w.failf("not replaced after the wait interval")
		}
		w.rebuilt()
		w.settle()
		w.expect(`attached healthy at "n1"`)
		w.mend(victim)
		w.settle()
		w.run(40 * time.Minute)
		if len(w.replicas()) != 3 {
			w.failf("the stale replica is still there")
		}
		for dir, c := range w.copies {
			if c.node == victim && !c.gone() {
				t.Errorf("the stale replica's directory %s is left on %s", dir, victim)
			}
		}
	})
}

func TestCrashedEngineIsRestartedInPlace(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		w.killFirst(isEngine)
		w.settle()
		w.expect(`attached healthy at "n1"`)
		for _, r := range w.replicas() {
			if r.Spec.LastFailedAt != "" {
				t.Errorf("replica %s was marked as failed for the engine's crash", r.Name)
			}
		}
	})
}

func TestEverythingKilledAtOnceComesBackWithoutRebuild(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		for round := range 3 {
			w.run(10 * time.Minute) // the next Pods come without a pause
			for _, n := range []string{"n1", "n2", "n3"} {
				w.keepAway(n)
			}
			w.run(5 * time.Second)
			for _, n := range []string{"n3", "n1", "n2"} {
				w.letCome(n)
				w.run(2 * time.Second)
			}
			w.settle()
			w.expect(`attached healthy at "n1"`)
			if m := w.modes(); m[v1beta2.ReplicaModeRW] != 3 {
				w.failf("round %d: modes %v", round, m)
			}
		}
	})
}

func TestLostInstanceManagerOfTheEngine(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		w.keepAway("n1")
		w.settle()
		w.letCome("n1")
		w.settle()
		w.heals(5 * time.Minute)
		w.expect(`attached healthy at "n1"`)
	})
}

// TestInstanceManagerOfTheEngineStaysAway: nothing on the engine's node can run the next engine, so
// I/O waits for its bound and fails then, and the volume is faulted, so that somebody is told; it
// is there again with the instance manager.
func TestInstanceManagerOfTheEngineStaysAway(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		w.keepAway("n1")
		w.run(4 * time.Minute)
		w.expect(`attached unknown at "n1"`)
		w.run(2 * time.Minute)
		w.expect(`attaching unknown at ""`)
		w.letCome("n1")
		w.settle()
		w.heals(5 * time.Minute)
		w.expect(`attached healthy at "n1"`)
	})
}

func TestEngineNodeLostMovesOnlyByTicket(t *testing.T) {
	scene(t, 4, func(t *testing.T, w *world) {
		w.attached(3)
		w.cut("n1")
		w.run(2 * time.Minute)
		if v := w.volume("v"); v.Status.CurrentNodeID != "n1" {
			w.failf("the volume left its node without a ticket")
		}
		w.tickets("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
		w.run(2 * time.Minute)
		w.expect(`attached degraded at "n2"`)
		w.mend("n1")
		w.settle()
		alive, _ := w.running()
		for _, p := range alive {
			if isEngine(p) && p.pod.host.name == "n1" {
				t.Errorf("the old engine %s still runs", p.uuid)
			}
		}
		w.heals(20 * time.Minute)
		w.expect(`attached healthy at "n2"`)
	})
}

// TestUnlistedProcessesGoOn: a leader that has no list from the instance managers of nodes that are
// up, as right after it has become leader, ends nothing.
func TestUnlistedProcessesGoOn(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		before, _ := w.running()
		for _, h := range w.nodes {
			w.silence(h, true)
			w.unready(h, true)
		}
		w.newLeader()
		w.run(2 * time.Minute)
		for _, h := range w.nodes {
			w.silence(h, false)
			w.unready(h, false)
			w.settle()
		}
		w.expect(`attached healthy at "n1"`)
		if after, _ := w.running(); !slices.Equal(before, after) {
			w.failf("processes were ended")
		}
		for _, r := range w.replicas() {
			if r.Spec.LastFailedAt != "" {
				t.Errorf("replica %s was marked as failed", r.Name)
			}
		}
	})
}

// TestUnlistedEngineIsEndedFirst: an engine that was started where its instance manager lists
// nothing is ended before the volume counts as detached; when its node goes, it counts as ended.
func TestUnlistedEngineIsEndedFirst(t *testing.T) {
	for _, gone := range []bool{false, true} {
		scene(t, 4, func(_ *testing.T, w *world) {
			w.makeVolume(2, nil)
			w.settle()
			at := w.free()
			to := w.elsewhere(at)
			w.silence(w.host(at), true)
			w.run(heardWithin)
			w.tickets("ui", at, v1beta2.AttacherTypeLonghornAPI)
			w.settle()
			if s := w.served(); s == nil || s.p.pod.host.name != at || w.engine().Status.UUID != "" {
				w.failf("no engine serves on %s without being listed", at)
			}
			if gone {
				w.cut(at)
			}
			w.tickets("ui", to, v1beta2.AttacherTypeLonghornAPI) // oneWriter looks when the next one is started
			w.run(10 * time.Minute)
			w.expect(fmt.Sprintf("attached healthy at %q", to))
		})
	}
}

func TestStaleReplicaIsGivenToTheEngineAndRebuilt(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		w.cut("n3")
		w.settle()
		w.tickets("ui", "", "")
		w.settle()
		w.expect(`detached unknown at ""`)
		w.mend("n3")
		w.settle()
		w.tickets("ui", "n2", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		// Nobody but the engine knows that the third copy is stale.
		if m := w.modes(); m[v1beta2.ReplicaModeRW] != 2 || m[v1beta2.ReplicaModeWO] != 1 {
			w.failf("modes %v", m)
		}
		w.heals(time.Minute)
	})
}

// TestAllReplicasLostAtOnce: the device stays, no copy is marked as failed, and the next engine
// begins with all of them.
func TestAllReplicasLostAtOnce(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		for round := range 3 {
			w.killReplicas()
			w.settle()
			w.expect(`attached healthy at "n1"`)
			if m := w.modes(); m[v1beta2.ReplicaModeRW] != 3 {
				w.failf("round %d: modes %v", round, m)
			}
		}
		for _, r := range w.replicas() {
			if r.Spec.LastFailedAt != "" {
				t.Errorf("replica %s was marked as failed", r.Name)
			}
		}
	})
}

// TestAllReplicasAwayForAWhile: their nodes are cut off. I/O waits, and goes on when they are back;
// when they stay away for longer than the bound the volume is faulted, and salvaged afterwards.
func TestAllReplicasAwayForAWhile(t *testing.T) {
	for _, row := range []struct {
		away  time.Duration
		fault bool
	}{{time.Minute, false}, {ioBound - 30*time.Second, false}, {ioBound + 2*time.Minute, true}} {
		t.Run(row.away.String(), func(t *testing.T) {
			scene(t, 3, func(t *testing.T, w *world) {
				w.makeVolume(2, nil)
				w.settle()
				free := w.free()
				w.tickets("ui", free, v1beta2.AttacherTypeLonghornAPI)
				w.settle()
				nodes := sortedNames(w.onNodes())
				for _, node := range nodes {
					w.cut(node)
				}
				w.run(row.away)
				c := w.condition(volume.ConditionWaitForReplicas)
				if v := w.volume("v"); !row.fault {
					w.expect(fmt.Sprintf("attached unknown at %q", free))
					if c.Status != v1beta2.ConditionTrue || c.Reason != volume.ReasonIOWaits {
						t.Errorf("condition %+v", c)
					}
				} else if v.Status.Robustness != v1beta2.VolumeRobustnessFaulted {
					w.failf("robustness %s after %s", v.Status.Robustness, row.away)
				}
				for _, node := range nodes {
					w.mend(node)
				}
				w.heals(10 * time.Minute)
				w.expect(fmt.Sprintf("attached healthy at %q", free))
				after := w.volume("v").Status
				if (after.LastAutoSalvagedAt != "") != row.fault || (after.RemountRequestedAt != "") != row.fault {
					w.failf("salvaged at %q, remount at %q", after.LastAutoSalvagedAt, after.RemountRequestedAt)
				}
			})
		})
	}
}

func TestNoPlaceForAReplicaIsToldAndMended(t *testing.T) {
	scene(t, 2, func(t *testing.T, w *world) {
		w.makeVolume(3, nil)
		w.settle()
		// One replica with a place is enough while detached; once attached, the missing one shows.
		w.tickets("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		v := w.volume("v")
		c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionScheduled)
		if c.Status != v1beta2.ConditionFalse || c.Reason != v1beta2.VolumeReasonReplicaSchedulingFailure || c.Message == "" {
			t.Fatalf("condition %+v", c)
		}
		w.expect(`attached degraded at "n1"`)
	})
}

func TestFewerCopiesThanWantedAreAddedAfterTheNumberWasRaised(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(1)
		w.changeVolume(func(s *v1beta2.VolumeSpec) { s.NumberOfReplicas = 3 })
		w.heals(10 * time.Minute)
		if n := len(w.replicas()); n != 3 {
			w.failf("%d replicas", n)
		}
	})
}

func TestEvictedReplicaIsReplacedAndRemoved(t *testing.T) {
	scene(t, 4, func(t *testing.T, w *world) {
		w.attached(3)
		r := w.replicas()[0]
		w.evict(r.Name)
		w.rebuilding(4)
		w.expect(`attached healthy at "n1"`)
		for _, have := range w.replicas() {
			if have.Name == r.Name {
				w.failf("the evicted replica is still there")
			}
		}
	})
}

func TestEvictionOfADetachedVolume(t *testing.T) {
	scene(t, 4, func(t *testing.T, w *world) {
		w.attached(3)
		w.tickets("ui", "", "")
		w.settle()
		w.expect(`detached unknown at ""`)
		r := w.replicas()[0]
		w.evict(r.Name)
		w.rebuilding(4)
		w.expect(`detached unknown at ""`)
		if slices.Contains(w.replicaNames(), r.Name) || len(w.replicas()) != 3 {
			w.failf("the evicted replica was not moved")
		}
	})
}

func TestOfflineRebuilding(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		w.cut("n3")
		w.settle()
		w.tickets("ui", "", "")
		w.settle()
		w.mend("n3")
		w.settle()
		w.expect(`detached unknown at ""`)
		w.changeVolume(func(s *v1beta2.VolumeSpec) { s.OfflineRebuilding = v1beta2.OverrideEnabled })
		w.settle()
		if c := w.condition(v1beta2.VolumeConditionOfflineRebuilding); c.Status != v1beta2.ConditionTrue {
			w.failf("condition %+v", c)
		}
		w.rebuilt()
		w.settle()
		w.expect(`detached unknown at ""`)
		if c := w.condition(v1beta2.VolumeConditionOfflineRebuilding); c.Status != v1beta2.ConditionFalse {
			t.Errorf("afterwards, condition %+v", c)
		}
		for dir, c := range w.copies {
			if !w.holds(c) {
				t.Errorf("directory %s on %s lacks acknowledged writes\n%s", dir, c.node, w.dump())
			}
		}
	})
}

func TestLocalReplicaWithoutAPlaceIsToldOnce(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.makeVolume(2, func(s *v1beta2.VolumeSpec) { s.DataLocality = v1beta2.DataLocalityBestEffort })
		w.settle()
		free := w.free()
		w.takes(free, false)
		w.tickets("ui", free, v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		w.expect(fmt.Sprintf("attached healthy at %q", free))
		c := w.condition(v1beta2.VolumeConditionScheduled)
		if c.Status != v1beta2.ConditionFalse || c.Reason != v1beta2.VolumeReasonLocalReplicaSchedulingFailure ||
			len(w.replicas()) != 2 {
			w.failf("condition %+v", c)
		}
		w.takes(free, true)
		w.rebuilding(4)
		if !v1beta2.IsConditionTrue(w.volume("v").Status.Conditions, v1beta2.VolumeConditionScheduled) {
			w.failf("mended, but still not scheduled")
		}
	})
}
