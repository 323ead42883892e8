package instance

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// Concerned says whom a change of an instance manager concerns: the engines and replicas whose
// process is reported otherwise than before, by name; and whether it concerns all instances of its
// node, since more than processes has changed.
func Concerned(before, after *v1beta2.InstanceManager) (engines, replicas []string, all bool) {
	legacy := differing(legacyProcesses(before), legacyProcesses(after)) // of either kind
	engines = append(differing(before.Status.InstanceEngines, after.Status.InstanceEngines), legacy...)
	replicas = append(differing(before.Status.InstanceReplicas, after.Status.InstanceReplicas), legacy...)
	return engines, replicas, !equality.Semantic.DeepEqual(withoutProcesses(before), withoutProcesses(after))
}

func differing(before, after map[string]v1beta2.InstanceProcess) (names []string) {
	for name, p := range after {
		if was, ok := before[name]; !ok || !reflect.DeepEqual(was, p) {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			names = append(names, name)
		}
	}
	return names
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
