package volume

import (
	"testing"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestNeededAgain: a replica that was taken off the engine's list, and is the last one in sync
// before the engine has removed it, comes back on the list. The engine refuses to remove it, and
// nothing is rebuilt while it is not listed.
func TestNeededAgain(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*seen)
		want string
	}{
		{"the engine has it in sync at its address", func(*seen) {}, "engine running on n1 with ab"},
		{"it is on the list again: the other one goes", func(s *seen) {
			s.Engine.Spec.ReplicaAddressMap["a"] = "10.0.0.1:10000"
		}, "engine running on n1 with a"},
		{"the engine has another one at its address", func(s *seen) {
			s.Engine.Status.CurrentReplicaAddressMap = map[string]string{"c": "10.0.0.1:10000", "b": "10.0.0.2:10000"}
		}, ""},
	} {
		v, s := fixture()
		remove(s, 0)
		fail(s, 1, time.Minute)
		s.Engine.Status.Membership.Members = []string{"v-aaaaaaaa"}
		s.Engine.Spec.ReplicaAddressMap = map[string]string{"b": "10.0.0.2:10000"}
		s.Engine.Status.CurrentReplicaAddressMap = map[string]string{"a": "10.0.0.1:10000", "b": "10.0.0.2:10000"}
		s.Engine.Status.ReplicaModeMap["b"] = v1beta2.ReplicaModeERR
		degrade(v, time.Minute)
		tt.edit(s)
		if got := describe(settle(v, s)); got != tt.want {
			t.Errorf("%s: wants %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestEvictedReplicasThatHaveFailed: a failed replica does not stay on a disk that is being
// evicted, once the volume is complete without it: the volume would stay attached for it until it
// is stale, and its node could not be drained.
func TestEvictedReplicasThatHaveFailed(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(v *v1beta2.Volume, s *seen)
		want string
	}{
		{"the volume is complete", func(*v1beta2.Volume, *seen) {}, "delete *v1beta2.Replica b"},
		{"the volume is not complete", func(v *v1beta2.Volume, _ *seen) {
			v.Spec.NumberOfReplicas = 3
			degrade(v, 0)
		}, "create *v1beta2.Replica ns/v-r-11111111"},
		{"it is a member", func(_ *v1beta2.Volume, s *seen) {
			s.Engine.Status.Membership.Members = append(s.Engine.Status.Membership.Members, "v-bbbbbbbb")
		}, ""},
		{"no copy is safe", func(_ *v1beta2.Volume, s *seen) {
			for i := range s.Replicas {
				s.Replicas[i].Spec.LastFailedAt = ago(time.Minute)
			}
		}, ""},
		{"nobody is evicted", func(_ *v1beta2.Volume, s *seen) { s.Replicas[1].Spec.EvictionRequested = false }, ""},
		{"its disk is emptied of the others too", func(v *v1beta2.Volume, s *seen) {
			s.Replicas[2].Spec.EvictionRequested = true
		}, "create *v1beta2.Replica ns/v-r-11111111"},
	} {
		v, s := fixture()
		v.Spec.StaleReplicaTimeout = 0
		third(s)
		s.Nodes = append(s.Nodes, *s.Nodes[2].DeepCopy())
		s.Nodes[3].Name, s.ImageOn["n4"] = "n4", true
		s.Nodes[3].Status.DiskStatus["d"] = func() v1beta2.DiskStatus {
			d := s.Nodes[2].Status.DiskStatus["d"]
			d.DiskUUID = "disk-n4"
			return d
		}()
		s.Managers = append(s.Managers, *s.Managers[2].DeepCopy())
		s.Managers[3].Name, s.Managers[3].Spec.NodeID = "im-n4", "n4"
		s.Engine.Spec.ReplicaAddressMap["c"], s.Engine.Status.ReplicaModeMap["c"] = "10.0.0.3:10000", v1beta2.ReplicaModeRW
		s.Engine.Status.ReplicaTransitionTimeMap["c"] = ago(time.Hour)
		s.Engine.Status.Membership.Members = []string{"v-aaaaaaaa", "v-cccccccc"}
		fail(s, 1, time.Minute)
		s.Replicas[1].Spec.EvictionRequested = true
		tt.edit(v, s)
		if got := describe(settle(v, s)); got != tt.want {
			t.Errorf("%s: wants %q, want %q", tt.name, got, tt.want)
		}
	}
}
