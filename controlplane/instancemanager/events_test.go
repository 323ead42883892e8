package instancemanager

import (
	"slices"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestConditionsThatAreTold: a flip of each of these conditions gives an event.
func TestConditionsThatAreTold(t *testing.T) {
	im := manager(v1beta2.InstanceManagerStateRunning)
	decide(now, im, world())
	var got []string
	for _, c := range conditions(im) {
		got = append(got, c.Type+" "+c.Status)
	}
	for _, want := range []string{"NodeReady True", "PodReady True", "SettingSynced True"} {
		if !slices.Contains(got, want) {
			t.Errorf("conditions %q lack %s", got, want)
		}
	}
}
