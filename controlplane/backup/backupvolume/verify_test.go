package backupvolume

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestVerify: what was asked for begins, and its parts are ordered one after the other, while the
// target has a URL.
func TestVerify(t *testing.T) {
	v := volume(func(v *v1beta2.BackupVolume) {
		v.Status.LastSyncedAt, v.Spec.VerifyRequestedAt = metav1.NewTime(t0), metav1.NewTime(t0)
	})
	s := seen{Target: &v1beta2.BackupTarget{}}
	if got := show(decide(t0, v, s)); got != "" || v.Status.Verification != nil {
		t.Errorf("without a URL: %q, %+v", got, v.Status.Verification)
	}
	s.Target.Spec.BackupTargetURL = "s3://b@r/"
	if got := show(decide(t0, v, s)); got != "" || v.Status.Verification == nil {
		t.Errorf("asked for: %q, %+v", got, v.Status.Verification)
	}
	if got := show(decide(t0, v, s)); got != "verify backup volume v-1" {
		t.Errorf("begun: %q", got)
	}
}
