package manager

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// TestNodeCacheHoldsItsObjects: a manager that does not lead sees the replicas and orphans of its
// node and no other, however long the names of nodes are.
func TestNodeCacheHoldsItsObjects(t *testing.T) {
	for _, node := range []string{"n1", strings.Repeat("n", 70)} {
		held := 0
		for object, by := range nodeCache(Common{Namespace: "ns", NodeName: node}).ByObject {
			var mine, other map[string]string
			switch object.(type) {
			case *v1beta2.Replica:
				mine, other = naming.ReplicaLabels("v", node, "d", ""), naming.ReplicaLabels("v", node+"2", "d", "")
			case *v1beta2.Orphan:
				mine, other = naming.OrphanLabels(node, "replica-data"), naming.OrphanLabels(node+"2", "replica-data")
			default:
				continue
			}
			held++
			selects := by.Namespaces["ns"].LabelSelector
			if !selects.Matches(labels.Set(mine)) || selects.Matches(labels.Set(other)) {
				t.Errorf("%T of node %s: selector %s, labels %v", object, node, selects, mine)
			}
		}
		if held != 2 {
			t.Errorf("%d kinds of objects by node, want 2", held)
		}
	}
}
