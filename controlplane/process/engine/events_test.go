package engine

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/instance"
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

// TestLogOfAFailedEngine: its log is read before its process is ended and after the next one is
// started, once, and the status shows it.
func TestLogOfAFailedEngine(t *testing.T) {
	const read = "read the log of engine v-e-0 in im-1"
	does := func(e *v1beta2.Engine, s seen) string {
		_, d := settle(e, s)
		if d.Do == nil {
			return ""
		}
		return d.Do.String()
	}
	e, s := running()
	e.Spec.LogRequested, e.Spec.DesireState = true, v1beta2.InstanceStateStopped
	if got := does(e, s); got != read {
		t.Errorf("before its end: %q", got)
	}
	s.Log = instance.LogAnswer{Tried: true, Read: true}
	if got := does(e, s); got != "stop engine v-e-0 in im-1" || !e.Status.LogFetched {
		t.Errorf("when it was read: %q, fetched %v", got, e.Status.LogFetched)
	}
	e, s = running()
	e.Spec.LogRequested = true
	s.Managers[0].Status.InstanceEngines = nil
	if got := does(e, s); got != "start engine v-e-0" {
		t.Errorf("before a start: %q", got)
	}
	e, s = running()
	e.Spec.LogRequested = true
	if got := does(e, s); got != read {
		t.Errorf("of one that runs: %q", got)
	}
	e.Spec.LogRequested, e.Status.LogFetched = false, true
	if got := does(e, s); got != "" || e.Status.LogFetched {
		t.Errorf("taken back: %q, fetched %v", got, e.Status.LogFetched)
	}
}
