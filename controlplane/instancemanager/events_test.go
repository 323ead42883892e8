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

// TestANewInstanceManagerIsNoWarning: until its Pod runs for the first time nothing is told.
func TestANewInstanceManagerIsNoWarning(t *testing.T) {
	im, s := manager(""), world()
	im.Status = v1beta2.InstanceManagerStatus{}
	s.Pod, s.Processes = nil, nil
	decide(now, im, s)
	found := false
	for _, c := range conditions(im) {
		found = found || c.Type == "PodReady" && c.Status == "False"
		if c.Type == "PodReady" && !c.Expected {
			t.Errorf("a new instance manager warns: %+v", c)
		}
	}
	if !found {
		t.Errorf("conditions %+v lack PodReady False", conditions(im))
	}
}
