package engine

import (
	"slices"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// Copies that have been in sync and have not failed since are named, in order.
func TestInSync(t *testing.T) {
	copyOf := func(dir, healthy, failed string, active bool) v1beta2.Replica {
		var r v1beta2.Replica
		r.Spec.DataDirectoryName, r.Spec.HealthyAt, r.Spec.FailedAt, r.Spec.Active = dir, healthy, failed, active
		return r
	}
	got := inSyncOf([]v1beta2.Replica{
		copyOf("v-2", "2023-01-01T00:00:00Z", "", true), copyOf("v-1", "2023-01-01T00:00:00Z", "", true),
		copyOf("v-never", "", "", true), copyOf("v-failed", "2023-01-01T00:00:00Z", "2023-01-02T00:00:00Z", true),
		copyOf("v-standby", "2023-01-01T00:00:00Z", "", false), copyOf("", "2023-01-01T00:00:00Z", "", true),
	})
	if want := []string{"--in-sync", "v-1", "--in-sync", "v-2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
