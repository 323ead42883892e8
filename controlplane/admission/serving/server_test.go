package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/controlplane/keys/certificate"
	"ankole.storage/controlplane/object/naming"
)

func ensure(t *testing.T, c client.Client, now time.Time, names ...string) Keys {
	t.Helper()
	keys, err := EnsureKeys(t.Context(), c, "ns", names, now)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestKeysAreSharedAndRenewed(t *testing.T) {
	now := time.Now()
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	first := ensure(t, c, now, "a.svc")
	same := ensure(t, c, now, "a.svc")
	if string(first.CertificatePEM) != string(same.CertificatePEM) ||
		string(first.AuthorityPEM) != string(same.AuthorityPEM) {
		t.Error("a second manager did not use the keys of the first")
	}
	more := ensure(t, c, now, "127.0.0.1")
	if string(more.AuthorityPEM) != string(first.AuthorityPEM) {
		t.Error("another name changed the authority, which the API server trusts")
	}
	both := certificate.Pair{Cert: more.CertificatePEM, Key: more.KeyPEM}
	if !both.Serves([]string{"a.svc", "127.0.0.1"}, certificate.Pair{Cert: more.AuthorityPEM}, now) {
		t.Errorf("the new certificate is for %v only", both.Names())
	}
	later := ensure(t, c, now.Add(certificate.Life), "a.svc")
	if string(later.CertificatePEM) == string(more.CertificatePEM) ||
		string(later.AuthorityPEM) != string(more.AuthorityPEM) {
		t.Error("a certificate at its end: want a new one of the same authority")
	}
	var s corev1.Secret
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "longhorn-webhook-tls"}, &s); err != nil ||
		s.Type != corev1.SecretTypeTLS {
		t.Errorf("Secret %+v, %v", s, err)
	}
	s.Data[corev1.TLSCertKey] = []byte("garbage")
	if err := c.Update(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	if healed := ensure(t, c, now, "a.svc"); !strings.Contains(string(healed.CertificatePEM), "CERTIFICATE") {
		t.Error("a damaged Secret was not replaced")
	}
}

// TestFormerAuthorityIsTrusted: a renewed authority does not lock out managers that have not seen
// it yet, neither from the API server's view nor from that of the renewed.
func TestFormerAuthorityIsTrusted(t *testing.T) {
	now := time.Now()
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	before := ensure(t, c, now, "a.svc")
	after := ensure(t, c, now.Add(certificate.AuthorityLife-certificate.ReplaceBefore), "a.svc")
	again := ensure(t, c, now.Add(certificate.AuthorityLife-certificate.ReplaceBefore), "a.svc")
	if string(again.AuthorityPEM) != string(after.AuthorityPEM) ||
		string(again.CertificatePEM) != string(after.CertificatePEM) {
		t.Error("renewed twice")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(after.AuthorityPEM)
	for name, keys := range map[string]Keys{"former": before, "present": after} {
		cert, err := certificate.Pair{Cert: keys.CertificatePEM}.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		_, err = cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: cert.NotAfter.Add(-time.Hour), DNSName: "a.svc"})
		if err != nil {
			t.Errorf("what is registered does not trust a server with the %s authority's certificate: %v", name, err)
		}
	}
	served := certificate.Pair{Cert: after.CertificatePEM, Key: after.KeyPEM}
	former := certificate.Pair{Cert: before.AuthorityPEM}
	if served.Serves([]string{"a.svc"}, former, now.Add(certificate.AuthorityLife-certificate.ReplaceBefore)) {
		t.Error("the new certificate is of the former authority")
	}
}

func TestServerAnswersOverTLSAndTakesNewKeys(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	keys := ensure(t, c, time.Now(), "127.0.0.1")
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		_, _ = io.WriteString(w, r.URL.Path)
	})
	s := &Server{Validation: echo, Mutation: echo}
	if err := s.Listen("127.0.0.1:0", keys); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	base := "https://" + s.listener.Addr().(*net.TCPAddr).String()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(keys.AuthorityPEM)
	fresh := func() *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	}
	post := func(path, body string) (int, string, []*x509.Certificate) {
		t.Helper()
		r, err := fresh().Post(base+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, _ := io.ReadAll(r.Body)
		return r.StatusCode, string(text), r.TLS.PeerCertificates
	}
	code, text, before := post(naming.WebhookValidationPath, "{}")
	if code != http.StatusOK || text != "/v1/webhook/validation" {
		t.Errorf("validation: %d %s", code, text)
	}
	if code, _, _ := post("/other", "{}"); code != http.StatusNotFound {
		t.Errorf("unknown path: %d", code)
	}
	if code, _, _ := post(naming.WebhookMutationPath,
		strings.Repeat("x", maxBodyBytes+1)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("huge body: %d", code)
	}
	if err := s.SetKeys(ensure(t, c, time.Now().Add(certificate.Life), "127.0.0.1")); err != nil {
		t.Fatal(err)
	}
	if r, err := fresh().Get(base + naming.HealthPath); err != nil {
		// The renewed certificate begins a year from now, so this client must refuse it: proof that
		// it is in use.
		var invalid x509.CertificateInvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("with the new certificate: %v", err)
		}
	} else if r.TLS.PeerCertificates[0].Equal(before[0]) {
		t.Error("the old certificate is still served")
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("stop: %v", err)
	}
}

type resource string

func (r resource) Resource() string { return string(r) }
func (r resource) Validates() []admissionregistrationv1.OperationType {
	return []admissionregistrationv1.OperationType{"CREATE"}
}
func (r resource) Mutates() []admissionregistrationv1.OperationType { return nil }

func TestRegister(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	known := func(authority string, want bool) {
		t.Helper()
		if got, err := Registered(t.Context(), c, []byte(authority)); err != nil || got != want {
			t.Errorf("webhooks of authority %s are registered: %v (%v), want %v", authority, got, err, want)
		}
	}
	known("ca", false)
	for range 2 { // the second time updates
		if err := Register(t.Context(), c, "ns", "", []byte("ca"), []resource{"volumes"}); err != nil {
			t.Fatal(err)
		}
	}
	known("ca", true)
	known("another", false)
	v := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "longhorn-webhook-validator"}, v); err != nil {
		t.Fatal(err)
	}
	w := v.Webhooks[0]
	if w.Name != "validator.longhorn.io" || *w.FailurePolicy != "Fail" || *w.MatchPolicy != "Exact" ||
		*w.SideEffects != "None" ||
		len(w.Rules) != 1 || w.Rules[0].Resources[0] != "volumes" || *w.Rules[0].Scope != "Namespaced" ||
		w.ClientConfig.Service.Name != "longhorn-admission-webhook" || *w.ClientConfig.Service.Port != 9502 ||
		string(w.ClientConfig.CABundle) != "ca" {
		t.Errorf("webhook %+v", w)
	}
	if err := Register(t.Context(), c, "ns", "https://127.0.0.1:1", []byte("ca"), []resource{"volumes"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "longhorn-webhook-validator"}, v); err != nil {
		t.Fatal(err)
	}
	if got := v.Webhooks[0].ClientConfig; got.Service != nil || *got.URL != "https://127.0.0.1:1/v1/webhook/validation" {
		t.Errorf("client config %+v", got)
	}
	m := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "longhorn-webhook-mutator"}, m); err != nil ||
		len(m.Webhooks[0].Rules) != 0 {
		t.Errorf("mutator %+v, %v", m.Webhooks, err)
	}
}
