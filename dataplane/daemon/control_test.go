package daemon

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"ankole.storage/host/listener"
)

// TestReplacementIsNotReadyAtFirst: an engine that is to take a volume over is not ready from its
// first answer on. One "ready" makes the instance manager end the engine that serves.
func TestReplacementIsNotReadyAtFirst(t *testing.T) {
	const want = healthv1.HealthCheckResponse_NOT_SERVING
	s, err := serveControl("127.0.0.1:0", identity{}, nil, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	if r, err := s.health.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil || r.GetStatus() != want {
		t.Errorf("health is %v, %v", r.GetStatus(), err)
	}
	addr := freeAddress(t)
	old, err := listener.Listen(t.Context(), "tcp", "127.0.0.1:0") // where nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		defer cancel()
		// It ends because it is told to; until then it waits for the answer of the one that serves.
		_ = RunEngine(ctx, EngineConfig{VolumeName: "v", VolumeUUID: "u", Instance: "v-e-0", Listen: addr, Size: 1 << 20,
			Upgrade: true, Predecessor: old.Addr().String(), Replicas: []string{freeAddress(t)},
			Log: slog.New(slog.DiscardHandler)})
	})
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil || r.GetStatus() != want {
		t.Errorf("an engine that takes over: health is %v, %v", r.GetStatus(), err)
	}
	cancel()
}

// freeAddress returns an address at which nobody listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := listener.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).String()
}
