package allocator

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"ankole.storage/api/longhorn/v1beta2"
)

const (
	// sweepEvery is how often time limits are looked at.
	sweepEvery = 5 * time.Second
	// wakeupBuffer holds wake-ups while the controller's queue takes them; the queue merges them by
	// name.
	wakeupBuffer = 128
)

// SetupWithManager has the allocator follow the replicas, volumes and limits of a manager's cache.
func (a *Allocator) SetupWithManager(mgr ctrl.Manager) error {
	run := manager.RunnableFunc(func(ctx context.Context) error { return a.follow(ctx, mgr.GetCache()) })
	if err := mgr.Add(run); err != nil {
		return fmt.Errorf("register the allocator: %w", err)
	}
	return nil
}

// follow takes in every replica, volume and limit that the cache shows, until ctx ends.
func (a *Allocator) follow(ctx context.Context, c cache.Cache) error {
	defer a.wakes.end()
	informer, err := c.GetInformer(ctx, &v1beta2.Replica{})
	if err != nil {
		return fmt.Errorf("follow replicas: %w", err)
	}
	replicas, err := informer.AddEventHandler(handlers(a.Observe, a.Gone))
	if err != nil {
		return fmt.Errorf("follow replicas: %w", err)
	}
	if informer, err = c.GetInformer(ctx, &v1beta2.Volume{}); err != nil {
		return fmt.Errorf("follow volumes: %w", err)
	}
	volumes, err := informer.AddEventHandler(handlers(a.ObserveVolume, a.VolumeGone))
	if err != nil {
		return fmt.Errorf("follow volumes: %w", err)
	}
	if informer, err = c.GetInformer(ctx, &v1beta2.Setting{}); err != nil {
		return fmt.Errorf("follow settings: %w", err)
	}
	settings, err := informer.AddEventHandler(handlers(a.ObserveSetting, a.SettingGone))
	if err != nil {
		return fmt.Errorf("follow settings: %w", err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), replicas.HasSynced, volumes.HasSynced, settings.HasSynced) {
		return nil // the leader stops
	}
	a.MarkSynced()
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			a.Sweep()
		}
	}
}

// handlers pass on what an informer shows.
func handlers[O any](observe func(O), gone func(name string)) toolscache.ResourceEventHandlerFuncs {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { observe(o.(O)) },
		UpdateFunc: func(_, o any) { observe(o.(O)) },
		DeleteFunc: func(o any) {
			if key, err := toolscache.DeletionHandlingObjectToName(o); err == nil {
				gone(key.Name)
			}
		},
	}
}

// MarkSynced says that every replica and volume there is has been taken in. It is called once.
func (a *Allocator) MarkSynced() { close(a.synced) }

// Synced waits until every replica and volume that was there at the start has been taken in.
func (a *Allocator) Synced(ctx context.Context) error {
	select {
	case <-a.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the replicas and volumes of the cluster are not known yet: %w", context.Cause(ctx))
	}
}

// Wakeups names volumes to look at: their turn to rebuild, or to be upgraded, has come.
func (a *Allocator) Wakeups() <-chan event.GenericEvent { return a.wakes.events }

// wakes carries names of volumes to their controller.
type wakes struct {
	namespace string
	events    chan event.GenericEvent
	over      chan struct{}
}

func newWakes(namespace string) *wakes {
	return &wakes{namespace: namespace, events: make(chan event.GenericEvent, wakeupBuffer), over: make(chan struct{})}
}

// send waits while the buffer is full. The controller takes from it without asking the allocator.
func (w *wakes) send(volumes []string) {
	for _, name := range volumes {
		v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
		select {
		case w.events <- event.GenericEvent{Object: v}:
		case <-w.over:
			return
		}
	}
}

func (w *wakes) end() { close(w.over) }
