package volume

import (
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// granted makes the fixture a volume that was never used, whose first engine has been granted an
// epoch and has agreed on no members yet.
func granted() (*v1beta2.Volume, *seen) {
	v, s := fixture()
	s.Engine.Status.Membership = &v1beta2.Membership{VolumeUUID: "uid-v", Epoch: 1000}
	for i := range s.Replicas {
		s.Replicas[i].Spec.HealthyAt, s.Replicas[i].Spec.LastHealthyAt = "", ""
	}
	v.Status.State, v.Status.CurrentNodeID = v1beta2.VolumeStateAttaching, ""
	v.Status.Robustness = v1beta2.VolumeRobustnessUnknown
	s.Engine.Status.CurrentState, s.Engine.Status.ReplicaModeMap, s.Engine.Status.Endpoint = stopped, nil, ""
	return v, s
}

// TestGrantBeforeTheProcessIsSeen: the witness' grant may be seen before the process that asked for
// it. The engine goes on with the replicas that it was ordered with.
func TestGrantBeforeTheProcessIsSeen(t *testing.T) {
	v, s := granted()
	if d := settle(v, s); d.Do != nil {
		t.Errorf("wants %s", describe(d))
	}
}

// TestSalvageBeforeTheFirstRecord: a volume whose first start came to nothing after the grant is
// tried again.
func TestSalvageBeforeTheFirstRecord(t *testing.T) {
	v, s := granted()
	v.Spec.NodeID, v.Status.State, v.Status.Robustness = "", v1beta2.VolumeStateDetached, v1beta2.VolumeRobustnessFaulted
	off(s)
	s.Engine.Spec.NodeID, s.Engine.Spec.ReplicaAddressMap = "", nil
	for i := range s.Replicas {
		fail(s, i, time.Minute)
	}
	d := settle(v, s)
	u, ok := d.Do.(loop.Update)
	if !ok {
		t.Fatalf("wants %v", d.Do)
	}
	if r, ok := u.Object.(*v1beta2.Replica); !ok || r.Spec.FailedAt != "" {
		t.Errorf("wants %s", describe(d))
	}
}
