package volume

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestScheduledWithFewerReplicas: one place is enough for condition Scheduled while the volume is
// detached, if the setting says so.
func TestScheduledWithFewerReplicas(t *testing.T) {
	for _, tt := range []struct {
		setting string
		placed  int
		want    v1beta2.ConditionStatus
	}{{"true", 1, "True"}, {"false", 1, "False"}, {"true", 0, "False"}, {"false", 2, "True"}} {
		v, s := resting()
		s.Engine.Status.Membership = nil
		s.Settings["allow-volume-creation-with-degraded-availability"] = tt.setting
		for i := range s.Replicas {
			s.Replicas[i] = empty(s.Replicas[i])
			if i >= tt.placed {
				s.Replicas[i].Spec.NodeID, s.Replicas[i].Spec.DiskID = "", ""
			}
		}
		for i := range s.Nodes {
			s.Nodes[i].Spec.AllowScheduling = false
		}
		settle(v, s)
		if got := scheduled(v).Status; got != tt.want {
			t.Errorf("setting %s, %d of 2 with a place: Scheduled is %s, want %s", tt.setting, tt.placed, got, tt.want)
		}
	}
}

// TestWhenNothingIsReplaced holds what a lacking replica waits for.
func TestWhenNothingIsReplaced(t *testing.T) {
	const adds = "create *v1beta2.Replica ns/v-r-11111111"
	for _, tt := range []struct {
		name string
		edit func(v *v1beta2.Volume, s *seen)
		want string
	}{
		{"attached", func(*v1beta2.Volume, *seen) {}, adds},
		{"detached", func(v *v1beta2.Volume, s *seen) {
			r, rs := resting()
			rs.Replicas = rs.Replicas[:1]
			r.Spec.DeepCopyInto(&v.Spec)
			r.Status.DeepCopyInto(&v.Status)
			*s = *rs
		}, ""},
		{"the engine has not reported the other", func(v *v1beta2.Volume, s *seen) {
			v.Spec.NumberOfReplicas = 3
			s.Replicas = append(s.Replicas, good("b", "n2", "v-bbbbbbbb"))
			s.Engine.Spec.ReplicaAddressMap["b"] = "10.0.0.2:10000"
		}, ""},
		{"the engine works with one more", func(_ *v1beta2.Volume, s *seen) {
			s.Engine.Status.ReplicaModeMap["unknown-10.0.0.2:10000"] = v1beta2.ReplicaModeRW
		}, ""},
		{"the other is in error", func(_ *v1beta2.Volume, s *seen) {
			s.Engine.Status.ReplicaModeMap["a"] = v1beta2.ReplicaModeERR
		}, ""},
	} {
		v, s := fixture()
		s.Replicas = s.Replicas[:1]
		delete(s.Engine.Spec.ReplicaAddressMap, "b")
		delete(s.Engine.Status.ReplicaModeMap, "b")
		s.Engine.Status.Membership.Members = []string{"v-aaaaaaaa"}
		degrade(v, time.Minute)
		tt.edit(v, s)
		if got := describe(settle(v, s)); got != tt.want {
			t.Errorf("%s: wants %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestReuseWithoutFastRebuild: a failed replica is rebuilt where it is, whether or not checksums
// tell what it lacks.
func TestReuseWithoutFastRebuild(t *testing.T) {
	for _, value := range []string{`{"v1":"true"}`, `{"v1":"false"}`, "false"} {
		v, s := fixture()
		s.Settings["fast-replica-rebuild-enabled"] = value
		fail(s, 1, time.Minute)
		degrade(v, time.Minute)
		u, ok := update(settle(v, s))
		if !ok {
			t.Fatalf("%s: nothing is changed", value)
		}
		if r, ok := u.Object.(*v1beta2.Replica); !ok || r.Name != "b" || r.Spec.FailedAt != "" {
			t.Errorf("%s: %+v", value, u.Object)
		}
	}
}

// TestFirstReplicasComeWithRebuildsOff: the limit of rebuilds holds for no replica of a new volume.
func TestFirstReplicasComeWithRebuildsOff(t *testing.T) {
	v, s := resting()
	v.Status.State, s.Replicas = "", nil
	s.Settings["concurrent-replica-rebuild-per-node-limit"] = "0"
	if got, want := describe(settle(v, s)), "create *v1beta2.Replica ns/v-r-11111111"; got != want {
		t.Errorf("wants %q, want %q", got, want)
	}
}

// TestWaitsAreLookedAtInTime: a wait that no event ends has its own time.
func TestWaitsAreLookedAtInTime(t *testing.T) {
	v, s := fixture()
	fail(s, 1, 4*time.Second)
	s.Replicas[1].Spec.HealthyAt, s.Replicas[1].Spec.RebuildRetryCount = "", 1
	degrade(v, time.Minute)
	if d := settle(v, s); d.Do != nil || d.After != 6*time.Second {
		t.Errorf("4 s of a pause of 10 s are over: %q, looked at in %s", describe(d), d.After)
	}
	v, s = fixture()
	fail(s, 1, time.Minute)
	s.Managers[1].Status.CurrentState = v1beta2.InstanceManagerStateUnknown
	s.Settings["replica-replenishment-wait-interval"] = "600"
	degrade(v, time.Minute)
	if d := settle(v, s); d.Do != nil || d.After != 9*time.Minute+time.Second {
		t.Errorf("1 min of a wait of 10 min is over: %q, looked at in %s", describe(d), d.After)
	}
}

// TestLeftoversOfAVolume holds which replicas that serve nobody go.
func TestLeftoversOfAVolume(t *testing.T) {
	const gone = "delete *v1beta2.Replica c"
	for _, tt := range []struct {
		name string
		edit func(v *v1beta2.Volume, s *seen, c *v1beta2.Replica)
		want string
	}{
		{"not in use, no upgrade", func(_ *v1beta2.Volume, _ *seen, c *v1beta2.Replica) {
			*c = good("c", "n3", "v-cccccccc")
			c.Spec.Active = false
		}, gone},
		{"without a place, the volume is complete", func(*v1beta2.Volume, *seen, *v1beta2.Replica) {}, gone},
		{"it once was in sync", func(_ *v1beta2.Volume, _ *seen, c *v1beta2.Replica) {
			c.Spec.LastHealthyAt = ago(time.Hour)
		}, ""},
		{"the volume is not complete", func(v *v1beta2.Volume, _ *seen, _ *v1beta2.Replica) {
			v.Spec.NumberOfReplicas = 3
		}, ""},
		{"bound to the node of the volume", func(v *v1beta2.Volume, _ *seen, c *v1beta2.Replica) {
			v.Spec.DataLocality, c.Spec.HardNodeAffinity = v1beta2.DataLocalityBestEffort, "n1"
		}, ""},
		{"bound to another node", func(v *v1beta2.Volume, _ *seen, c *v1beta2.Replica) {
			v.Spec.DataLocality, c.Spec.HardNodeAffinity = v1beta2.DataLocalityBestEffort, "n3"
		}, gone},
		{"another is evicting", func(_ *v1beta2.Volume, s *seen, _ *v1beta2.Replica) {
			s.Replicas[1].Spec.EvictionRequested, s.Nodes[1].Spec.AllowScheduling = true, false
		}, ""},
	} {
		v, s := fixture()
		third(s)
		s.Replicas[2] = empty(s.Replicas[2])
		c := &s.Replicas[2]
		c.Spec.NodeID, c.Spec.DiskID, c.Spec.DataDirectoryName = "", "", ""
		s.Nodes[2].Spec.AllowScheduling = false
		tt.edit(v, s, c)
		if got := describe(settle(v, s)); got != tt.want {
			t.Errorf("%s: wants %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestLocalityWaitsForHealth: a replica beside the engine is no help while others lack.
func TestLocalityWaitsForHealth(t *testing.T) {
	for robustness, want := range map[v1beta2.VolumeRobustness]bool{"healthy": true, "degraded": false, "unknown": false} {
		v, s := fixture()
		v.Spec.DataLocality, v.Spec.NodeID, v.Status.CurrentNodeID = v1beta2.DataLocalityBestEffort, "n3", "n3"
		v.Status.Robustness = robustness
		s.Engine.Spec.NodeID = "n3"
		if got := (replenishing{newPass(now, v, *s)}).localize() != nil; got != want {
			t.Errorf("%s: made %v", robustness, got)
		}
	}
}

// TestEvictionTicket has the name that clients know.
func TestEvictionTicket(t *testing.T) {
	v, s := resting()
	s.Replicas[0].Spec.EvictionRequested = true
	u, ok := update(settle(v, s))
	if !ok {
		t.Fatal("nothing is changed")
	}
	for _, ticket := range u.Object.(*v1beta2.VolumeAttachment).Spec.AttachmentTickets {
		if ticket.Type != "volume-eviction-controller" {
			t.Errorf("the ticket has type %s", ticket.Type)
		}
	}
}

// TestStateDeleting is what clients see from the first step of a deletion to the last.
func TestStateDeleting(t *testing.T) {
	v, s := fixture()
	v.DeletionTimestamp = &metav1.Time{Time: now}
	for _, left := range []func(){
		func() {}, func() { s.Engines = nil }, func() { s.Replicas = nil }, func() { s.Attachment = nil },
	} {
		left()
		settle(v, s)
		if v.Status.State != "deleting" {
			t.Errorf("state %s", v.Status.State)
		}
	}
}
