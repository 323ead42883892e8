package witness

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	enqueue "sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ankole.storage/controlplane/condition"
	"ankole.storage/controlplane/naming"
	imclient "ankole.storage/instancemanager/client"
	"ankole.storage/instancemanager/witness/relayclient"
)

// attachPause is the wait before attaching again after a lost stream: an engine's question waits
// only a few seconds.
const attachPause = 250 * time.Millisecond

// Relay keeps a stream to every instance manager that this manager serves, and answers the
// questions that come in: to the one of its own node, and to those of other nodes for which it
// stands in (ring). So the witness is there for a node whose own manager is away. The relay follows
// Pods, not InstanceManager objects, so it needs no leader.
type Relay struct {
	// Name is this manager's Pod name, NodeName its node.
	Name, NodeName string
	Handler        relayclient.Handler
	// Connect opens a client to an instance manager at host:port.
	Connect func(address string) (*imclient.Client, error)

	client client.Reader

	mu      sync.Mutex
	ctx     context.Context // nil before Start and after its end
	work    sync.WaitGroup
	streams map[client.ObjectKey]*attachment
}

type attachment struct {
	pod    types.UID
	cancel context.CancelFunc
}

// SetupWithManager registers the relay with the manager of the node's own objects, whose cache has
// the Pods of all managers and instance managers.
func (r *Relay) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	r.streams = map[client.ObjectKey]*attachment{}
	started := make(chan struct{})
	err := mgr.Add(runnable(func(ctx context.Context) error {
		r.start(ctx)
		close(started)
		<-ctx.Done()
		r.end()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("register witness relay: %w", err)
	}
	skip := true
	// One look for all Pods: whom this manager serves depends on which managers there are.
	all := enqueue.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("witness-relay").
		Watches(&corev1.Pod{}, all, builder.WithPredicates(predicate.Funcs{UpdateFunc: matters})).
		WithOptions(controller.Options{SkipNameValidation: &skip}).
		Complete(reconcile.Func(func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
			select {
			case <-started:
			case <-ctx.Done():
				return ctrl.Result{}, ctx.Err()
			}
			return ctrl.Result{}, r.follow(ctx)
		}))
}

// matters says whether a change of a Pod may change who is served.
func matters(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
	return before.UID != after.UID || before.Status.Phase != after.Status.Phase ||
		before.Status.PodIP != after.Status.PodIP || before.Spec.NodeName != after.Spec.NodeName ||
		condition.PodReady(before) != condition.PodReady(after) ||
		before.Labels[naming.LabelComponent] != after.Labels[naming.LabelComponent]
}

type runnable func(context.Context) error

func (f runnable) Start(ctx context.Context) error { return f(ctx) }

// start lets streams run until ctx ends.
func (r *Relay) start(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx = ctx
}

// end waits for the end of all streams; their context has ended.
func (r *Relay) end() {
	r.mu.Lock()
	r.ctx = nil
	r.mu.Unlock()
	r.work.Wait()
}

// follow connects to the Pods that this manager serves and disconnects from all others.
func (r *Relay) follow(ctx context.Context) error {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	wanted := served(r.NodeName, pods.Items)
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, have := range r.streams {
		if pod := wanted[key]; pod == nil || pod.UID != have.pod {
			have.cancel()
			delete(r.streams, key)
		}
	}
	if r.ctx == nil {
		return nil
	}
	for key, pod := range wanted {
		if r.streams[key] != nil {
			continue
		}
		attached, cancel := context.WithCancel(r.ctx)
		r.streams[key] = &attachment{pod: pod.UID, cancel: cancel}
		address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(naming.PortProcessManager))
		r.work.Add(1)
		go func() {
			defer r.work.Done()
			r.keep(attached, key.Name, address)
		}()
	}
	return nil
}

func (r *Relay) keep(ctx context.Context, name, address string) {
	log := slog.With("instanceManager", name, "address", address)
	c, err := r.Connect(address)
	if err != nil {
		log.Error("cannot answer witness questions of the instance manager", "err", err)
		return
	}
	defer c.Close()
	relayclient.Keep(ctx, c.Conn(), r.Name, timed{r.Handler}, attachPause, func(err error) {
		log.Debug("witness relay lost, attaching again", "err", err)
	})
}
