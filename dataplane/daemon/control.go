package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"ankole.storage/instancemanager/mtls"
	"ankole.storage/listener"
)

// identity is what callers may name in the metadata keys "volume-name" and "instance-name". A call
// that names another one has reached the wrong process: addresses are reused.
type identity struct{ volume, instance string }

func (id identity) check(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	for key, mine := range map[string]string{"volume-name": id.volume, "instance-name": id.instance} {
		if v := md.Get(key); len(v) > 0 && v[0] != "" && mine != "" && v[0] != mine {
			return status.Errorf(codes.FailedPrecondition,
				"incorrect %s %.128s; this process is %s of volume %s: check its address",
				map[string]string{"volume-name": "volume name", "instance-name": "instance name"}[key], v[0],
				id.instance, id.volume)
		}
	}
	return nil
}

// server is the control interface on an instance's first port.
type server struct {
	grpc   *grpc.Server
	health *health.Server
	done   chan struct{}
	once   sync.Once
}

// ready tells the instance manager whether the process can be used.
func (s *server) ready(yes bool) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if yes {
		status = healthv1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
}

// controlBounds bound clients of the control interface: one proxy with all its calls, one probe and
// some people. Descriptors that they take are missing for files and for connections of users.
var controlBounds = listener.Bounds{Connections: 256, OfAddress: 64}

// maxControlCalls bounds calls in flight of one connection, as the instance manager's.
const maxControlCalls = 1024

// handshakeTime ends connections that say nothing.
const handshakeTime = 10 * time.Second

// stopWait bounds how long calls may go on when the process ends.
const stopWait = 2 * time.Second

// serveControl serves health, and what register adds, on addr. Once there are certificates it
// answers nobody without one of the same authority. Whether it is ready is said before the first
// question can be answered: an instance manager acts on a single answer.
func serveControl(addr string, id identity, certificates *mtls.Source, ready bool,
	register func(*grpc.Server)) (*server, error) {
	lis, err := listener.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("control interface: %w", err)
	}
	admit := func(ctx context.Context) error {
		if err := certificates.Permit(ctx); err != nil {
			return err
		}
		return id.check(ctx)
	}
	s := &server{done: make(chan struct{}), health: health.NewServer(), grpc: grpc.NewServer(
		grpc.Creds(certificates.Server()),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any,
			error) {
			if err := admit(ctx); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := admit(ss.Context()); err != nil {
				return err
			}
			return next(srv, ss)
		}),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.MaxConcurrentStreams(maxControlCalls))}
	s.ready(ready)
	healthv1.RegisterHealthServer(s.grpc, s.health)
	if register != nil {
		register(s.grpc)
	}
	go func() {
		defer close(s.done)
		_ = s.grpc.Serve(listener.Bounded(lis, controlBounds, slog.Default())) // ends with stop
	}()
	return s, nil
}

// stop ends the interface. It may be called more than once.
func (s *server) stop() {
	s.once.Do(func() {
		t := time.AfterFunc(stopWait, s.grpc.Stop)
		s.grpc.GracefulStop()
		t.Stop()
	})
	<-s.done
}

// cut ends the interface without waiting for calls.
func (s *server) cut() {
	s.once.Do(s.grpc.Stop)
	<-s.done
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// unixNow is the machine's clock as grants use it.
func unixNow() int64 { return time.Now().Unix() }
