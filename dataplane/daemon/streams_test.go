package daemon

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// TestCallsOfAControlInterfaceAreBounded: one client that leaks its calls, or anybody in the
// network, has no more than maxControlCalls open on a connection; what a call takes is taken that
// often only. The next one waits until one of them ends.
func TestCallsOfAControlInterfaceAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	s, err := serveControl(addr, identity{}, nil, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.cut)
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	open := func(ctx context.Context) error {
		stream, err := healthv1.NewHealthClient(conn).Watch(ctx, &healthv1.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	first, end := context.WithCancel(t.Context())
	defer end()
	for i := range maxControlCalls {
		ctx := t.Context()
		if i == 0 {
			ctx = first
		}
		if err := open(ctx); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := open(short); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("one call more than %d: %v", maxControlCalls, err)
	}
	end()
	if err := open(t.Context()); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
