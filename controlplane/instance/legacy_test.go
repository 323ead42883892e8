package instance

import (
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
