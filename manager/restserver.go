package manager

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/admission/serving"
	"ankole.storage/rest"
	"ankole.storage/rest/access"
	"ankole.storage/rest/serve"
	"ankole.storage/rest/volume"
)

// newREST returns the server of /v1, metrics and health. Requests go to the leader, whose cache
// answers them; while nobody leads they are answered here from live reads. relay proves to other
// managers that this is one; hooks is the other server of this process, whose certificate it shows.
func (p *control) newREST(relay http.RoundTripper, hooks *serving.Server) (*serve.Server, error) {
	keys := &access.Keyring{Client: p.live, Namespace: p.cfg.Namespace}
	// REST judges by itself what it writes, as the webhooks do.
	judged := admission.Judged(p.live, p.live, settingsReader{p}, p.cfg.Namespace, p.cfg.Origins)
	return rest.New(rest.Config{
		Config: serve.Config{
			Client: judged, Live: p.live, Reader: reader{p},
			Namespace: p.cfg.Namespace,
			Ready:     func() error { return p.ready(hooks) },
			TLS:       &tls.Config{GetCertificate: hooks.Certificate, MinVersion: tls.VersionTLS12},
			Plaintext: p.cfg.PlaintextREST,
			Metrics:   p.exporter,
			Judge:     access.NewJudge(p.live, p.cfg.Namespace, nil),
			Sessions:  &access.Sessions{Keys: keys},
			Leader:    p.leaderFor,
			Relay:     relay,
			Informers: p.informers,
		},
		EngineImage: p.cfg.EngineImage,
		Rates:       p.exporter.Rates,
		Connect:     p.connect,
		DialPod:     p.dialer.Dial,
		Snapshots:   p.snapshots,
	})
}

// serveREST serves it on every node.
func (p *control) serveREST(ctx context.Context, s *serve.Server, listeners []net.Listener) error {
	defer p.exporter.Close()
	return s.Serve(ctx, listeners...)
}

// forControllers is what controllers answer each other and nobody else.
func forControllers(s *serve.Server) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(serve.ForwardPath+"/", s.Forwarded())
	return mux
}

// leaderFor names the manager that should serve a request; nil for this one.
func (p *control) leaderFor(r *http.Request) *serve.Target {
	host, err := p.leaderAddress(r.Context())
	if err != nil {
		return nil // the leader has just died: live reads serve as well until there is a new one
	}
	return &serve.Target{Host: host}
}

// snapshots has engines work on snapshots, while this process leads: only the leader knows the way
// to every engine.
func (p *control) snapshots() volume.Snapshots {
	calls := p.who.calls.Load()
	if p.who.cached.Load() == nil || calls == nil {
		return nil
	}
	return calls
}

// informers tell the streams of REST about changes, on the leader.
func (p *control) informers() cache.Informers {
	if c := p.who.cached.Load(); c != nil {
		return c.informers
	}
	return nil
}

// reader reads from the leader's cache while this process leads, else live; settings from the cache
// that every controller has.
type reader struct{ p *control }

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

// settingsReader reads settings from the cache of them, or live until that is filled.
type settingsReader struct{ p *control }

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
