package apitest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	kinds "k8s.io/apimachinery/pkg/runtime/schema"
	kuberest "k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/rest"
	"ankole.storage/rest/resttest"
)

// source is where an informer gets the objects of one kind from.
type source struct{ *fcache.FakeControllerSource }

// IsWatchListSemanticsUnSupported has informers list first and watch then.
func (source) IsWatchListSemanticsUnSupported() bool { return true }

// LeaderCache is a cache of controller-runtime as the leader has it, with its indexes, over objects
// that a test changes.
type LeaderCache struct {
	cache.Cache
	scheme  *runtime.Scheme
	sources map[kinds.GroupVersionKind]source
}

// cachedKinds are those that lists of volumes read, and those of the other streams.
func cachedKinds() []client.Object {
	kinds := []client.Object{&lh.Engine{}, &lh.Replica{}, &lh.Volume{}, &corev1.Pod{}, &corev1.Event{}}
	for name, which := range Tables().Streams {
		if name != "volumes" {
			kinds = append(kinds, which.Kinds...)
		}
	}
	return kinds
}

// NewLeaderCache starts the cache; it ends with the test.
func NewLeaderCache(t testing.TB, objects ...client.Object) *LeaderCache {
	t.Helper()
	c := &LeaderCache{scheme: runtime.NewScheme(), sources: map[kinds.GroupVersionKind]source{}}
	Must(t, lh.AddToScheme(c.scheme))
	Must(t, corev1.AddToScheme(c.scheme))
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, o := range cachedKinds() {
		kind := c.kindOf(t, o)
		mapper.Add(kind, meta.RESTScopeNamespace)
		mapper.Add(kind.GroupVersion().WithKind(kind.Kind+"List"), meta.RESTScopeNamespace) // as discovery does
		c.sources[kind] = source{fcache.NewFakeControllerSource()}
	}
	for _, o := range objects {
		if s, ok := c.sources[c.kindOf(t, o)]; ok {
			s.Add(o.DeepCopyObject())
		}
	}
	var err error
	c.Cache, err = cache.New(&kuberest.Config{}, cache.Options{Scheme: c.scheme, Mapper: mapper,
		HTTPClient: http.DefaultClient, DefaultNamespaces: map[string]cache.Config{lh.Namespace: {}},
		NewInformer: func(_ toolscache.ListerWatcher, o runtime.Object, resync time.Duration,
			indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(c.sources[c.kindOf(t, o)], o, resync, indexers)
		}})
	Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	for _, i := range index.All() {
		if _, ok := c.sources[c.kindOf(t, i.Object)]; ok {
			Must(t, c.IndexField(ctx, i.Object, i.Field, i.Of))
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		Must(t, <-ended)
	})
	for _, o := range cachedKinds() {
		_, err := c.GetInformer(ctx, o)
		Must(t, err)
	}
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("the cache is not filled")
	}
	return c
}

func (c *LeaderCache) kindOf(t testing.TB, o runtime.Object) kinds.GroupVersionKind {
	t.Helper()
	kind, err := apiutil.GVKForObject(o, c.scheme)
	if err != nil && !meta.IsNoMatchError(err) && !runtime.IsNotRegisteredError(err) {
		t.Fatal(err)
	}
	return kind
}

// Put adds or changes an object, whose version is set.
func (c *LeaderCache) Put(t testing.TB, o client.Object, isNew bool) {
	t.Helper()
	if s := c.sources[c.kindOf(t, o)]; isNew {
		s.Add(o.DeepCopyObject())
	} else {
		s.Modify(o.DeepCopyObject())
	}
}

// Remove removes an object.
func (c *LeaderCache) Remove(t testing.TB, o client.Object) {
	t.Helper()
	c.sources[c.kindOf(t, o)].Delete(o.DeepCopyObject())
}

// NewLeader is a server as the leader is one.
func NewLeader(t testing.TB, objects ...client.Object) (*Fixture, *LeaderCache) {
	t.Helper()
	c := NewLeaderCache(t, objects...)
	return With(t, interceptor.Funcs{}, func(cfg *rest.Config) {
		cfg.Reader = c
		cfg.Informers = func() cache.Informers { return c }
	}), c
}

// ManyVolumes are attached volumes of three replicas with their parts, five objects of each.
func ManyVolumes(n int) (objects []client.Object, engines []*lh.Engine) {
	for i := range n {
		name := fmt.Sprintf("pvc-0ff1ce00-0000-4000-8000-%012d", i)
		node := fmt.Sprintf("node-%d", i%3)
		parts := resttest.Volume(name)
		resttest.Attach(parts, node, "/dev/longhorn/"+name)
		v, e, r := parts[0].(*lh.Volume), parts[1].(*lh.Engine), parts[2].(*lh.Replica)
		v.Spec.NumberOfReplicas = 3
		v.Status.KubernetesStatus = lh.KubernetesStatus{PVName: name, PVStatus: "Bound", Namespace: "default",
			PVCName: "data-" + name, WorkloadsStatus: []lh.WorkloadStatus{{PodName: "web-" + name, PodStatus: "Running",
				WorkloadName: "web", WorkloadType: "StatefulSet"}}}
		for j := range 3 {
			another := r.DeepCopy()
			another.Name, another.Spec.NodeID = fmt.Sprintf("%s-r-%08d", name, j), fmt.Sprintf("node-%d", j)
			another.Spec.DataDirectoryName = fmt.Sprintf("%s-%08d", name, j)
			e.Status.ReplicaModeMap[another.Name] = lh.ReplicaModeRW
			objects = append(objects, another)
		}
		delete(e.Status.ReplicaModeMap, r.Name)
		e.Status.Snapshots = map[string]lh.SnapshotInfo{}
		for j := range 5 {
			s := lh.SnapshotInfo{Name: fmt.Sprintf("daily-%d", j), Size: "1073741824", UserCreated: true,
				Created: "2026-05-03T10:00:00Z", Children: map[string]bool{}, Labels: map[string]string{"job": "daily"}}
			e.Status.Snapshots[s.Name] = s
		}
		objects = append(objects, v, e, parts[3])
		engines = append(engines, e)
	}
	return objects, engines
}
