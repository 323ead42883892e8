package instance

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// Changed says whether an instance manager has changed in more than what it says of single
// processes: that is heard from its stream (package heard).
func Changed(before, after *v1beta2.InstanceManager) bool {
	return !equality.Semantic.DeepEqual(withoutProcesses(before), withoutProcesses(after))
}

// withoutProcesses is an instance manager without what it says of single processes, and without
// what it tells people.
func withoutProcesses(im *v1beta2.InstanceManager) v1beta2.InstanceManager {
	c := v1beta2.InstanceManager{Spec: im.Spec, Status: im.Status,
		ObjectMeta: metav1.ObjectMeta{UID: im.UID, DeletionTimestamp: im.DeletionTimestamp, Annotations: im.Annotations}}
	c.Status.InstanceEngines, c.Status.InstanceReplicas, c.Status.Instances = nil, nil, nil
	c.Status.Conditions = nil
	return c
}
