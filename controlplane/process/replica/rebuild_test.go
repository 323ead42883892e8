package replica

import (
	"slices"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestRebuildFailed is the table of the condition RebuildFailed: what was told before, what is seen
// now, and what is told then.
func TestRebuildFailed(t *testing.T) {
	const bad = "checksum differs"
	failed := func(r *v1beta2.Replica) {
		r.Spec.FailedAt, r.Spec.LastFailedAt, r.Spec.RebuildRetryCount = "t1", "t1", 1
	}
	ended := func(r *v1beta2.Replica) { r.Status.CurrentState = v1beta2.InstanceStateError }
	general := v1beta2.Condition{Status: "True", Reason: "General", Message: bad}
	disconnected := v1beta2.Condition{Status: "True", Reason: "Disconnection", Message: bad}
	for _, tt := range []struct {
		name string
		had  v1beta2.Condition
		edit func(*v1beta2.Replica)
		seen seen
		want string
	}{
		{"nothing has failed", v1beta2.Condition{}, nil, seen{}, ""},
		{"in sync, and never failed", v1beta2.Condition{}, nil, seen{Rebuild: rebuild{Done: true}}, ""},
		{"the engine says why", v1beta2.Condition{}, nil, seen{Rebuild: rebuild{Error: bad}}, "True General " + bad},
		{"its process has ended", v1beta2.Condition{}, ended, seen{Rebuild: rebuild{Error: bad}},
			"True Disconnection " + bad},
		{"its process was found to have ended later", general, ended, seen{Rebuild: rebuild{Error: bad}},
			"True Disconnection " + bad},
		{"its process is stopped by order later", disconnected, nil, seen{Rebuild: rebuild{Error: bad}},
			"True Disconnection " + bad},
		{"another failure", disconnected, nil, seen{Rebuild: rebuild{Error: "no space"}}, "True General no space"},
		{"its node is down", v1beta2.Condition{}, failed, seen{NodeDown: true,
			Node: notReady(v1beta2.NodeReasonKubernetesNodeNotReady, time.Minute)},
			"True KubernetesNodeNotReady the rebuild did not come to its end, its engine or its process went away; " +
				"last failed at t1"},
		{"its node is gone", general, failed, seen{NodeDown: true}, "True KubernetesNodeGone " + bad},
		{"nobody says why", v1beta2.Condition{}, failed, seen{},
			"True Disconnection the rebuild did not come to its end, its engine or its process went away; last failed at t1"},
		{"the engine has dropped it", general, failed, seen{}, "True General " + bad},
		{"failed without a place", v1beta2.Condition{}, func(r *v1beta2.Replica) {
			failed(r)
			r.Spec.NodeID = ""
		}, seen{}, ""},
		{"failed with data", v1beta2.Condition{}, func(r *v1beta2.Replica) {
			failed(r)
			r.Spec.HealthyAt = "t0"
		}, seen{}, ""},
		{"is rebuilt again", disconnected, func(r *v1beta2.Replica) { r.Spec.RebuildRetryCount = 1 }, seen{},
			"True Disconnection " + bad},
		{"success", disconnected, nil, seen{Rebuild: rebuild{Done: true}}, "False  "},
	} {
		r := rep()
		if tt.had.Status != "" {
			tt.had.Type = v1beta2.ReplicaConditionRebuildFailed
			r.Status.Conditions = []v1beta2.Condition{tt.had}
		}
		if tt.edit != nil {
			tt.edit(r)
		}
		for range 2 { // it settles
			noteRebuild(now, r, tt.seen)
		}
		got := ""
		if c := v1beta2.FindCondition(r.Status.Conditions, "RebuildFailed"); c.Status != v1beta2.ConditionUnknown {
			got = string(c.Status) + " " + c.Reason + " " + c.Message
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestRebuildWakesItsReplica: only the replicas of which an engine says something new are looked
// at.
func TestRebuildWakesItsReplica(t *testing.T) {
	engine := func(mode v1beta2.ReplicaMode, progress int, why string) *v1beta2.Engine {
		e := &v1beta2.Engine{}
		e.Spec.ReplicaAddressMap = map[string]string{"a": "1:1", "b": "2:2"}
		e.Status.ReplicaModeMap = map[string]v1beta2.ReplicaMode{"a": v1beta2.ReplicaModeRW, "b": mode}
		e.Status.CurrentReplicaAddressMap = map[string]string{"a": "1:1", "b": "2:2"}
		e.Status.RebuildStatus = map[string]v1beta2.RebuildStatus{"tcp://2:2": {Progress: progress, Error: why}}
		return e
	}
	const wo = v1beta2.ReplicaModeWO
	for _, tt := range []struct {
		before, after *v1beta2.Engine
		want          []string
	}{
		{engine(wo, 10, ""), engine(wo, 20, ""), nil},
		{engine(wo, 20, ""), engine(v1beta2.ReplicaModeRW, 100, ""), []string{"b"}},
		{engine(wo, 20, ""), engine(v1beta2.ReplicaModeERR, 20, "no"), []string{"b"}},
	} {
		if got := rebuilt(tt.before, tt.after); !slices.Equal(got, tt.want) {
			t.Errorf("wakes %v, want %v", got, tt.want)
		}
	}
}

// TestLogOfAFailedReplica: its log is read before its process is ended, once, and the status shows
// it; a process is started first.
func TestLogOfAFailedReplica(t *testing.T) {
	r := rep()
	r.Spec.LogRequested, r.Spec.DesireState = true, v1beta2.InstanceStateStopped
	s := seen{Managers: managers(runningProcess())}
	if d := decide(now, r, s); d.Do == nil || d.Do.String() != "read the log of replica v-r-11111111 in im-1" {
		t.Fatalf("first %v", d.Do)
	}
	s.Log.Tried = true
	if d := decide(now, r, s); d.Do == nil || d.Do.String() != "stop replica v-r-11111111 in im-1" || r.Status.LogFetched {
		t.Errorf("if it could not be read: %v, fetched %v", d.Do, r.Status.LogFetched)
	}
	s.Log.Read = true
	if decide(now, r, s); !r.Status.LogFetched {
		t.Error("it was read, and the status does not show it")
	}
	r = rep()
	r.Spec.LogRequested = true
	if d := decide(now, r, seen{Managers: managers(nil)}); d.Do == nil || d.Do.String() != "start replica v-r-11111111" {
		t.Errorf("before a start %v", d.Do)
	}
}
