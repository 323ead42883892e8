package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/host/listener"
	"ankole.storage/rest/access"
)

// Limits of the server.
const (
	// readHeaderTimeout ends connections that never finish their header.
	readHeaderTimeout = 10 * time.Second
	// answerTimeout is how long a client may take for the answer, once there is one.
	answerTimeout = 60 * time.Second
	// maxConnections bounds the connections that clients hold open; each takes some 20 KiB.
	maxConnections = 2048
	// maxAddressConnections bounds those of one address, so that no client keeps the others out. A
	// page of the UI has about ten; a proxy, or the forwarder of a standalone cluster, many pages.
	maxAddressConnections = 1024
	// requestTimeout bounds one request; clients give up after 10 to 60 s.
	requestTimeout = 30 * time.Second
	// idleTimeout ends kept connections; proxies in front keep theirs for 60 s.
	idleTimeout = 90 * time.Second
	// maxHeaderBytes is ample for cookies and bearer tokens.
	maxHeaderBytes = 64 << 10
	// shutdownTimeout is how long requests under way may go on after the context ended.
	shutdownTimeout = 5 * time.Second
)

// Limits bound what clients can hold. Zero values are replaced by defaults.
type Limits struct {
	// Header is the time for the header of a request, Body that for the rest of it.
	Header, Body time.Duration
	// Judged is how often the caller of a stream or log is judged again.
	Judged time.Duration
	// Bounds are those of each listener.
	listener.Bounds
}

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
	// Ready tells health checks why this process should be sent no requests though REST answers. May
	// be nil.
	Ready func() error
	// Metrics answers /metrics. Nil: there are none.
	Metrics http.Handler
	// Judge and Sessions say who callers are and what they may do. Required, unless Open.
	Judge    *access.Judge
	Sessions *access.Sessions
	// Open answers everybody, whoever asks. It is for tests.
	Open bool
	// Leader gives the manager that should serve a request instead, or nil to serve it here. It is
	// the seam for followers; without it every request is served here.
	Leader func(r *http.Request) *Target
	// Relay carries requests to the Forwarded handlers of other managers, and proves to them that a
	// manager sends them. It must speak HTTP/1.1, since streams change the protocol.
	Relay http.RoundTripper
	// TLS is for connections that begin with a handshake; nil: none is answered.
	TLS *tls.Config
	// Plaintext has requests answered that come without TLS, from anywhere. Otherwise, with TLS, only
	// the loopback interface may send what is not open to everybody: credentials do not travel.
	Plaintext bool
	// Limits bound what clients can hold. Default: those of this package.
	Limits Limits
	// Logger gets one line per refused request. Default: slog.Default.
	Logger *slog.Logger
}

// Target is another manager.
type Target struct {
	// Host is "address:port" of the place where it answers other managers.
	Host string
}

// Server is the /v1 API of one manager.
type Server struct {
	cfg     Config
	objects Objects
	table   Table
	// routes are those of the table by path; mux routes requests to them.
	routes      map[string]*Route
	mux         *http.ServeMux
	streams     streams
	crossOrigin *http.CrossOriginProtection
}

// New checks the configuration and returns the server of a table; Serve runs it.
func New(cfg Config, table Table) (*Server, error) {
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
	if !cfg.Open && (cfg.Judge == nil || cfg.Sessions == nil) {
		return nil, errors.New("rest: nothing configured to judge callers by")
	}
	if cfg.Relay == nil {
		cfg.Relay = noRelay{}
	}
	if cfg.Metrics == nil {
		cfg.Metrics = http.NotFoundHandler()
	}
	cfg.Limits = cfg.Limits.complete()
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Server{cfg: cfg, table: table, crossOrigin: http.NewCrossOriginProtection(), routes: map[string]*Route{},
		objects: Objects{Client: cfg.Client, Live: cfg.Live, Reader: cfg.Reader, Namespace: cfg.Namespace}}
	s.table.Routes = append(s.own(), table.Routes...)
	s.mux = s.register()
	return s, nil
}

// Table is all that is served, the server's own routes included.
func (s *Server) Table() Table { return s.table }

func (l Limits) complete() Limits {
	return Limits{Header: cmp.Or(l.Header, readHeaderTimeout), Body: cmp.Or(l.Body, requestTimeout),
		Judged: cmp.Or(l.Judged, judgedAgain),
		Bounds: cmp.Or(l.Bounds, listener.Bounds{Connections: maxConnections, OfAddress: maxAddressConnections})}
}

// quiet is a log for what clients cause: their ends are no news.
func quiet(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }

// Serve answers requests on the listeners until the context ends, then finishes those under way and
// closes the listeners. It returns nil after an orderly end.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	if len(listeners) == 0 {
		return errors.New("rest: no listener given")
	}
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: s.cfg.Limits.Header,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          quiet(s.cfg.Logger),
		// Requests, streams above all, end with the server.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	var wg sync.WaitGroup
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		wg.Go(func() {
			l = listener.Bounded(l, s.cfg.Limits.Bounds, s.cfg.Logger)
			if s.cfg.TLS != nil {
				l = listener.Either(l, s.cfg.TLS, s.cfg.Limits.Header)
			}
			err := server.Serve(l)
			if !errors.Is(err, http.ErrServerClosed) {
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
	return err
}
