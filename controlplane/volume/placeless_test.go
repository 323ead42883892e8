package volume

import (
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestAReplicaWithoutAPlaceIsNoCopy: a volume with a good copy does not count as faulted because of
// a replica that never had a place and was marked as failed. One that did was attached for an
// expansion and detached, again and again.
func TestAReplicaWithoutAPlaceIsNoCopy(t *testing.T) {
	v, s := fixture()
	v.Status.State, v.Status.CurrentNodeID = v1beta2.VolumeStateAttaching, ""
	v.Status.Robustness = v1beta2.VolumeRobustnessUnknown
	off(s)
	fail(s, 1, time.Minute)
	s.Replicas[1].Spec.NodeID, s.Replicas[1].Spec.DiskID, s.Replicas[1].Spec.HealthyAt = "", "", ""
	settle(v, s)
	if v.Status.Robustness != v1beta2.VolumeRobustnessUnknown {
		t.Errorf("with a good copy the volume is %s", v.Status.Robustness)
	}
	fail(s, 0, time.Minute)
	settle(v, s)
	if v.Status.Robustness != v1beta2.VolumeRobustnessFaulted {
		t.Errorf("without a good copy the volume is %s", v.Status.Robustness)
	}
}
