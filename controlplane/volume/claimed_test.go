package volume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The claim that is bound to a deleted volume goes with it, and then its PersistentVolume, when the
// replicas are gone; nobody waits for either.
func TestClaimGoesWithTheVolume(t *testing.T) {
	v, s := fixture()
	v.DeletionTimestamp, s.Engines = &metav1.Time{Time: now}, nil
	s.PV, s.PVC = &corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}
	s.PV.Name, s.PVC.Name = "pv", "claim"
	for _, want := range []string{"delete *v1beta2.Replica a", "delete *v1.PersistentVolumeClaim claim",
		"delete *v1.PersistentVolume pv", "delete *v1beta2.VolumeAttachment *"} {
		if got := describe(settle(v, s)); got != want {
			t.Fatalf("wants %q, want %q", got, want)
		}
		switch {
		case len(s.Replicas) > 0:
			s.Replicas = nil
		case s.PVC.DeletionTimestamp == nil:
			s.PVC.DeletionTimestamp = v.DeletionTimestamp
		default:
			s.PV.DeletionTimestamp = v.DeletionTimestamp
		}
	}
}
