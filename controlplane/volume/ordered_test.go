package volume

import (
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestWaitIsToldOnce: an attachment tells that processes are ordered in the write that begins it,
// and names those that are missing when that takes long: what is usual costs no write for each
// process that comes up.
func TestWaitIsToldOnce(t *testing.T) {
	v, s := fixture()
	off(s)
	v.Status.State, v.Status.CurrentNodeID = v1beta2.VolumeStateDetached, ""
	for i := range s.Replicas {
		s.Replicas[i].Spec.DesireState, s.Replicas[i].Status.CurrentState = stopped, stopped
	}
	told := func() v1beta2.Condition {
		return v1beta2.FindCondition(v.Status.Conditions, ConditionWaitForReplicas)
	}
	decides(v, *s)
	first := told()
	if v.Status.State != v1beta2.VolumeStateAttaching || first.Reason != v1beta2.VolumeReasonReplicasOrdered ||
		first.Status != v1beta2.ConditionTrue {
		t.Errorf("state %s, condition %+v", v.Status.State, first)
	}
	s.WaitsSince = now
	for i := range s.Replicas {
		s.Replicas[i].Spec.DesireState = running
	}
	for i := range s.Replicas { // one after the other comes up
		if d := decide(now.Add(time.Second), v, *s); told() != first || d.After <= 0 || d.After > tellAfter {
			t.Errorf("with %d replicas: %+v, %+v", i, told(), d)
		}
		s.Replicas[i].Status.CurrentState, s.Replicas[i].Status.StorageIP, s.Replicas[i].Status.Port = running, "10.0.0.1", 1
	}
	s.Replicas[1].Status.CurrentState = v1beta2.InstanceStateStarting
	decide(now.Add(tellAfter), v, *s)
	if c := told(); c.Reason != ReasonReplicasStarting || c.Message != "waiting for the processes of replicas b" ||
		c.LastTransitionTime != first.LastTransitionTime {
		t.Errorf("after %s: %+v", tellAfter, c)
	}
}
