package instancemanager

import (
	"context"
	"slices"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// die lets a node's machine be gone, or be back. Its budget stays, since its Node does.
func (w *drainage) die(node string, dead bool) {
	w.dead[node] = dead
	n := &v1beta2.Node{}
	w.must(w.api.Get(context.Background(), client.ObjectKey{Namespace: naming.Namespace, Name: node}, n))
	n.Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: "True"}}
	if dead {
		n.Status.Conditions[0] = v1beta2.Condition{Type: "Ready", Status: "False",
			Reason: v1beta2.NodeReasonKubernetesNodeGone}
	}
	w.must(w.api.Status().Update(context.Background(), n))
}

// TestDeadNodesKeepNoBudgetsFree: the budget of a machine that is gone stays, since nobody looks
// after it, and protects no copy: the drain that believed it took the last living copy away. A
// budget that was let go before comes back.
func TestDeadNodesKeepNoBudgetsFree(t *testing.T) {
	w := newDrainage(t, nil)
	w.replica("v", "n1")
	w.replica("v", "n2")
	w.die("n2", true)
	w.showAll()
	w.cordoned["n1"] = true
	w.look("n1")
	if w.deleted != 0 || !slices.Equal(w.r.drains.names("v"), []string{"im-n1"}) {
		t.Fatalf("%d budgets released beside a dead node, held %v", w.deleted, w.r.drains.names(""))
	}
	w.die("n2", false)
	w.show(&v1beta2.NodeList{})
	w.look("n1")
	w.show(&policyv1.PodDisruptionBudgetList{})
	w.look("n1")
	if w.deleted != 1 {
		t.Fatal("the budget is kept beside a copy")
	}
	w.die("n2", true)
	w.show(&v1beta2.NodeList{})
	w.look("n1")
	if shelter, err := ReadShelter(t.Context(), w.api, naming.Namespace); err != nil || !shelter.budgets["n1"] {
		t.Errorf("the budget has not come back (%v)", err)
	}
	// The cache is late: it shows the other one alive.
	w = newDrainage(t, nil)
	w.replica("v", "n1")
	w.replica("v", "n2")
	w.showAll()
	w.die("n2", true)
	w.cordoned["n1"] = true
	w.look("n1")
	if w.deleted != 0 {
		t.Error("a budget was released by what the cache showed")
	}
}
