//go:build nolegacy

package manager

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestA19RefusesLegacyProcesses: a manager without support for older instance managers does not
// start while processes run in some, and names them. Idle ones, and today's, do not matter.
func TestA19RefusesLegacyProcesses(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	manager := func(name string, kind v1beta2.InstanceManagerType, states ...v1beta2.InstanceState) client.Object {
		im := &v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		im.Spec.Type, im.Spec.NodeID = kind, "node-1"
		im.Status.Instances = map[string]v1beta2.InstanceProcess{}
		for _, s := range states {
			im.Status.Instances["demo-"+string(s)] = v1beta2.InstanceProcess{Status: v1beta2.InstanceProcessStatus{State: s}}
		}
		return im
	}
	for _, tt := range []struct {
		name    string
		objects []client.Object
		refused []string // what the error names; nil for none
	}{
		{"nothing", nil, nil},
		{"idle", []client.Object{manager("e", "engine"), manager("r", "replica", "stopped", "error")}, nil},
		{"of today", []client.Object{manager("a", "aio", "running")}, nil},
		{"of another namespace", []client.Object{func() client.Object {
			o := manager("e", "engine", "running")
			o.SetNamespace("other")
			return o
		}()}, nil},
		{"in use", []client.Object{manager("e", "engine", "running"), manager("r", "replica", "unknown", "starting"),
			manager("idle", "replica")}, []string{"e on node-1 (demo-running)", "r on node-1 (demo-starting, demo-unknown)"}},
	} {
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(tt.objects...).Build()
		err := refuseLegacy(t.Context(), c, "ns")
		if errors.Is(err, errLegacy) != (tt.refused != nil) || err != nil && strings.Contains(err.Error(), "idle") {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		for _, text := range tt.refused {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: the error does not name %s: %v", tt.name, text, err)
			}
		}
	}
}
