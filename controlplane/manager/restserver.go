package manager

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/condition"
	"ankole.storage/controlplane/naming"
	"ankole.storage/rest"
)

// lookupTimeout bounds the search for the leader's address while a request waits.
const lookupTimeout = 2 * time.Second

// serveREST serves /v1, metrics and health on every node. Requests go to the leader, whose cache
// answers them; while nobody leads they are answered here from live reads.
func (p *process) serveREST(ctx context.Context) error {
	s, err := rest.New(rest.Config{
		Client: p.live, Live: p.live, Reader: reader{p},
		Namespace:   p.cfg.Namespace,
		EngineImage: p.cfg.EngineImage,
		NodeName:    p.cfg.NodeName,
		Version:     p.cfg.Version,
		Leader:      p.leaderFor,
		Informers:   p.informers,
		Connect:     p.connect,
		Snapshots:   p.snapshots,
	})
	if err != nil {
		return err
	}
	l, err := p.listen(ctx)
	if err != nil {
		return err
	}
	return s.Serve(ctx, l)
}

// leaderFor names the manager that should serve a request; nil for this one.
func (p *process) leaderFor(r *http.Request) *rest.Target {
	name := p.who.Leader()
	if name == "" || name == p.cfg.PodName {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), lookupTimeout)
	defer cancel()
	pod := &corev1.Pod{}
	err := p.live.Get(ctx, client.ObjectKey{Namespace: p.cfg.Namespace, Name: name}, pod)
	if err != nil || !condition.PodReady(pod) {
		return nil // the leader has just died: live reads serve as well until there is a new one
	}
	return &rest.Target{Host: net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(naming.PortManager))}
}

// snapshots has engines work on snapshots, while this process leads: only the leader knows the way
// to every engine.
func (p *process) snapshots() rest.Snapshots {
	calls := p.who.calls.Load()
	if p.who.cached.Load() == nil || calls == nil {
		return nil
	}
	return calls
}

// informers tell the streams of REST about changes, on the leader.
func (p *process) informers() cache.Informers {
	if c := p.who.cached.Load(); c != nil {
		return c.informers
	}
	return nil
}

// reader reads from the leader's cache while this process leads, else live; settings from the cache
// that every manager has.
type reader struct{ p *process }

func (r reader) now(o any) client.Reader {
	if c := r.p.who.cached.Load(); c != nil {
		return c.Reader
	}
	switch o.(type) {
	case *v1beta2.Setting, *v1beta2.SettingList:
		return settingsReader(r).now()
	}
	return r.p.live
}

// Get reads one object.
func (r reader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return r.now(o).Get(ctx, key, o, opts...)
}

// List reads a list.
func (r reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return r.now(list).List(ctx, list, opts...)
}

// settingsReader reads settings from the cache of the node's objects, or live until that is filled.
type settingsReader struct{ p *process }

func (r settingsReader) now() client.Reader {
	if c := r.p.settings.Load(); c != nil {
		return *c
	}
	return r.p.live
}

// Get reads one setting.
func (r settingsReader) Get(ctx context.Context, key client.ObjectKey, o client.Object,
	opts ...client.GetOption) error {
	return r.now().Get(ctx, key, o, opts...)
}

// List reads settings.
func (r settingsReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return r.now().List(ctx, list, opts...)
}
