package volume_test

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
)

// rebuildLimit of each node in a world: the volume and one stranger fill it.
const rebuildLimit = 1

// stranger lets a volume that is not in the world rebuild on a node, or end the rebuild that it has
// there. Such a volume asks as the ones of the world do, and may have to wait.
func (w *world) stranger(node string) {
	name := "stranger-" + node
	if w.strangers[name] != nil {
		w.strangerEnds(name)
		return
	}
	r := &v1beta2.Replica{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, ResourceVersion: w.version()}}
	r.Spec.VolumeName, r.Spec.NodeID, r.Spec.RebuildRetryCount, r.Spec.Active = name, node, 1, true
	w.allocator.Observe(r)
	may := w.allocator.MayRebuild(name, node)
	w.allocator.Wait(name, map[string]bool{node: may})
	if !may {
		w.allocator.Wait(name, nil)
		return
	}
	started := r.DeepCopy()
	started.Spec.DesireState = v1beta2.InstanceStateRunning
	change := w.allocator.Reserving(started, 0).(loop.Reserving)
	ok, err := change.Reserve(context.Background())
	must(w.t, err)
	if !ok {
		w.t.Fatalf("%s was allowed to rebuild and cannot", name)
	}
	started.ResourceVersion = w.version()
	change.Done(nil)
	w.strangers[name] = started
	if w.allocator.MayRebuild("another volume", node) {
		w.t.Fatalf("%s does not hold the slot of %s", name, node)
	}
	w.checkLimit()
}

func (w *world) strangerEnds(name string) {
	delete(w.strangers, name)
	w.allocator.Gone(name)
}

// version is a resource version of an object that is not stored.
func (w *world) version() string {
	w.nextID++
	return strconv.Itoa(w.nextID)
}

// checkLimit holds that no node has more rebuilds than its limit: those of the volume, as the API
// server has them, and those of strangers.
func (w *world) checkLimit() {
	w.t.Helper()
	on := map[string][]string{}
	for _, r := range w.replicas() {
		if r.Spec.DesireState == v1beta2.InstanceStateRunning && r.Spec.FailedAt == "" && r.Spec.HealthyAt == "" &&
			(r.Spec.RebuildRetryCount > 0 || r.Spec.LastHealthyAt != "") {
			on[r.Spec.NodeID] = append(on[r.Spec.NodeID], r.Name)
		}
	}
	for name, r := range w.strangers {
		on[r.Spec.NodeID] = append(on[r.Spec.NodeID], name)
	}
	for node, names := range on {
		if len(names) > rebuildLimit {
			w.t.Fatalf("%s on %s, whose limit is %d\n%s", fmt.Sprint(names), node, rebuildLimit, w.dump())
		}
	}
}
