package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// healthRepeat is how often Watch repeats itself; clients of the reference take silence for a hang.
const healthRepeat = time.Second

// health answers SERVING for any service name: while the process answers at all, it serves.
type health struct {
	healthpb.UnimplementedHealthServer
}

var serving = &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}

func (health) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return serving, nil
}

func (health) Watch(_ *healthpb.HealthCheckRequest,
	stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	tick := time.NewTicker(healthRepeat)
	defer tick.Stop()
	for {
		if err := stream.Send(serving); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-tick.C:
		}
	}
}
