package claim

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

// TestForeignClaimsStay: what has the noted name and stands for something else is left alone.
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
			v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
			v.Status.KubernetesStatus = v1beta2.KubernetesStatus{PVName: "pv", Namespace: "app", PVCName: "claim"}
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
			pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver.longhorn.io", VolumeHandle: tt.handle}
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "app", Name: "claim", UID: tt.bound}
			claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
			claim.Namespace, claim.Name, claim.UID = "app", "claim", "claim-1"
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pv, claim).Build()
			gotPV, gotClaim, err := Standing(t.Context(), api, v)
			if err != nil || (gotPV != nil) != tt.pv || (gotClaim != nil) != tt.pvc {
				t.Errorf("PersistentVolume %v, claim %v, %v", gotPV != nil, gotClaim != nil, err)
			}
		})
	}
}
