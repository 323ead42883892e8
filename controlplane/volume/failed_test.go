package volume

import (
	"strings"
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/volume/runs"
)

// crashed is an engine whose process run-1 has failed.
func crashed(s *seen) {
	s.Engine.Status.CurrentState, s.Engine.Status.UUID, s.Engine.Status.ReplicaModeMap = failed, "run-1", nil
}

// TestFailedEngine is the decision table of an engine that has failed.
func TestFailedEngine(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*v1beta2.Volume, *seen)
		want string
	}{
		{"engine crashed, replicas run: the next one at once", func(_ *v1beta2.Volume, s *seen) {
			crashed(s)
		}, "engine running on n1 with ab after run-1"},
		{"ordered already", func(_ *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Engine.Spec.RestartAfter = "run-1"
		}, ""},
		{"engine crashed again: the one before is meant no more", func(_ *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Engine.Spec.RestartAfter = "run-0"
		}, "engine running on n1 with ab after run-1"},
		{"engine crashed beside a replica that is no candidate: without it", func(_ *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Replicas[1].Spec.HealthyAt, s.Replicas[1].Spec.LastHealthyAt = "", ""
			s.Engine.Status.Membership.Members = []string{"v-aaaaaaaa"}
		}, "engine running on n1 with a after run-1"},
		{"engine crashed with a replica: that one is started again", func(_ *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Replicas[1].Status.CurrentState = failed
		}, "replica b stopped"},
		{"and again, but not at once", func(_ *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Replicas[1].Status.CurrentState = failed
			s.ReplicaRuns = map[string]runs.Run{"b": {Failures: 2, RetryAt: now.Add(time.Second)}}
		}, ""},
		{"engine crashed while a replica starts: that one is waited for", func(_ *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Replicas[1].Status.CurrentState = v1beta2.InstanceStateStarting
		}, ""},
		{"but not long", func(v *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Replicas[1].Status.CurrentState = v1beta2.InstanceStateStarting
			waitedFor(v, followWait)
		}, "engine running on n1 with a after run-1"},
		{"engine gone without a trace: stopped first", func(_ *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Engine.Status.UUID = ""
		}, "engine stopped on n1 with ab"},
		{"engine crashed again: not at once", func(_ *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Run = runs.Run{Failures: 2, RetryAt: now.Add(time.Second)}
		}, ""},
		{"engine crashes again and again while I/O waits", func(v *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Run = runs.Run{Failures: 30}
			waitedFor(v, 5*time.Minute-time.Second)
		}, "engine running on n1 with ab after run-1"},
		{"and for longer than that may: faulted", func(v *v1beta2.Volume, s *seen) {
			crashed(s)
			waitedFor(v, 5*time.Minute)
		}, "replica a stopped failed"},
		{"the bound is the setting's", func(v *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Settings[setting.BlockDeviceWait] = "20"
			waitedFor(v, 20*time.Second)
		}, "replica a stopped failed"},
		{"the next engine's process does not come: waited for", func(v *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Engine.Status.CurrentState, s.Engine.Status.UUID = stopped, ""
			waitedFor(v, 5*time.Minute-time.Second)
		}, ""},
		{"for no longer than I/O may wait", func(v *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Engine.Status.CurrentState, s.Engine.Status.UUID = stopped, ""
			waitedFor(v, 5*time.Minute)
		}, "replica a stopped failed"},
		{"on a node that is down it may run unseen", func(v *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Engine.Status.CurrentState, s.Engine.Status.UUID = stopped, ""
			s.Nodes[0].Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: v1beta2.ConditionFalse,
				Reason: v1beta2.NodeReasonKubernetesNodeNotReady}}
			s.Replicas[0].Spec.NodeID = "n3"
			waitedFor(v, time.Hour)
		}, ""},
		{"in an attachment its process is waited for", func(v *v1beta2.Volume, s *seen) {
			crashed(s)
			s.Engine.Status.CurrentState, s.Engine.Status.UUID = stopped, ""
			v.Status.State, v.Status.CurrentNodeID = v1beta2.VolumeStateAttaching, ""
			waitedFor(v, time.Hour)
		}, ""},
		{"engine crashes for ever in an attachment: faulted", func(v *v1beta2.Volume, s *seen) {
			crashed(s)
			v.Status.State, v.Status.CurrentNodeID = v1beta2.VolumeStateAttaching, ""
			s.Run = runs.Run{Failures: 3}
		}, "replica a stopped failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, s := fixture()
			tt.edit(v, s)
			if got := describe(settle(v, s)); got != tt.want {
				t.Errorf("wants %q, want %q", got, tt.want)
			}
		})
	}
}

// TestWaitOfIOIsTold: the condition says what I/O waits for, and until when; it is gone when an
// engine serves.
func TestWaitOfIOIsTold(t *testing.T) {
	v, s := fixture()
	crashed(s)
	s.Replicas[0].Status.CurrentState = v1beta2.InstanceStateStarting
	s.Nodes[1].Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: v1beta2.ConditionFalse,
		Reason: v1beta2.NodeReasonKubernetesNodeNotReady}}
	d := settle(v, s)
	c := v1beta2.FindCondition(v.Status.Conditions, ConditionWaitForReplicas)
	want := "I/O waits until 2026-01-02T03:09:05Z at most: it lacks replicas a (its process is starting), b (node n2 is down)"
	if d.Do != nil || d.After <= 0 || d.After > 5*time.Minute || c.Status != v1beta2.ConditionTrue ||
		c.Reason != ReasonIOWaits || c.Message != want || v.Status.Robustness != v1beta2.VolumeRobustnessUnknown {
		t.Errorf("condition %+v, robustness %s, %+v; want %q", c, v.Status.Robustness, d, want)
	}
	before := c.Message
	decide(now.Add(time.Minute), v, *s)
	if c = v1beta2.FindCondition(v.Status.Conditions, ConditionWaitForReplicas); c.Message != before {
		t.Errorf("a minute later: %q", c.Message)
	}
	v2, s2 := fixture()
	v2.Status.Conditions = v.Status.Conditions
	settle(v2, s2)
	if v1beta2.IsConditionTrue(v2.Status.Conditions, ConditionWaitForReplicas) {
		t.Error("it still waits while the engine serves")
	}
}

// TestWaitOfIOByOneClock: the bound is measured since this process has seen the wait, whatever the
// clock of the leader says that has stamped it.
func TestWaitOfIOByOneClock(t *testing.T) {
	for _, stamped := range []time.Duration{-time.Hour, 0, time.Hour} {
		for _, seenFor := range []time.Duration{0, 5*time.Minute - time.Second, 5 * time.Minute} {
			want := seenFor == 5*time.Minute
			v, s := fixture()
			crashed(s)
			s.Replicas[0].Status.CurrentState = v1beta2.InstanceStateStarting
			waitedFor(v, -stamped)
			s.WaitsSince = now.Add(-seenFor)
			d := decides(v, *s)
			for len(d.Events) > 0 && d.Do == nil {
				d = decide(now, v, *s) // once the status is written
			}
			if got := strings.Contains(describe(d), "failed"); got != want {
				t.Errorf("stamped %s from now, seen for %s: given up %v", stamped, seenFor, got)
			}
		}
	}
}

// TestSinceIsThatOfThisProcess: a wait that another leader has begun is measured from the first
// look, and the next one from its own.
func TestSinceIsThatOfThisProcess(t *testing.T) {
	at := now
	r := New(Config{Now: func() time.Time { return at }})
	v, _ := fixture()
	look := func() (s seen) { r.gatherSince(v, &s); return s }
	if s := look(); !s.WaitsSince.IsZero() || !s.UpgradeSince.IsZero() {
		t.Errorf("nothing lasts: %s, %s", s.WaitsSince, s.UpgradeSince)
	}
	waitedFor(v, time.Hour)
	first := at
	for range 3 {
		if s := look(); !s.WaitsSince.Equal(first) {
			t.Errorf("seen since %s, want %s", s.WaitsSince, first)
		}
		at = at.Add(time.Minute)
	}
	v.Status.Conditions[len(v.Status.Conditions)-1].LastTransitionTime = ago(time.Minute)
	if s := look(); !s.WaitsSince.Equal(at) {
		t.Errorf("another wait is seen since %s, want %s", s.WaitsSince, at)
	}
}

// TestStaleByOneClock: a failed replica that another leader has stamped, whose clock is away, goes
// when this process has seen the failure for the timeout, or for ten minutes of a long one.
func TestStaleByOneClock(t *testing.T) {
	for _, tt := range []struct {
		timeout       int // minutes
		stamped, seen time.Duration
		gone          bool
		after         time.Duration
	}{
		{5, 5 * time.Hour, 0, false, 5 * time.Minute},
		{5, -5 * time.Hour, 0, false, 5 * time.Minute},
		{5, 5 * time.Hour, 5 * time.Minute, true, 0},
		{5, -5 * time.Hour, 5 * time.Minute, true, 0},
		{2880, 5000 * time.Hour, 0, false, 10 * time.Minute},
		{2880, 5000 * time.Hour, 10 * time.Minute, true, 0},
		{2880, 47 * time.Hour, 10 * time.Minute, false, time.Hour},
		{2880, 48 * time.Hour, 10 * time.Minute, true, 0},
	} {
		v, s := fixture()
		third(s)
		v.Spec.StaleReplicaTimeout = tt.timeout
		r := &s.Replicas[2]
		r.Spec.FailedAt, r.Spec.DesireState, r.Status.CurrentState = ago(tt.stamped), stopped, stopped
		s.FailedSince = map[string]time.Time{r.Name: now.Add(-tt.seen)}
		d := settle(v, s)
		if gone := describe(d) == "delete *v1beta2.Replica c"; gone != tt.gone || !gone && d.After != tt.after {
			t.Errorf("%+v: does %q, looks again after %s", tt, describe(d), d.After)
		}
	}
}

// TestFailuresAreSeenOnce: each failure of a replica is seen since the first look at it.
func TestFailuresAreSeenOnce(t *testing.T) {
	at := now
	r := New(Config{Now: func() time.Time { return at }})
	v, s := fixture()
	s.Replicas[0].Spec.FailedAt = ago(time.Hour)
	for range 2 {
		if r.gatherSince(v, s); len(s.FailedSince) != 1 || !s.FailedSince[s.Replicas[0].Name].Equal(now) {
			t.Errorf("seen since %v, want only the failed one, since %s", s.FailedSince, now)
		}
		at = at.Add(time.Minute)
	}
	s.Replicas[0].Spec.FailedAt = ago(time.Minute)
	if r.gatherSince(v, s); !s.FailedSince[s.Replicas[0].Name].Equal(at) {
		t.Errorf("another failure is seen since %v, want %s", s.FailedSince, at)
	}
}

// TestDiskThatIsAwayIsNamed: an attachment that waits for a replica whose disk is not mounted says
// so.
func TestDiskThatIsAwayIsNamed(t *testing.T) {
	v, s := fixture()
	off(s)
	v.Status.State, v.Status.CurrentNodeID = v1beta2.VolumeStateAttaching, ""
	for i := range s.Replicas {
		s.Replicas[i].Spec.DesireState, s.Replicas[i].Status.CurrentState = running, v1beta2.InstanceStateError
	}
	later := runs.Run{Failures: 3, RetryAt: now.Add(time.Hour)}
	s.ReplicaRuns = map[string]runs.Run{"a": later, "b": later}
	s.Replicas[1].Spec.DiskID = "disk-n2"
	d := s.Nodes[1].Status.DiskStatus["d"]
	d.Conditions = []v1beta2.Condition{{Type: "Ready", Status: v1beta2.ConditionFalse,
		Reason: v1beta2.DiskReasonDiskFilesystemChanged, Message: "disk d is not mounted at /data"}}
	s.Nodes[1].Status.DiskStatus["d"] = d
	settle(v, s)
	c := v1beta2.FindCondition(v.Status.Conditions, ConditionWaitForReplicas)
	if want := "waiting for the processes of replicas a, b (node n2: disk d is not mounted at /data)"; c.Message != want {
		t.Errorf("condition %+v, want %q", c, want)
	}
}
