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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ankole.storage/controlplane/naming"
	imclient "ankole.storage/instancemanager/client"
	"ankole.storage/instancemanager/witness/relayclient"
)

// attachPause is the wait before attaching again after a lost stream: an engine's question waits
// only a few seconds.
const attachPause = 250 * time.Millisecond

// Relay keeps a stream to every instance manager Pod in its manager's cache, which is restricted to
// the own node, and answers the questions that come in. It follows Pods, not InstanceManager
// objects, so it needs no leader.
type Relay struct {
	// Name is this manager's Pod name.
	Name    string
	Handler relayclient.Handler
	// Connect opens a client to an instance manager at host:port.
	Connect func(address string) (*imclient.Client, error)

	client client.Client

	mu      sync.Mutex
	ctx     context.Context // nil before Start and after its end
	work    sync.WaitGroup
	streams map[client.ObjectKey]*attachment
}

type attachment struct {
	pod    types.UID
	cancel context.CancelFunc
}

// SetupWithManager registers the relay with the manager of the node's own objects.
func (r *Relay) SetupWithManager(mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	r.streams = map[client.ObjectKey]*attachment{}
	started := make(chan struct{})
	err := mgr.Add(runnable(func(ctx context.Context) error {
		r.mu.Lock()
		r.ctx = ctx
		r.mu.Unlock()
		close(started)
		<-ctx.Done()
		r.mu.Lock()
		r.ctx = nil
		r.mu.Unlock()
		r.work.Wait()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("register witness relay: %w", err)
	}
	skip := true
	return ctrl.NewControllerManagedBy(mgr).Named("witness-relay").For(&corev1.Pod{}).
		WithOptions(controller.Options{SkipNameValidation: &skip}).
		Complete(reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			select {
			case <-started:
			case <-ctx.Done():
				return ctrl.Result{}, ctx.Err()
			}
			return ctrl.Result{}, r.follow(ctx, req.NamespacedName)
		}))
}

type runnable func(context.Context) error

func (f runnable) Start(ctx context.Context) error { return f(ctx) }

// follow connects to a Pod that runs and disconnects from one that does not.
func (r *Relay) follow(ctx context.Context, key client.ObjectKey) error {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, key, pod); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Pod %s: %w", key, err)
	}
	wanted := pod.Labels[naming.LabelComponent] == naming.ComponentInstanceManager &&
		pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != ""
	r.mu.Lock()
	defer r.mu.Unlock()
	have := r.streams[key]
	if have != nil && (!wanted || have.pod != pod.UID) {
		have.cancel()
		delete(r.streams, key)
		have = nil
	}
	if !wanted || have != nil || r.ctx == nil {
		return nil
	}
	attached, cancel := context.WithCancel(r.ctx)
	r.streams[key] = &attachment{pod: pod.UID, cancel: cancel}
	address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(naming.PortProcessManager))
	r.work.Add(1)
	go func() {
		defer r.work.Done()
		r.keep(attached, key.Name, address)
	}()
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
	relayclient.Keep(ctx, c.Conn(), r.Name, r.Handler, attachPause, func(err error) {
		log.Debug("witness relay lost, attaching again", "err", err)
	})
}
