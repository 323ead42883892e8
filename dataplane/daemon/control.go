package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/host/listener"
	"ankole.storage/host/mtls"
)

// identity is what callers may name in the metadata keys "volume-name" and "instance-name". A call
// that names another one has reached the wrong process: addresses are reused.
type identity struct{ volume, instance string }

func (id identity) check(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	for _, name := range []struct{ key, called, mine string }{
		{"volume-name", "volume name", id.volume}, {"instance-name", "instance name", id.instance},
	} {
		if v := md.Get(name.key); len(v) > 0 && v[0] != "" && name.mine != "" && v[0] != name.mine {
			return status.Errorf(codes.FailedPrecondition,
				"incorrect %s %.128s; this process is %s of volume %s: check its address",
				name.called, v[0], id.instance, id.volume)
		}
	}
	return nil
}

// admission is who may call the control interface of a process. Once there are certificates nobody
// is answered without one of the same authority. Where they tell nodes from controllers, the
// processes of another node call nothing but what they prove themselves for: whoever has the
// certificate of one node gives no orders on others.
type admission struct {
	id           identity
	certificates *mtls.Source
}

// fromAfar are the calls of other nodes: health, and a stand-in, who is asked for a proof.
var fromAfar = []string{healthv1.Health_Check_FullMethodName, healthv1.Health_Watch_FullMethodName,
	enginev1.Engine_StandIn_FullMethodName}

func (a admission) admit(ctx context.Context, method string) error {
	if err := a.certificates.Permit(ctx); err != nil {
		return err
	}
	if p, _ := peer.FromContext(ctx); p != nil && a.certificates.OfNode() && !slices.Contains(fromAfar, method) &&
		!mtls.Near(p.LocalAddr, p.Addr) {
		return status.Errorf(codes.PermissionDenied, "%s is on another node: this process takes orders from the instance manager "+
			"of its own node alone", p.Addr)
	}
	return a.id.check(ctx)
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

// serveControl serves health, and what register adds, on addr, to whom admission admits. Whether it
// is ready is said before the first question can be answered: an instance manager acts on a single
// answer.
func serveControl(addr string, id identity, certificates *mtls.Source, ready bool,
	register func(*grpc.Server)) (*server, error) {
	lis, err := listener.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("control interface: %w", err)
	}
	who := admission{id, certificates}
	s := &server{done: make(chan struct{}), health: health.NewServer(), grpc: grpc.NewServer(
		grpc.Creds(certificates.Server()),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any,
			error) {
			if err := who.admit(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo,
			next grpc.StreamHandler) error {
			if err := who.admit(ss.Context(), info.FullMethod); err != nil {
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
