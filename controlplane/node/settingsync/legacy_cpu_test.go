//go:build !nolegacy

package settingsync

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/setting"
)

func node(name string, instance, engine, replica int) v1beta2.Node {
	return v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta2.NodeSpec{
		InstanceManagerCPURequest: instance,
		LegacyNodeSpec: v1beta2.LegacyNodeSpec{EngineManagerCPURequest: engine,
			ReplicaManagerCPURequest: replica}}}
}

// TestB8: the value of guaranteed-engine-cpu goes to the nodes whose fields are 0, one after the
// other, and then the setting is empty. A value that nobody has chosen does not touch the field of
// the instance managers that have taken the place of the older ones.
func TestB8(t *testing.T) {
	type fields struct{ instance, engine, replica int }
	for name, tt := range map[string]struct {
		value string
		want  [3]fields
	}{
		"chosen":         {"0.5", [3]fields{{500, 500, 500}, {300, 500, 500}, {500, 200, 500}}},
		"many CPUs":      {"12.0005", [3]fields{{12001, 12001, 12001}, {300, 12001, 12001}, {12001, 200, 12001}}},
		"default":        {"0.25", [3]fields{{0, 250, 250}, {300, 250, 250}, {0, 200, 250}}},
		"none":           {"0", [3]fields{{0, 0, 0}, {300, 0, 0}, {0, 200, 0}}},
		"negative":       {"-1", [3]fields{{0, 0, 0}, {300, 0, 0}, {0, 200, 0}}},
		"no number":      {"much", [3]fields{{0, 0, 0}, {300, 0, 0}, {0, 200, 0}}},
		"without an end": {"Inf", [3]fields{{0, 0, 0}, {300, 0, 0}, {0, 200, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := object("guaranteed-engine-cpu", tt.value, nil)
			nodes := []v1beta2.Node{node("a", 0, 0, 0), node("b", 300, 0, 0), node("c", 0, 200, 0)}
			for step := range 6 {
				d := decide(time.Time{}, s, seen{Nodes: nodes})
				if d.Do == nil {
					break
				}
				switch o := d.Do.(loop.Update).Object.(type) {
				case *v1beta2.Node:
					if s.Value != tt.value {
						t.Fatal("a node is written after the setting was emptied")
					}
					for i := range nodes {
						if nodes[i].Name == o.Name {
							nodes[i] = *o
						}
					}
				case *v1beta2.Setting:
					s = o
				}
				if step == 5 {
					t.Fatal("it does not settle")
				}
			}
			if s.Value != "" || len(s.Annotations) != 0 {
				t.Errorf("the setting holds %q, annotations %v", s.Value, s.Annotations)
			}
			for i, want := range tt.want {
				n := nodes[i].Spec
				got := fields{n.InstanceManagerCPURequest, n.EngineManagerCPURequest, n.ReplicaManagerCPURequest}
				if got != want {
					t.Errorf("node %s has %+v, want %+v", nodes[i].Name, got, want)
				}
			}
		})
	}
}

// TestB12: an older ConfigMap names guaranteed-engine-cpu: that has no effect.
func TestB12(t *testing.T) {
	values, ignored := parseOverrides("guaranteed-engine-cpu: 0.5\nauto-salvage: false\n")
	if len(values) != 1 || values["auto-salvage"] != "false" {
		t.Errorf("values %v", values)
	}
	if err := ignored["guaranteed-engine-cpu"]; err == nil || !strings.Contains(err.Error(), "is read-only") {
		t.Errorf("error %v", err)
	}
}

// TestCarriedCPU: who has chosen shares for the two older types begins with the larger one.
func TestCarriedCPU(t *testing.T) {
	for _, tt := range []struct{ engine, replica, want string }{
		{"15", "24", `{"v1":"24","v2":"24"}`}, {"24", "15", `{"v1":"24","v2":"24"}`},
		{"12", "12", ""}, {"", "", ""}, {"0", "0", `{"v1":"0","v2":"0"}`},
		{"5", "", `{"v1":"12","v2":"12"}`}, {"12", "20", `{"v1":"20","v2":"20"}`},
	} {
		stored := setting.Values{}
		for name, value := range map[string]string{"guaranteed-engine-manager-cpu": tt.engine,
			"guaranteed-replica-manager-cpu": tt.replica} {
			if value != "" {
				stored[name] = value
			}
		}
		if got, ok := setting.CarriedCPU(stored); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%q and %q: %q, %v, want %q", tt.engine, tt.replica, got, ok, tt.want)
		}
	}
}

// TestCarriedCPUIsStored: the setting that a system does not have yet begins with what it had for
// the older types.
func TestCarriedCPUIsStored(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	var carried v1beta2.Setting
	older := []client.Object{
		&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "guaranteed-engine-manager-cpu"}, Value: "15"},
		&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "guaranteed-replica-manager-cpu"}, Value: "24"},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(older...).Build()
	key := client.ObjectKey{Namespace: "ns", Name: "guaranteed-instance-manager-cpu"}
	if err := EnsureExist(t.Context(), c, "ns", "pod", nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key, &carried); err != nil || carried.Value != `{"v1":"24","v2":"24"}` {
		t.Errorf("after shares of 15 and 24 it is %q (%v)", carried.Value, err)
	}
}
