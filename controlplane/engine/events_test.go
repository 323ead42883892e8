package engine

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestOrdersAreTold holds the reasons of the events on an Engine for what its controller does, and
// of those for what it cannot do.
func TestOrdersAreTold(t *testing.T) {
	for _, tt := range []struct {
		name            string
		edit            func(*v1beta2.Engine, *seen)
		reason, failure string
	}{
		{"start", func(_ *v1beta2.Engine, s *seen) { s.Managers[0].Status.InstanceEngines, s.State = nil, nil },
			"Start", "FailedStarting"},
		{"stop", func(e *v1beta2.Engine, _ *seen) { e.Spec.DesireState = v1beta2.InstanceStateStopped },
			"Stop", "FailedStopping"},
		{"a replica that is not the volume's", func(e *v1beta2.Engine, _ *seen) { delete(e.Spec.ReplicaAddressMap, "b") },
			"Delete", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, s := running()
			tt.edit(e, &s)
			_, d := settle(e, s)
			if d.Do == nil || len(d.Events) != 1 {
				t.Fatalf("does %v, events %+v", d.Do, d.Events)
			}
			if got := d.Events[0]; got.Reason != tt.reason || got.Warning || got.On != nil || d.FailureReason != tt.failure {
				t.Errorf("event %+v, or %q if it fails; want %s, Normal, or %q", got, d.FailureReason, tt.reason, tt.failure)
			}
		})
	}
}
