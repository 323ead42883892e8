package node

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
)

func imagesOf(name, node, disk string, files map[string]v1beta2.BackingImageFileInfo) *v1beta2.BackingImageManager {
	return &v1beta2.BackingImageManager{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:   v1beta2.BackingImageManagerSpec{NodeID: node, DiskUUID: disk},
		Status: v1beta2.BackingImageManagerStatus{BackingImageFileMap: files}}
}

// TestImagesTakeRoom: what backing images take on a disk counts as promised there.
func TestImagesTakeRoom(t *testing.T) {
	n, s := storageNode(), healthy()
	s.Replicas = []v1beta2.Replica{replica("r", "n1", "uuid-d", 80*gib)}
	s.Images = map[string]imageBytes{"uuid-d": {"iso": 10 * gib, "new": 0}, "other": {"iso": 9 * gib}}
	decide(now, n, s)
	d := n.Status.DiskStatus["d"]
	if d.StorageScheduled != 90*gib || !maps.Equal(d.ScheduledBackingImage, map[string]int64{"iso": 10 * gib, "new": 0}) {
		t.Errorf("%d bytes are promised, to images %v", d.StorageScheduled, d.ScheduledBackingImage)
	}
	if c := diskCondition(n, "d", "Schedulable"); c.Status != v1beta2.ConditionTrue {
		t.Errorf("promised to the limit: %+v", c)
	}
	s.Images["uuid-d"]["iso"]++
	decide(now, n, s)
	if c := diskCondition(n, "d", "Schedulable"); c.Reason != v1beta2.DiskReasonDiskPressure {
		t.Errorf("promised too much: %+v", c)
	}
	s.Images = nil
	decide(now, n, s)
	if d := n.Status.DiskStatus["d"]; d.StorageScheduled != 80*gib || len(d.ScheduledBackingImage) > 0 {
		t.Errorf("of images that are gone: %+v", d)
	}
}

// TestImagesOnANode has which managers and files count.
func TestImagesOnANode(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	files := map[string]v1beta2.BackingImageFileInfo{"iso": {Size: 7, RealSize: 5}, "coming": {Size: 9}, "new": {}}
	r := New("ns")
	r.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(imagesOf("a", "n1", "d1", files),
		imagesOf("b", "n1", "d2", nil), imagesOf("c", "n2", "d3", files)).Build()
	got, err := r.imagesOn(t.Context(), &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n1"}})
	if err != nil || len(got) != 2 || len(got["d2"]) > 0 ||
		!maps.Equal(got["d1"], imageBytes{"iso": 5, "coming": 9, "new": 0}) {
		t.Errorf("%v, %v", got, err)
	}
	one := imagesOf("a", "n1", "d1", files)
	progress := one.DeepCopy()
	progress.Status.BackingImageFileMap["coming"] = v1beta2.BackingImageFileInfo{Size: 9, Progress: 50}
	larger := one.DeepCopy()
	larger.Status.BackingImageFileMap["new"] = v1beta2.BackingImageFileInfo{Size: 1}
	moved := imagesOf("a", "n2", "d1", files)
	if imagesChanged(one, progress) || !imagesChanged(one, larger) || !imagesChanged(one, moved) {
		t.Error("changes of a manager are misjudged")
	}
}
