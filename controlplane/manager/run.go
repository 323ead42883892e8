package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/admission/serving"
	"ankole.storage/controlplane/index"
	"ankole.storage/controlplane/instancemanager"
	"ankole.storage/controlplane/naming"
	"ankole.storage/controlplane/node"
	"ankole.storage/controlplane/orphan"
	"ankole.storage/controlplane/peerkeys"
	"ankole.storage/controlplane/replica"
	"ankole.storage/controlplane/volumekey"
	"ankole.storage/controlplane/witness"
	"ankole.storage/hostpath"
	imclient "ankole.storage/instancemanager/client"
	"ankole.storage/instancemanager/mtls"
	"ankole.storage/listener"
	"ankole.storage/metrics"
)

const (
	// apiQPS and apiBurst bound what one client of a manager asks of the API server a second. They
	// are far above what ordinary work needs, since a review that waits here is a write that fails
	// elsewhere; the server has its own fairness.
	apiQPS   = 1000
	apiBurst = 2000
)

// process is one manager process with what its parts share.
type process struct {
	cfg    Config
	api    *rest.Config
	scheme *runtime.Scheme
	// live reads and writes past every cache.
	live client.WithWatch
	who  *Leadership
	// others are managers of another system, beside which nothing is done.
	others foreigners
	// connect opens clients to instance managers.
	connect func(address string) (*imclient.Client, error)
	// dial opens connections to their other services.
	dial  func(address string) (*grpc.ClientConn, error)
	agent node.AgentConfig
	// nodeAgent is the agent once it has been made.
	nodeAgent atomic.Pointer[node.Agent]
	// certificates secure both. certificateWanted has at most one notice that an instance manager
	// waits for a certificate.
	certificates      *mtls.Source
	certificateWanted chan struct{}
	// managers asks the managers of other nodes.
	managers *http.Client
	// settings reads the settings, and what else nodeCache has, from the cache of the node's objects;
	// nil until that is filled.
	settings atomic.Pointer[client.Reader]
	// board and exporter serve metrics: to other managers, and to Prometheus.
	board    *metrics.Board
	exporter *metrics.Exporter
}

// Run is the manager process. It returns when ctx ends, after everything it started has stopped.
func Run(ctx context.Context, cfg Config) error {
	cfg, err := cfg.Complete()
	if err != nil {
		return err
	}
	if err := hostpath.Check(); err != nil {
		return err
	}
	log := logr.FromSlogHandler(atLeast{slog.Default().Handler(), slog.LevelWarn})
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	p, err := newProcess(cfg)
	if err != nil {
		return err
	}
	return p.run(ctx)
}

func newProcess(cfg Config) (*process, error) {
	api, err := config.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	api.QPS, api.Burst = apiQPS, apiBurst
	scheme, err := newScheme()
	if err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	live, err := client.NewWithWatch(counted(api, "live"), client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	certificates := mtls.Open(hostpath.Resolve(naming.TLSFilesInPod), slog.Default())
	if cfg.MutualTLS {
		certificates.FetchWith(peerkeys.Read(live, cfg.Namespace))
	}
	dialer := mtls.NewDialer(certificates, &instancemanager.Pods{Client: live, Namespace: cfg.Namespace}, slog.Default())
	return &process{
		cfg: cfg, api: api, scheme: scheme, live: live, certificates: certificates,
		certificateWanted: make(chan struct{}, 1),
		who:               &Leadership{self: cfg.PodName}, others: newForeigners(),
		connect: func(address string) (*imclient.Client, error) {
			return imclient.Dial(address, dialer)
		},
		dial: func(address string) (*grpc.ClientConn, error) { return imclient.Conn(address, dialer) },
		agent: node.AgentConfig{
			Namespace: cfg.Namespace, NodeName: cfg.NodeName, PodName: cfg.PodName,
			Host: node.Host{Resolve: hostpath.Resolve},
		},
	}, nil
}

// run starts the parts in the order in which they need each other.
func (p *process) run(ctx context.Context) error {
	if err := refuseLegacy(ctx, p.live, p.cfg.Namespace); err != nil {
		return ended(ctx, err)
	}
	if err := refuseOlder(ctx, p.live, p.cfg); err != nil {
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
	p.managers = hooks.ManagerClient()
	defer p.managers.CloseIdleConnections()
	relay := hooks.ManagerTransport()
	defer relay.CloseIdleConnections()
	if p.board, p.exporter, err = p.newMetrics(); err != nil {
		return err
	}
	api, err := p.newREST(relay, hooks)
	if err != nil {
		return err
	}
	hooks.Managers = p.forManagers(api)
	if err := hooks.Listen(p.cfg.WebhookListen, keys); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return hooks.Start(ctx) })
	group.Go(func() error { return p.keepKeys(ctx, hooks) })
	group.Go(func() error { p.certificates.Keep(ctx); return nil })
	group.Go(func() error { p.holdDevices(ctx); return nil })
	// Health checks are answered from here on, for as long as REST and the webhooks listen: only a
	// ready Pod gets reviews, those of the next steps included.
	listeners, err := p.listen(ctx)
	if err != nil {
		return err
	}
	group.Go(func() error { return p.serveREST(ctx, api, listeners) })
	group.Go(func() error {
		ready := func(context.Context) error { return hooks.Ready() }
		return listener.ServeHealth(ctx, p.cfg.HealthListen, naming.HealthPath, ready)
	})
	group.Go(func() error { return p.afterWebhooks(ctx, keys) })
	return ended(ctx, group.Wait())
}

// ended hides that a process was asked to end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (p *process) afterWebhooks(ctx context.Context, keys serving.Keys) error {
	if err := p.serveRegistered(ctx, keys); err != nil {
		return err
	}
	if err := p.others.awaitAlone(ctx, p.live, p.cfg); err != nil {
		return err
	}
	if err := p.registerWebhooks(ctx, keys); err != nil {
		return err
	}
	if err := bootstrap(ctx, p.live, p.cfg, p.agent); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.runNode(ctx) })
	group.Go(func() error { return elect(ctx, p.cfg, p.api, p.who, p.lead) })
	return group.Wait()
}

// runNode runs what every manager does for its own node.
func (p *process) runNode(ctx context.Context) error {
	options := p.options()
	options.Cache = nodeCache(p.cfg)
	mgr, err := ctrl.NewManager(counted(p.api, "node"), options)
	if err != nil {
		return fmt.Errorf("manager of the node's objects: %w", err)
	}
	agent := node.NewAgent(p.agent)
	p.nodeAgent.Store(agent)
	parts := []Reconciler{
		agent,
		replica.NewAgent(replica.AgentConfig{Namespace: p.cfg.Namespace, NodeName: p.cfg.NodeName,
			Resolve: hostpath.Resolve}),
		orphan.NewAgent(orphan.AgentConfig{Namespace: p.cfg.Namespace, NodeName: p.cfg.NodeName,
			Resolve: hostpath.Resolve}),
		&witness.Relay{
			Name: p.cfg.PodName, NodeName: p.cfg.NodeName,
			Handler: witness.Handler{Client: p.live, Namespace: p.cfg.Namespace},
			Connect: p.connect,
		},
	}
	if p.cfg.LogLevel != nil {
		parts = append(parts, logLevel{p.cfg.LogLevel})
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
	return start(ctx, mgr, parts)
}

// lead runs the controllers until ctx ends.
func (p *process) lead(ctx context.Context) error {
	if err := p.others.awaitAlone(ctx, p.live, p.cfg); err != nil {
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
	if err := noteUpgrade(ctx, p.live, p.cfg); err != nil {
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

func (p *process) options() ctrl.Options {
	limit := time.Duration(-1) // for ever: leadUntil watches over it
	return ctrl.Options{
		Scheme:                  p.scheme,
		MapperProvider:          newMapper,
		Metrics:                 server.Options{BindAddress: "0"}, // served by package rest
		HealthProbeBindAddress:  "0",
		LeaderElection:          false, // see elect: only the leader builds a manager of all objects
		GracefulShutdownTimeout: &limit,
	}
}

func start(ctx context.Context, mgr ctrl.Manager, parts []Reconciler) error {
	for _, part := range parts {
		if err := part.SetupWithManager(mgr); err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}

// listen binds the addresses of REST. Without the further one everything works but what connects to
// it, so that a manager which cannot have it says so and goes on.
func (p *process) listen(ctx context.Context) ([]net.Listener, error) {
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

// atLeast passes on records of a level and above: the libraries' own progress is of no use to an
// operator.
type atLeast struct {
	slog.Handler
	level slog.Level
}

// Enabled tells whether a record of the level is wanted.
func (h atLeast) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the limit.
func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.level}
}

// WithGroup keeps the limit.
func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.level}
}
