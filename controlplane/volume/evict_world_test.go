package volume_test

import (
	"context"
	"slices"
	"testing"
)

// TestEvictionOfAFailedReplica: a replica that fails while its node is evicted goes, once the
// volume is complete without it, and the volume that nobody uses is detached.
func TestEvictionOfAFailedReplica(t *testing.T) {
	t.Parallel()
	w := attached(t, t.TempDir(), 4, 3)
	v := w.volume("v")
	v.Spec.StaleReplicaTimeout = 0 // failed ones stay, however old
	must(t, w.c.Update(context.Background(), v))
	r := w.replicas()[0]
	r.Spec.EvictionRequested = true
	must(t, w.c.Update(context.Background(), &r))
	w.killProcess(func(p *proc) bool { return isReplica(p) && p.node == r.Spec.NodeID })
	w.settle()
	for _, o := range w.replicas() {
		if o.Name == r.Name && o.Spec.FailedAt == "" {
			t.Fatalf("the evicted replica has not failed\n%s", w.dump())
		}
	}
	w.ticket("ui", "", "")
	for range 4 {
		w.settle()
		w.rebuilt()
	}
	w.settle()
	w.expect(`detached unknown at ""`)
	if slices.Contains(names(w), r.Name) || len(w.replicas()) != 3 {
		t.Fatalf("the evicted replica was not moved\n%s", w.dump())
	}
}
