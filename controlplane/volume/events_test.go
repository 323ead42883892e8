package volume

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// told are the events of a pass with a reason.
func told(d loop.Decision, reason string) (found []loop.Event) {
	for _, e := range d.Events {
		if e.Reason == reason {
			found = append(found, e)
		}
	}
	return found
}

// TestEventsOfAVolume: clients wait for these reasons on the Volume, and filter by type. Each is
// told once.
func TestEventsOfAVolume(t *testing.T) {
	for _, tt := range []struct {
		name    string
		edit    func(*v1beta2.Volume, *seen)
		reason  string
		warning bool
	}{
		{"its engine serves", func(v *v1beta2.Volume, _ *seen) {
			v.Status.State, v.Status.CurrentNodeID = "attaching", ""
		}, "Attached", false},
		{"its processes have ended", func(v *v1beta2.Volume, s *seen) {
			r, rest := resting()
			*s, v.Status.State, v.Spec.NodeID, v.Status.Robustness = *rest, "detaching", "", r.Status.Robustness
		}, "Detached", false},
		{"all replicas are in sync", func(v *v1beta2.Volume, _ *seen) { degrade(v, 0) }, "Healthy", false},
		{"one replica is not in sync", func(_ *v1beta2.Volume, s *seen) {
			s.Engine.Status.ReplicaModeMap["b"], s.Replicas[1].Spec.HealthyAt = "WO", ""
		}, "Degraded", false},
		{"its engine says nothing", func(_ *v1beta2.Volume, s *seen) {
			s.Engine.Status.CurrentState, s.Engine.Status.ReplicaModeMap = "unknown", nil
		}, "Unknown", true},
		{"all replicas have failed", func(_ *v1beta2.Volume, s *seen) {
			s.Engine.Status.CurrentState, s.Engine.Status.ReplicaModeMap = "error", nil
			fail(s, 0, 0)
			fail(s, 1, 0)
		}, "Faulted", true},
		{"its members are back", func(v *v1beta2.Volume, s *seen) {
			r, rest := resting()
			*s, *v = *rest, *r
			v.Status.Robustness = "faulted"
		}, "AutoSalvaged", true},
		{"it is deleted", func(v *v1beta2.Volume, _ *seen) {
			v.DeletionTimestamp = &metav1.Time{Time: now}
		}, "Delete", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, s := fixture()
			tt.edit(v, s)
			if e := told(decides(v, *s), tt.reason); len(e) != 1 || e[0].Warning != tt.warning || e[0].On != nil {
				t.Errorf("events %+v, want one %s, warning %v", e, tt.reason, tt.warning)
			}
			if e := told(decides(v, *s), tt.reason); len(e) != 0 {
				t.Errorf("told again: %+v", e)
			}
		})
	}
}

// TestDetachingIsNoWarning: an engine that ends because nobody wants the volume says nothing more,
// which is no news.
func TestDetachingIsNoWarning(t *testing.T) {
	v, s := fixture()
	v.Spec.NodeID = ""
	for range 3 {
		d := decides(v, *s)
		for _, e := range d.Events {
			if e.Warning || e.Reason == "Unknown" {
				t.Errorf("%+v", e)
			}
		}
	}
	if v.Status.Robustness != v1beta2.VolumeRobustnessUnknown {
		t.Errorf("robustness %s: does this test detach?", v.Status.Robustness)
	}
}

// TestDeletedReplicasAreNoWarning holds the event of a replica that is deleted because the volume
// does not need it.
func TestDeletedReplicasAreNoWarning(t *testing.T) {
	v, s := fixture()
	third(s)
	s.Engine.Spec.ReplicaAddressMap["c"], s.Engine.Status.ReplicaModeMap["c"] = "10.0.0.3:10000", "RW"
	s.Engine.Status.ReplicaTransitionTimeMap["c"] = ago(time.Hour)
	s.Replicas[2].Spec.EvictionRequested = true
	d := settle(v, s)
	if e := told(d, "Delete"); len(e) != 1 || e[0].Warning || describe(d) != "delete *v1beta2.Replica c" {
		t.Errorf("%s, events %+v", describe(d), e)
	}
}

// TestEvictionWithoutAPlaceIsTold: on the volume and on each replica that cannot leave, once for
// each time that the volume finds no place.
func TestEvictionWithoutAPlaceIsTold(t *testing.T) {
	v, s := fixture()
	s.Nodes[1].Spec.AllowScheduling, s.Nodes[2].Spec.AllowScheduling = false, false
	if e := told(settle(v, s), "EvictionFailed"); len(e) != 0 {
		t.Fatalf("nobody is to leave: %+v", e)
	}
	s.Replicas[1].Spec.EvictionRequested = true
	e := told(decides(v, *s), "EvictionFailed")
	if len(e) != 2 {
		t.Fatalf("events %+v, want one on the replica and one on the volume", e)
	}
	on, ok := e[0].On.(*v1beta2.Replica)
	if !ok || on.Name != "b" || !e[0].Warning || e[1].On != nil || !e[1].Warning {
		t.Errorf("events %+v", e)
	}
	if e := told(decide(now.Add(time.Minute), v, *s), "EvictionFailed"); len(e) != 0 {
		t.Errorf("told again: %+v", e)
	}
}

// TestNobodyKeepsADetachedVolume: who had the volume on its node is no matter any more when it has
// left.
func TestNobodyKeepsADetachedVolume(t *testing.T) {
	v, s := fixture()
	r, rest := resting()
	*s, v.Status.State, v.Spec.NodeID, v.Status.Robustness = *rest, "detaching", "", r.Status.Robustness
	kept := v1beta2.Condition{Type: v1beta2.VolumeConditionDeviceKept, Status: v1beta2.ConditionTrue, Message: "by p"}
	v.Status.Conditions, _ = v1beta2.SetCondition(v.Status.Conditions, kept, now)
	decides(v, *s)
	if c := v1beta2.FindCondition(v.Status.Conditions, kept.Type); v.Status.State != "detached" ||
		c.Status != v1beta2.ConditionFalse || c.Message != "" {
		t.Errorf("%s: %+v", v.Status.State, c)
	}
}
