package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/host/listener"
)

const (
	// readHeaderTimeout bounds a handshake and the header of a request, idleTimeout a connection
	// without a request.
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 90 * time.Second
	// maxHeaderBytes is ample: nobody has a token here.
	maxHeaderBytes = 64 << 10
	// maxStreams bounds the requests of one connection; clients open another one.
	maxStreams = 100
	// shutdownLimit lets reviews in flight finish.
	shutdownLimit = 3 * time.Second
)

// connections are the bounds of the listener. Many API servers and managers may share an address,
// that of a node.
var connections = listener.Bounds{Connections: 1024, OfAddress: 256}

// Server serves the webhooks. Listen first, then Start.
type Server struct {
	// Validation and Mutation answer admission reviews.
	Validation, Mutation http.Handler
	// Managers answers requests of other managers, below naming.ManagerPath; nil: none.
	Managers http.Handler

	listener net.Listener
	// listens is from Listen to the end of Start.
	listens  atomic.Bool
	identity atomic.Pointer[identity]
	// mistrusts holds at most one notice; made by Listen.
	mistrusts chan struct{}
}

// SetKeys takes over keys for the connections to come.
func (s *Server) SetKeys(keys Keys) error {
	i, err := newIdentity(keys)
	if err != nil {
		return err
	}
	s.identity.Store(i)
	return nil
}

// Certificate is that of the present keys, for tls.Config. REST of the same process shows it too.
func (s *Server) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	i := s.identity.Load()
	if i == nil {
		return nil, errors.New("there is no certificate yet")
	}
	return &i.certificate, nil
}

// Listen binds address (host:port) and prepares TLS. The listener queues requests until Start.
func (s *Server) Listen(address string, keys Keys) error {
	if err := s.SetKeys(keys); err != nil {
		return err
	}
	s.mistrusts = make(chan struct{}, 1)
	l, err := listener.Listen(context.Background(), "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for webhooks: %w", err)
	}
	s.listener = tls.NewListener(listener.Bounded(l, connections, slog.Default()), &tls.Config{
		GetCertificate: s.Certificate,
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		ClientAuth:     tls.RequestClientCert, // the API server shows none, managers do; see onlyManagers
	})
	s.listens.Store(true)
	return nil
}

// Ready is nil while connections are accepted, else why not.
func (s *Server) Ready() error {
	if !s.listens.Load() {
		return errors.New("the admission webhooks do not listen")
	}
	return nil
}

// Start serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	mux := http.NewServeMux()
	reviews := newBodies(budgetBytes, slowBody)
	mux.Handle("POST "+naming.WebhookValidationPath, reviews.read(s.Validation))
	mux.Handle("POST "+naming.WebhookMutationPath, reviews.read(s.Mutation))
	mux.HandleFunc("GET "+naming.HealthPath, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	if s.Managers != nil {
		mux.Handle(naming.ManagerPath, s.onlyManagers(ctx, s.Managers))
	}
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	slog.Info("serving admission webhooks", "address", s.listener.Addr().String())
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(s.listener) }()
	select {
	case err := <-failed:
		s.listens.Store(false)
		return fmt.Errorf("serve webhooks: %w", err)
	case <-ctx.Done():
	}
	s.listens.Store(false) // else new connections are sent to a server that takes none
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
	defer cancel()
	err := server.Shutdown(grace)
	if serveErr := <-failed; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}
