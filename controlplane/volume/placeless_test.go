package volume

import (
	"strings"
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

// TestReplacementWithoutAPlaceIsNoReplica: a volume of three has two replicas, and nothing more,
// while no node can take the third one, whether its place was lost before or after it was made.
// Unplaced ones of a new volume stay.
func TestReplacementWithoutAPlaceIsNoReplica(t *testing.T) {
	unplaced := func(retries int) *v1beta2.Replica {
		r := good("c", "n3", "v-cccccccc")
		r.Spec.NodeID, r.Spec.DataDirectoryName = "", ""
		r.Spec.DiskID, r.Spec.DiskPath, r.Spec.HealthyAt, r.Spec.LastHealthyAt = "", "", "", ""
		r.Spec.RebuildRetryCount, r.Spec.DesireState = retries, v1beta2.InstanceStateStopped
		r.Status.CurrentState = v1beta2.InstanceStateStopped
		return &r
	}
	for name, c := range map[string]struct {
		third *v1beta2.Replica
		want  string
	}{
		"none":            {nil, ""},
		"made, and unfit": {unplaced(v1beta2.MaxRebuildRetryCount), "delete *v1beta2.Replica c"},
		"of the start":    {unplaced(0), ""},
	} {
		v, s := fixture()
		v.Spec.NumberOfReplicas, v.Status.Robustness = 3, v1beta2.VolumeRobustnessDegraded
		s.Nodes[2].Spec.AllowScheduling = false
		if c.third != nil {
			s.Replicas = append(s.Replicas, *c.third)
		}
		d := settle(v, s)
		got := ""
		if d.Do != nil {
			got = d.Do.String()
		}
		if (c.want == "") != (got == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: does %q, want %q", name, got, c.want)
		}
		scheduled := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionScheduled)
		if c.want == "" && (scheduled.Status != v1beta2.ConditionFalse || scheduled.Message == "") {
			t.Errorf("%s: %+v", name, scheduled)
		}
	}
}
