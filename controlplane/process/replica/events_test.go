package replica

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestOrdersAreTold holds the reasons of the events on a Replica for what its controller does, and
// of those for what it cannot do.
func TestOrdersAreTold(t *testing.T) {
	start, stop := rep(), rep()
	stop.Spec.DesireState = v1beta2.InstanceStateStopped
	for _, tt := range []struct {
		replica         *v1beta2.Replica
		process         *v1beta2.InstanceProcess
		reason, failure string
	}{
		{start, nil, "Start", "FailedStarting"},
		{stop, runningProcess(), "Stop", "FailedStopping"},
	} {
		d := decide(now, tt.replica, seen{Managers: managers(tt.process)})
		if d.Do == nil || len(d.Events) != 1 {
			t.Fatalf("%s: does %v, events %+v", tt.reason, d.Do, d.Events)
		}
		if e := d.Events[0]; e.Reason != tt.reason || e.Warning || d.FailureReason != tt.failure {
			t.Errorf("event %+v, or %q if it fails; want %s, Normal, or %q", e, d.FailureReason, tt.reason, tt.failure)
		}
	}
}
