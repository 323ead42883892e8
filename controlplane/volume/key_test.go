package volume

import (
	"strings"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestKeyStaysWhileProcessesRun: whatever happens to the master keys, processes of a volume are
// never started with another one than those that run have.
func TestKeyStaysWhileProcessesRun(t *testing.T) {
	gone := func(s *seen) { s.HasKey = false }
	newer := func(*seen) {}
	runs := func(*v1beta2.Volume, *seen) {}
	ended := func(v *v1beta2.Volume, s *seen) {
		v.Status.State = v1beta2.VolumeStateDetached
		for i := range s.Replicas {
			s.Replicas[i].Spec.DesireState, s.Replicas[i].Status.CurrentState = "stopped", "stopped"
		}
		s.Engine.Spec.DesireState, s.Engine.Status.CurrentState = "stopped", "stopped"
	}
	engineEnded := func(_ *v1beta2.Volume, s *seen) { s.Engine.Status.CurrentState = failed }
	last := func(v *v1beta2.Volume, s *seen) {
		ended(v, s)
		s.Replicas[1].Status.CurrentState = "unknown"
	}
	for _, c := range []struct {
		name    string
		keys    func(*seen)
		process func(*v1beta2.Volume, *seen)
		want    string
		told    bool
	}{
		{"a newer one, all run", newer, runs, "k1", false},
		{"a newer one, of one replica nobody knows", newer, last, "k1", false},
		{"a newer one, none runs, and some are to", newer, ended, "k2", false},
		{"a newer one, none runs, and none is to", newer, func(v *v1beta2.Volume, s *seen) {
			ended(v, s)
			v.Spec.NodeID = ""
		}, "k1", false},
		{"gone, all run", gone, runs, "k1", true},
		{"gone, the engine has ended", gone, engineEnded, "k1", true},
		{"gone, of one replica nobody knows", gone, last, "k1", true},
		{"gone, none runs", gone, ended, "k2", false},
		{"gone, none runs, and all are to", gone, func(_ *v1beta2.Volume, s *seen) {
			for i := range s.Replicas {
				s.Replicas[i].Status.CurrentState = "stopped"
			}
			s.Engine.Status.CurrentState = failed
		}, "k2", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, s := fixture()
			c.keys(s)
			c.process(v, s)
			s.Engines = []v1beta2.Engine{*s.Engine}
			creating{newPass(now, v, *s)}.ensureObjects()
			present := v1beta2.FindCondition(v.Status.Conditions, ConditionSecretPresent)
			if v.Status.ProcessKey != c.want || (present.Status == v1beta2.ConditionFalse) != c.told {
				t.Errorf("key %q, and tells %+v; want %q, %v", v.Status.ProcessKey, present, c.want, c.told)
			}
			names := strings.Contains(present.Message, "key k1 of Secret longhorn-volume-keys") &&
				strings.Contains(present.Message, "detach")
			if c.told && !names {
				t.Errorf("the message %q does not say what is gone and what to do", present.Message)
			}
			if c.told {
				v.Status.ProcessKey = ""
				creating{newPass(now, v, *s)}.ensureObjects()
				earlier := v1beta2.FindCondition(v.Status.Conditions, ConditionSecretPresent)
				if !strings.Contains(earlier.Message, "an earlier version") {
					t.Errorf("of processes without a key it says %q", earlier.Message)
				}
			}
			s.HasKey = true
			creating{newPass(now, v, *s)}.ensureObjects()
			present = v1beta2.FindCondition(v.Status.Conditions, ConditionSecretPresent)
			if c.told != (present.Status == v1beta2.ConditionTrue) {
				t.Errorf("there again, and the condition is %+v", present)
			}
		})
	}
}
