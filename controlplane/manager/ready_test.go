package manager

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/controlplane/admission/serving"
	"ankole.storage/controlplane/naming"
	"ankole.storage/test/wait"
)

// TestReadyWhileRESTAndWebhooksListen: the kubelet's question is answered by REST, with yes only
// while the webhooks accept connections too.
func TestReadyWhileRESTAndWebhooksListen(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	p := &process{cfg: Config{Namespace: "ns"}, live: c, who: &Leadership{}, api: &rest.Config{Host: "127.0.0.1:1"}}
	if p.board, p.exporter, err = p.newMetrics(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.exporter.Close)
	hooks := &serving.Server{Validation: http.NotFoundHandler(), Mutation: http.NotFoundHandler()}
	api, err := p.newREST(http.DefaultTransport, hooks.Ready)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return api.Serve(ctx, l) })
	ready := func() int {
		t.Helper()
		answer, err := http.Get("http://" + l.Addr().String() + naming.HealthPath)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	if code := ready(); code != http.StatusServiceUnavailable {
		t.Errorf("before the webhooks listen: %d, want 503", code)
	}
	keys, err := serving.EnsureKeys(t.Context(), c, "ns", []string{"127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := hooks.Listen("127.0.0.1:0", keys); err != nil {
		t.Fatal(err)
	}
	if code := ready(); code != http.StatusOK {
		t.Errorf("while both listen: %d, want 200", code)
	}
	end, endHooks := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- hooks.Start(end) }()
	endHooks()
	if err := wait.Receive(t, "the end of the webhooks", served); err != nil {
		t.Error(err)
	}
	if code := ready(); code != http.StatusServiceUnavailable {
		t.Errorf("after the webhooks have ended: %d, want 503", code)
	}
	stop()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}
