package instance

import (
	"strings"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		recorded, made string
		inForce        bool
		want           Claim
	}{
		{"a/2", "a/2", true, Own},
		{"a/2", "a/2", false, Over},
		{"a/2", "a/1", true, Over},
		{"a/2", "a/3", true, Newer},
		{"a/2", "a/3", false, Newer},
		{"a/9", "a/10", true, Newer},
		{"", "a/1", false, Newer},
		{"a/2", "b/2", true, Theirs},
		{"", "b/2", true, Theirs},
		{"a/2", "", true, Own},
		{"a/2", "", false, Own},
		{"", "", false, Own},
		{"a/2", "garbage", true, Theirs},
		{"a/2", "a/garbage", true, Over},
	} {
		status := &v1beta2.InstanceStatus{Order: tt.recorded}
		if got := Judge("a", status, tt.inForce, tt.made); got != tt.want {
			t.Errorf("recorded %q, in force %v, made for %q: %v, want %v", tt.recorded, tt.inForce, tt.made, got, tt.want)
		}
	}
}

func TestSuperseded(t *testing.T) {
	for _, tt := range []struct {
		recorded, made string
		want           bool
	}{
		{"a/2", "a/2", false},
		{"a/2", "a/1", true},
		{"a/10", "a/9", true},
		{"a/2", "a/3", false}, // a successor in a live upgrade, or the object was restored
		{"", "a/1", false},
		{"a/2", "b/2", true}, // of an object that is gone
		{"a/2", "b/3", true},
		{"", "b/1", true},
		{"b/7", "a/1", false}, // restored under another UID: nobody knows the newest
		{"a/2", "", false},
		{"a/2", "garbage", true},
		{"a/2", "a/garbage", true},
	} {
		if got := Superseded("a", tt.recorded, tt.made); got != tt.want {
			t.Errorf("recorded %q, made for %q: %v, want %v", tt.recorded, tt.made, got, tt.want)
		}
	}
	if Superseded("", "a/2", "a/1") {
		t.Error("an object without UID supersedes something")
	}
}

// made is a process in that state that was made for an order.
func made(order string, state v1beta2.InstanceState) *v1beta2.InstanceProcess {
	p := process(state)
	p.Spec.Order = order
	return p
}

// TestOrders: each run is an order of its own, and an order that is repeated is the same one.
func TestOrders(t *testing.T) {
	const running = v1beta2.InstanceStateRunning
	spec, status := &v1beta2.InstanceSpec{NodeID: "n1"}, &v1beta2.InstanceStatus{}
	im := manager(v1beta2.InstanceManagerStateRunning)
	step := func(what string, want bool, p *v1beta2.InstanceProcess, action Action, order string) {
		t.Helper()
		if got := Step(now, want, spec, status, Seen{UID: "a", Manager: im, Process: p}); got != action ||
			status.Order != order {
			t.Fatalf("%s: action %v, order %q; want %v, %q", what, got, status.Order, action, order)
		}
	}
	step("first", true, nil, Create, "a/1")
	step("the answer is lost", true, nil, Create, "a/1")
	step("it runs", true, made("a/1", running), None, "a/1")
	step("stop", false, made("a/1", running), Delete, "a/1")
	step("wanted again before it has ended", true, made("a/1", running), DeleteOther, "a/1")
	step("it ends", true, made("a/1", v1beta2.InstanceStateStopping), None, "a/1")
	step("second", true, nil, Create, "a/2")
	step("it failed", true, made("a/2", v1beta2.InstanceStateError), None, "a/2")
	// It is followed in place, by its UUID.
	seen := func() Seen {
		s := Seen{UID: "a", Manager: im, Process: made("a/2", v1beta2.InstanceStateError)}
		Forget(status, &s, "u1")
		return s
	}
	for range 3 {
		if got := Step(now, true, spec, status, seen()); got != Create || status.Order != "a/3" {
			t.Fatalf("in place: action %v, order %q", got, status.Order)
		}
	}
	im = manager(v1beta2.InstanceManagerStateRunning)
	im.Name = "im-2"
	step("in another instance manager", true, nil, Create, "a/4")
}

// TestNothingIsOrderedInAClosedInstanceManager: what runs there is looked after as before.
func TestNothingIsOrderedInAClosedInstanceManager(t *testing.T) {
	im := manager(v1beta2.InstanceManagerStateRunning)
	im.Status.ClosedPod = "pod"
	spec, status := &v1beta2.InstanceSpec{NodeID: "n1"}, &v1beta2.InstanceStatus{}
	for _, tt := range []struct {
		want    bool
		process *v1beta2.InstanceProcess
		action  Action
		state   v1beta2.InstanceState
	}{
		{true, nil, None, v1beta2.InstanceStateStopped},
		{true, process(v1beta2.InstanceStateRunning), None, v1beta2.InstanceStateRunning},
		{false, process(v1beta2.InstanceStateRunning), Delete, v1beta2.InstanceStateRunning},
	} {
		action := Step(now, tt.want, spec, status, Seen{UID: "a", Manager: im, Process: tt.process})
		if action != tt.action || status.CurrentState != tt.state {
			t.Errorf("wanted %v, process %v: action %v, state %q", tt.want, tt.process != nil, action, status.CurrentState)
		}
	}
	im.Status.ClosedPod = ""
	if Step(now, true, spec, status, Seen{UID: "a", Manager: im}) != Create {
		t.Error("open again, and nothing is ordered")
	}
}

// TestAClosedInstanceManagerIsLeft: an instance whose process has ended in an instance manager that
// is about to be removed finds another one at once, and asks nothing of that one. While a process
// that was ordered may still arrive there it waits.
func TestAClosedInstanceManagerIsLeft(t *testing.T) {
	for _, end := range []v1beta2.InstanceState{v1beta2.InstanceStateError, v1beta2.InstanceStateStopped} {
		closed, next := manager(v1beta2.InstanceManagerStateRunning), manager(v1beta2.InstanceManagerStateRunning)
		closed.Status.ClosedPod, closed.Status.InstanceEngines = "pod", map[string]v1beta2.InstanceProcess{}
		closed.Spec.Image, next.Name, next.Spec.Image = "im:1", "im-2", "im:2"
		spec := &v1beta2.InstanceSpec{NodeID: "n1"}
		status := &v1beta2.InstanceStatus{Started: true, Order: "a/1", InstanceManagerName: closed.Name}
		step := func(want bool, after string) Action {
			t.Helper()
			all := []v1beta2.InstanceManager{*closed, *next}
			im := Choose(all, status.InstanceManagerName, spec.NodeID, "im:2")
			seen := Seen{UID: "a", Manager: im, Process: Find(im, "x")}
			Forget(status, &seen, after)
			action := Step(now, want, spec, status, seen)
			if strays := Strays(all, im, "x"); len(strays) > 0 {
				t.Errorf("%s is asked to end a process that has ended", strays[0].Name)
			}
			return action
		}
		closed.Status.InstanceEngines["x"] = *made("a/1", v1beta2.InstanceStateRunning)
		if a := step(true, ""); a != None || status.CurrentState != v1beta2.InstanceStateRunning {
			t.Fatalf("while it runs: %v, %s", a, status.CurrentState)
		}
		closed.Status.InstanceEngines["x"] = *made("a/1", end)
		closed.Status.CurrentState = v1beta2.InstanceManagerStateUnknown // it is not ready while it ends
		if a := step(true, ""); a != None || status.CurrentState != v1beta2.InstanceStateError {
			t.Fatalf("ended: %v, %s", a, status.CurrentState)
		}
		another := *status
		for i, want := range []Action{None, Create} { // in place of the run that has ended, by its UUID
			if a := step(true, "u1"); a != want {
				t.Fatalf("%s, followed, step %d: %v, %+v", end, i, a, status)
			}
		}
		if status.InstanceManagerName != next.Name || status.Order != "a/2" {
			t.Errorf("followed: %+v", status)
		}
		status = &another
		if a := step(false, ""); a != None || status.CurrentState != v1beta2.InstanceStateStopped {
			t.Errorf("not wanted any more: %v, %+v", a, status)
		}
		if a := step(true, ""); a != Create || status.InstanceManagerName != next.Name {
			t.Errorf("wanted again: %v, %+v", a, status)
		}
		status = &v1beta2.InstanceStatus{Starting: true, Order: "a/3", InstanceManagerName: closed.Name}
		delete(closed.Status.InstanceEngines, "x")
		if a := step(true, ""); a != None || status.InstanceManagerName != closed.Name {
			t.Errorf("ordered and not listed: %v, %+v", a, status)
		}
	}
}

// TestOnlyTheOrderMakesAProcessTheObjects has the histories in which a process of the object's name
// runs and is not what the object has ordered.
func TestOnlyTheOrderMakesAProcessTheObjects(t *testing.T) {
	const running = v1beta2.InstanceStateRunning
	for _, tt := range []struct {
		name   string
		status v1beta2.InstanceStatus
		want   bool
		made   string
		action Action
		state  v1beta2.InstanceState
		order  string
	}{
		{"the volume was deleted and made again while the node was away", v1beta2.InstanceStatus{}, true, "b/1",
			DeleteOther, v1beta2.InstanceStateStopped, ""},
		{"the same, and nothing is to run", v1beta2.InstanceStatus{}, false, "b/1", DeleteOther,
			v1beta2.InstanceStateStopped, ""},
		{"the same, while the answer to a creation is awaited", v1beta2.InstanceStatus{Starting: true, Order: "a/1"}, true,
			"b/1", DeleteOther, v1beta2.InstanceStateStopped, "a/1"},
		{"detached and attached again while the node was away", v1beta2.InstanceStatus{Order: "a/4"}, true, "a/4",
			DeleteOther, v1beta2.InstanceStateStopped, "a/4"},
		{"an order whose answer was lost has run all the time", v1beta2.InstanceStatus{Order: "a/4", Starting: true}, true,
			"a/3", DeleteOther, v1beta2.InstanceStateStopped, "a/4"},
		{"the one that ran is gone, an older one is there", v1beta2.InstanceStatus{Order: "a/4", Started: true}, true,
			"a/3", DeleteOther, v1beta2.InstanceStateError, "a/4"},
		{"the object was restored from a backup", v1beta2.InstanceStatus{Order: "a/4", Started: true}, true, "a/7", None,
			running, "a/7"},
		{"the object lost its status", v1beta2.InstanceStatus{}, true, "a/7", None, running, "a/7"},
		{"nothing is to run, whatever it was made for", v1beta2.InstanceStatus{Order: "a/4"}, false, "a/3", Delete, running,
			"a/4"},
		{"an instance manager that tells no orders", v1beta2.InstanceStatus{Order: "a/4", Started: true}, true, "", None,
			running, "a/4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status := tt.status
			action := Step(now, tt.want, &v1beta2.InstanceSpec{NodeID: "n1"}, &status, Seen{UID: "a",
				Manager: manager(v1beta2.InstanceManagerStateRunning), Process: made(tt.made, running)})
			if action != tt.action || status.CurrentState != tt.state || status.Order != tt.order {
				t.Errorf("action %v, state %q, order %q; want %v, %q, %q", action, status.CurrentState, status.Order, tt.action,
					tt.state, tt.order)
			}
			c := v1beta2.FindCondition(status.Conditions, v1beta2.InstanceConditionInstanceCreation)
			if waits := tt.want && action == DeleteOther; waits != (c.Status == v1beta2.ConditionFalse) ||
				waits && !strings.Contains(c.Message, "another order ("+tt.made+")") {
				t.Errorf("condition %+v", c)
			}
		})
	}
}
