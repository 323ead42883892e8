package volume_test

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/testcluster"
)

// localVolume creates a volume whose replicas are placed before it gets its data locality: one that
// has it from the beginning is placed where it is attached. It can be attached then.
func (r *real) localVolume(name string, replicas int, locality v1beta2.DataLocality) {
	r.t.Helper()
	r.eventually("create volume "+name, func() error {
		return r.c.Create(context.Background(), &v1beta2.Volume{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: v1beta2.VolumeSpec{Size: 32 << 20, NumberOfReplicas: replicas,
				Frontend: v1beta2.VolumeFrontendBlockDev, DataLocality: v1beta2.DataLocalityDisabled},
		})
	})
	r.await(name, "detached", func(v *v1beta2.Volume) bool { return v.Status.State == v1beta2.VolumeStateDetached })
	r.eventually("places of the replicas of "+name, func() error {
		if unplaced := r.on(name, ""); unplaced > 0 || len(r.replicas(name)) != replicas {
			return fmt.Errorf("%d of %d replicas have none", unplaced, len(r.replicas(name)))
		}
		return nil
	})
	if locality != v1beta2.DataLocalityDisabled {
		r.locality(name, locality)
	}
}

// remoteNode is a node without a replica of the volume.
func (r *real) remoteNode(volume string) string {
	r.t.Helper()
	for k := range r.Nodes {
		if node := testcluster.NodeName(k + 1); r.on(volume, node) == 0 {
			return node
		}
	}
	r.t.Fatalf("every node has a replica of volume %s\n%s", volume, r.dump())
	return ""
}

// on counts a volume's replicas on a node.
func (r *real) on(volume, node string) int {
	n := 0
	for _, rep := range r.replicas(volume) {
		if rep.Spec.NodeID == node {
			n++
		}
	}
	return n
}

// awaitLocal waits until so many of all replicas are on the node and all are in sync.
func (r *real) awaitLocal(volume, node string, local, all int) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%d of %d replicas of volume %s on %s", local, all, volume, node), func() error {
		reps := r.replicas(volume)
		for i := range reps {
			if reps[i].Spec.HealthyAt == "" || reps[i].Spec.FailedAt != "" || reps[i].DeletionTimestamp != nil {
				return fmt.Errorf("replica %s is not in sync", reps[i].Name)
			}
		}
		if have := r.on(volume, node); have != local || len(reps) != all {
			return fmt.Errorf("%d of %d", have, len(reps))
		}
		return nil
	})
}

func (r *real) locality(volume string, to v1beta2.DataLocality) {
	var v v1beta2.Volume
	r.change(&v, volume, func() { v.Spec.DataLocality = to })
}

func (r *real) drop(volume string) {
	r.attach(volume, "")
	r.await(volume, "detached", func(v *v1beta2.Volume) bool { return v.Status.State == v1beta2.VolumeStateDetached })
	r.removed(volume)
}

// TestDataLocality holds scenarios of acceptance group D on four nodes.
func TestDataLocality(t *testing.T) {
	r := startReal(t, 4)
	t.Run("D1", func(t *testing.T) {
		r.t = t
		r.localVolume("d1", 2, v1beta2.DataLocalityBestEffort)
		node := r.remoteNode("d1")
		r.attach("d1", node)
		r.awaitLocal("d1", node, 1, 2)
		r.drop("d1")
	})
	t.Run("D2", func(t *testing.T) {
		r.t = t
		r.localVolume("d2", 2, v1beta2.DataLocalityDisabled)
		node := r.remoteNode("d2")
		r.attach("d2", node)
		r.awaitState("d2", node, v1beta2.VolumeRobustnessHealthy)
		before := r.names("d2")
		r.awaitLocal("d2", node, 0, 2)
		if after := r.names("d2"); after != before {
			t.Errorf("replicas changed from %s to %s", before, after)
		}
	})
	t.Run("D4", func(t *testing.T) {
		r.t = t
		var v v1beta2.Volume
		must(t, r.get(&v, "d2"))
		node := v.Status.CurrentNodeID
		r.locality("d2", v1beta2.DataLocalityBestEffort)
		r.awaitLocal("d2", node, 1, 2)
		// Switched off: the count goes to 3, then the local one is deleted; what is made for it is
		// not bound to the node.
		r.locality("d2", v1beta2.DataLocalityDisabled)
		r.change(&v, "d2", func() { v.Spec.NumberOfReplicas = 3 })
		r.awaitLocal("d2", node, 1, 3)
		for _, rep := range r.replicas("d2") {
			if rep.Spec.NodeID == node {
				must(t, r.c.Delete(context.Background(), &rep))
			}
		}
		r.eventually("three replicas again", func() error {
			reps := r.replicas("d2")
			for _, rep := range reps {
				if rep.Spec.HealthyAt == "" || rep.DeletionTimestamp != nil {
					return fmt.Errorf("replica %s is not in sync", rep.Name)
				}
				if rep.Spec.NodeID == node && rep.Spec.HardNodeAffinity != "" {
					return fmt.Errorf("replica %s is bound to the node", rep.Name)
				}
			}
			if len(reps) != 3 {
				return fmt.Errorf("%d replicas", len(reps))
			}
			return nil
		})
		r.drop("d2")
	})
	t.Run("D6 and D13", func(t *testing.T) { r.t = t; r.noRoomOnTheLocalNode() })
	t.Run("D11", func(t *testing.T) {
		r.t = t
		for _, name := range []string{"d11-a", "d11-b"} {
			r.localVolume(name, 1, v1beta2.DataLocalityBestEffort)
			r.attach(name, r.remoteNode(name))
		}
		for _, name := range []string{"d11-a", "d11-b"} {
			r.await(name, "attached", func(v *v1beta2.Volume) bool { return v.Status.State == v1beta2.VolumeStateAttached })
			var v v1beta2.Volume
			must(t, r.get(&v, name))
			r.awaitLocal(name, v.Status.CurrentNodeID, 1, 1)
			r.drop(name)
		}
	})
	t.Run("D12", func(t *testing.T) {
		r.t = t
		r.localVolume("d12", 2, v1beta2.DataLocalityBestEffort)
		r.locality("d12", v1beta2.DataLocalityDisabled)
		node := r.remoteNode("d12")
		r.attach("d12", node)
		r.awaitState("d12", node, v1beta2.VolumeRobustnessHealthy)
		r.awaitLocal("d12", node, 0, 2)
		r.drop("d12")
	})
}

// noRoomOnTheLocalNode is D6: the volume works, no replica object flickers, a condition says why;
// and D13: mended, the local replica appears by itself.
func (r *real) noRoomOnTheLocalNode() {
	r.localVolume("d6", 2, v1beta2.DataLocalityBestEffort)
	node := r.remoteNode("d6")
	var n v1beta2.Node
	r.change(&n, node, func() { n.Spec.AllowScheduling = false })
	before := r.names("d6")
	r.attach("d6", node)
	r.awaitState("d6", node, v1beta2.VolumeRobustnessHealthy)
	r.await("d6", "telling that there is no local replica", func(v *v1beta2.Volume) bool {
		c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionScheduled)
		return c.Status == v1beta2.ConditionFalse && c.Reason == v1beta2.VolumeReasonLocalReplicaSchedulingFailure &&
			c.Message != ""
	})
	if after := r.names("d6"); after != before {
		r.t.Errorf("replicas changed from %s to %s", before, after)
	}
	r.change(&n, node, func() { n.Spec.AllowScheduling = true })
	r.awaitLocal("d6", node, 1, 2)
	r.await("d6", "scheduled", func(v *v1beta2.Volume) bool {
		return v1beta2.IsConditionTrue(v.Status.Conditions, v1beta2.VolumeConditionScheduled)
	})
	r.drop("d6")
}

func (r *real) names(volume string) string {
	out := ""
	for _, rep := range r.replicas(volume) {
		out += rep.Name + " "
	}
	return out
}
