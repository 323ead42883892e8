package volume_test

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// TestAutoBalance: a volume with all replicas on one node spreads over the nodes that join, one
// replica at a time, and gives none up before the new one is in sync.
func TestAutoBalance(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"least-effort", "best-effort"} {
		w := newWorld(t, t.TempDir(), 3)
		w.takes(false, "n2", "n3")
		w.newVolume(3, func(s *v1beta2.VolumeSpec) { s.ReplicaSoftAntiAffinity = v1beta2.OverrideEnabled })
		w.settle()
		w.ticket("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
		w.settle()
		w.expect(`attached healthy at "n1"`)
		before := names(w)
		w.takes(true, "n2", "n3")
		w.settle()
		if after := names(w); !slices.Equal(before, after) {
			t.Fatalf("replicas moved without auto-balance: %v, then %v", before, after)
		}
		w.create(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "replica-auto-balance"}, Value: mode})
		for range 3 {
			w.settle()
			if n := w.modes()[v1beta2.ReplicaModeRW]; n < 3 || len(w.replicas()) > 4 {
				t.Fatalf("%s: %d of %d replicas are in sync\n%s", mode, n, len(w.replicas()), w.dump())
			}
			w.rebuilt()
		}
		w.settle()
		w.expect(`attached healthy at "n1"`)
		on := map[string]int{}
		for _, r := range w.replicas() {
			on[r.Spec.NodeID]++
		}
		if len(on) != 3 || len(w.replicas()) != 3 {
			t.Fatalf("%s: replicas by node %v\n%s", mode, on, w.dump())
		}
	}
}

// takes switches the scheduling of nodes.
func (w *world) takes(on bool, nodes ...string) {
	w.t.Helper()
	for _, name := range nodes {
		var n v1beta2.Node
		must(w.t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, &n))
		n.Spec.AllowScheduling = on
		must(w.t, w.c.Update(context.Background(), &n))
	}
}
