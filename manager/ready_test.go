package manager

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/controlplane/admission/serving"
	"ankole.storage/controlplane/object/naming"
	restclient "ankole.storage/rest/client"
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
	p := &control{base: base{live: c, api: &rest.Config{Host: "127.0.0.1:1"}},
		cfg: Config{Common: Common{Namespace: "ns"}}, who: &Leadership{}}
	if err := p.newMetrics(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.exporter.Close)
	hooks := &serving.Server{Validation: http.NotFoundHandler(), Mutation: http.NotFoundHandler()}
	api, err := p.newREST(http.DefaultTransport, hooks)
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
	if code := ready(); code != http.StatusServiceUnavailable {
		t.Errorf("before they are registered: %d, want 503", code)
	}
	p.admits.Store(true)
	if code := ready(); code != http.StatusOK {
		t.Errorf("while both listen: %d, want 200", code)
	}
	answersByTLS(t, l.Addr().String(), keys.AuthorityPEM)
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

// answersByTLS: REST is known by the authority of the webhooks, and by nothing else.
func answersByTLS(t *testing.T, address string, authority []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	for _, tt := range []struct {
		authority []byte
		want      string
	}{{authority, ""}, {nil, "has no certificate"}, {otherAuthority(t), "unknown authority"}} {
		if err := os.WriteFile(file, tt.authority, 0o600); err != nil {
			t.Fatal(err)
		}
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: restclient.AuthorityFile(file)}}
		answer, err := c.Get("https://" + address + naming.HealthPath)
		if err == nil {
			_ = answer.Body.Close()
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("with the authority %.30q: %v, want %q", tt.authority, err, tt.want)
		}
	}
}

func otherAuthority(t *testing.T) []byte {
	t.Helper()
	c := fake.NewClientBuilder().Build()
	keys, err := serving.EnsureKeys(t.Context(), c, "ns", []string{"127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return keys.AuthorityPEM
}

// TestAuthorityIsPublished: clients find it, also after it was changed by hand or renewed.
func TestAuthorityIsPublished(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	for _, want := range []string{"first", "first", "second"} {
		if err := publishAuthority(t.Context(), c, "ns", []byte(want)); err != nil {
			t.Fatal(err)
		}
		m := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: "ns", Name: "longhorn-ca"}
		if err := c.Get(t.Context(), key, m); err != nil || m.Data["ca.crt"] != want {
			t.Errorf("published is %q, %v; want %q", m.Data["ca.crt"], err, want)
		}
		m.Data["ca.crt"] = "somebody's"
		if err := c.Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}
