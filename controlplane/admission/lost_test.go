package admission

import (
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	webhook "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// TestLostWithVolume: who deletes a volume by kubectl is told which snapshots that VolumeSnapshots
// stand on go with it; any volume can be deleted.
func TestLostWithVolume(t *testing.T) {
	v := named(&v1beta2.Volume{}, "demo", nil, nil)
	snapshot := func(name, volume string, edit func(*v1beta2.Snapshot)) *v1beta2.Snapshot {
		s := named(&v1beta2.Snapshot{}, name, naming.VolumeLabels(volume), edit)
		s.Spec.Volume = volume
		return s
	}
	const uid = "snapshot-0b8a1d3c-5a2f-4c60-9d3e-2f7a9b1c4d5e"
	w := worldOf(t,
		snapshot(uid, "demo", nil),
		snapshot("by-label", "demo", func(s *v1beta2.Snapshot) { s.Spec.Labels = naming.OrderedByCSI() }),
		snapshot("found", "demo", func(s *v1beta2.Snapshot) { s.Status.Labels = naming.OrderedByCSI() }),
		snapshot("removed", "demo", func(s *v1beta2.Snapshot) {
			s.Spec.Labels, s.Status.MarkRemoved = naming.OrderedByCSI(), true
		}),
		snapshot("mine", "demo", nil),
		snapshot("other", "another", func(s *v1beta2.Snapshot) { s.Spec.Labels = naming.OrderedByCSI() }))
	review := func(w world) webhook.Response {
		return w.reviewValidation(t.Context(), webhook.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Delete, Resource: metav1.GroupVersionResource{Resource: "volumes"},
			OldObject: runtime.RawExtension{Raw: encoded(t, v)}}})
	}
	want := []string{"with volume demo go snapshots that VolumeSnapshots stand on: by-label, found, " + uid}
	if got := review(w); !got.Allowed || !slices.Equal(got.Warnings, want) {
		t.Errorf("%v %q", got.Allowed, got.Warnings)
	}
	if got := review(worldOf(t)); !got.Allowed || len(got.Warnings) > 0 {
		t.Errorf("without snapshots: %v %q", got.Allowed, got.Warnings)
	}
}
