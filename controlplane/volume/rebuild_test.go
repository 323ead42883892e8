package volume

import (
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/schedule"
	"ankole.storage/controlplane/volume/runs"
)

// TestRebuildThatCannotBegin: a replica that is to be rebuilt gives its place up where nothing can
// run its process, or its process does not come up. It counts as the one rebuild that a volume has
// at a time, so its volume would stay degraded for ever.
func TestRebuildThatCannotBegin(t *testing.T) {
	const gives = "replica c stopped failed"
	manager := func(state v1beta2.InstanceManagerState) func(*seen) {
		return func(s *seen) { s.Managers[2].Status.CurrentState = state }
	}
	down := func(s *seen) {
		s.Nodes[2].Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: v1beta2.ConditionFalse,
			Reason: v1beta2.NodeReasonKubernetesNodeNotReady}}
	}
	state := func(is v1beta2.InstanceState) func(*seen) {
		return func(s *seen) { s.Replicas[2].Status.CurrentState = is }
	}
	network := func(name string) func(*seen) { return func(s *seen) { s.Managers[2].Status.StorageNetwork = name } }
	awaited := func(d time.Duration) func(*seen) {
		return func(s *seen) { s.ReplicaRuns = map[string]runs.Run{"c": {Awaited: now.Add(-d)}} }
	}
	for _, tt := range []struct {
		name string
		edit []func(*seen)
		want string
	}{
		{"its process is awaited", nil, ""},
		{"its instance manager has failed", []func(*seen){manager(v1beta2.InstanceManagerStateError)}, gives},
		{"its instance manager starts", []func(*seen){manager(v1beta2.InstanceManagerStateStarting)}, gives},
		{"its instance manager cannot be observed", []func(*seen){manager(v1beta2.InstanceManagerStateUnknown)}, ""},
		{"there is no instance manager", []func(*seen){func(s *seen) { s.Managers = s.Managers[:2] }}, gives},
		{"it was not started yet", []func(*seen){manager(v1beta2.InstanceManagerStateError), func(s *seen) {
			s.Replicas[2].Spec.DesireState = stopped
		}}, gives},
		{"its node is down", []func(*seen){down}, gives},
		{"its process starts", []func(*seen){state(v1beta2.InstanceStateStarting)}, ""},
		{"its process has not come up and is being stopped", []func(*seen){state(v1beta2.InstanceStateStopping)}, gives},
		{"its process is being stopped, and it is not wanted yet", []func(*seen){state(v1beta2.InstanceStateStopping),
			func(s *seen) { s.Replicas[2].Spec.DesireState = stopped }}, ""},
		{"its instance manager is on another network", []func(*seen){network("a/b")}, gives},
		{"its instance manager is on the same network", []func(*seen){network("a/b"), func(s *seen) {
			s.Replicas[2].Spec.StorageNetwork = "a/b"
		}}, ""},
		{"it was not started yet, and its instance manager is on another network", []func(*seen){network("a/b"),
			func(s *seen) { s.Replicas[2].Spec.DesireState = stopped }}, gives},
		{"it was not started yet, and its instance manager is on the network of today", []func(*seen){network("a/b"),
			func(s *seen) { s.Replicas[2].Spec.DesireState, s.Network = stopped, "a/b" }}, "replica c running"},
		{"its instance manager is about to be removed", []func(*seen){func(s *seen) {
			s.Managers[2].Status.ClosedPod = "pod"
		}}, gives},
		{"an instance manager of another image runs, and its own does not", []func(*seen){func(s *seen) {
			older := *s.Managers[2].DeepCopy()
			older.Name, older.Spec.Image = "older", "im:0"
			s.Managers = append(s.Managers, older)
			s.Managers[2].Status.CurrentState = v1beta2.InstanceManagerStateError
		}}, gives},
		{"only an instance manager for engines runs", []func(*seen){func(s *seen) {
			s.Managers[2].Spec.Type = v1beta2.InstanceManagerTypeEngine
		}}, gives},
		{"it has been awaited for less than three minutes", []func(*seen){awaited(3*time.Minute - time.Second)}, ""},
		{"it has been awaited for three minutes", []func(*seen){awaited(3 * time.Minute)}, gives},
		{"so has one that starts", []func(*seen){awaited(3 * time.Minute), state(v1beta2.InstanceStateStarting)}, gives},
	} {
		v, s := fixture()
		third(s)
		v.Spec.NumberOfReplicas = 3
		degrade(v, 0)
		c := &s.Replicas[2]
		c.Spec.HealthyAt, c.Spec.LastHealthyAt, c.Spec.RebuildRetryCount = "", "", v1beta2.MaxRebuildRetryCount
		c.Status.CurrentState, c.Status.Port = stopped, 0
		for _, edit := range tt.edit {
			edit(s)
		}
		if got := describe(settle(v, s)); got != tt.want {
			t.Errorf("%s: wants %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestNewReplicasAvoidWhatDoesNotWork: after a rebuild that could not begin, the next place is
// another one.
func TestNewReplicasAvoidWhatDoesNotWork(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*seen)
		want string
	}{
		{"it is free", func(s *seen) { s.Replicas = s.Replicas[:2] }, "n3"},
		{"a process there does not end", func(*seen) {}, ""},
		{"the same, deleted", func(s *seen) { remove(s, 2) }, ""},
		{"it has ended", func(s *seen) { s.Replicas[2].Status.CurrentState = stopped }, "n3"},
		{"it had served before", func(s *seen) { s.Replicas[2].Spec.HealthyAt = ago(time.Hour) }, "n3"},
		{"its instance manager is on another network", func(s *seen) {
			s.Replicas = s.Replicas[:2]
			s.Managers[2].Status.StorageNetwork = "a/b"
		}, ""},
		{"its instance manager is about to be removed", func(s *seen) {
			s.Replicas = s.Replicas[:2]
			s.Managers[2].Status.ClosedPod = "pod"
		}, ""},
	} {
		v, s := fixture()
		third(s)
		fail(s, 2, 0)
		s.Replicas[2].Spec.HealthyAt, s.Replicas[2].Spec.LastHealthyAt = "", ""
		s.Replicas[2].Spec.RebuildRetryCount = v1beta2.MaxRebuildRetryCount
		s.Replicas[2].Status.CurrentState = v1beta2.InstanceStateStopping
		tt.edit(s)
		place, why := schedule.Place(newPass(now, v, *s).request(schedule.Replica{Name: "new"}))
		if place.NodeID != tt.want {
			t.Errorf("%s: placed on %q, want %q (%s)", tt.name, place.NodeID, tt.want, why)
		}
	}
}
