package backingimage

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
)

func TestCopiesOfAnImage(t *testing.T) {
	q := resttest.Request(t)
	deleted := metav1.NewTime(time.Date(2026, 5, 3, 9, 57, 48, 0, time.UTC))
	image := &lh.BackingImage{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleted},
		Spec: lh.BackingImageSpec{DiskFileSpecMap: map[string]lh.BackingImageDiskFileSpec{"a": {}, "b": {}}},
		Status: lh.BackingImageStatus{DiskFileStatusMap: map[string]lh.BackingImageDiskFileStatus{
			"a": {State: "ready", Progress: 100}, "c": {State: "failed"}}}}
	view := backingImageView(q, image)
	copies := map[string]resource.BackingImageDiskFileStatus{"a": {State: "ready", Progress: 100},
		"b": {Message: "File processing is not started"}, "c": {State: "failed"}}
	if !reflect.DeepEqual(view.DiskFileStatusMap, copies) || view.DeletionTimestamp != "2026-05-03 09:57:48 +0000 UTC" {
		t.Errorf("image %+v", view)
	}
}
