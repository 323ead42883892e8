package loop

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

func TestDropManagers(t *testing.T) {
	updated := metav1.ManagedFieldsEntry{Manager: "manager", Operation: metav1.ManagedFieldsOperationUpdate}
	applied := metav1.ManagedFieldsEntry{Manager: "somebody", Operation: metav1.ManagedFieldsOperationApply}
	type entries []metav1.ManagedFieldsEntry
	for _, tt := range []struct {
		object     client.Object
		have, want entries
	}{
		{&v1beta2.InstanceManager{}, entries{updated, updated}, entries{{}}},
		{&v1beta2.Replica{}, entries{updated}, entries{{}}},
		{&v1beta2.Engine{}, entries{updated}, entries{{}}},
		{&v1beta2.Engine{}, entries{updated, applied}, entries{updated, applied}},
		{&v1beta2.Engine{}, nil, nil},
		{&v1beta2.Volume{}, entries{updated}, entries{updated}},
		{&v1beta2.Node{}, entries{updated}, entries{updated}},
	} {
		tt.object.SetManagedFields(tt.have)
		if dropManagers(tt.object); !reflect.DeepEqual(tt.object.GetManagedFields(), []metav1.ManagedFieldsEntry(tt.want)) {
			t.Errorf("%T with %v: %v, want %v", tt.object, tt.have, tt.object.GetManagedFields(), tt.want)
		}
	}
}
