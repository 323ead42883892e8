package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestStopEndsWhatManagersAskFor: the server's end does not wait for it.
func TestStopEndsWhatManagersAskFor(t *testing.T) {
	keys := ensure(t, fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(), time.Now(), "a.svc")
	began := make(chan struct{})
	s := &Server{Managers: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		http.Error(w, "stopped", http.StatusServiceUnavailable)
	})}
	s.Validation, s.Mutation = s.Managers, s.Managers
	if err := s.Listen("127.0.0.1:0", keys); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	asked := make(chan error, 1)
	c := &http.Client{Transport: s.ManagerTransport()}
	go func() {
		answer, err := c.Get("https://" + s.listener.Addr().String() + "/v1/manager/x")
		if err == nil {
			err = answer.Body.Close()
		}
		asked <- err
	}()
	<-began
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the server's end: %v", err)
	}
	<-asked // with an answer or a broken connection
	c.CloseIdleConnections()
}

// TestOnlyManagers: who holds a key of the authority gets through, by whatever address and in both
// directions; nobody else.
func TestOnlyManagers(t *testing.T) {
	now := time.Now()
	ours, others := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(),
		fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	reached := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "reached") })
	s := &Server{Validation: reached, Mutation: reached, Managers: reached}
	if err := s.Listen("127.0.0.1:0", ensure(t, ours, now, "a.svc")); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	defer func() { stop(); <-ended }()
	url := "https://" + s.listener.Addr().String() + "/v1/manager/x"

	peer := &Server{}
	if err := peer.SetKeys(ensure(t, ours, now, "b.svc")); err != nil {
		t.Fatal(err)
	}
	stranger := &Server{}
	if err := stranger.SetKeys(ensure(t, others, now, "a.svc")); err != nil {
		t.Fatal(err)
	}
	nobody := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	credulous := stranger.ManagerTransport()
	credulous.TLSClientConfig.VerifyConnection = nil
	liar := &http.Client{Transport: credulous}
	for _, row := range []struct {
		name   string
		client *http.Client
		want   string // of the answer, or of the error
		ok     bool
	}{
		{"a manager", &http.Client{Transport: peer.ManagerTransport()}, "reached", true},
		{"without a certificate", nobody, "managers only", true},
		{"with a certificate of another authority", liar, "not the certificate of a manager", true},
		{"a manager of another cluster, which does not believe us either",
			&http.Client{Transport: stranger.ManagerTransport()}, "not the certificate of a manager", false},
	} {
		answer, err := row.client.Get(url)
		text := ""
		if err == nil {
			b, readErr := io.ReadAll(answer.Body)
			text, err = string(b), errors.Join(readErr, answer.Body.Close())
		}
		if err != nil {
			text = err.Error()
		}
		if (err == nil) != row.ok || !strings.Contains(text, row.want) {
			t.Errorf("%s: %q, %v", row.name, text, err)
		}
		row.client.CloseIdleConnections()
	}
	select {
	case <-s.Mistrusts():
	default:
		t.Error("a certificate of another authority gave no cause to look for new keys")
	}
	if err := stranger.SetKeys(Keys{}); err == nil {
		t.Error("no keys were taken for keys")
	}
}
