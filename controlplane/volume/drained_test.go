package volume

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestDrainedNodeIsNotWaitedFor is the table of which replica an attachment waits for, by what has
// become of the instance manager of its node. A Pod that has left a drained node waited 45 s for
// nothing.
func TestDrainedNodeIsNotWaitedFor(t *testing.T) {
	for _, tt := range []struct {
		name     string
		cordoned bool
		state    v1beta2.InstanceManagerState
		members  []string
		starts   bool
	}{
		{"drained", true, v1beta2.InstanceManagerStateError, nil, true},
		{"drained, and seen later", true, v1beta2.InstanceManagerStateStopped, nil, true},
		{"cordoned, and it runs on", true, v1beta2.InstanceManagerStateRunning, nil, false},
		{"cordoned while it comes up", true, v1beta2.InstanceManagerStateStarting, nil, false},
		{"cordoned, what it does is not known", true, v1beta2.InstanceManagerStateUnknown, nil, false},
		{"it has ended, and another one follows", false, v1beta2.InstanceManagerStateError, nil, false},
		{"drained, and the others are too few to start from", true, v1beta2.InstanceManagerStateError,
			[]string{"v-aaaaaaaa", "v-bbbbbbbb", "v-cccccccc"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, s := fixture()
			v.Status.State, v.Status.CurrentNodeID = v1beta2.VolumeStateAttaching, ""
			off(s)
			s.Engine.Spec.NodeID, s.Engine.Spec.ReplicaAddressMap = "", nil
			if tt.members != nil {
				s.Engine.Status.Membership.Members = tt.members
			}
			b := &s.Replicas[1]
			b.Status.CurrentState, b.Status.StorageIP, b.Status.Port = stopped, "", 0
			for i := range s.Managers {
				im := &s.Managers[i]
				if im.Spec.NodeID != b.Spec.NodeID {
					continue
				}
				im.Status.CurrentState = tt.state
				if tt.cordoned {
					im.Status.Conditions, _ = v1beta2.SetCondition(im.Status.Conditions, v1beta2.Condition{
						Type: v1beta2.InstanceManagerConditionNodeReady, Status: v1beta2.ConditionFalse,
						Reason: v1beta2.InstanceManagerReasonNodeUnschedulable}, now)
				}
			}
			u, ok := update(settle(v, s))
			starts := false
			if e, is := u.Object.(*v1beta2.Engine); ok && is {
				starts = e.Spec.DesireState == running && len(e.Spec.ReplicaAddressMap) == 1
			}
			if starts != tt.starts {
				t.Errorf("the engine is started: %v, want %v (%v)", starts, tt.starts, v.Status.Conditions)
			}
		})
	}
}
