package allocator

import (
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestWhatTakesARebuildSlot: a replica that is to run, is not in sync, has not failed, and either
// had data or has been tried before. A first replica takes none.
func TestWhatTakesARebuildSlot(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*v1beta2.ReplicaSpec)
		want string
	}{
		{"tried before", func(*v1beta2.ReplicaSpec) {}, "n1"},
		{"a first one", func(s *v1beta2.ReplicaSpec) { s.RebuildRetryCount = 0 }, ""},
		{"once in sync", func(s *v1beta2.ReplicaSpec) { s.RebuildRetryCount, s.LastHealthyAt = 0, "t" }, "n1"},
		{"in sync", func(s *v1beta2.ReplicaSpec) { s.HealthyAt = "t" }, ""},
		{"failed", func(s *v1beta2.ReplicaSpec) { s.FailedAt = "t" }, ""},
		{"not to run", func(s *v1beta2.ReplicaSpec) { s.DesireState = v1beta2.InstanceStateStopped }, ""},
		{"not in use", func(s *v1beta2.ReplicaSpec) { s.Active = false }, ""},
	} {
		r := started(replica("v", "n1", "1"), "2")
		tt.edit(&r.Spec)
		if got := claimOf(r).rebuildOn; got != tt.want {
			t.Errorf("%s: takes a slot of node %q, want %q", tt.name, got, tt.want)
		}
	}
}
