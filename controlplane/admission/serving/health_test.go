package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestHealthAndAuthority: the port of the webhooks answers health checks, with a certificate of the
// authority that others find in a Secret.
func TestHealthAndAuthority(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	s := &Server{Validation: http.NotFoundHandler(), Mutation: http.NotFoundHandler()}
	if err := s.Listen("127.0.0.1:0", ensure(t, c, time.Now(), "127.0.0.1")); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	var secret corev1.Secret
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "longhorn-webhook-ca"}, &secret); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret.Data["tls.crt"]) {
		t.Fatalf("the Secret has no certificate: %v", secret.Data)
	}
	by := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	r, err := (&http.Client{Transport: by}).Get("https://" + s.listener.Addr().String() + "/v1/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("health: %s", r.Status)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("stop: %v", err)
	}
}
