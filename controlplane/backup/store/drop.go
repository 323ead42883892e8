package store

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// Drop is the next step of deleting objects that stand for what a store has, all those that which
// says, while the store keeps it; nil: all are on their way.
func Drop[T any, P interface {
	*T
	client.Object
	DeepCopy() P
}](objects []T, which func(P) bool) loop.Change {
	for i := range objects {
		o := P(&objects[i])
		labels := o.GetLabels()
		marked := labels[naming.LabelDeleteObjectOnly] != ""
		switch {
		case !which(o) || o.GetDeletionTimestamp() != nil && marked:
			continue
		case marked:
			return loop.Delete{Object: o}
		}
		c := o.DeepCopy()
		if labels = c.GetLabels(); labels == nil {
			labels = map[string]string{}
		}
		labels[naming.LabelDeleteObjectOnly] = "true"
		c.SetLabels(labels)
		return loop.Update{Object: c}
	}
	return nil
}
