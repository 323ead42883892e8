package volume_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
)

// TestManualAttachmentOfACordonedNode: a volume that a person has attached leaves a cordoned node
// as far as the processes go, when the setting asks for it; one that a Pod uses stays.
func TestManualAttachmentOfACordonedNode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		value string
		kind  v1beta2.AttacherType
		want  string
	}{
		{"true", v1beta2.AttacherTypeLonghornAPI, `detached unknown at ""`},
		{"false", v1beta2.AttacherTypeLonghornAPI, `attached healthy at "n1"`},
		{"true", v1beta2.AttacherTypeCSI, `attached healthy at "n1"`},
	} {
		t.Run(string(tt.kind)+" "+tt.value, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, t.TempDir(), 3)
			kube := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
			w.create(kube)
			w.create(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
				Name: setting.DetachManuallyAttachedVolumesWhenCordoned}, Value: tt.value})
			w.newVolume(3, nil)
			w.settle()
			w.ticket("it", "n1", tt.kind)
			w.settle()
			w.expect(`attached healthy at "n1"`)
			kube.Spec.Unschedulable = true
			must(t, w.c.Update(context.Background(), kube))
			w.settle()
			w.expect(tt.want)
			if left := len(w.procs) == 0; left != (w.volume("v").Spec.NodeID == "") {
				t.Errorf("processes gone: %v\n%s", left, w.dump())
			}
		})
	}
}
