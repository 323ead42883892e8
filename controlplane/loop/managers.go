package loop

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// dropManagers has the API server forget, at an update of the object, who has set which of its
// fields, and stop noting it, if only this system writes the object. These notes are half of the
// largest objects, and of what it costs to write them. Where somebody has applied the object
// (server-side apply) they are kept. It tells whether there are any to drop.
//
// Source: Kubernetes, "Server-Side Apply", "Clearing managedFields": one empty entry empties the
// list, and the API server keeps none for an object whose list is empty until somebody applies it.
func dropManagers(o client.Object) bool {
	switch o.(type) {
	case *v1beta2.InstanceManager, *v1beta2.Engine, *v1beta2.Replica:
	default:
		return false
	}
	managers := o.GetManagedFields()
	applied := slices.ContainsFunc(managers, func(m metav1.ManagedFieldsEntry) bool {
		return m.Operation == metav1.ManagedFieldsOperationApply
	})
	if len(managers) == 0 || applied {
		return false
	}
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
	return true
}

// forgetManagers does so before an update of the status, which cannot: once for each instance
// manager, of which hardly anything but the status changes.
func forgetManagers(ctx context.Context, cl client.Client, im *v1beta2.InstanceManager) error {
	if !dropManagers(im) {
		return nil
	}
	stored := im.DeepCopy()
	if err := cl.Update(ctx, stored); err != nil {
		return err
	}
	im.ManagedFields, im.ResourceVersion = nil, stored.ResourceVersion
	return nil
}
