//go:build !nolegacy

package instance

import (
	"slices"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestA12OldFieldInstances: a process that an instance manager of an older API lists in its one
// field for all is as good as one in the fields of today: it runs where it is listed, is not
// started a second time, and is stopped there.
func TestA12OldFieldInstances(t *testing.T) {
	for _, field := range []string{"instances", "instanceEngines", "instanceReplicas"} {
		im := manager(v1beta2.InstanceManagerStateRunning)
		listed := map[string]v1beta2.InstanceProcess{"x": *process(v1beta2.InstanceStateRunning)}
		switch field {
		case "instances":
			im.Spec.Type = "engine"
			im.Status.Instances = listed
		case "instanceEngines":
			im.Status.InstanceEngines = listed
		case "instanceReplicas":
			im.Status.InstanceReplicas = listed
		}
		spec := &v1beta2.InstanceSpec{NodeID: "n1", Image: "image"}
		status := &v1beta2.InstanceStatus{InstanceManagerName: im.Name, Started: true}
		found := Find(im, "x")
		if found == nil || Find(im, "y") != nil {
			t.Errorf("%s: x is %v, y is %v", field, found, Find(im, "y"))
			continue
		}
		if action := Step(now, true, spec, status, Seen{Manager: im, Process: found}); action != None ||
			status.CurrentState != v1beta2.InstanceStateRunning || status.Port != 10000 || status.IP != "10.0.0.1" {
			t.Errorf("%s: action %v, %+v", field, action, status)
		}
		if action := Step(now, false, spec, status, Seen{Manager: im, Process: found}); action != Delete {
			t.Errorf("%s: stopping: action %v", field, action)
		}
	}
}

// TestOldFieldConcerns: a change in the one field concerns an engine or a replica of that name, and
// engines are told from replicas by the type of the process or of its instance manager.
func TestOldFieldConcerns(t *testing.T) {
	before := manager(v1beta2.InstanceManagerStateRunning)
	before.Spec.Type = v1beta2.InstanceManagerTypeEngine
	after := before.DeepCopy()
	after.Status.Instances = map[string]v1beta2.InstanceProcess{"x": *process(v1beta2.InstanceStateRunning)}
	if engines, replicas, all := Concerned(before, after); !slices.Equal(engines, []string{"x"}) ||
		!slices.Equal(replicas, []string{"x"}) || all {
		t.Errorf("engines %v, replicas %v, all %v", engines, replicas, all)
	}
	if got := Engines(after); !slices.Equal(got, []string{"x"}) {
		t.Errorf("engines in a manager of type engine: %v", got)
	}
	after.Spec.Type = v1beta2.InstanceManagerTypeReplica
	if got := Engines(after); len(got) > 0 {
		t.Errorf("engines in a manager of type replica: %v", got)
	}
}
