package instancemanager

import (
	"errors"
	"net"
	"slices"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/process/instance"
	imclient "ankole.storage/instancemanager/client"
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

// TestAnInstanceManagerThatIsAwayIsToldOnce: an order to one whose Pod is being replaced fails
// without an event of its own; condition ProcessesConfirmed tells of it.
func TestAnInstanceManagerThatIsAwayIsToldOnce(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	callers := NewCallers(func(string) (*imclient.Client, error) { return imclient.Dial(gone.Addr().String(), nil) })
	im := manager(v1beta2.InstanceManagerStateRunning)
	im.Status.IP = "127.0.0.1"
	im.Status.APIVersion, im.Status.APIMinVersion = 4, 1
	if err := callers.Create(t.Context(), im, instance.Process{Name: "v-e-0"}); !errors.Is(err, loop.ErrTold) {
		t.Errorf("%v, want it marked", err)
	}
}
