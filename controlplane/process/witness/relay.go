package witness

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
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

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/instancemanager/witness/relayclient"
)

// attachPause is the wait before attaching again after a lost stream: an engine's question waits
// only a few seconds.
const attachPause = 250 * time.Millisecond

// Relay keeps a stream to every instance manager that it sees a Pod of, and answers the questions
// that come in. An agent sees those of its node, so that an engine which is cut off from all other
// nodes is answered; a controller sees all, so that the witness is there while an agent is away.
// The relay follows Pods, not InstanceManager objects, so it needs no leader.
type Relay struct {
	// Name is this process's Pod name.
	Name    string
	Handler relayclient.Handler
	// Connect opens a connection to the relay of an instance manager.
	Connect func(*corev1.Pod) (*grpc.ClientConn, error)

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

// SetupWithManager registers the relay with a manager whose cache has the Pods of the instance
// managers that are to be answered.
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
		before.Status.PodIP != after.Status.PodIP ||
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

// served are the Pods of instance managers that can be connected to.
func served(pods []corev1.Pod) map[client.ObjectKey]*corev1.Pod {
	out := map[client.ObjectKey]*corev1.Pod{}
	for i := range pods {
		p := &pods[i]
		if p.Labels[naming.LabelComponent] == naming.ComponentInstanceManager && p.Status.Phase == corev1.PodRunning &&
			p.Status.PodIP != "" {
			out[client.ObjectKeyFromObject(p)] = p
		}
	}
	return out
}

// follow connects to the Pods that are to be answered and disconnects from all others.
func (r *Relay) follow(ctx context.Context) error {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	wanted := served(pods.Items)
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
		pod := pod.DeepCopy() // the cache's
		r.work.Go(func() { r.keep(attached, pod) })
	}
	return nil
}

func (r *Relay) keep(ctx context.Context, pod *corev1.Pod) {
	log := slog.With("instanceManager", pod.Name, "address", pod.Status.PodIP)
	c, err := r.Connect(pod)
	if err != nil {
		log.Error("cannot answer witness questions of the instance manager", "err", err)
		return
	}
	defer c.Close()
	relayclient.Keep(ctx, c, r.Name, timed{r.Handler}, attachPause, func(err error) {
		log.Debug("witness relay lost, attaching again", "err", err)
	})
}
