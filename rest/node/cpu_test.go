package node_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// eightCPUs is a fixture whose node-1 has 8 allocatable CPUs.
func eightCPUs(t *testing.T) *fixture {
	kube := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	kube.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	return newFixture(t, append(resttest.Cluster(), kube)...)
}

func (f *fixture) node1() lh.NodeSpec {
	var n lh.Node
	f.Read("node-1", &n)
	return n.Spec
}

// TestB7CPUSettings: what the settings for CPU take, and that a refused value changes nothing.
func TestB7CPUSettings(t *testing.T) {
	f := eightCPUs(t)
	value := func(name string) string { return fmt.Sprint(f.Do("GET", "/v1/settings/"+name, "").JSON["value"]) }
	for _, tt := range []struct{ name, put, want, refused string }{
		{"guaranteed-instance-manager-cpu", `40`, `{"v1":"40","v2":"40"}`, ""},
		{"guaranteed-instance-manager-cpu", `{\"v1\":\"7.5\"}`, `{"v1":"7.5"}`, ""},
		{"guaranteed-instance-manager-cpu", `41`, `{"v1":"7.5"}`, "should be less than or equal to 40"},
		{"guaranteed-instance-manager-cpu", `-1`, `{"v1":"7.5"}`, "should be greater than or equal to 0"},
		{"guaranteed-instance-manager-cpu", `much`, `{"v1":"7.5"}`, "guaranteed-instance-manager-cpu"},
		{"guaranteed-engine-manager-cpu", `15`, `15`, ""},
		{"guaranteed-replica-manager-cpu", `24`, `24`, ""},
		{"guaranteed-engine-manager-cpu", `1.5`, `15`, "guaranteed-engine-manager-cpu"},
		{"guaranteed-engine-manager-cpu", `-1`, `15`, "should be greater than or equal to 0"},
	} {
		a := f.Do("PUT", "/v1/settings/"+tt.name, `{"value":"`+tt.put+`"}`)
		if tt.refused != "" {
			f.Refused(a, 500, tt.refused)
		}
		if got := value(tt.name); got != tt.want || (a.Status == 200) != (tt.refused == "") {
			t.Errorf("%s after PUT of %s: %s, want %s (%d %s)", tt.name, tt.put, got, tt.want, a.Status, a.Text)
		}
	}
}

// TestB11: the three requests of a node are shown and can be edited.
func TestB11(t *testing.T) {
	f := eightCPUs(t)
	const requests = `"instanceManagerCPURequest":3200,"engineManagerCPURequest":1200,"replicaManagerCPURequest":1920`
	a := f.Do("PUT", "/v1/nodes/node-1", `{"allowScheduling":true,`+requests+`}`)
	if a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	a = f.Do("GET", "/v1/nodes/node-1", "")
	for key, want := range map[string]string{"instanceManagerCPURequest": "3200", "engineManagerCPURequest": "1200",
		"replicaManagerCPURequest": "1920"} {
		if got := fmt.Sprint(a.JSON[key]); got != want {
			t.Errorf("GET shows %s %s, want %s", key, got, want)
		}
	}
}

// TestB12: the setting that is not used any more takes no value.
func TestB12(t *testing.T) {
	f := eightCPUs(t)
	f.Refused(f.Do("PUT", "/v1/settings/guaranteed-engine-cpu", `{"value":"0.5"}`), 500, "read-only")
	a := f.Do("GET", "/v1/settings/guaranteed-engine-cpu", "")
	definition, _ := a.JSON["definition"].(map[string]any)
	if a.JSON["value"] != "" || definition["type"] != "deprecated" || definition["readOnly"] != true {
		t.Errorf("%s", a.Text)
	}
}

// TestB13: a PUT without the keys of the older types leaves these as they are; without the key of
// the instance manager its request is 0 then.
func TestB13(t *testing.T) {
	f := eightCPUs(t)
	f.Do("PUT", "/v1/nodes/node-1", `{"allowScheduling":true,"instanceManagerCPURequest":500,"engineManagerCPURequest":700,`+
		`"replicaManagerCPURequest":900}`)
	if n := f.node1(); n.InstanceManagerCPURequest != 500 || n.EngineManagerCPURequest != 700 ||
		n.ReplicaManagerCPURequest != 900 {
		t.Fatalf("%+v", n)
	}
	f.Do("PUT", "/v1/nodes/node-1", `{"allowScheduling":true}`)
	if n := f.node1(); n.InstanceManagerCPURequest != 0 || n.EngineManagerCPURequest != 700 ||
		n.ReplicaManagerCPURequest != 900 {
		t.Errorf("%+v", n)
	}
}
