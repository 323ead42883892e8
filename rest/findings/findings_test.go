package findings

import (
	"slices"
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
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

// TestVolume: what a volume waits for is told; what only says something about it is not.
func TestVolume(t *testing.T) {
	attached := func(edit func(*resource.Volume)) *resource.Volume {
		v := &resource.Volume{VolumeSpec: resource.VolumeSpec{Name: "v"}, State: "attached", Robustness: "healthy",
			Controllers: []resource.Controller{{HostID: "n1"}}, Replicas: []resource.Replica{{HostID: "n2", Mode: "RW"}},
			Conditions: map[string]resource.Condition{}}
		edit(v)
		return v
	}
	const remote = "data locality: no replica on n1, where the volume is attached, is in sync yet; " +
		"reads go over the network"
	for name, c := range map[string]struct {
		edit func(*resource.Volume)
		want []string
	}{
		"sound": {func(*resource.Volume) {}, []string{}},
		"told only": {func(v *resource.Volume) {
			v.Conditions["HasContent"] = resource.Condition{Status: "True", Message: "a Pod has run with it"}
			v.Conditions["WaitForReplicas"] = resource.Condition{Status: "False", Message: "all are there"}
		}, []string{}},
		"waits for replicas": {func(v *resource.Volume) {
			v.Conditions["WaitForReplicas"] = resource.Condition{Status: "True", Message: "r-1 is starting"}
		}, []string{"WaitForReplicas: r-1 is starting"}},
		"evictions without a place": {func(v *resource.Volume) {
			v.Conditions["Eviction"] = resource.Condition{Status: "False", Reason: "NoPlace", Message: "no disk has room"}
		}, []string{"Eviction: no disk has room; see: ankole disk list"}},
		"a rebuild fails": {func(v *resource.Volume) {
			v.RebuildStatus = []resource.RebuildStatus{{Replica: "r-1", Error: "cut"}}
		}, []string{"the rebuild of replica r-1 has failed: cut; see: ankole event list --for volume/v"}},
		"no local replica": {func(v *resource.Volume) { v.DataLocality = "best-effort" }, []string{remote}},
		"one that is filled": {func(v *resource.Volume) {
			v.DataLocality, v.Replicas = "best-effort", []resource.Replica{{HostID: "n1", Mode: "WO"}}
		}, []string{remote}},
		"a local replica": {func(v *resource.Volume) {
			v.DataLocality, v.Replicas = "best-effort", []resource.Replica{{HostID: "n1", Mode: "RW"}}
		}, []string{}},
		"not ready": {func(v *resource.Volume) { v.NotReadyMessage = "it is not" }, []string{"it is not"}},
		"standby":   {func(v *resource.Volume) { v.NotReadyMessage, v.Standby = "it is not", true }, []string{}},
	} {
		if got := Volume(attached(c.edit)); !slices.Equal(got, c.want) || got == nil {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestFailingDevice: what a device says of itself is told, in the server's form and in a client's.
func TestFailingDevice(t *testing.T) {
	typed := lh.DiskHealth{HealthStatus: lh.HealthStatusFailed}
	for name, c := range map[string]struct {
		health any
		want   bool
	}{
		"a server's": {typed, true}, "a client's": {map[string]any{"healthStatus": "FAILED"}, true},
		"sound": {lh.DiskHealth{HealthStatus: lh.HealthStatusPassed}, false}, "strange": {"FAILED", false},
		"none": {nil, false},
	} {
		n := &resource.Node{Name: "n", Conditions: map[string]resource.Condition{"Ready": {Status: "True"}},
			Disks: map[string]resource.DiskInfo{"d": {HealthData: map[string]any{"sda": c.health}}}}
		got := Node(n, false)
		want := []string{"disk d stands on device sda, which says of itself that it fails (SMART)"}
		if slices.Equal(got, want) != c.want || len(got) > 1 {
			t.Errorf("%s: %q", name, got)
		}
	}
}
