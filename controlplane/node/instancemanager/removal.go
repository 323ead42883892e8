package instancemanager

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
)

// closeWait is how long after the close an instance manager that cannot refuse processes itself is
// listed again: longer than an order that was decided before the close is on its way (callTimeout).
const closeWait = callTimeout + 5*time.Second

// remove removes the Pod, or the instance manager with it, in three steps: the object says that the
// Pod is closed, so that nobody orders a process there any more; the Pod, asked itself, has no
// process and takes none; it is deleted. An order in between either arrives before the Pod is
// asked, which then stays, or is refused. In a Pod whose processes have ended with it there is
// nothing to close.
func remove(im *v1beta2.InstanceManager, s seen, object client.Object) loop.Decision {
	if !s.mayRun() {
		return loop.Decision{Do: loop.Delete{Object: object}}
	}
	im.Status.ClosedPod = string(s.Pod.UID) // written before the Pod is asked, as every status
	if s.Empty {
		return loop.Decision{Do: loop.Delete{Object: object}}
	}
	return loop.Decision{Do: loop.Call{What: "close instance manager " + im.Name, Order: closeOrder{}}}
}

// noteClosed records a Pod that somebody deletes as closed, whatever runs in it still. It takes a
// record back when it is about another Pod, or when a process has arrived before the Pod was asked.
func noteClosed(im *v1beta2.InstanceManager, s seen) {
	switch {
	case leaving(s.Pod):
		im.Status.ClosedPod = string(s.Pod.UID)
	case s.Pod == nil || string(s.Pod.UID) != im.Status.ClosedPod || s.Processes != nil && s.Processes.Busy():
		im.Status.ClosedPod = ""
	}
}

// closings remembers what closed Pods have answered. It lives in memory only: a new leader asks
// again.
type closings struct {
	now func() time.Time

	mu   sync.Mutex
	pods map[client.ObjectKey]closing
}

// closing is the answer of one Pod. asked is when it was asked first, empty that it has no process
// and will not get one.
type closing struct {
	pod   types.UID
	asked time.Time
	empty bool
}

func newClosings(now func() time.Time) *closings {
	return &closings{now: now, pods: map[client.ObjectKey]closing{}}
}

// isEmpty tells whether this Pod has answered that it is empty.
func (c *closings) isEmpty(key client.ObjectKey, pod types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.pods[key]
	return known.pod == pod && known.empty
}

func (c *closings) forget(key client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, key)
}

// answered takes note of the answer of a Pod: its processes, and whether it refuses others. One
// that cannot refuse is believed when it has none closeWait after it was asked first.
func (c *closings) answered(key client.ObjectKey, pod types.UID, list map[string]*imrpc.ProcessResponse,
	refuses bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.pods[key]
	if known.pod != pod {
		known = closing{pod: pod, asked: c.now()}
	}
	idle := !listed(list, nil).Busy()
	known.empty = idle && (refuses || c.now().Sub(known.asked) >= closeWait)
	c.pods[key] = known
}

// gatherRemoval reads what tells whether the Pod may be removed.
func (r *Reconciler) gatherRemoval(ctx context.Context, im *v1beta2.InstanceManager, s *seen) error {
	key := client.ObjectKeyFromObject(im)
	if s.Pod == nil || string(s.Pod.UID) != im.Status.ClosedPod {
		r.closings.forget(key) // an answer from before the close, or from another Pod, says nothing
	}
	if !idle(*s) || !s.removable(im) && im.Status.ClosedPod == "" {
		return nil
	}
	var err error
	if s.Assigned, err = r.assigned(ctx, im); err != nil {
		return err
	}
	s.Empty = r.closings.isEmpty(key, s.Pod.UID)
	return nil
}

// closeOrder asks a Pod for its processes, and to take no others if there are none.
type closeOrder struct{}

func (r *Reconciler) carry(ctx context.Context, im *v1beta2.InstanceManager, s seen, _ any) error {
	list, refuses, err := r.cfg.Close(ctx, s.Pod.Status.PodIP)
	if err != nil {
		return fmt.Errorf("close instance manager %s: %w", im.Name, err)
	}
	r.closings.answered(client.ObjectKeyFromObject(im), s.Pod.UID, list, refuses)
	return nil
}

// assigned names an engine or replica whose process is in the instance manager according to its
// object, while the instance manager runs: outside of that, objects do not tell the present. An
// engine that has ended and is wanted counts too: it may have left its block device for the next
// one of its volume, and whoever has that open waits there. Once the Pod is closed nobody follows
// there.
func (r *Reconciler) assigned(ctx context.Context, im *v1beta2.InstanceManager) (string, error) {
	if im.Status.CurrentState != v1beta2.InstanceManagerStateRunning {
		return "", nil
	}
	here := func(st *v1beta2.InstanceStatus) bool {
		return st.InstanceManagerName == im.Name && st.CurrentState != v1beta2.InstanceStateStopped &&
			st.CurrentState != v1beta2.InstanceStateError && st.CurrentState != ""
	}
	in := []client.ListOption{client.InNamespace(im.Namespace), index.Within(im.Name), client.UnsafeDisableDeepCopy}
	var engines v1beta2.EngineList
	if err := r.client.List(ctx, &engines, in...); err != nil {
		return "", fmt.Errorf("list engines: %w", err)
	}
	for i := range engines.Items {
		e := &engines.Items[i]
		waited := im.Status.ClosedPod == "" && e.Spec.DesireState == v1beta2.InstanceStateRunning &&
			e.Status.InstanceManagerName == im.Name
		if waited || here(&e.Status.InstanceStatus) {
			return e.Name, nil
		}
	}
	var replicas v1beta2.ReplicaList
	if err := r.client.List(ctx, &replicas, in...); err != nil {
		return "", fmt.Errorf("list replicas: %w", err)
	}
	for i := range replicas.Items {
		if here(&replicas.Items[i].Status.InstanceStatus) {
			return replicas.Items[i].Name, nil
		}
	}
	return "", nil
}
