package manager

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/naming"
)

// A manager of another system that works on the same kinds is not bound by our lease: what it
// orders and what we order would contradict each other, and two engines of one volume could be the
// result. It is there when this system is installed over that one, until the DaemonSet has
// replaced the last Pod, and when somebody installs that one over this. Nothing is done while one
// runs: a manager that starts makes no webhooks and no objects, but for the definitions of kinds,
// and one that leads gives up. Both stay ready, since a rolling update waits for that.

// Waits for the end of a manager of another system.
const (
	// aloneRetry is in between two looks.
	aloneRetry = 5 * time.Second
	// lostAfter is how long after its grace period a Pod that is to end counts as lost with its node.
	// There nothing reaches the API server either.
	lostAfter = time.Minute
)

// foreigners tells managers of another system from others. One lives as long as the process, for
// all that look.
type foreigners struct{ ending *firstseen.Stamps }

func newForeigners() foreigners { return foreigners{firstseen.New()} }

// is says whether a Pod may be a manager of another system that still acts. now is for Pods that
// should have ended: their time is stamped by the API server's clock.
func (f foreigners) is(pod *corev1.Pod, now time.Time) bool {
	switch {
	case pod.Labels[naming.LabelApp] != naming.AppManager || pod.Spec.NodeName == "":
		return false
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return false
	case f.lost(pod, now):
		return false
	}
	for _, c := range pod.Spec.Containers {
		if len(c.Command) > 0 && path.Base(c.Command[0]) == naming.ProgramManager {
			return false
		}
	}
	return true
}

// lost says whether this process has seen a Pod end for longer than it may take.
func (f foreigners) lost(pod *corev1.Pod, now time.Time) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	var grace time.Duration
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	end := pod.DeletionTimestamp.Time
	seen := f.ending.At(now, pod.Namespace+"/"+pod.Name, string(pod.UID)+end.UTC().String())
	return firstseen.Left(now, end.Add(-grace), seen, grace+lostAfter) < 0
}

// awaitAlone returns when no manager of another system runs, or ctx ends. waits, if it is not nil,
// is called while one does.
func (f foreigners) awaitAlone(ctx context.Context, c client.Client, cfg Common, waits func()) error {
	var told types.UID
	for {
		var pods corev1.PodList
		if err := persist(ctx, "look for managers of another system", func(ctx context.Context) error {
			return c.List(ctx, &pods, client.InNamespace(cfg.Namespace),
				client.MatchingLabels{naming.LabelApp: naming.AppManager})
		}); err != nil {
			return err
		}
		other := f.first(pods.Items, time.Now())
		if other == nil {
			return nil
		}
		if waits != nil {
			waits()
		}
		if other.UID != told {
			told = other.UID
			why := errForeign(other).Error()
			slog.Warn("nothing is done yet", "reason", why)
			tell(ctx, c, podReference(other), corev1.EventTypeWarning, naming.EventFailedUpgradePreCheck,
				"The manager on node "+cfg.NodeName+" waits: "+why)
		}
		pause(ctx, aloneRetry)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (f foreigners) first(pods []corev1.Pod, now time.Time) *corev1.Pod {
	for i := range pods {
		if f.is(&pods[i], now) {
			return &pods[i]
		}
	}
	return nil
}

func errForeign(pod *corev1.Pod) error {
	return fmt.Errorf("a manager of another system runs in Pod %s on node %s: it and this one would contradict each other; "+
		"see that the DaemonSet %s replaces it, or delete the Pod", pod.Name, pod.Spec.NodeName, naming.DaemonSetManager)
}

func podReference(pod *corev1.Pod) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// whileAlone returns nil when ctx ends, and an error as soon as a manager of another system runs.
func (f foreigners) whileAlone(ctx context.Context, informers cache.Informers, namespace string) error {
	pods, err := informers.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("follow the Pods of managers: %w", err)
	}
	seen := make(chan error, 1)
	look := func(o any) {
		if pod, ok := o.(*corev1.Pod); ok && pod.Namespace == namespace && f.is(pod, time.Now()) {
			select {
			case seen <- errForeign(pod):
			default: // one is enough
			}
		}
	}
	handler, err := pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, after any) { look(after) }})
	if err != nil {
		return fmt.Errorf("follow the Pods of managers: %w", err)
	}
	defer func() { _ = pods.RemoveEventHandler(handler) }() // a cache that has ended has none
	select {
	case <-ctx.Done():
		return nil
	case err := <-seen:
		return err
	}
}
