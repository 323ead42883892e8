package volume

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

func secretOfV() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "longhorn-volume-v", Finalizers: []string{v1beta2.Finalizer}},
		Data:       map[string][]byte{"data-secret": []byte(strings.Repeat("1", 64))},
	}
}

// TestSecretStaysWhileProcessesRun: whatever happens to the Secret of a volume, no other one is
// made beside processes that have it. One that was deleted goes when they have ended.
func TestSecretStaysWhileProcessesRun(t *testing.T) {
	away := func(s *seen) { s.SecretObject = nil }
	deleted := func(s *seen) { s.SecretObject.DeletionTimestamp = &metav1.Time{Time: now} }
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
		{"without a finalizer", func(s *seen) { s.SecretObject.Finalizers = nil }, runs,
			"update *v1.Secret ns/longhorn-volume-v", false},
		{"deleted, all run", deleted, runs, "", false},
		{"deleted, the engine has ended", deleted, engineEnded, "", false},
		{"deleted, none runs", deleted, ended, "update *v1.Secret ns/longhorn-volume-v", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, s := fixture()
			c.secret(s)
			c.process(s)
			got := ""
			if change := newPass(now, v, *s).ensureObjects(); change != nil {
				got = change.String()
				u, ok := change.(loop.Update)
				if kept := ok && len(u.Object.GetFinalizers()) == 1; ok && kept == (u.Object.GetDeletionTimestamp() != nil) {
					t.Errorf("finalizers %v", u.Object.GetFinalizers())
				}
			}
			present := v1beta2.FindCondition(v.Status.Conditions, ConditionSecretPresent)
			if got != c.want || (present.Status == v1beta2.ConditionFalse) != c.told {
				t.Errorf("does %q and tells %+v; want %q, %v", got, present, c.want, c.told)
			}
			names := strings.Contains(present.Message, "longhorn-volume-v") && strings.Contains(present.Message, "detach")
			if c.told && !names {
				t.Errorf("the message %q does not say what is gone and what to do", present.Message)
			}
			s.SecretObject = secretOfV()
			newPass(now, v, *s).ensureObjects()
			present = v1beta2.FindCondition(v.Status.Conditions, ConditionSecretPresent)
			if c.told != (present.Status == v1beta2.ConditionTrue) {
				t.Errorf("there again, and the condition is %+v", present)
			}
		})
	}
}

// TestSecretGoesWithItsVolume: the finalizer is taken away before that of the volume.
func TestSecretGoesWithItsVolume(t *testing.T) {
	v, s := fixture()
	v.DeletionTimestamp = &metav1.Time{Time: now}
	s.Engines, s.Engine, s.Replicas, s.Attachment = nil, nil, nil, nil
	for _, want := range []string{"update *v1.Secret ns/longhorn-volume-v", "update *v1beta2.Volume ns/v"} {
		change := newPass(now, v, *s).delete()
		if change == nil || change.String() != want {
			t.Fatalf("does %v, want %s", change, want)
		}
		if o := change.(loop.Update).Object; len(o.GetFinalizers()) > 0 {
			t.Fatalf("%s keeps %v", o.GetName(), o.GetFinalizers())
		}
		s.SecretObject = nil
	}
}
