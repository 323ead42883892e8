package node

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Objects is a watched copy of all Secrets and ConfigMaps, shared by the nodes of the process: Pods
// that use one are told of a change at once instead of at the next look.
type Objects struct {
	factory    informers.SharedInformerFactory
	secrets    corelisters.SecretLister
	configMaps corelisters.ConfigMapLister

	mu   sync.Mutex
	subs map[int]func(namespace, name string)
	next int
}

// StartObjects begins to watch; it returns when the first copy is complete. The watch ends with
// ctx.
func StartObjects(ctx context.Context, client kubernetes.Interface) (*Objects, error) {
	o := &Objects{factory: informers.NewSharedInformerFactory(client, 0), subs: map[int]func(string, string){}}
	core := o.factory.Core().V1()
	o.secrets, o.configMaps = core.Secrets().Lister(), core.ConfigMaps().Lister()
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    o.changed,
		UpdateFunc: func(_, obj any) { o.changed(obj) },
		DeleteFunc: o.changed,
	}
	for _, inf := range []cache.SharedIndexInformer{core.Secrets().Informer(), core.ConfigMaps().Informer()} {
		if _, err := inf.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("watch secrets and configmaps: %w", err)
		}
	}
	o.factory.Start(ctx.Done())
	for kind, ok := range o.factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return nil, fmt.Errorf("watch %s: %w", kind, context.Cause(ctx))
		}
	}
	return o, nil
}

// Wait returns when the watches have ended.
func (o *Objects) Wait() { o.factory.Shutdown() }

// Secret by name, from the copy.
func (o *Objects) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	return o.secrets.Secrets(namespace).Get(name)
}

// ConfigMap by name, from the copy.
func (o *Objects) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return o.configMaps.ConfigMaps(namespace).Get(name)
}

// Subscribe calls fn for every change of any object until the returned function is called.
func (o *Objects) Subscribe(fn func(namespace, name string)) (cancel func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := o.next
	o.next++
	o.subs[id] = fn
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.subs, id)
	}
}

func (o *Objects) changed(obj any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return
	}
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, fn := range o.subs {
		fn(namespace, name)
	}
}
