package rest_test

import (
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// TestA12OldFieldInstances: what an instance manager of an older API has in its one field for all
// processes is shown, under that name, and nothing is made up for the new ones.
func TestA12OldFieldInstances(t *testing.T) {
	old := resttest.InstanceManager("instance-manager-e-1", "node-1")
	old.Spec.Type = "engine"
	old.Status.Instances = map[string]lh.InstanceProcess{
		"demo-e-06d4c77d": {Spec: lh.InstanceProcessSpec{Name: "demo-e-06d4c77d"},
			Status: lh.InstanceProcessStatus{State: lh.InstanceStateRunning, Type: lh.InstanceTypeEngine, PortStart: 10015,
				PortEnd: 10015}}}
	f := newFixture(t, old, resttest.InstanceManager("instance-manager-2", "node-2"))
	for path, want := range map[string]int{"instance-manager-e-1": 1, "instance-manager-2": 0} {
		m := f.Get("/v1/instancemanagers/" + path)
		all, _ := m["instances"].(map[string]any)
		if len(all) != want || m["instanceEngines"] != nil || m["instanceReplicas"] != nil {
			t.Errorf("%s: instances %v, engines %v, replicas %v", path, m["instances"], m["instanceEngines"],
				m["instanceReplicas"])
		}
		if want == 0 {
			continue
		}
		p, _ := all["demo-e-06d4c77d"].(map[string]any)
		status, _ := p["status"].(map[string]any)
		if m["managerType"] != "engine" || status["state"] != "running" || status["type"] != "engine" ||
			status["portStart"] != float64(10015) {
			t.Errorf("%s: type %v, %v", path, m["managerType"], status)
		}
	}
}
