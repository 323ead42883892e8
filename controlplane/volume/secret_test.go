package volume

import (
	"strings"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestSecretStaysWhileProcessesRun: whatever happens to the Secret of a volume, no other one is
// made beside processes that have it.
func TestSecretStaysWhileProcessesRun(t *testing.T) {
	away := func(s *seen) { s.HasSecret = false }
	runs := func(*seen) {}
	ended := func(s *seen) {
		for i := range s.Replicas {
			s.Replicas[i].Spec.DesireState, s.Replicas[i].Status.CurrentState = "stopped", "stopped"
		}
		s.Engine.Spec.DesireState, s.Engine.Status.CurrentState = "stopped", "stopped"
	}
	engineEnded := func(s *seen) { s.Engine.Status.CurrentState = failed }
	last := func(s *seen) {
		ended(s)
		s.Replicas[1].Status.CurrentState = "unknown"
	}
	for _, c := range []struct {
		name            string
		secret, process func(*seen)
		want            string
		told            bool
	}{
		{"gone, all run", away, runs, "", true},
		{"gone, the engine has ended", away, engineEnded, "", true},
		{"gone, of one replica nobody knows", away, last, "", true},
		{"gone, none runs", away, ended, "create *v1.Secret ns/longhorn-volume-v", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, s := fixture()
			c.secret(s)
			c.process(s)
			got := ""
			if change := newPass(now, v, *s).ensureObjects(); change != nil {
				got = change.String()
			}
			present := v1beta2.FindCondition(v.Status.Conditions, ConditionSecretPresent)
			if got != c.want || (present.Status == v1beta2.ConditionFalse) != c.told {
				t.Errorf("does %q and tells %+v; want %q, %v", got, present, c.want, c.told)
			}
			names := strings.Contains(present.Message, "longhorn-volume-v") && strings.Contains(present.Message, "detach")
			if c.told && !names {
				t.Errorf("the message %q does not say what is gone and what to do", present.Message)
			}
			s.HasSecret = true
			newPass(now, v, *s).ensureObjects()
			present = v1beta2.FindCondition(v.Status.Conditions, ConditionSecretPresent)
			if c.told != (present.Status == v1beta2.ConditionTrue) {
				t.Errorf("there again, and the condition is %+v", present)
			}
		})
	}
}
