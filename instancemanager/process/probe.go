package process

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

const (
	// probeReconnect is how soon a refused connection is tried again: an instance listens some 20
	// ms after its start, and attaching a volume waits for two of them one after the other.
	probeReconnect = 20 * time.Millisecond
	// probeAnswer bounds one question, so that a process that accepts and never answers is asked
	// again.
	probeAnswer = 5 * time.Second
)

// probe asks the health service at addr until it answers SERVING, every interval, at most for
// total. An error says why the process is not ready.
func (m *Manager) probe(ctx context.Context, addr string, interval, total time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, total)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(m.cfg.Certificates.DialInstance),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: probeReconnect, Multiplier: 1, MaxDelay: probeReconnect},
			MinConnectTimeout: probeAnswer,
		}))
	if err != nil {
		return fmt.Errorf("readiness: %s: %w", addr, err)
	}
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var reason error
	for {
		answer, cancel := context.WithTimeout(ctx, probeAnswer)
		response, err := client.Check(answer, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		cancel()
		if err == nil && response.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("health is %s", response.GetStatus())
		}
		if reason == nil || status.Code(err) != codes.DeadlineExceeded {
			reason = err // the last one that says more than that time is up
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("readiness: not serving at %s within %s: %w", addr, total, reason)
		case <-tick.C:
		}
	}
}
