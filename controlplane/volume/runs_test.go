package volume

import (
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// crashed is an engine whose process run-1 has failed.
func crashed(s *seen) {
	s.Engine.Status.CurrentState, s.Engine.Status.UUID, s.Engine.Status.ReplicaModeMap = failed, "run-1", nil
}

// TestFailedEngine is the decision table of an engine that has failed.
func TestFailedEngine(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*seen)
		want string
	}{
		{"engine crashed, replicas run: the next one at once", func(s *seen) {
			crashed(s)
		}, "engine running on n1 with ab after run-1"},
		{"ordered already", func(s *seen) {
			crashed(s)
			s.Engine.Spec.RestartAfter = "run-1"
		}, ""},
		{"engine crashed again: the one before is meant no more", func(s *seen) {
			crashed(s)
			s.Engine.Spec.RestartAfter = "run-0"
		}, "engine running on n1 with ab after run-1"},
		{"engine crashed beside a replica that is no candidate: without it", func(s *seen) {
			crashed(s)
			s.Replicas[1].Spec.HealthyAt, s.Replicas[1].Spec.LastHealthyAt = "", ""
			s.Engine.Status.Membership.Members = []string{"v-aaaaaaaa"}
		}, "engine running on n1 with a after run-1"},
		{"engine crashed with a replica: stopped first", func(s *seen) {
			crashed(s)
			s.Replicas[1].Status.CurrentState = failed
		}, "engine stopped on n1 with ab"},
		{"engine crashed while a replica starts: stopped first", func(s *seen) {
			crashed(s)
			s.Replicas[1].Status.CurrentState = v1beta2.InstanceStateStarting
		}, "engine stopped on n1 with ab"},
		{"engine gone without a trace: stopped first", func(s *seen) {
			crashed(s)
			s.Engine.Status.UUID = ""
		}, "engine stopped on n1 with ab"},
		{"engine crashed again: not at once", func(s *seen) {
			crashed(s)
			s.Run = run{Failures: 2, RetryAt: now.Add(time.Second)}
		}, ""},
		{"engine crashes for ever: faulted", func(s *seen) {
			crashed(s)
			s.Run = run{Failures: 3}
		}, "replica a stopped failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, s := fixture()
			tt.edit(s)
			if got := describe(settle(v, s)); got != tt.want {
				t.Errorf("wants %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFailedRunsAreCountedOnceAndForgottenInTime(t *testing.T) {
	r, e := newRuns(), &v1beta2.Engine{}
	at := now
	crash := func(uuid string) run {
		e.Status.CurrentState, e.Status.UUID = failed, uuid
		return r.observe(at, "v", e)
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
	r.observe(at, "v", e)
	at = at.Add(steadyAfter + time.Second)
	if got := crash("4"); got.Failures != 1 {
		t.Errorf("failures before a steady run still count: %+v", got)
	}
	if got := pauseAfter(1000); got != retryMost {
		t.Errorf("pause %v, want at most %v", got, retryMost)
	}
	r.forget("v")
	if got := crash("4"); got.Failures != 1 {
		t.Errorf("after forgetting: %+v", got)
	}
}
