package volume

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestRebuildThatCannotBegin holds K77: a replica that is to be rebuilt gives its place up where
// nothing can run its process.
func TestRebuildThatCannotBegin(t *testing.T) {
	const gives = "replica c stopped failed"
	manager := func(state v1beta2.InstanceManagerState) func(*seen) {
		return func(s *seen) { s.Managers[2].Status.CurrentState = state }
	}
	down := func(s *seen) {
		s.Nodes[2].Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: v1beta2.ConditionFalse,
			Reason: v1beta2.NodeReasonKubernetesNodeNotReady}}
	}
	for _, tt := range []struct {
		name string
		edit []func(*seen)
		want string
	}{
		{"its process is awaited", nil, ""},
		{"its instance manager has failed", []func(*seen){manager(v1beta2.InstanceManagerStateError)}, gives},
		{"its instance manager starts", []func(*seen){manager(v1beta2.InstanceManagerStateStarting)}, gives},
		{"its instance manager cannot be observed", []func(*seen){manager(v1beta2.InstanceManagerStateUnknown)}, ""},
		{"there is no instance manager", []func(*seen){func(s *seen) { s.Managers = s.Managers[:2] }}, gives},
		{"it was not started yet", []func(*seen){manager(v1beta2.InstanceManagerStateError), func(s *seen) {
			s.Replicas[2].Spec.DesireState = stopped
		}}, gives},
		{"its node is down", []func(*seen){down}, gives},
	} {
		v, s := fixture()
		third(s)
		v.Spec.NumberOfReplicas = 3
		degrade(v, 0)
		c := &s.Replicas[2]
		c.Spec.HealthyAt, c.Spec.LastHealthyAt, c.Spec.RebuildRetryCount = "", "", v1beta2.MaxRebuildRetryCount
		c.Status.CurrentState, c.Status.Port = stopped, 0
		for _, edit := range tt.edit {
			edit(s)
		}
		if got := describe(settle(v, s)); got != tt.want {
			t.Errorf("%s: wants %q, want %q", tt.name, got, tt.want)
		}
	}
}
