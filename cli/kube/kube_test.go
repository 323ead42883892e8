package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	apiproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/proxy"

	"ankole.storage/cli/kube/kubetest"
	"ankole.storage/test/wait"
)

// backend answers with what it was asked, and the token it was shown.
func backend(t *testing.T) *httptest.Server {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, "%s %s %d", r.Host, r.URL.Path, len(body))
	}))
	t.Cleanup(web.Close)
	return web
}

func open(t *testing.T, c Config) *Tunnel {
	t.Helper()
	tunnel, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tunnel.Close)
	return tunnel
}

func get(t *Tunnel, path, body string) (string, error) {
	c := &http.Client{Transport: &http.Transport{DialContext: t.Dial, DisableKeepAlives: true}, Timeout: 20 * time.Second}
	resp, err := c.Post(Server+path, "text/plain", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// TestWebsocket: an API server that knows websockets is asked by them, through the code of a real
// one.
func TestWebsocket(t *testing.T) {
	s := kubetest.New(t, backend(t).URL)
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	upgrade := apiproxy.NewUpgradeAwareHandler(to, s.Client().Transport, false, true, refusing{t})
	upgrade.UseRequestLocation = true
	s.Websocket = proxy.NewTunnelingHandler(upgrade)
	tunnel := open(t, Config{Kubeconfig: s.Kubeconfig()})
	for range 3 {
		got, err := get(tunnel, "/v1/x", strings.Repeat("x", 300_000))
		if err != nil || got != "localhost:9500 /v1/x 300000" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if s.Websockets() != 1 || s.Forwards() != 1 {
		t.Errorf("%d websockets, %d connections", s.Websockets(), s.Forwards())
	}
}

// refusing fails the test where the API server's code cannot go on.
type refusing struct{ t *testing.T }

func (r refusing) Error(w http.ResponseWriter, _ *http.Request, err error) {
	r.t.Error(err)
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// TestTunnel: many connections at once on one to the API server, long bodies, and a new connection
// when the one has ended.
func TestTunnel(t *testing.T) {
	s := kubetest.New(t, backend(t).URL)
	tunnel := open(t, Config{Kubeconfig: s.Kubeconfig()})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			want := fmt.Sprintf("localhost:9500 /v1/%d %d", i, i*100_000)
			if got, err := get(tunnel, fmt.Sprintf("/v1/%d", i), strings.Repeat("x", i*100_000)); err != nil || got != want {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		})
	}
	wg.Wait()
	if n := s.Forwards(); n != 1 {
		t.Errorf("%d connections to the API server", n)
	}
	s.Break()
	wait.For(t, "the tunnel carries requests again", func() error {
		_, err := get(tunnel, "/again", "")
		var e *Error
		if err != nil && !errors.As(err, &e) && !strings.Contains(err.Error(), "EOF") {
			t.Fatal(err)
		}
		return err
	})
	if n := s.Forwards(); n != 2 {
		t.Errorf("%d connections to the API server", n)
	}
}

// TestTokens: that of an account, asked for once; the user's own, however the kubeconfig gets it.
func TestTokens(t *testing.T) {
	s := kubetest.New(t, backend(t).URL)
	file := s.Kubeconfig()
	for context, want := range map[string]string{"": kubetest.UserToken, "plugin": kubetest.UserToken, "nobody": "",
		"weak": kubetest.WeakToken} {
		if got, err := open(t, Config{Kubeconfig: file, Context: context}).UserToken(t.Context()); got != want || err != nil {
			t.Errorf("context %q: %q, %v", context, got, err)
		}
	}
	for account, want := range map[string]string{"": kubetest.AdminToken, "viewer": kubetest.AccountToken} {
		before := s.Tokens()
		tunnel := open(t, Config{Kubeconfig: file, Account: account})
		for range 3 {
			if got, err := tunnel.Token(t.Context()); got != want || err != nil {
				t.Errorf("account %q: %q, %v", account, got, err)
			}
		}
		if n := s.Tokens() - before; n != 1 {
			t.Errorf("account %q: %d tokens were asked for", account, n)
		}
	}
	_, err := open(t, Config{Kubeconfig: file, Account: "gone"}).Token(t.Context())
	if err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("%v", err)
	}
}

// TestFailures: each names the cluster, what is missing and what to do.
func TestFailures(t *testing.T) {
	s := kubetest.New(t, backend(t).URL)
	file := s.Kubeconfig()
	for _, tt := range []struct {
		cfg    Config
		pods   map[string]bool
		refuse string
		want   string
	}{
		{Config{Context: "weak"}, nil, "", "the user of context weak needs the right to create pods/portforward in namespace longhorn-system"},
		{Config{Context: "stranger"}, nil, "", "context stranger does not accept the credentials of the kubeconfig"},
		{Config{Context: "untrusted"}, nil, "", "no answer from the Kubernetes API server of context untrusted: tls:"},
		{Config{Namespace: "other"}, nil, "", "namespace other of context admin has no managers; name another namespace with --namespace"},
		{Config{}, map[string]bool{"a": false}, "", "none of 1 managers in namespace longhorn-system of context admin is ready; see why with: kubectl"},
		{Config{}, nil, "connection refused", "the manager could not be reached through context admin, namespace longhorn-system: connection refused"},
	} {
		s.Refuse, s.Pods = tt.refuse, tt.pods
		if tt.pods == nil {
			s.Pods = map[string]bool{"longhorn-manager-b": true}
		}
		tt.cfg.Kubeconfig = file
		_, err := get(open(t, tt.cfg), "/", "")
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.cfg, err, tt.want)
		}
	}
	for _, c := range []Config{{Kubeconfig: "/nowhere"}, {Kubeconfig: file, Context: "none"}} {
		var e *Error
		if _, err := Open(c); !errors.As(err, &e) || !strings.Contains(err.Error(), "name another one with --kubeconfig") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	t.Setenv("KUBECONFIG", "/nowhere")
	if _, err := Open(Config{}); err == nil || !strings.Contains(err.Error(), "there is no kubeconfig: name one with") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open(t, Config{Kubeconfig: file}).Dial(ctx, "", ""); err == nil {
		t.Error("a dial that was cancelled succeeds")
	}
}

// TestReasonOfAnEnd: a connection that the far end closed says why to whoever reads and to whoever
// writes, for a client may have begun to write before it reads of the end.
func TestReasonOfAnEnd(t *testing.T) {
	s := kubetest.New(t, backend(t).URL)
	s.Refuse = "connection refused"
	c, err := open(t, Config{Kubeconfig: s.Kubeconfig()}).Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const want = "the manager could not be reached through context admin, namespace longhorn-system: connection refused"
	if _, err := c.Read(make([]byte, 1)); err == nil || err.Error() != want {
		t.Errorf("a read: %v, want %q", err, want)
	}
	if _, err := c.Write([]byte("late")); err == nil || err.Error() != want {
		t.Errorf("a write: %v, want %q", err, want)
	}
}

// TestCloseWhileDialing: the end of a tunnel does not wait for a server that does not answer.
func TestCloseWhileDialing(t *testing.T) {
	s := kubetest.New(t, backend(t).URL)
	asked, release := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(release) })
	s.Websocket = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-release
	})
	tunnel := open(t, Config{Kubeconfig: s.Kubeconfig()})
	dialed, closed := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := tunnel.Dial(context.Background(), "", "")
		dialed <- err
	}()
	<-asked
	go func() {
		tunnel.Close()
		close(closed)
	}()
	wait.Receive(t, "the end of the tunnel", closed)
	if err := <-dialed; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestTokenEnds: whoever does not want a token any more does not wait for it.
func TestTokenEnds(t *testing.T) {
	s := kubetest.New(t, backend(t).URL)
	tunnel := open(t, Config{Kubeconfig: s.Kubeconfig(), Account: "viewer"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tunnel.Token(ctx); err == nil || s.Tokens() != 0 {
		t.Errorf("%v, %d tokens were asked for", err, s.Tokens())
	}
}
