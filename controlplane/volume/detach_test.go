package volume

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestDetachWaitsForNoDeletedReplica: what waits for a deleted replica's disk, or for the manager
// of its node, keeps no volume from being attached elsewhere. Its object says "running" for as long
// as it is there.
func TestDetachWaitsForNoDeletedReplica(t *testing.T) {
	for state, want := range map[v1beta2.InstanceState]v1beta2.VolumeState{
		stopped: v1beta2.VolumeStateDetached, "": v1beta2.VolumeStateDetached,
		running: v1beta2.VolumeStateDetaching, v1beta2.InstanceStateStopping: v1beta2.VolumeStateDetaching,
	} {
		v, s := fixture()
		third(s)
		remove(s, 2)
		s.Replicas[2].Status.CurrentState = state
		v.Spec.NodeID, s.Attachment.Spec.AttachmentTickets = "", nil
		s.Engine.Spec.DesireState, s.Engine.Status.CurrentState = stopped, stopped
		s.Engine.Spec.NodeID, s.Engine.Spec.ReplicaAddressMap, s.Engine.Status.ReplicaModeMap = "", nil, nil
		s.Engines[0] = *s.Engine
		for i := range s.Replicas[:2] {
			s.Replicas[i].Spec.DesireState, s.Replicas[i].Status.CurrentState = stopped, stopped
		}
		settle(v, s)
		if v.Status.State != want {
			t.Errorf("the process of the deleted replica is %q: the volume is %s, want %s", state, v.Status.State, want)
		}
	}
}
