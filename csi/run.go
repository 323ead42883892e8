package csi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"ankole.storage/csi/controller"
	"ankole.storage/csi/node"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/listener"
	"ankole.storage/rest/client"
)

const (
	// maxCalls bounds the calls of one connection that are worked on at the same time: sidecars send
	// ten, and the kubelet one per volume of its node.
	maxCalls = 256
	// stopPatience is how long a stop waits for calls under way.
	stopPatience = 10 * time.Second
	// probePatience bounds a look at the own socket.
	probePatience = 3 * time.Second
)

// Run serves until the context ends or something fails for good.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	var o client.Options
	if cfg.TokenFile != "" {
		o.Tokens = client.TokenFile(hostpath.Resolve(cfg.TokenFile))
	}
	if cfg.CAFile != "" {
		o.TLS = client.AuthorityFile(hostpath.Resolve(cfg.CAFile))
	}
	m, err := client.NewOptions(cfg.ManagerURL, o)
	if err != nil {
		return err
	}
	log := slog.Default().With("driver", DriverName, "node", cfg.NodeID)
	server := grpc.NewServer(grpc.MaxConcurrentStreams(maxCalls), grpc.UnaryInterceptor(logged(log)))
	spec.RegisterIdentityServer(server, &identity{manager: m})
	group, ctx := errgroup.WithContext(ctx)
	if cfg.serves(ServiceController) {
		spec.RegisterControllerServer(server, controller.New(m, cfg.Patience, log))
	}
	if cfg.serves(ServiceNode) {
		n := node.New(cfg.NodeID, m, cfg.Patience, log)
		n.KeepTopology(filepath.Dir(hostpath.Resolve(cfg.Endpoint)))
		spec.RegisterNodeServer(server, n)
		if cfg.RegistrationDir != "" {
			group.Go(func() error { return register(ctx, &cfg, n.TopologyChanged(), log) })
			group.Go(func() error { return n.ReviewTopology(ctx) })
		}
	}
	group.Go(func() error { return serve(ctx, server, hostpath.Resolve(cfg.Endpoint)) })
	if cfg.health() != "" {
		group.Go(func() error { return serveHealth(ctx, &cfg) })
	}
	log.Info("CSI driver serves", "endpoint", cfg.Endpoint, "manager", cfg.ManagerURL)
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// serve serves on a unix socket until the context ends. A socket that a killed process has left is
// replaced.
func serve(ctx context.Context, server *grpc.Server, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	if err := listener.RemoveStale(path); err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	l, err := listener.Listen(ctx, "unix", path)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(stopPatience, server.Stop)
		defer late.Stop()
		server.GracefulStop()
	})
	defer stop()
	if err := server.Serve(l); err != nil {
		return fmt.Errorf("serving on %s: %w", path, err)
	}
	return ctx.Err()
}

// reads begin the names of the calls that change nothing.
var reads = []string{"Probe", "Get", "List", "NodeGet", "ControllerGet", "Validate"}

// logged writes a line for each call that changes something or fails, and for others where the log
// is to tell all. Requests are not shown: they may have secrets in them.
func logged(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		began := time.Now()
		resp, err := handle(ctx, req)
		name := filepath.Base(info.FullMethod)
		attributes := []any{"call", name, "took", time.Since(began).Round(time.Millisecond)}
		if about, ok := req.(interface{ GetVolumeId() string }); ok {
			attributes = append(attributes, "volume", about.GetVolumeId())
		}
		if about, ok := req.(interface{ GetName() string }); ok {
			attributes = append(attributes, "name", about.GetName())
		}
		switch {
		case err != nil:
			log.Warn("call failed", append(attributes, "code", status.Code(err).String(), "error",
				status.Convert(err).Message())...)
		case slices.ContainsFunc(reads, func(r string) bool { return strings.HasPrefix(name, r) }):
			log.Debug("call", attributes...)
		default:
			log.Info("call", attributes...)
		}
		return resp, err
	}
}

// serveHealth answers GET /healthz with 200 while the services answer on their own socket. It says
// nothing about the manager: a driver that is restarted because the manager is away helps nobody.
func serveHealth(ctx context.Context, cfg *Config) error {
	err := listener.ServeHealth(ctx, cfg.health(), "/healthz", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probePatience)
		defer cancel()
		return probe(ctx, hostpath.Resolve(cfg.Endpoint))
	})
	return errors.Join(err, ctx.Err())
}

// probe asks the identity service on a socket whether it answers.
func probe(ctx context.Context, path string) error {
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	resp, err := spec.NewIdentityClient(conn).Probe(ctx, &spec.ProbeRequest{})
	if err == nil && !resp.GetReady().GetValue() {
		err = status.Error(codes.Unavailable, "the services are not ready")
	}
	return err
}
