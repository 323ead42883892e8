package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	eventrecord "k8s.io/client-go/tools/record"

	"ankole.storage/standalone/process"
)

// Agent is one running node.
type Agent struct {
	cfg    Config
	cancel context.CancelFunc
	wg     sync.WaitGroup // everything but workers
	pods   sync.WaitGroup // workers

	broadcaster eventrecord.EventBroadcaster
	events      eventrecord.EventRecorder
	informer    cache.SharedIndexInformer
	server      *server

	mu       sync.Mutex
	workers  map[types.UID]*worker
	admitted map[types.UID]v1.ResourceList
	address  map[types.UID]int // of Pods that do not have the shared one, see takeAddress
	stopping bool
	hung     chan struct{} // not nil while the agent hangs; closed when it goes on
}

// Start brings a node up: leftovers of an earlier life are killed, the Node object is registered,
// and Pods already bound to it are started. It returns when the node accepts Pods.
func Start(ctx context.Context, cfg Config) (*Agent, error) {
	cfg.Log = cfg.Log.With("node", cfg.Name)
	if n := process.KillMarked(cfg.marker()); n > 0 {
		cfg.Log.Info("killed processes left by an earlier run", "count", n)
	}
	for _, d := range []string{cfg.Root(), cfg.DeviceDir, cfg.dir("pods"), cfg.dir("logs")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("node %s: %w", cfg.Name, err)
		}
	}
	a := &Agent{cfg: cfg, workers: map[types.UID]*worker{}, admitted: map[types.UID]v1.ResourceList{}}
	// The node outlives the call's context; Stop and Kill end it.
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a.cancel = cancel
	a.startEvents()
	var err error
	if a.server, err = a.serve(); err != nil {
		a.end()
		return nil, err
	}
	if err := a.register(ctx); err != nil {
		a.end()
		return nil, fmt.Errorf("node %s: register: %w", cfg.Name, err)
	}
	a.wg.Go(func() { a.lease(run) })
	a.wg.Go(func() { a.keepReady(run) })
	if err := a.watchPods(run); err != nil {
		a.end()
		return nil, fmt.Errorf("node %s: watch Pods: %w", cfg.Name, err)
	}
	return a, nil
}

func (a *Agent) startEvents() {
	a.broadcaster = eventrecord.NewBroadcaster()
	sink := &typedcore.EventSinkImpl{Interface: a.cfg.Client.CoreV1().Events("")}
	a.broadcaster.StartRecordingToSink(sink)
	a.events = a.broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "kubelet", Host: a.cfg.Name})
}

// agentsGrace is how long a node that ends waits for Pods of DaemonSets before it ends the others.
const agentsGrace = 5 * time.Second

// Stop ends all Pods within grace, at most as long as each allows, and then the node. The Pods stay
// in the API as they are and run again when the node comes back.
//
// Pods of DaemonSets end first. An instance manager that ends leaves block devices to the manager
// beside it, for the instance manager that follows; with a manager that is about to end too, what
// is cached of those devices would be lost. Without one they end in order.
func (a *Agent) Stop(grace time.Duration) {
	began := time.Now()
	a.Resume()
	a.mu.Lock()
	a.stopping = true
	agents, others := a.byDaemonSet()
	a.mu.Unlock()
	stopWorkers(agents, grace)
	waitWorkers(agents, min(agentsGrace, grace/2))
	stopWorkers(others, grace-time.Since(began))
	stopped := make(chan struct{})
	go func() { a.pods.Wait(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(grace + killTime):
		a.cfg.Log.Error("Pods do not end, not even by SIGKILL; leaving them to the kernel")
	}
	a.end()
}

// byDaemonSet parts the workers of Pods of DaemonSets from the others. The caller holds the lock.
func (a *Agent) byDaemonSet() (agents, others []*worker) {
	for _, w := range a.workers {
		pod, _, _ := w.snapshot()
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
			agents = append(agents, w)
		} else {
			others = append(others, w)
		}
	}
	return agents, others
}

func stopWorkers(workers []*worker, grace time.Duration) {
	for _, w := range workers {
		w.stop(grace)
	}
}

// waitWorkers waits until the workers have ended, for most at most.
func waitWorkers(workers []*worker, most time.Duration) {
	bound := time.NewTimer(most)
	defer bound.Stop()
	for _, w := range workers {
		select {
		case <-w.ended:
		case <-bound.C:
			return
		}
	}
}

// Hang has the agent neither start nor end a container, nor report one, until Resume: a kubelet
// that is late. Containers run on, and the node's lease is renewed.
func (a *Agent) Hang() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hung == nil {
		a.hung = make(chan struct{})
	}
}

// Resume ends a Hang.
func (a *Agent) Resume() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hung != nil {
		close(a.hung)
		a.hung = nil
	}
}

// awaitResume waits until the agent does not hang, or until ctx ends.
func (a *Agent) awaitResume(ctx context.Context) {
	a.mu.Lock()
	hung := a.hung
	a.mu.Unlock()
	if hung == nil {
		return
	}
	select {
	case <-hung:
	case <-ctx.Done():
	}
}

// killTime is how long processes may take to end after SIGKILL: one that waits in the kernel for a
// hung device may take for ever.
const killTime = 5 * time.Second

// Kill ends the node as a power failure would: every process of every Pod at once, and no word to
// the API.
func (a *Agent) Kill() {
	a.mu.Lock()
	a.stopping = true
	a.mu.Unlock()
	a.cancel() // first, or the workers would see the deaths and act on them
	process.KillMarked(a.cfg.marker())
	a.end()
}

// end stops all goroutines and then whatever process is left.
func (a *Agent) end() {
	a.cancel()
	a.pods.Wait()
	if a.server != nil {
		a.server.close()
	}
	a.wg.Wait()
	a.broadcaster.Shutdown()
	process.KillMarked(a.cfg.marker())
}

// watchPods follows the Pods bound to this node. Those there at the start are admitted oldest
// first, as the ones that were running before.
func (a *Agent) watchPods(ctx context.Context) error {
	selector := fields.OneTermEqualSelector("spec.nodeName", a.cfg.Name)
	lw := cache.NewListWatchFromClient(a.cfg.Client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, selector)
	a.informer = cache.NewSharedIndexInformer(lw, &v1.Pod{}, 0, cache.Indexers{})
	a.wg.Go(func() { a.informer.Run(ctx.Done()) })
	if !cache.WaitForCacheSync(ctx.Done(), a.informer.HasSynced) {
		return errors.New("the first list did not arrive")
	}
	var first []*v1.Pod
	for _, obj := range a.informer.GetStore().List() {
		if pod, ok := obj.(*v1.Pod); ok {
			first = append(first, pod)
		}
	}
	slices.SortFunc(first, func(x, y *v1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	for _, pod := range first {
		a.see(ctx, pod)
	}
	a.forgetOld(first)
	_, err := a.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.seen(ctx, obj) },
		UpdateFunc: func(_, obj any) { a.seen(ctx, obj) },
		DeleteFunc: a.unseen,
	})
	a.dropMissing()
	unsubscribe := a.cfg.Objects.Subscribe(a.objectChanged)
	a.wg.Go(func() { <-ctx.Done(); unsubscribe() })
	return err
}

// dropMissing catches Pods that were deleted between the first list and the registration of the
// handlers.
func (a *Agent) dropMissing() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		if _, there, err := a.informer.GetStore().GetByKey(w.String()); err == nil && !there {
			w.remove()
		}
	}
}

func (a *Agent) seen(ctx context.Context, obj any) {
	if pod, ok := obj.(*v1.Pod); ok {
		a.see(ctx, pod)
	}
}

// see starts a worker for a new Pod or hands a known one its new version.
func (a *Agent) see(ctx context.Context, pod *v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.workers[pod.UID]; w != nil {
		w.update(pod)
		return
	}
	if a.stopping || ctx.Err() != nil {
		return
	}
	var after <-chan struct{}
	for _, other := range a.workers {
		if other.String() == pod.Namespace+"/"+pod.Name {
			other.remove() // deleted and made again before we heard of it
			after = other.ended
		}
	}
	w := newWorker(a, pod, after)
	a.workers[pod.UID] = w
	a.pods.Go(func() {
		w.run(ctx)
		a.forget(ctx, w)
	})
}

// forget drops a worker that has ended. Its folder goes only if the Pod is gone, not if the node
// ends.
func (a *Agent) forget(ctx context.Context, w *worker) {
	pod, gone, _ := w.snapshot()
	a.release(pod)
	if gone && ctx.Err() == nil {
		w.cleanup()
		defer a.pruneLogs()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.workers, w.uid)
}

func (a *Agent) unseen(obj any) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.workers[pod.UID]; w != nil {
		w.update(pod)
		w.remove()
	}
}

// forgetOld removes folders of Pods that went away while the node was down.
func (a *Agent) forgetOld(present []*v1.Pod) {
	known := map[string]bool{}
	for _, p := range present {
		known[string(p.UID)] = true
	}
	entries, err := os.ReadDir(a.cfg.dir("pods"))
	if err != nil {
		return
	}
	for _, e := range entries {
		if !known[e.Name()] {
			_ = os.RemoveAll(a.cfg.dir("pods", e.Name()))
		}
	}
}

// keepLogs is how many folders of logs a node keeps of Pods that are gone.
const keepLogs = 50

// pruneLogs removes the oldest logs of Pods that are gone.
func (a *Agent) pruneLogs() {
	entries, err := os.ReadDir(a.cfg.dir("logs"))
	if err != nil {
		return
	}
	live := map[string]bool{}
	a.mu.Lock()
	for _, w := range a.workers {
		pod, _, _ := w.snapshot()
		live[filepath.Base(a.logDir(pod.Namespace, pod.Name))] = true
	}
	a.mu.Unlock()
	type old struct {
		name string
		at   time.Time
	}
	var gone []old
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && !live[e.Name()] {
			gone = append(gone, old{e.Name(), fi.ModTime()})
		}
	}
	slices.SortFunc(gone, func(x, y old) int { return y.at.Compare(x.at) })
	for _, o := range gone[min(keepLogs, len(gone)):] {
		_ = os.RemoveAll(a.cfg.dir("logs", o.name))
	}
}

// objectChanged has the Pods that use a changed Secret or ConfigMap look again.
func (a *Agent) objectChanged(namespace, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		pod, _, _ := w.snapshot()
		if pod.Namespace == namespace && refersTo(pod, name) {
			w.touch()
		}
	}
}

// refersTo says whether a Pod uses a Secret or ConfigMap of this name. The two kinds are not told
// apart: a needless look costs nothing.
func refersTo(pod *v1.Pod, name string) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.Secret != nil && v.Secret.SecretName == name, v.ConfigMap != nil && v.ConfigMap.Name == name:
			return true
		case v.Projected != nil:
			for j := range v.Projected.Sources {
				s := &v.Projected.Sources[j]
				if (s.Secret != nil && s.Secret.Name == name) || (s.ConfigMap != nil && s.ConfigMap.Name == name) {
					return true
				}
			}
		}
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if envRefersTo(&list[i], name) {
				return true
			}
		}
	}
	return false
}

func envRefersTo(c *v1.Container, name string) bool {
	for i := range c.EnvFrom {
		e := &c.EnvFrom[i]
		if (e.SecretRef != nil && e.SecretRef.Name == name) || (e.ConfigMapRef != nil && e.ConfigMapRef.Name == name) {
			return true
		}
	}
	for i := range c.Env {
		if f := c.Env[i].ValueFrom; f != nil {
			if (f.SecretKeyRef != nil && f.SecretKeyRef.Name == name) ||
				(f.ConfigMapKeyRef != nil && f.ConfigMapKeyRef.Name == name) {
				return true
			}
		}
	}
	return false
}

// podByName finds the worker of a Pod.
func (a *Agent) podByName(namespace, name string) *worker {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		if w.String() == namespace+"/"+name {
			return w
		}
	}
	return nil
}
