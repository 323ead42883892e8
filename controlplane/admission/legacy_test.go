//go:build !nolegacy

package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// facts8 are those of a node with 8 CPUs.
func facts8(l LegacyCPUFacts) NodeFacts { return NodeFacts{AllocatableMillis: 8000, LegacyCPUFacts: l} }

// readForNodes is what is read live for a new or changed node.
var readForNodes = []string{"node of Kubernetes", "settings"}

// TestLegacyNodeRules: the requests for instance managers of types engine and replica are bounded
// together, and what setting guaranteed-engine-cpu hands over is exempt (B7, B8).
func TestLegacyNodeRules(t *testing.T) {
	for _, tt := range []nodeRule{
		{"stored CPU above 40 % is raised", func(n *v1beta2.Node) { n.Spec.InstanceManagerCPURequest = 4000 },
			func(n *v1beta2.Node) { n.Spec.InstanceManagerCPURequest = 4001 },
			facts8(LegacyCPUFacts{MigratedMillis: 4001}), "is 50% of the allocatable CPU"},
		{"CPU of the older setting", nil, func(n *v1beta2.Node) {
			n.Spec.InstanceManagerCPURequest, n.Spec.EngineManagerCPURequest, n.Spec.ReplicaManagerCPURequest = 4000, 4000, 4000
		}, facts8(LegacyCPUFacts{MigratedMillis: 4000}), ""},
		{"older type, of the older setting", nil, func(n *v1beta2.Node) { n.Spec.EngineManagerCPURequest = 4000 },
			facts8(LegacyCPUFacts{MigratedMillis: 4000}), ""},
		{"other CPU than that of the older setting", nil, func(n *v1beta2.Node) {
			n.Spec.InstanceManagerCPURequest = 4001
		}, facts8(LegacyCPUFacts{MigratedMillis: 4000}), "is 50% of the allocatable CPU"},
		{"CPU of the older setting over one that was chosen", func(n *v1beta2.Node) {
			n.Spec.InstanceManagerCPURequest = 1
		}, func(n *v1beta2.Node) { n.Spec.InstanceManagerCPURequest = 4000 },
			facts8(LegacyCPUFacts{MigratedMillis: 4000}), "is 50% of the allocatable CPU"},
		{"one older type other than the older setting", nil, func(n *v1beta2.Node) {
			n.Spec.EngineManagerCPURequest, n.Spec.ReplicaManagerCPURequest = 4000, 3999
		}, facts8(LegacyCPUFacts{MigratedMillis: 4000}), "smaller than 40%"},
		{"older types back to 0 after the older setting", func(n *v1beta2.Node) {
			n.Spec.EngineManagerCPURequest, n.Spec.ReplicaManagerCPURequest = 4000, 4000
		}, func(n *v1beta2.Node) { n.Spec.EngineManagerCPURequest = 0 },
			facts8(LegacyCPUFacts{LegacyEnginePercent: 12}), "smaller than 40%"},
		{"older types below 40 % together", nil, func(n *v1beta2.Node) {
			n.Spec.EngineManagerCPURequest, n.Spec.ReplicaManagerCPURequest = 1200, 1920
		},
			NodeFacts{AllocatableMillis: 8000}, ""},
		{"older types at 40 % together", nil, func(n *v1beta2.Node) {
			n.Spec.EngineManagerCPURequest, n.Spec.ReplicaManagerCPURequest = 1200, 2000
		},
			NodeFacts{AllocatableMillis: 8000}, "smaller than 40%"},
		{"older type beside a setting", nil, func(n *v1beta2.Node) { n.Spec.EngineManagerCPURequest = 2400 },
			facts8(LegacyCPUFacts{LegacyReplicaPercent: 12}), "smaller than 40%"},
		{"older type at 39.4 %", nil, func(n *v1beta2.Node) { n.Spec.EngineManagerCPURequest = 39_400 },
			NodeFacts{AllocatableMillis: 100_000}, ""},
		{"older type at 39.5 %", nil, func(n *v1beta2.Node) { n.Spec.ReplicaManagerCPURequest = 39_500 },
			NodeFacts{AllocatableMillis: 100_000}, "smaller than 40%"},
		{"older types stored above 40 %", func(n *v1beta2.Node) {
			n.Spec.EngineManagerCPURequest, n.Spec.ReplicaManagerCPURequest = 4000, 4000
		}, nil, NodeFacts{AllocatableMillis: 8000}, ""},
		{"older types back to their settings", func(n *v1beta2.Node) {
			n.Spec.EngineManagerCPURequest, n.Spec.ReplicaManagerCPURequest = 80, 80
		}, func(n *v1beta2.Node) { n.Spec.EngineManagerCPURequest, n.Spec.ReplicaManagerCPURequest = 0, 0 },
			facts8(LegacyCPUFacts{LegacyEnginePercent: 30, LegacyReplicaPercent: 30}), ""},
		{"one older type back to its setting", func(n *v1beta2.Node) {
			n.Spec.EngineManagerCPURequest, n.Spec.ReplicaManagerCPURequest = 80, 80
		}, func(n *v1beta2.Node) { n.Spec.EngineManagerCPURequest = 0 },
			facts8(LegacyCPUFacts{LegacyEnginePercent: 39}), "smaller than 40%"},
	} {
		tt.check(t)
	}
	for _, rule := range []struct {
		name      string
		good, bad func(*v1beta2.Node)
		want      string
	}{
		{"CPU of engine managers", func(n *v1beta2.Node) { n.Spec.EngineManagerCPURequest = 0 },
			func(n *v1beta2.Node) { n.Spec.EngineManagerCPURequest = -1 }, "greater than or equal to 0"},
		{"CPU of replica managers", func(n *v1beta2.Node) { n.Spec.ReplicaManagerCPURequest = 0 },
			func(n *v1beta2.Node) { n.Spec.ReplicaManagerCPURequest = -1 }, "greater than or equal to 0"},
	} {
		facts := NodeFacts{AllocatableMillis: 8000}
		good, bad := nodeWith(rule.good), nodeWith(rule.bad)
		expect(t, rule.name+": created", CheckNode(nil, good, facts), "")
		expect(t, rule.name+": created against the rule", CheckNode(nil, bad, facts), rule.want)
		expect(t, rule.name+": changed against the rule", CheckNode(nodeWith(), bad, facts), rule.want)
	}
}

// TestLegacyRequests asks about nodes beside stored settings of the older types.
func TestLegacyRequests(t *testing.T) {
	node := func(edit func(*v1beta2.Node)) *v1beta2.Node { return named(nodeWith(), "n-one", nil, edit) }
	up := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-one"}}
	up.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	busy := func(millis int) *v1beta2.Node {
		return node(func(n *v1beta2.Node) { n.Spec.InstanceManagerCPURequest = millis })
	}
	legacy := node(func(n *v1beta2.Node) { n.Spec.EngineManagerCPURequest = 2400 })
	for _, tt := range []asking{
		{"node that takes an older setting over", "nodes", node(nil), busy(4000),
			[]client.Object{up, valueOf("guaranteed-engine-cpu", "4")}, ""},
		{"node that takes more than an older setting", "nodes", node(nil), busy(4000),
			[]client.Object{up, valueOf("guaranteed-engine-cpu", "3"), valueOf("guaranteed-replica-manager-cpu", "4000")},
			"should be less than or equal to 40"},
		{"older type beside a setting", "nodes", node(nil), legacy,
			[]client.Object{up, valueOf("guaranteed-replica-manager-cpu", "12")}, "smaller than 40%"},
		{"older type", "nodes", node(nil), legacy, []client.Object{up, valueOf("guaranteed-replica-manager-cpu", "5")}, ""},
		{"other older type beside a setting", "nodes", node(nil), node(func(n *v1beta2.Node) {
			n.Spec.ReplicaManagerCPURequest = 2400
		}), []client.Object{up, valueOf("guaranteed-engine-manager-cpu", "12")}, "smaller than 40%"},
		{"other older type", "nodes", node(nil), node(func(n *v1beta2.Node) { n.Spec.ReplicaManagerCPURequest = 2400 }),
			[]client.Object{up, valueOf("guaranteed-engine-manager-cpu", "5")}, ""},
	} {
		tt.check(t)
	}
}
