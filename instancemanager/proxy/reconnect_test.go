package proxy

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"ankole.storage/test/redial"
)

// TestEngineIsTriedAgainSoon: an engine that could not be reached for some minutes is tried again
// within two seconds all the time.
func TestEngineIsTriedAgainSoon(t *testing.T) {
	redial.Within(t, 2*time.Second, func(t *testing.T, dial redial.Dial) (ask func() error, end func()) {
		e := &Engines{options: []grpc.DialOption{grpc.WithContextDialer(dial)}}
		return func() error {
			conn, release, err := e.conn("192.0.2.1:10000")
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
			return err
		}, e.Close
	})
}
