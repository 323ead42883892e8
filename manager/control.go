package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/admission/serving"
	"ankole.storage/controlplane/keys/peerkeys"
	"ankole.storage/controlplane/keys/volumekey"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/witness"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/listener"
	"ankole.storage/host/mtls"
	imclient "ankole.storage/instancemanager/client"
	"ankole.storage/metrics"
)

// control is a process of the controllers: REST, webhooks, and on the one that leads the
// controllers.
type control struct {
	base
	cfg Config
	who *Leadership
	// dialer makes connections to Pods of instances and of backing images; connect opens clients to
	// instance managers with it, dial connections to their other services.
	dialer  *mtls.Dialer
	connect func(address string) (*imclient.Client, error)
	dial    func(address string) (*grpc.ClientConn, error)
	// certificates secure both.
	certificates *mtls.Source
	// admits is whether the API server may ask this process: the webhooks are registered as this
	// system's.
	admits atomic.Bool
	// certificateWanted has at most one notice that an instance manager waits for a certificate.
	certificateWanted chan struct{}
	// settings reads the settings and the Pods of controllers from a cache; nil until that is filled.
	settings atomic.Pointer[client.Reader]
	// board and exporter serve metrics.
	board    *metrics.Board
	exporter *metrics.Exporter
}

// RunControl is a process of the controllers. It returns when ctx ends, after everything it started
// has stopped.
func RunControl(ctx context.Context, cfg Config) error {
	cfg, err := cfg.Complete()
	if err != nil {
		return err
	}
	b, err := newBase(cfg.Common)
	if err != nil {
		return err
	}
	certificates := mtls.Open(hostpath.Resolve(naming.TLSFilesInPod), slog.Default())
	if cfg.MutualTLS {
		certificates.FetchWith(peerkeys.Read(b.live, cfg.Namespace, naming.SecretGRPCControl, naming.SecretGRPCTLS))
	}
	dialer := mtls.NewDialer(certificates, &instancemanager.Pods{Client: b.live, Namespace: cfg.Namespace}, slog.Default())
	p := &control{base: b, cfg: cfg, certificates: certificates, certificateWanted: make(chan struct{}, 1),
		who: &Leadership{self: cfg.PodName}, dialer: dialer,
		connect: func(address string) (*imclient.Client, error) { return imclient.Dial(address, dialer) },
		dial:    func(address string) (*grpc.ClientConn, error) { return imclient.Conn(address, dialer) },
	}
	return p.run(ctx)
}

// relay answers questions of engines on all nodes, beside the agents, whether this process leads
// or not.
func (p *control) relay() *witness.Relay {
	return &witness.Relay{
		Name:    p.cfg.PodName,
		Handler: witness.Handler{Client: p.live, Namespace: p.cfg.Namespace},
		Connect: func(pod *corev1.Pod) (*grpc.ClientConn, error) {
			return p.dial(net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(naming.PortProcessManager)))
		},
	}
}

// run starts the parts in the order in which they need each other.
func (p *control) run(ctx context.Context) error {
	if err := refuseLegacy(ctx, p.live, p.cfg.Namespace); err != nil {
		return ended(ctx, err)
	}
	if err := refuseOlder(ctx, p.live, p.common); err != nil {
		return ended(ctx, err)
	}
	if err := persist(ctx, "install the CRDs", func(ctx context.Context) error {
		return installCRDs(ctx, p.live, p.cfg.Version)
	}); err != nil {
		return ended(ctx, err)
	}
	keys, err := p.webhookKeys(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	hooks := admission.NewServer(p.live, settingsReader{p}, p.cfg.Namespace, p.cfg.Origins)
	relay := hooks.ManagerTransport()
	defer relay.CloseIdleConnections()
	if err := p.newMetrics(); err != nil {
		return err
	}
	api, err := p.newREST(relay, hooks)
	if err != nil {
		return err
	}
	hooks.Managers = forControllers(api)
	if err := hooks.Listen(p.cfg.WebhookListen, keys); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return hooks.Start(ctx) })
	group.Go(func() error { return p.keepKeys(ctx, hooks) })
	group.Go(func() error { p.certificates.Keep(ctx); return nil })
	// Health checks are answered from here on, for as long as REST and the webhooks listen: only a
	// ready Pod gets reviews, those of the next steps included.
	listeners, err := p.listen(ctx)
	if err != nil {
		return err
	}
	group.Go(func() error { return p.serveREST(ctx, api, listeners) })
	group.Go(func() error {
		ready := func(context.Context) error { return p.ready(hooks) }
		return listener.ServeHealth(ctx, p.cfg.HealthListen, naming.HealthPath, ready)
	})
	group.Go(func() error { return p.afterWebhooks(ctx, keys) })
	return ended(ctx, group.Wait())
}

// ready is an error while the API server and clients are not to ask this process.
func (p *control) ready(hooks *serving.Server) error {
	if err := hooks.Ready(); err != nil {
		return err
	}
	if !p.admits.Load() {
		return errors.New("the webhooks of this system are not registered yet")
	}
	return nil
}

// ended hides that a process was asked to end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (p *control) afterWebhooks(ctx context.Context, keys serving.Keys) error {
	if err := p.serveRegistered(ctx, keys); err != nil {
		return err
	}
	if err := p.others.awaitAlone(ctx, p.live, p.common, nil); err != nil {
		return err
	}
	if err := p.registerWebhooks(ctx, keys); err != nil {
		return err
	}
	p.admits.Store(true)
	if err := bootstrap(ctx, p.live, p.cfg); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.followSettings(ctx) })
	group.Go(func() error { return elect(ctx, p.cfg.Common, p.api, p.who, p.lead) })
	return group.Wait()
}

// followSettings keeps a cache of what a process needs that does not lead, and does its work.
func (p *control) followSettings(ctx context.Context) error {
	options := p.options()
	options.Cache = controlCache(p.cfg.Namespace)
	mgr, err := ctrl.NewManager(counted(p.api, "settings"), options)
	if err != nil {
		return fmt.Errorf("manager of settings: %w", err)
	}
	for _, kind := range []client.Object{&v1beta2.Setting{}, &corev1.Pod{}} {
		if _, err := mgr.GetCache().GetInformer(ctx, kind); err != nil {
			return fmt.Errorf("follow %T: %w", kind, err)
		}
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		var cached client.Reader = mgr.GetClient()
		p.settings.Store(&cached)
		defer p.settings.Store(nil)
		<-ctx.Done()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("register the cache of settings: %w", err)
	}
	return start(ctx, mgr, append(p.logLevel(), p.relay()))
}

// lead runs the controllers until ctx ends.
func (p *control) lead(ctx context.Context) error {
	if err := p.others.awaitAlone(ctx, p.live, p.common, nil); err != nil {
		return ended(ctx, err)
	}
	options := p.options()
	options.Cache = leaderCache(p.cfg)
	mgr, err := ctrl.NewManager(counted(p.api, "leader"), options)
	if err != nil {
		return fmt.Errorf("manager of all objects: %w", err)
	}
	if err := index.Register(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	keys := &volumekey.Keys{Client: p.live, Namespace: p.cfg.Namespace,
		Used: volumekey.UsedBy(mgr.GetClient(), p.cfg.Namespace)}
	if err := persist(ctx, "read the master keys of volumes", keys.Load); err != nil {
		return ended(ctx, err)
	}
	parts, err := p.reconcilers(mgr, keys)
	if err != nil {
		return err
	}
	if err := noteUpgrade(ctx, p.live, p.common); err != nil {
		return err
	}
	// Runnables start once the caches are filled; before that REST goes on reading live.
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		p.who.cached.Store(&cached{Reader: mgr.GetClient(), informers: mgr.GetCache()})
		defer p.who.cached.Store(nil)
		<-ctx.Done()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("register the cache for REST: %w", err)
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return p.others.whileAlone(ctx, mgr.GetCache(), p.cfg.Namespace)
	}))
	if err != nil {
		return fmt.Errorf("register the look for managers of another system: %w", err)
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return p.keepRegistered(ctx, mgr.GetCache()) }))
	if err != nil {
		return fmt.Errorf("register who keeps the webhooks registered: %w", err)
	}
	return start(ctx, mgr, parts)
}

// listen binds the addresses of REST. Without the further one everything works but what connects to
// it, so that a manager which cannot have it says so and goes on.
func (p *control) listen(ctx context.Context) ([]net.Listener, error) {
	l, err := listener.Listen(ctx, "tcp", p.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for REST: %w", err)
	}
	if p.cfg.ListenAlso == "" {
		return []net.Listener{l}, nil
	}
	also, err := listener.Listen(ctx, "tcp", p.cfg.ListenAlso)
	if err != nil {
		slog.Warn("REST is not served at its further address: kubectl port-forward may not reach this manager",
			"address", p.cfg.ListenAlso, "error", err)
		return []net.Listener{l}, nil
	}
	return []net.Listener{l, also}, nil
}
