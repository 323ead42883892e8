package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// TestEngineIsTriedAgainSoon: an engine that could not be reached for some minutes is tried again
// within two seconds all the time.
func TestEngineIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		last, longest := time.Now(), time.Duration(0)
		attempt := func() {
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, time.Since(last))
			last = time.Now()
		}
		e := &Engines{options: []grpc.DialOption{grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			attempt()
			return nil, errors.New("nobody is there")
		})}}
		for range 10 * 60 {
			conn, release, err := e.conn("192.0.2.1:10000")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err == nil {
				t.Fatal("the engine answers")
			}
			release()
			<-time.After(time.Second)
		}
		attempt()
		e.Close()
		if longest > 2*time.Second {
			t.Errorf("after a failure the next attempt came %s later", longest)
		}
	})
}
