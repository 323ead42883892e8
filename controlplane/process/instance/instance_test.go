package instance

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var v1Time = metav1.NewTime(now)

func manager(state v1beta2.InstanceManagerState) *v1beta2.InstanceManager {
	im := &v1beta2.InstanceManager{}
	im.Name, im.Spec.NodeID, im.Spec.Type = "im-1", "n1", v1beta2.InstanceManagerTypeAllInOne
	im.Status.CurrentState, im.Status.IP = state, "10.0.0.1"
	return im
}

func process(state v1beta2.InstanceState) *v1beta2.InstanceProcess {
	p := &v1beta2.InstanceProcess{}
	p.Spec.Name, p.Status.State, p.Status.PortStart, p.Status.UUID = "x", state, 10000, "u1"
	p.Status.ErrorMsg = "exit status 61"
	return p
}

// TestStates is the table of states: what is seen of the instance manager and of the process, for
// an instance that ran already and for one that did not.
func TestStates(t *testing.T) {
	const (
		running, stopped = v1beta2.InstanceStateRunning, v1beta2.InstanceStateStopped
		failed, starting = v1beta2.InstanceStateError, v1beta2.InstanceStateStarting
		stopping         = v1beta2.InstanceStateStopping
		unknown          = v1beta2.InstanceStateUnknown
		imRunning        = v1beta2.InstanceManagerStateRunning
	)
	deleting := manager(imRunning)
	deleting.DeletionTimestamp = &v1Time
	tests := []struct {
		name                string
		seen                Seen
		started, notStarted v1beta2.InstanceState
	}{
		{"no manager", Seen{}, failed, stopped},
		{"node down", Seen{Manager: manager(imRunning), NodeDown: true}, unknown, stopped},
		{"manager unknown", Seen{Manager: manager(v1beta2.InstanceManagerStateUnknown)}, unknown, stopped},
		{"manager unknown, process known last", Seen{Manager: manager(v1beta2.InstanceManagerStateUnknown),
			Process: process(running)}, unknown, unknown},
		{"manager unknown, process known to stop", Seen{Manager: manager(v1beta2.InstanceManagerStateUnknown),
			Process: process(stopping)}, unknown, unknown},
		{"manager unknown, process known to have failed", Seen{Manager: manager(v1beta2.InstanceManagerStateUnknown),
			Process: process(failed)}, failed, failed},
		{"manager unknown, process known to have stopped", Seen{Manager: manager(v1beta2.InstanceManagerStateUnknown),
			Process: process(stopped)}, failed, stopped},
		{"manager stopped", Seen{Manager: manager(v1beta2.InstanceManagerStateStopped)}, failed, stopped},
		{"manager in error", Seen{Manager: manager(v1beta2.InstanceManagerStateError)}, failed, stopped},
		{"manager being deleted", Seen{Manager: deleting}, failed, stopped},
		{"manager starting", Seen{Manager: manager(v1beta2.InstanceManagerStateStarting)}, failed, stopped},
		{"process missing", Seen{Manager: manager(imRunning)}, failed, stopped},
		{"process starting", Seen{Manager: manager(imRunning), Process: process(starting)}, starting, starting},
		{"process running", Seen{Manager: manager(imRunning), Process: process(running)}, running, running},
		{"process stopping", Seen{Manager: manager(imRunning), Process: process(stopping)}, failed, stopping},
		{"process stopped", Seen{Manager: manager(imRunning), Process: process(stopped)}, failed, stopped},
		{"process in error", Seen{Manager: manager(imRunning), Process: process(failed)}, failed, failed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, c := range []struct {
				started bool
				want    v1beta2.InstanceState
			}{{true, tt.started}, {false, tt.notStarted}} {
				spec := &v1beta2.InstanceSpec{NodeID: "n1"}
				status := &v1beta2.InstanceStatus{Started: c.started}
				Step(now, true, spec, status, tt.seen)
				if status.CurrentState != c.want {
					t.Errorf("started=%v: state %q, want %q", c.started, status.CurrentState, c.want)
				}
			}
		})
	}
}

// TestLife walks an instance through creation, a crash, a stop and a restart.
func TestLife(t *testing.T) {
	spec := &v1beta2.InstanceSpec{NodeID: "n1", Image: "img"}
	status := &v1beta2.InstanceStatus{}
	im := manager(v1beta2.InstanceManagerStateRunning)
	step := func(want bool, p *v1beta2.InstanceProcess, action Action, state v1beta2.InstanceState) {
		t.Helper()
		if got := Step(now, want, spec, status, Seen{Manager: im, Process: p}); got != action ||
			status.CurrentState != state {
			t.Fatalf("action %v, state %q; want %v, %q", got, status.CurrentState, action, state)
		}
	}
	step(true, nil, Create, v1beta2.InstanceStateStopped)
	if !status.Starting || status.InstanceManagerName != "im-1" {
		t.Fatalf("the intention is not recorded: %+v", status)
	}
	step(true, process(v1beta2.InstanceStateStarting), None, v1beta2.InstanceStateStarting)
	step(true, process(v1beta2.InstanceStateRunning), None, v1beta2.InstanceStateRunning)
	if !status.Started || status.Starting || status.IP != "10.0.0.1" || status.Port != 10000 ||
		status.CurrentImage != "img" {
		t.Fatalf("running: %+v", status)
	}
	step(true, process(v1beta2.InstanceStateError), None, v1beta2.InstanceStateError)
	if status.Port != 0 || status.StorageIP != "" || status.CurrentImage != "" {
		t.Fatalf("addresses kept outside running: %+v", status)
	}
	step(true, nil, None, v1beta2.InstanceStateError)
	step(false, process(v1beta2.InstanceStateError), Delete, v1beta2.InstanceStateError)
	step(false, nil, None, v1beta2.InstanceStateStopped)
	if status.InstanceManagerName != "" || status.Started || status.Starting {
		t.Fatalf("stopped: %+v", status)
	}
	step(true, nil, Create, v1beta2.InstanceStateStopped)
}

// TestStorageAddress: data uses the storage network where the instance manager has an address on
// it, control the Pod's own address.
func TestStorageAddress(t *testing.T) {
	for storage, want := range map[string]string{"": "10.0.0.1", "192.168.0.7": "192.168.0.7"} {
		im := manager(v1beta2.InstanceManagerStateRunning)
		im.Status.StorageIP = storage
		status := &v1beta2.InstanceStatus{}
		Step(now, true, &v1beta2.InstanceSpec{NodeID: "n1"}, status,
			Seen{Manager: im, Process: process(v1beta2.InstanceStateRunning)})
		if status.StorageIP != want || status.IP != "10.0.0.1" {
			t.Errorf("recorded %q: data at %q, control at %q", storage, status.StorageIP, status.IP)
		}
	}
}

// TestForget: a run that is over makes room for the next one, and only an ended one of that UUID is
// over.
func TestForget(t *testing.T) {
	for _, c := range []struct {
		state  v1beta2.InstanceState
		uuid   string
		over   bool
		action Action
		after  v1beta2.InstanceState
	}{
		{v1beta2.InstanceStateError, "u1", true, Create, v1beta2.InstanceStateStopped},
		{v1beta2.InstanceStateStopped, "u1", true, Create, v1beta2.InstanceStateStopped},
		{v1beta2.InstanceStateStopping, "u1", false, None, v1beta2.InstanceStateError},
		{v1beta2.InstanceStateRunning, "u1", false, None, v1beta2.InstanceStateRunning},
		{v1beta2.InstanceStateStarting, "u1", false, None, v1beta2.InstanceStateStarting},
		{v1beta2.InstanceStateError, "u0", false, None, v1beta2.InstanceStateError},
		{v1beta2.InstanceStateError, "", false, None, v1beta2.InstanceStateError},
	} {
		status := &v1beta2.InstanceStatus{Started: true, InstanceManagerName: "im-1"}
		seen := Seen{Manager: manager(v1beta2.InstanceManagerStateRunning), Process: process(c.state)}
		over := Forget(status, &seen, c.uuid)
		action := Step(now, true, &v1beta2.InstanceSpec{NodeID: "n1"}, status, seen)
		if over != c.over || action != c.action || status.CurrentState != c.after {
			t.Errorf("%s, run %q is over: %v, action %v, state %q; want %v, %v, %q", c.state, c.uuid, over, action,
				status.CurrentState, c.over, c.action, c.after)
		}
	}
	if Forget(&v1beta2.InstanceStatus{}, &Seen{}, "u1") {
		t.Error("a process that is not there was forgotten")
	}
}

func TestFailedStartIsReported(t *testing.T) {
	status := &v1beta2.InstanceStatus{Starting: true}
	Step(now, true, &v1beta2.InstanceSpec{}, status,
		Seen{Manager: manager(v1beta2.InstanceManagerStateRunning), Process: process(v1beta2.InstanceStateError)})
	c := v1beta2.FindCondition(status.Conditions, v1beta2.InstanceConditionInstanceCreation)
	if c.Status != v1beta2.ConditionFalse || c.Reason != v1beta2.InstanceReasonInstanceCreationFailure ||
		c.Message != "exit status 61" {
		t.Errorf("condition %+v", c)
	}
}

// TestCreationIsConfirmed: the failure of an earlier process is over when one runs.
func TestCreationIsConfirmed(t *testing.T) {
	status := &v1beta2.InstanceStatus{Starting: true}
	for _, state := range []v1beta2.InstanceState{v1beta2.InstanceStateError, v1beta2.InstanceStateRunning} {
		Step(now, true, &v1beta2.InstanceSpec{}, status,
			Seen{Manager: manager(v1beta2.InstanceManagerStateRunning), Process: process(state)})
	}
	if c := v1beta2.FindCondition(status.Conditions, "InstanceCreation"); c.Status != v1beta2.ConditionTrue {
		t.Errorf("condition %+v", c)
	}
}

// TestManagerThatStartsChangesNothing: as long as an instance manager starts, an instance that has
// not been started keeps its state.
func TestManagerThatStartsChangesNothing(t *testing.T) {
	for _, before := range []v1beta2.InstanceState{v1beta2.InstanceStateStopped, v1beta2.InstanceStateStarting} {
		status := &v1beta2.InstanceStatus{CurrentState: before}
		Step(now, true, &v1beta2.InstanceSpec{NodeID: "n1"}, status,
			Seen{Manager: manager(v1beta2.InstanceManagerStateStarting)})
		if status.CurrentState != before {
			t.Errorf("%s becomes %s", before, status.CurrentState)
		}
	}
}

func TestStopOnALostNodeCounts(t *testing.T) {
	status := &v1beta2.InstanceStatus{Started: true, CurrentState: v1beta2.InstanceStateRunning,
		InstanceManagerName: "im-1"}
	action := Step(now, false, &v1beta2.InstanceSpec{}, status,
		Seen{Manager: manager(v1beta2.InstanceManagerStateUnknown), NodeDown: true})
	if action != None || status.CurrentState != v1beta2.InstanceStateStopped || status.InstanceManagerName != "" {
		t.Fatalf("action %v, %+v", action, status)
	}
	// The node is back, and the process with it.
	im := manager(v1beta2.InstanceManagerStateRunning)
	im.Status.InstanceEngines = map[string]v1beta2.InstanceProcess{"x": *process(v1beta2.InstanceStateRunning)}
	if got := Strays([]v1beta2.InstanceManager{*im}, nil, "x"); len(got) != 1 {
		t.Errorf("the surviving process is no stray: %v", got)
	}
	if got := Strays([]v1beta2.InstanceManager{*im}, im, "x"); len(got) != 0 {
		t.Errorf("the chosen manager's process is a stray: %v", got)
	}
}

// TestNobodyWasHeard: a leader that has heard nothing of an instance manager yet leaves what is
// recorded as it is, and orders nothing; only an answer to a question of its own counts.
func TestNobodyWasHeard(t *testing.T) {
	spec := &v1beta2.InstanceSpec{NodeID: "n1", Image: "image"}
	records := map[string]v1beta2.InstanceStatus{
		"runs": {InstanceManagerName: "im-1", Started: true, CurrentState: v1beta2.InstanceStateRunning, IP: "10.0.0.1",
			Port: 10000, UUID: "u1", Order: "a/1"},
		"ordered": {InstanceManagerName: "im-1", Starting: true, CurrentState: v1beta2.InstanceStateStopped, Order: "a/1"},
		"stopped": {CurrentState: v1beta2.InstanceStateStopped},
		"failed":  {InstanceManagerName: "im-1", Started: true, CurrentState: v1beta2.InstanceStateError, UUID: "u1"},
		"unknown": {InstanceManagerName: "im-1", Started: true, CurrentState: v1beta2.InstanceStateUnknown, UUID: "u1"},
	}
	for name, record := range records {
		for _, want := range []bool{true, false} {
			status := record
			seen := Seen{UID: "a", Manager: manager(v1beta2.InstanceManagerStateRunning), Silent: true}
			if action := Step(now, want, spec, &status, seen); action != None || !reflect.DeepEqual(status, record) {
				t.Errorf("%s, wanted %v: action %v, %+v", name, want, action, status)
			}
			state := v1beta2.InstanceStateUnknown
			if record.Off() || name == "failed" {
				state = record.CurrentState
			}
			seen.Manager = manager(v1beta2.InstanceManagerStateUnknown)
			if action := Step(now, want, spec, &status, seen); action != None || status.CurrentState != state {
				t.Errorf("%s, wanted %v, cannot be observed: action %v, %s, want %s", name, want, action, status.CurrentState,
					state)
			}
		}
	}
	status := records["runs"]
	seen := Seen{UID: "a", Manager: manager(v1beta2.InstanceManagerStateRunning), Silent: true, Asked: true}
	if Step(now, true, spec, &status, seen); status.CurrentState != v1beta2.InstanceStateError {
		t.Errorf("an instance manager that has said that the process is gone: %s", status.CurrentState)
	}
	status = records["runs"]
	seen = Seen{UID: "a", Manager: manager(v1beta2.InstanceManagerStateRunning), Silent: true, NodeDown: true}
	if Step(now, false, spec, &status, seen); status.CurrentState != v1beta2.InstanceStateStopped {
		t.Errorf("wanted no more on a node that is down: %s", status.CurrentState)
	}
}

// TestStartOfAMoment: a process that has begun to start a moment ago is no news, nor is it ordered
// once more.
func TestStartOfAMoment(t *testing.T) {
	spec := &v1beta2.InstanceSpec{NodeID: "n1", Image: "image"}
	record := v1beta2.InstanceStatus{InstanceManagerName: "im-1", Starting: true, Order: "a/1",
		CurrentState: v1beta2.InstanceStateStopped}
	made := process(v1beta2.InstanceStateStarting)
	made.Spec.Order = "a/1"
	for _, c := range []struct {
		want, young bool
		action      Action
		state       v1beta2.InstanceState
	}{
		{true, true, None, v1beta2.InstanceStateStopped},
		{true, false, None, v1beta2.InstanceStateStarting},
		{false, true, Delete, v1beta2.InstanceStateStarting},
	} {
		status := record
		action := Step(now, c.want, spec, &status, Seen{UID: "a", Manager: manager(v1beta2.InstanceManagerStateRunning),
			Process: made, Young: c.young})
		if action != c.action || status.CurrentState != c.state {
			t.Errorf("wanted %v, young %v: action %v, %s", c.want, c.young, action, status.CurrentState)
		}
	}
}

func TestChoose(t *testing.T) {
	old, current, other := *manager(v1beta2.InstanceManagerStateRunning), *manager(v1beta2.InstanceManagerStateRunning),
		*manager(v1beta2.InstanceManagerStateRunning)
	old.Name, old.Spec.Image = "old", "im:1"
	current.Name, current.Spec.Image = "current", "im:2"
	other.Name, other.Spec.NodeID = "other", "n2"
	legacy := old
	legacy.Name, legacy.Spec.Type = "legacy", v1beta2.InstanceManagerTypeEngine
	all := []v1beta2.InstanceManager{legacy, old, current, other}
	tests := []struct{ name, recorded, node, want string }{
		{"default image of the node", "", "n1", "current"},
		{"the recorded one is kept", "legacy", "n1", "legacy"},
		{"a recorded one that is gone has no substitute", "gone", "n1", ""},
		{"no node", "", "", ""},
		{"node without one", "", "n3", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if im := Choose(all, tt.recorded, tt.node, "im:2"); im != nil {
				got = im.Name
			}
			if got != tt.want {
				t.Errorf("Choose = %q, want %q", got, tt.want)
			}
		})
	}
}

// TestProcessWaitsForItsNetwork: no process is ordered in an instance manager on another storage
// network than it was ordered for, and the object says what it waits for.
func TestProcessWaitsForItsNetwork(t *testing.T) {
	for _, tt := range []struct {
		wanted, has string
		action      Action
		says        string
	}{
		{"", "", Create, ""},
		{"a/b", "a/b", Create, ""},
		{"a/b", "", None, `instance manager im-1 is on storage network "" and the volume on "a/b"`},
		{"", "a/b", None, `instance manager im-1 is on storage network "a/b" and the volume on ""`},
	} {
		im := manager(v1beta2.InstanceManagerStateRunning)
		im.Status.StorageNetwork = tt.has
		spec := &v1beta2.InstanceSpec{NodeID: "n1", Image: "img", StorageNetwork: tt.wanted}
		status := &v1beta2.InstanceStatus{}
		action := Step(now, true, spec, status, Seen{Manager: im})
		c := v1beta2.FindCondition(status.Conditions, v1beta2.InstanceConditionInstanceCreation)
		if action != tt.action || (c.Status == v1beta2.ConditionFalse) != (tt.says != "") ||
			!strings.HasPrefix(c.Message, tt.says) {
			t.Errorf("wanted on %q, is on %q: action %v, condition %+v", tt.wanted, tt.has, action, c)
		}
		// One that runs already is left alone, and ended when it is not wanted any more.
		status = &v1beta2.InstanceStatus{Started: true}
		if got := Step(now, true, spec, status, Seen{Manager: im, Process: process("running")}); got != None ||
			status.CurrentState != v1beta2.InstanceStateRunning {
			t.Errorf("running: action %v, state %s", got, status.CurrentState)
		}
		if got := Step(now, false, spec, status, Seen{Manager: im, Process: process("running")}); got != Delete {
			t.Errorf("not wanted: action %v", got)
		}
	}
}

// TestUnlistedProcess: an instance that was ordered and never listed is off when its instance
// manager itself has said that it has no process of the name, or the process cannot run any more.
func TestUnlistedProcess(t *testing.T) {
	const (
		stopped, unknown = v1beta2.InstanceStateStopped, v1beta2.InstanceStateUnknown
		runs             = v1beta2.InstanceManagerStateRunning
	)
	leaving := manager(runs)
	leaving.DeletionTimestamp = &v1Time
	there, lost := process(v1beta2.InstanceStateRunning), manager(v1beta2.InstanceManagerStateUnknown)
	for name, c := range map[string]struct {
		seen   Seen
		state  v1beta2.InstanceState
		action Action
	}{
		"nobody was asked":        {Seen{Manager: manager(runs)}, unknown, None},
		"it is not there":         {Seen{Manager: manager(runs), Asked: true}, stopped, None},
		"it is there":             {Seen{Manager: manager(runs), Asked: true, Process: there}, there.Status.State, Delete},
		"manager unknown":         {Seen{Manager: lost}, unknown, None},
		"manager in error":        {Seen{Manager: manager(v1beta2.InstanceManagerStateError)}, stopped, None},
		"manager gone":            {Seen{}, stopped, None},
		"manager being deleted":   {Seen{Manager: leaving}, stopped, None},
		"node down":               {Seen{Manager: manager(runs), NodeDown: true}, stopped, None},
		"node down, said nothing": {Seen{Manager: lost, NodeDown: true}, stopped, None},
	} {
		status := &v1beta2.InstanceStatus{Starting: true, InstanceManagerName: "im-1", CurrentState: stopped}
		if status.Off() {
			t.Fatal("off while it is being started")
		}
		action := Step(now, false, &v1beta2.InstanceSpec{}, status, c.seen)
		if action != c.action || status.CurrentState != c.state || status.Off() != (c.state == stopped) {
			t.Errorf("%s: action %v, %+v; want %v, %s", name, action, status, c.action, c.state)
		}
	}
}

// TestAsk: only of a process that was ordered and is not listed the list may say too little.
func TestAsk(t *testing.T) {
	listed := manager(v1beta2.InstanceManagerStateRunning)
	listed.Status.InstanceEngines = map[string]v1beta2.InstanceProcess{"x": *process(v1beta2.InstanceStateRunning)}
	there := process(v1beta2.InstanceStateStarting)
	has := &Fake{Unlisted: map[string]*v1beta2.InstanceProcess{"x": there}}
	running := manager(v1beta2.InstanceManagerStateRunning)
	for name, c := range map[string]struct {
		im      *v1beta2.InstanceManager
		ordered bool
		from    *Fake
		want    Answer
		found   bool
	}{
		"never ordered":   {running, false, has, Answer{}, false},
		"listed":          {listed, true, &Fake{}, Answer{}, true},
		"no manager":      {nil, true, &Fake{}, Answer{}, false},
		"manager unknown": {manager(v1beta2.InstanceManagerStateUnknown), true, &Fake{}, Answer{}, false},
		"no answer":       {running, true, &Fake{Silent: errors.New("silent")}, Answer{}, false},
		"not there":       {running, true, &Fake{}, Answer{Known: true}, false},
		"there":           {running, true, has, Answer{true, there}, true},
	} {
		got := Ask(t.Context(), c.from, c.im, "x", &v1beta2.InstanceStatus{Starting: c.ordered})
		if got != c.want || (got.In(c.im, "x") != nil) != c.found {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
