package volume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
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

// What has the noted name and stands for something else is left alone.
func TestForeignClaimsStay(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		handle  string
		bound   types.UID
		pv, pvc bool
	}{
		"the volume's":              {"v", "claim-1", true, true},
		"another claim of its name": {"v", "claim-0", true, false},
		"another volume's":          {"w", "claim-1", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := fixture()
			v.DeletionTimestamp = &metav1.Time{Time: now}
			v.Status.KubernetesStatus = v1beta2.KubernetesStatus{PVName: "pv", Namespace: "app", PVCName: "claim"}
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
			pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver.longhorn.io", VolumeHandle: tt.handle}
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "app", Name: "claim", UID: tt.bound}
			claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
			claim.Namespace, claim.Name, claim.UID = "app", "claim", "claim-1"
			r := New(Config{}).WithClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(pv, claim).Build())
			var s seen
			if err := r.gatherClaimed(t.Context(), v, &s); err != nil {
				t.Fatal(err)
			}
			if (s.PV != nil) != tt.pv || (s.PVC != nil) != tt.pvc {
				t.Errorf("PersistentVolume %v, claim %v", s.PV != nil, s.PVC != nil)
			}
		})
	}
}
