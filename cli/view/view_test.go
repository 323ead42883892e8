package view

import (
	"slices"
	"testing"

	"ankole.storage/rest/resource"
)

// TestVolumeProblems: each thing that is wrong is told once, with the command to go on with.
func TestVolumeProblems(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*resource.Volume)
		want []Finding
	}{
		"sound": {func(*resource.Volume) {}, nil},
		"degraded": {func(v *resource.Volume) {
			v.Robustness, v.NumberOfReplicas = "degraded", 2
			v.Replicas = []resource.Replica{{Mode: "RW"}, {Mode: "ERR", FailedAt: "2026-05-03T10:00:00Z"}}
		}, []Finding{{"volume/v", "degraded: 1 of 2 replicas are in sync, 1 failed", "ankole volume describe v"}}},
		"damaged": {func(v *resource.Volume) {
			v.Conditions["BackupDamage"] = resource.Condition{Status: "True", Message: "zero: [0, 5)"}
		}, []Finding{{"volume/v", "zero: [0, 5)", "ankole volume accept-backup-damage v"}}},
		"a place is missing": {func(v *resource.Volume) {
			v.Conditions["Scheduled"] = resource.Condition{Status: "False", Message: "no disk"}
		}, []Finding{{"volume/v", "not all replicas are scheduled: no disk", "ankole disk list"}}},
	} {
		v := &resource.Volume{VolumeSpec: resource.VolumeSpec{Name: "v"}, Robustness: "healthy",
			Conditions: map[string]resource.Condition{}}
		c.edit(v)
		if got := VolumeProblems(v); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestWaits: what an object waits for is told once, with a command that says more than its page.
func TestWaits(t *testing.T) {
	got := Waits([]Finding{{"node/n", "no room", "ankole disk list"}, {"node/n", "not ready", "ankole node describe n"}},
		[]Finding{{What: "not ready"}})
	if want := []string{"no room; see: ankole disk list", "not ready"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
