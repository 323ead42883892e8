package mtlstest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"ankole.storage/host/mtls"
)

// Pods is an API server with one Pod, found at every address. The zero value's has no UID.
type Pods struct {
	mu      sync.Mutex
	uid     string
	secured map[string]bool
	// AtErr and NoteErr, unless nil, are what the API server says to everything.
	AtErr, NoteErr error
}

// Replace puts another Pod in the place of the one that is there.
func (p *Pods) Replace(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uid = uid
}

// At implements mtls.Pods.
func (p *Pods) At(context.Context, string) (mtls.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return mtls.Pod{Name: "im", UID: p.uid, Secured: p.secured[p.uid]}, p.AtErr
}

// NoteSecured implements mtls.Pods.
func (p *Pods) NoteSecured(_ context.Context, pod mtls.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.NoteErr == nil {
		if p.secured == nil {
			p.secured = map[string]bool{}
		}
		p.secured[pod.UID] = true
	}
	return p.NoteErr
}

// Dialer returns one with the secret in dir and, unless they are given, a Pod of its own.
func Dialer(dir string, pods ...*Pods) *mtls.Dialer {
	quiet := slog.New(slog.DiscardHandler)
	if len(pods) == 0 {
		pods = append(pods, &Pods{})
	}
	return mtls.NewDialer(mtls.Open(dir, quiet), pods[0], quiet)
}

// callTimeout bounds one call. A server that refuses answers at once.
const callTimeout = 30 * time.Second

// Call asks the health service at address over a connection of its own.
func Call(t testing.TB, address string, c credentials.TransportCredentials, options ...grpc.DialOption) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, append(options, grpc.WithTransportCredentials(c))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

// CallBy is Call over a connection that d makes.
func CallBy(t testing.TB, address string, d *mtls.Dialer) error {
	t.Helper()
	return Call(t, address, insecure.NewCredentials(), grpc.WithContextDialer(d.Dial))
}
