package node

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilpod "k8s.io/kubernetes/pkg/util/pod"
)

// reporter brings a Pod's status to the API server, apart from the worker, so that a slow or absent
// API server does not keep containers from being restarted. Only the newest status counts.
type reporter struct {
	a               *Agent
	namespace, name string
	uid             types.UID
	log             *slog.Logger

	mu     sync.Mutex
	status v1.PodStatus
	delete bool // the Pod has ended and may leave the API
	fresh  bool
	sent   v1.PodStatus
	signal chan struct{}
}

func newReporter(a *Agent, pod *v1.Pod, log *slog.Logger) *reporter {
	return &reporter{
		a: a, namespace: pod.Namespace, name: pod.Name, uid: pod.UID, log: log,
		sent: *pod.Status.DeepCopy(), signal: make(chan struct{}, 1),
	}
}

// send takes the newest status; seen is what the API server last showed. With del the Pod object is
// removed once the status is in.
func (r *reporter) send(s, seen v1.PodStatus, del bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !del && reflect.DeepEqual(s, r.status) && !overwritten(s, seen) {
		return
	}
	r.status, r.fresh = s, true
	r.delete = r.delete || del
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

func (r *reporter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.signal:
		}
		for !r.flush(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(statusRetry):
			}
		}
	}
}

// flush sends what is pending; false asks for another try.
func (r *reporter) flush(ctx context.Context) bool {
	r.mu.Lock()
	status, del, fresh := *r.status.DeepCopy(), r.delete, r.fresh
	r.fresh = false
	r.mu.Unlock()
	if !fresh {
		return true
	}
	err := r.patch(ctx, status)
	if err == nil && del {
		err = r.remove(ctx)
	}
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil {
		return true // gone, or replaced by another Pod of that name
	}
	r.log.Warn("cannot report Pod status", "error", err)
	r.mu.Lock()
	r.fresh = true
	r.mu.Unlock()
	return false
}

func (r *reporter) patch(ctx context.Context, status v1.PodStatus) error {
	current, err := r.a.cfg.Client.CoreV1().Pods(r.namespace).Get(ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if current.UID != r.uid {
		return nil
	}
	for _, c := range current.Status.Conditions {
		if !ownCondition(c.Type) {
			status.Conditions = append(status.Conditions, c)
		}
	}
	_, _, _, err = utilpod.PatchPodStatus(ctx, r.a.cfg.Client, r.namespace, r.name, r.uid, current.Status, status)
	return err
}

func (r *reporter) remove(ctx context.Context) error {
	now := int64(0)
	return r.a.cfg.Client.CoreV1().Pods(r.namespace).Delete(ctx, r.name, metav1.DeleteOptions{
		GracePeriodSeconds: &now,
		Preconditions:      metav1.NewUIDPreconditions(string(r.uid)),
	})
}

// overwritten says whether somebody else changed a condition that the node agent reports. The node
// lifecycle controller does: while a node is silent, as one on a suspended laptop, it says of its
// Pods that they are not ready, and leaves it to the node to take that back. A view older than the
// last report looks the same; the report sent for it changes nothing.
func overwritten(ours, seen v1.PodStatus) bool {
	for _, c := range ours.Conditions {
		i := slices.IndexFunc(seen.Conditions, func(o v1.PodCondition) bool { return o.Type == c.Type })
		if ownCondition(c.Type) && (i < 0 || seen.Conditions[i].Status != c.Status) {
			return true
		}
	}
	return false
}

// ownCondition says whether a node agent reports this condition; the others belong to controllers.
func ownCondition(t v1.PodConditionType) bool {
	return slices.Contains([]v1.PodConditionType{
		v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled,
	}, t)
}
