package admission

import (
	"fmt"
	"testing"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestNodeDeletion: a refusal begins with the words that clients know, and names what is in the way
// and the commands that take it out of the way.
func TestNodeDeletion(t *testing.T) {
	onIt := func(replicas, engines int) (f NodeFacts) {
		rs, es := make([]v1beta2.Replica, replicas), make([]v1beta2.Engine, engines)
		for i := range rs {
			rs[i].Name, rs[i].Spec.NodeID, rs[i].Spec.VolumeName, rs[i].Spec.FailedAt = fmt.Sprint("r", i), "n", "v", "then"
		}
		for i := range es {
			es[i].Name, es[i].Spec.NodeID, es[i].Spec.VolumeName = fmt.Sprint("e", i), "n", "v"
		}
		elsewhere := v1beta2.Replica{Spec: v1beta2.ReplicaSpec{InstanceSpec: v1beta2.InstanceSpec{NodeID: "other"}}}
		f.TakeOn("n", append(rs, elsewhere), es)
		return f
	}
	ready := func(status v1beta2.ConditionStatus, reason string) func(*v1beta2.Node) {
		return func(n *v1beta2.Node) {
			n.Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: status, Reason: reason}}
		}
	}
	for _, tt := range []struct {
		name  string
		node  *v1beta2.Node
		facts NodeFacts
		want  string
	}{
		{"gone and empty", nodeWith(ready("False", "KubernetesNodeGone")), NodeFacts{}, ""},
		{"manager missing and empty", nodeWith(ready("False", "ManagerPodMissing")), NodeFacts{}, ""},
		{"up", nodeWith(ready("True", "")), NodeFacts{}, "could not delete node n"},
		{"only not ready", nodeWith(ready("False", "KubernetesNodeNotReady")), NodeFacts{}, "could not delete node n"},
		{"schedulable", nodeWith(ready("False", "KubernetesNodeGone"), func(n *v1beta2.Node) {
			n.Spec.AllowScheduling = true
		}),
			NodeFacts{}, "disable scheduling"},
		{"with replicas", nodeWith(ready("False", "KubernetesNodeGone")), onIt(2, 0), "could not delete node n with node " +
			"ready condition is False, reason is KubernetesNodeGone, node schedulable false, and 2 replica and engine running " +
			"on it: replica r0, failed since then: ankole replica delete v r0; replica r1, failed since then: ankole replica " +
			"delete v r1"},
		{"with many replicas", nodeWith(ready("False", "KubernetesNodeGone")), onIt(12, 0), "; and 2 more"},
		{"with engines", nodeWith(ready("False", "KubernetesNodeGone")), onIt(0, 1), "engine e0: ankole volume detach v"},
		{"forced", nodeWith(ready("True", ""), func(n *v1beta2.Node) {
			n.Annotations = map[string]string{"longhorn.io/delete-node-from-longhorn": ""}
		}), onIt(1, 0), ""},
	} {
		expect(t, tt.name, CheckNodeDeletion(tt.node, tt.facts), tt.want)
	}
}
