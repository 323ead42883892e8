package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"ankole.storage/dataplane/backingimage/service"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/listener"
	"ankole.storage/host/mtls"
)

const (
	// handshakeTime ends connections that say nothing.
	handshakeTime = 10 * time.Second
	// headerTime is for the head of a request, idleTime for the next one.
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 16 << 10
	// maxMessage bounds a gRPC request, in bytes.
	maxMessage = 1 << 20
	// stopTime is how long requests may still take at the end.
	stopTime = 5 * time.Second
)

// bounds are few: managers, and who downloads.
var bounds = listener.Bounds{Connections: 256, OfAddress: 128}

// servers are the listeners of the process; one that ends takes the process with it.
type servers struct {
	log    *slog.Logger
	work   sync.WaitGroup
	stops  []func()
	failed chan error
}

func (s *servers) run(what string, serve func() error, stop func()) {
	s.stops = append(s.stops, stop)
	s.work.Go(func() {
		if err := serve(); err != nil && !errors.Is(err, http.ErrServerClosed) {
			select {
			case s.failed <- fmt.Errorf("%s: %w", what, err):
			default:
			}
		}
	})
}

func (s *servers) stop() {
	for _, stop := range s.stops {
		stop()
	}
	s.work.Wait()
}

// http serves a handler on connections that have shown who they are.
func (s *servers) http(l net.Listener, secure credentials.TransportCredentials, h http.Handler) {
	server := &http.Server{Handler: withPeer(h), ConnContext: withConnection, ReadHeaderTimeout: headerTime,
		IdleTimeout: idleTime, MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	s.run("files at "+l.Addr().String(), func() error { return server.Serve(&secured{l, secure}) }, func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
}

// listen opens both listeners, or none.
func (c *Config) listen(ctx context.Context, log *slog.Logger) (orders, shown net.Listener, err error) {
	var opened []net.Listener
	for _, addr := range []string{c.Listen, c.SyncListen} {
		at, err := c.address(addr)
		if err == nil {
			var l net.Listener
			if l, err = listener.Listen(ctx, "tcp", at); err == nil {
				opened = append(opened, listener.Bounded(l, bounds, log))
			}
		}
		if err != nil {
			for _, l := range opened {
				_ = l.Close()
			}
			return nil, nil, fmt.Errorf("listen at %s: %w", addr, err)
		}
	}
	return opened[0], opened[1], nil
}

func (c *Config) disk(log *slog.Logger) *store.Disk {
	return store.New(osdisk.New(hostpath.Resolve), c.Root, c.DiskUUID, log)
}

// RunManager serves the files of a disk until ctx ends or a server fails. A nil error is an orderly
// stop.
func RunManager(ctx context.Context, cfg Config, log *slog.Logger) error {
	first, last, err := parsePorts(cfg.PortRange)
	if err := errors.Join(err, cfg.validate()); err != nil {
		return err
	}
	orders, shown, err := cfg.listen(ctx, log)
	if err != nil {
		return err
	}
	certificates := cfg.certificates(log)
	data, err := cfg.dataAddress(orders.Addr())
	if err == nil {
		var m *service.Manager
		if m, err = service.NewManager(cfg.disk(log), service.Config{DataAddress: data, FirstPort: first, LastPort: last,
			FileAddress: shown.Addr().String(), Dial: certificates.DialInstance, Log: log}); err == nil {
			log.Info("backing image manager serves", "address", orders.Addr(), "files", shown.Addr(), "copies", data, "disk",
				cfg.DiskUUID)
			return serveManager(ctx, cfg, m, certificates, orders, shown, log)
		}
	}
	_, _ = orders.Close(), shown.Close()
	return err
}

func serveManager(ctx context.Context, cfg Config, m *service.Manager, certificates *mtls.Source, orders,
	shown net.Listener,
	log *slog.Logger) error {
	s := &servers{log: log, failed: make(chan error, 1)}
	keeping, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	s.work.Go(func() { certificates.Keep(keeping) })
	server := grpc.NewServer(append(service.OrdersOfControllers(certificates), grpc.Creds(certificates.Server()),
		grpc.MaxRecvMsgSize(maxMessage), grpc.ConnectionTimeout(handshakeTime), grpc.WaitForHandlers(true))...)
	m.Register(server)
	healthpb.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	s.run("orders at "+orders.Addr().String(), func() error { return server.Serve(orders) }, server.Stop)
	s.http(shown, certificates.OrderServer(), service.FileHandler(m.Files(), cfg.DiskUUID))
	err := s.wait(ctx)
	m.Close()
	release()
	s.stop()
	log.Info("backing image manager has stopped")
	return err
}

func (s *servers) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

// receive sets where what is sent to a data source is received.
func (c *Config) receive(orders net.Addr) error {
	if c.Source.Type != service.TypeExport && c.Source.Type != service.TypeClone {
		return nil
	}
	ip, err := c.dataAddress(orders)
	c.Source.Receive = net.JoinHostPort(ip, strconv.Itoa(int(c.ExportPort)))
	return err
}

// RunSource makes a file and serves until it was taken over, ctx ends or a server fails. A nil
// error is an orderly stop.
func RunSource(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	cfg.Source.DiskUUID, cfg.Source.Log = cfg.DiskUUID, log
	orders, shown, err := cfg.listen(ctx, log)
	if err != nil {
		return err
	}
	var source *service.Source
	if err = cfg.receive(orders.Addr()); err == nil {
		source, err = service.NewSource(cfg.disk(log), cfg.Source)
	}
	if err != nil {
		_, _ = orders.Close(), shown.Close()
		return err
	}
	certificates := cfg.certificates(log)
	s := &servers{log: log, failed: make(chan error, 1)}
	keeping, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	s.work.Go(func() { certificates.Keep(keeping) })
	s.http(orders, certificates.Server(), source.Handler(certificates.PermitOrder))
	s.http(shown, certificates.OrderServer(), service.FileHandler(source.Files(), cfg.DiskUUID))
	log.Info("data source serves", "address", orders.Addr(), "files", shown.Addr(), "image", cfg.id().String(), "disk",
		cfg.DiskUUID)
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	s.work.Go(func() {
		select {
		case <-source.Over():
			cancel()
		case <-over.Done():
		}
	})
	err = s.wait(over)
	cancel()
	source.Close()
	release()
	s.stop()
	log.Info("data source has stopped", "image", cfg.id().String())
	return err
}
