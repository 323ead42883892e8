package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	imclient "ankole.storage/instancemanager/client"
)

// Limits of the server.
const (
	// readHeaderTimeout ends connections that never finish their header.
	readHeaderTimeout = 10 * time.Second
	// requestTimeout bounds one request; clients give up after 10 to 60 s.
	requestTimeout = 30 * time.Second
	// idleTimeout ends kept connections; proxies in front keep theirs for 60 s.
	idleTimeout = 90 * time.Second
	// maxHeaderBytes is ample for cookies and bearer tokens.
	maxHeaderBytes = 64 << 10
	// leaderDialTimeout bounds the attempt to reach a leader whose node may have died without a word.
	leaderDialTimeout = 2 * time.Second
	// leaderConnections are kept open to the leader.
	leaderConnections = 16
	// shutdownTimeout is how long requests under way may go on after the context ended.
	shutdownTimeout = 5 * time.Second
)

// Authorizer decides whether a request may be served. The status and message of a refusal go to the
// client.
type Authorizer interface {
	Authorize(r *http.Request) error
}

// Anonymous lets everybody in. It is for a server that only its own machine can reach, and for
// clusters that allow access without a token explicitly.
type Anonymous struct{}

// Authorize allows the request.
func (Anonymous) Authorize(*http.Request) error { return nil }

// Config is what the server needs.
type Config struct {
	// Client writes to the API server. Required.
	Client client.Client
	// Live reads from the API server, past any cache. Default: Client.
	Live client.Reader
	// Reader serves lists and joins; a cache where there is one. Default: Live.
	Reader client.Reader
	// Informers returns what tells streams of changes, or nil while there is nothing: then they
	// look once a second. It is asked for every stream, since caches come and go with the
	// leadership. May be nil.
	Informers func() cache.Informers
	// Namespace holds the objects. Default: longhorn-system.
	Namespace string
	// EngineImage is the default engine image, used until setting default-engine-image is filled.
	EngineImage string
	// NodeName is the node this manager runs on; it labels metrics. May be empty.
	NodeName string
	// Version is shown in metrics and on the explorer page. May be empty.
	Version string
	// Authorizer judges requests to /v1. Default: Anonymous.
	Authorizer Authorizer
	// Leader gives the base URL of the manager that should serve a request instead, or nil to serve
	// it here. It is the seam for followers; without it every request is served here.
	Leader func(r *http.Request) *Target
	// Connect opens a client to the instance manager at an address, for the logs of instances. Nil:
	// those are refused.
	Connect func(address string) (*imclient.Client, error)
	// Snapshots returns what has engines work on snapshots, nil while this process cannot reach them.
	// Nil: such actions are refused.
	Snapshots func() Snapshots
	// Logger gets one line per refused request. Default: slog.Default.
	Logger *slog.Logger
	// Now gives the time. Default: time.Now.
	Now func() time.Time
}

// Target is another manager.
type Target struct {
	// Host is "address:port".
	Host string
}

// Server is the /v1 API of one manager.
type Server struct {
	cfg         Config
	routes      []route
	streams     streams
	crossOrigin *http.CrossOriginProtection
	transport   *http.Transport
}

// New checks the configuration and returns a server; Serve runs it.
func New(cfg Config) (*Server, error) {
	if cfg.Client == nil {
		return nil, errors.New("rest: no Kubernetes client configured")
	}
	if cfg.Live == nil {
		cfg.Live = cfg.Client
	}
	if cfg.Reader == nil {
		cfg.Reader = cfg.Live
	}
	if cfg.Namespace == "" {
		cfg.Namespace = lh.Namespace
	}
	if cfg.Authorizer == nil {
		cfg.Authorizer = Anonymous{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{cfg: cfg, crossOrigin: http.NewCrossOriginProtection(), transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: leaderDialTimeout}).DialContext, IdleConnTimeout: idleTimeout,
		MaxIdleConnsPerHost: leaderConnections}}
	s.routes = s.table()
	return s, nil
}

// Serve answers requests on the listeners until the context ends, then finishes those under way and
// closes the listeners. It returns nil after an orderly end.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	if len(listeners) == 0 {
		return errors.New("rest: no listener given")
	}
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
		// Requests, streams above all, end with the server.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	var wg sync.WaitGroup
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		wg.Go(func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("rest: serving on %s: %w", l.Addr(), err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if server.Shutdown(ending) != nil {
		_ = server.Close()
	}
	wg.Wait()
	s.streams.wait()
	s.transport.CloseIdleConnections()
	return err
}
