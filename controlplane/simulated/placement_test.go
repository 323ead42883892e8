package simulated_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// TestFailedRebuildIsTold: condition RebuildFailed of a replica whose process ends during its
// rebuild, until one succeeds; the log of the process is read after each failure.
func TestFailedRebuildIsTold(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.attached(3)
		onN3 := func() v1beta2.Replica {
			t.Helper()
			all := w.replicas()
			i := slices.IndexFunc(all, func(r v1beta2.Replica) bool { return r.Spec.NodeID == "n3" })
			if i < 0 {
				w.failf("no replica is on n3")
			}
			return all[i]
		}
		w.killFirst(replicaOn("n3"))
		w.settle()
		r := onN3()
		if c := v1beta2.FindCondition(r.Status.Conditions, "RebuildFailed"); c.Status != v1beta2.ConditionUnknown {
			t.Errorf("before a rebuild failed: %+v", c)
		}
		if r.Spec.LogRequested || r.Status.LogFetched {
			t.Errorf("its process runs again, and its log is asked for: %v, fetched %v", r.Spec.LogRequested, r.Status.LogFetched)
		}
		w.killFirst(replicaOn("n3")) // while it is rebuilt
		w.run(12 * time.Second)
		r = onN3()
		if c := v1beta2.FindCondition(r.Status.Conditions, "RebuildFailed"); c.Status != v1beta2.ConditionTrue ||
			c.Reason != "Disconnection" || c.Message == "" {
			t.Errorf("after its rebuild failed: %+v\n%s", c, w.dump())
		}
		if !r.Spec.LogRequested || !r.Status.LogFetched {
			t.Errorf("the log is asked for: %v, fetched %v", r.Spec.LogRequested, r.Status.LogFetched)
		}
		if want := []string{r.Name, r.Name}; !slices.Equal(w.logsRead, want) {
			t.Errorf("the logs of %v were read, want %v", w.logsRead, want)
		}
		w.heals(5 * time.Minute)
		r = onN3()
		if c := v1beta2.FindCondition(r.Status.Conditions, "RebuildFailed"); c.Status != v1beta2.ConditionFalse {
			t.Errorf("after a rebuild succeeded: %+v", c)
		}
	})
}

// A volume of best-effort locality is placed when it is attached, with a replica there; where it is
// attached next a replica is built, and one elsewhere goes.
func TestBestEffortLocalityMovesAReplica(t *testing.T) {
	scene(t, 4, func(t *testing.T, w *world) {
		w.makeVolume(2, func(s *v1beta2.VolumeSpec) { s.DataLocality = v1beta2.DataLocalityBestEffort })
		w.settle()
		for _, r := range w.replicas() {
			if r.Spec.NodeID != "" {
				w.failf("a replica is placed before the volume is attached")
			}
		}
		w.tickets("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		w.expect(`attached healthy at "n1"`)
		if len(w.replicas()) != 2 || w.onNodes()["n1"] != 1 {
			w.failf("no replica was placed on the node of the volume")
		}
		w.tickets("ui", "", "")
		w.settle()
		free := w.free()
		w.tickets("ui", free, v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		w.rebuilding(4)
		w.expect(fmt.Sprintf("attached healthy at %q", free))
		if local := w.onNodes()[free]; local != 1 || len(w.replicas()) != 2 {
			w.failf("%d local of %d replicas", local, len(w.replicas()))
		}
	})
}

// A volume of strict locality is placed when it is attached, and its one replica is bound to that
// node.
func TestStrictLocalityIsPlacedWhereItIsAttached(t *testing.T) {
	scene(t, 4, func(t *testing.T, w *world) {
		w.makeVolume(1, func(s *v1beta2.VolumeSpec) { s.DataLocality = v1beta2.DataLocalityStrictLocal })
		w.settle()
		if r := w.replicas(); len(r) != 1 || r[0].Spec.NodeID != "" {
			w.failf("the replica is placed before the volume is attached")
		}
		w.tickets("ui", "n3", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		w.expect(`attached healthy at "n3"`)
		if r := w.replicas(); len(r) != 1 || r[0].Spec.NodeID != "n3" || r[0].Spec.HardNodeAffinity != "n3" {
			w.failf("the replica is not bound to the node of the volume")
		}
		w.tickets("ui", "", "")
		w.settle()
		w.tickets("ui", "n3", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		w.expect(`attached healthy at "n3"`)
		if len(w.replicas()) != 1 {
			w.failf("another replica was made")
		}
	})
}

// TestEvictionOfAFailedReplica: a replica that fails while its node is evicted goes, once the
// volume is complete without it, and the volume that nobody uses is detached.
func TestEvictionOfAFailedReplica(t *testing.T) {
	scene(t, 4, func(t *testing.T, w *world) {
		w.attached(3)
		w.changeVolume(func(s *v1beta2.VolumeSpec) { s.StaleReplicaTimeout = 0 }) // failed ones stay, however old
		r := w.replicas()[0]
		w.evict(r.Name)
		w.killFirst(replicaOn(r.Spec.NodeID))
		w.settle()
		for _, o := range w.replicas() {
			if o.Name == r.Name && o.Spec.FailedAt == "" {
				w.failf("the evicted replica has not failed")
			}
		}
		w.tickets("ui", "", "")
		w.rebuilding(4)
		w.expect(`detached unknown at ""`)
		if slices.Contains(w.replicaNames(), r.Name) || len(w.replicas()) != 3 {
			w.failf("the evicted replica was not moved")
		}
	})
}

// TestEndsBetweenGrantAndFounding: engines of a volume that was never used end when they have been
// granted an epoch. The volume comes up with the first one that does not, however many there were.
func TestEndsBetweenGrantAndFounding(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		for _, ends := range []int{1, 2, 5} {
			scene(t, 3, func(t *testing.T, w *world) {
				w.makeVolume(replicas, nil)
				w.endGranted = ends
				w.settle()
				w.tickets("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
				w.heals(30 * time.Minute)
				if w.endGranted != 0 {
					t.Errorf("%d replicas: %d of %d ends have not come", replicas, w.endGranted, ends)
				}
			})
		}
	}
}

// TestReplacementWhileAnImageIsAwaited: an attached volume whose wanted image is on no node
// replaces a lost replica where its present image is.
func TestReplacementWhileAnImageIsAwaited(t *testing.T) {
	scene(t, 4, func(t *testing.T, w *world) {
		w.attached(3)
		w.changeVolume(func(s *v1beta2.VolumeSpec) { s.Image = "ankole/engine:none" })
		victim := w.elsewhere("n1")
		w.cut(victim)
		w.run(11 * time.Minute)
		w.rebuilt()
		w.settle()
		w.expect(`attached healthy at "n1"`)
	})
}

// TestManualAttachmentOfACordonedNode: a volume that a person has attached leaves a cordoned node
// as far as the processes go, when the setting asks for it; one that a Pod uses stays.
func TestManualAttachmentOfACordonedNode(t *testing.T) {
	for _, tt := range []struct {
		value string
		kind  v1beta2.AttacherType
		want  string
	}{
		{"true", v1beta2.AttacherTypeLonghornAPI, `detached unknown at ""`},
		{"false", v1beta2.AttacherTypeLonghornAPI, `attached healthy at "n1"`},
		{"true", v1beta2.AttacherTypeCSI, `attached healthy at "n1"`},
	} {
		scene(t, 3, func(t *testing.T, w *world) {
			w.setting(setting.DetachManuallyAttachedVolumesWhenCordoned, tt.value)
			w.makeVolume(3, nil)
			w.settle()
			w.tickets("it", "n1", tt.kind)
			w.settle()
			w.expect(`attached healthy at "n1"`)
			w.editNode("n1", func(n *corev1.Node) { n.Spec.Unschedulable = true })
			w.settle()
			w.expect(tt.want)
			if alive, _ := w.running(); (len(alive) == 0) != (w.volume("v").Spec.NodeID == "") {
				w.failf("%s, %s: %d processes run", tt.kind, tt.value, len(alive))
			}
		})
	}
}

// TestAutoBalance: a volume with all replicas on one node spreads over the nodes that join, one
// replica at a time, and gives none up before the new one is in sync.
func TestAutoBalance(t *testing.T) {
	for _, mode := range []string{"least-effort", "best-effort"} {
		scene(t, 3, func(t *testing.T, w *world) {
			w.takes("n2", false)
			w.takes("n3", false)
			w.run(time.Second)
			w.makeVolume(3, func(s *v1beta2.VolumeSpec) { s.ReplicaSoftAntiAffinity = v1beta2.OverrideEnabled })
			w.settle()
			w.tickets("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
			w.settle()
			w.expect(`attached healthy at "n1"`)
			before := w.replicaNames()
			w.takes("n2", true)
			w.takes("n3", true)
			w.settle()
			if after := w.replicaNames(); !slices.Equal(before, after) {
				w.failf("replicas moved without auto-balance: %v, then %v", before, after)
			}
			w.setting(setting.ReplicaAutoBalance, mode)
			for range 3 {
				w.settle()
				if n := w.modes()[v1beta2.ReplicaModeRW]; n < 3 || len(w.replicas()) > 4 {
					w.failf("%s: %d of %d replicas are in sync", mode, n, len(w.replicas()))
				}
				w.rebuilt()
			}
			w.settle()
			w.expect(`attached healthy at "n1"`)
			if on := w.onNodes(); len(on) != 3 || len(w.replicas()) != 3 {
				w.failf("%s: replicas by node %v", mode, on)
			}
		})
	}
}
