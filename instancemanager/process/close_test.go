package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/instancemanager/instancetest"
)

// TestCloseOrder: engines end before replicas get their signal, and devices are released between.
// All are listed as stopping before any has ended.
func TestCloseOrder(t *testing.T) {
	ended := map[string]State{}
	var m *Manager
	released := func() {
		list, _ := m.List()
		for _, p := range list {
			ended[p.Spec.Name] = p.State
		}
	}
	var err error
	m, err = New(Config{LogsDir: t.TempDir(), PodIP: instancetest.Host(), Ports: PortRange{10000, 10099},
		StopTimeout: 300 * time.Millisecond, EnginesEnded: released})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"a-r-1", "a-e-0", "b-r-1", "b-e-0", "b-r-2"}
	for _, name := range names {
		mode := instancetest.Serve
		if name == "b-e-0" {
			mode = instancetest.Stubborn // replicas have the time to end first, if they are told to
		}
		if _, err := m.Create(spec(t, name, mode, 1)); err != nil {
			t.Fatal(err)
		}
		await(t, m, name, Running)
	}
	watch := m.Watch()
	if err := m.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if want := map[string]State{"a-r-1": Stopping, "a-e-0": Stopped, "b-r-1": Stopping, "b-e-0": Error,
		"b-r-2": Stopping}; !maps.Equal(ended, want) {
		t.Errorf("devices are released when there are %v, want %v", ended, want)
	}
	var order []string
	for event := range watch.C {
		order = append(order, fmt.Sprintf("%s %s", event.Spec.Name, event.State))
	}
	for i, event := range order {
		if stopping := strings.HasSuffix(event, " stopping"); stopping != (i < len(names)) {
			t.Errorf("not all were listed as stopping first: %q", order)
		}
	}
	engines := max(slices.Index(order, "a-e-0 stopped"), slices.Index(order, "b-e-0 error"))
	for _, name := range []string{"a-r-1", "b-r-1", "b-r-2"} {
		if i := slices.Index(order, name+" stopped"); i < engines {
			t.Errorf("%s was told to stop before the engines had ended: %q", name, order)
		}
	}
	if len(order) != 2*len(names) {
		t.Errorf("changes: %q", order)
	}
	if _, err := m.Create(spec(t, "c-r-1", instancetest.Serve, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("create after close: %v", err)
	}
}

// TestCloseLeavesWhatIsKept: engines whose devices are kept are killed, since a stop in order would
// take them down; all others, and one that is being deleted, are stopped in order.
func TestCloseLeavesWhatIsKept(t *testing.T) {
	m, err := New(Config{LogsDir: t.TempDir(), PodIP: instancetest.Host(), Kept: func() map[string]bool {
		return map[string]bool{"kept-e-0": true, "stubborn-e-0": true, "deleted-e-0": true}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]string{"kept-e-0": instancetest.Serve, "stubborn-e-0": instancetest.Stubborn,
		"other-e-0": instancetest.Serve, "deleted-e-0": instancetest.Serve, "kept-r-1": instancetest.Serve} {
		if _, err := m.Create(spec(t, name, mode, 1)); err != nil {
			t.Fatal(err)
		}
		await(t, m, name, Running)
	}
	watch := m.Watch()
	if _, err := m.Delete("deleted-e-0", ""); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	ends := map[string]string{}
	for event := range watch.C {
		if event.State == Stopped || event.State == Error {
			ends[event.Spec.Name] = string(event.State) + " " + event.ErrorMsg
		}
	}
	if want := map[string]string{"kept-e-0": "error signal: killed", "stubborn-e-0": "error signal: killed",
		"other-e-0": "stopped ", "kept-r-1": "stopped ", "deleted-e-0": "stopped "}; !maps.Equal(ends, want) {
		t.Errorf("ends: %q, want %q", ends, want)
	}
}

// TestCloseImpatient: a stubborn instance is killed when there is no time.
func TestCloseImpatient(t *testing.T) {
	m, err := New(Config{LogsDir: t.TempDir(), PodIP: instancetest.Host()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Create(spec(t, "a-e-0", instancetest.Stubborn, 1)); err != nil {
		t.Fatal(err)
	}
	await(t, m, "a-e-0", Running)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := m.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if p, err := m.Get("a-e-0"); err != nil || p.ErrorMsg != "signal: killed" {
		t.Errorf("%+v %v", p, err)
	}
}
