package runs

import (
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

const running, stopped, failed = v1beta2.InstanceStateRunning, v1beta2.InstanceStateStopped, v1beta2.InstanceStateError

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// served are an engine that serves and a replica of its volume that is in sync.
func served() (*v1beta2.Engine, []v1beta2.Replica) {
	e, b := &v1beta2.Engine{}, v1beta2.Replica{}
	e.Name, b.Name = "e", "b"
	e.Status.CurrentState, e.Status.ReplicaModeMap = running, map[string]v1beta2.ReplicaMode{"b": v1beta2.ReplicaModeRW}
	b.Spec.DesireState, b.Status.CurrentState, b.Spec.HealthyAt = running, running, start.Format(time.RFC3339)
	return e, []v1beta2.Replica{b}
}

// TestFailedRunsAreCountedOnceAndForgottenInTime: the pause grows with each run, and ends after a
// steady one.
func TestFailedRunsAreCountedOnceAndForgottenInTime(t *testing.T) {
	r, e := New(), &v1beta2.Engine{}
	at := start
	crash := func(uuid string) Run {
		e.Status.CurrentState, e.Status.UUID = failed, uuid
		return r.Engine(at, "v", e)
	}
	if got := crash("1"); got.Failures != 1 || got.RetryAt.After(at) {
		t.Errorf("first failure: %+v, want a retry at once", got)
	}
	if got := crash("1"); got.Failures != 1 {
		t.Errorf("one run counted twice: %+v", got)
	}
	if got := crash("2"); got.Failures != 2 || got.RetryAt.Sub(at) != retryFirst {
		t.Errorf("second failure: %+v", got)
	}
	if got := crash("3"); got.RetryAt.Sub(at) != 2*retryFirst {
		t.Errorf("third failure: %+v", got)
	}
	e.Status.CurrentState = running
	r.Engine(at, "v", e)
	at = at.Add(steadyAfter + time.Second)
	if got := crash("4"); got.Failures != 4 {
		t.Errorf("a run without a replica in sync counts as a steady one: %+v", got)
	}
	e.Status.CurrentState, e.Status.ReplicaModeMap = running, map[string]v1beta2.ReplicaMode{"a": v1beta2.ReplicaModeRW}
	r.Engine(at, "v", e)
	at = at.Add(steadyAfter + time.Second)
	if got := crash("5"); got.Failures != 1 {
		t.Errorf("failures before a steady run still count: %+v", got)
	}
	if got := pauseAfter(1000); got != retryMost {
		t.Errorf("pause %v, want at most %v", got, retryMost)
	}
	r.Forget("v")
	if got := crash("4"); got.Failures != 1 {
		t.Errorf("after forgetting: %+v", got)
	}
}

// TestAwaitedReplicas: how long a replica has been awaited begins when the engine runs and the
// replica is to, and ends with its process.
func TestAwaitedReplicas(t *testing.T) {
	e, replicas := served()
	r := New()
	look := func(after time.Duration) time.Time {
		return r.Replicas(start.Add(after), "v", e, nil, replicas)["b"].Awaited
	}
	b := &replicas[0]
	if got := look(0); !got.IsZero() {
		t.Errorf("one that runs is awaited since %s", got)
	}
	b.Status.CurrentState = v1beta2.InstanceStateStarting
	look(time.Minute)
	b.Status.CurrentState = v1beta2.InstanceStateUnknown
	if got := look(2 * time.Minute); !got.Equal(start.Add(time.Minute)) {
		t.Errorf("awaited since %s", got)
	}
	for name, edit := range map[string]func(){
		"it runs":               func() { b.Status.CurrentState = running },
		"it has ended":          func() { b.Status.CurrentState = failed },
		"it has failed":         func() { b.Status.CurrentState, b.Spec.FailedAt = stopped, "t" },
		"it is not wanted":      func() { b.Spec.FailedAt, b.Spec.DesireState = "", stopped },
		"the engine has ended":  func() { b.Spec.DesireState, e.Status.CurrentState = running, failed },
		"there is no engine":    func() { e = nil },
		"the engine is started": func() { e.Status.ReplicaModeMap = nil },
	} {
		e, replicas = served()
		b = &replicas[0]
		b.Status.CurrentState = v1beta2.InstanceStateStarting
		look(3 * time.Minute)
		edit()
		if got := look(4 * time.Minute); !got.IsZero() {
			t.Errorf("%s: awaited since %s", name, got)
		}
	}
}

// TestEndingReplicas: how long the process of a failed rebuild is being ended begins with the state
// and ends with it.
func TestEndingReplicas(t *testing.T) {
	e, replicas := served()
	r := New()
	look := func(after time.Duration) time.Time {
		return r.Replicas(start.Add(after), "v", e, nil, replicas)["b"].Ending
	}
	b := &replicas[0]
	b.Status.CurrentState = v1beta2.InstanceStateStopping
	if got := look(0); !got.IsZero() {
		t.Errorf("one in sync is being ended since %s", got)
	}
	b.Spec.FailedAt, b.Spec.HealthyAt = start.Format(time.RFC3339), ""
	look(time.Minute)
	e = nil
	if got := look(2 * time.Minute); !got.Equal(start.Add(time.Minute)) {
		t.Errorf("being ended since %s", got)
	}
	b.Status.CurrentState = stopped
	if got := look(3 * time.Minute); !got.IsZero() {
		t.Errorf("one that has ended is being ended since %s", got)
	}
	b.Status.CurrentState = v1beta2.InstanceStateStopping
	look(4 * time.Minute)
	r.Forget("v")
	if got := look(5 * time.Minute); !got.Equal(start.Add(5 * time.Minute)) {
		t.Errorf("being ended since %s, which was forgotten", got)
	}
}
