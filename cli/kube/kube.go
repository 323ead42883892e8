// Package kube reaches the API of a cluster through its Kubernetes API server, as kubectl does:
// with the user's kubeconfig and a forwarded port of a manager Pod. Nothing listens on this
// machine: a connection of the client is a stream of the one connection to the API server.
//
// It is the only part of the command line that knows Kubernetes, and it knows little: it reads the
// list of manager Pods, opens streams to one of them, and asks for a token of a ServiceAccount
// where the user's own credentials are none that the managers understand.
package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/streaming/pkg/httpstream"
)

const (
	// DefaultNamespace is where the system is installed.
	DefaultNamespace = "longhorn-system"
	// Server is the address for the client: what is behind it is decided by Dial. The servers let
	// callers in that ask by this name.
	Server = "http://localhost:9500"
	// managerSelector selects the Pods that serve the API, at managerPort.
	managerSelector = "app=longhorn-ui"
	managerPort     = 9500
	// DefaultAccount is the ServiceAccount of an installation for those who may do everything.
	DefaultAccount = "longhorn-admin"
	// audience is what tokens are asked for: they are good at the managers only.
	audience = "longhorn-backend"
	// tokenSeconds is the life of a token: the shortest that API servers give.
	tokenSeconds = 600
	// requestTimeout bounds a question to the API server.
	requestTimeout = 20 * time.Second
	// maxAnswer bounds an answer of the API server.
	maxAnswer = 64 << 20
)

// Config says which cluster, and as whom.
type Config struct {
	// Kubeconfig is a file; empty: KUBECONFIG, else ~/.kube/config, else the account of the Pod
	// this runs in.
	Kubeconfig string
	// Context is one of the kubeconfig; empty: the current one.
	Context string
	// Namespace is that of the system.
	Namespace string
	// Account is a ServiceAccount of that namespace whose token to send; empty: DefaultAccount.
	Account string
}

// Error is why the managers cannot be reached; its text says what to do.
type Error struct{ text string }

func (e *Error) Error() string { return e.text }

func failf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// Tunnel leads to the managers of a cluster. It is safe for concurrent use; Close ends it.
type Tunnel struct {
	cfg   Config
	rest  *rest.Config
	base  *url.URL
	where string
	// ctx ends with the tunnel, by stop: what is under way holds the lock.
	ctx  context.Context
	stop context.CancelFunc

	mu      sync.Mutex
	streams httpstream.Connection
	nextID  int
	token   string
	// renew is when the token is asked for again.
	renew time.Time
}

// Open reads the kubeconfig. No connection is made yet.
func Open(c Config) (*Tunnel, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: c.Context})
	cfg, err := loaded.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, failf("there is no kubeconfig: name one with --kubeconfig or in KUBECONFIG, or a server with --server")
	}
	if err != nil {
		return nil, failf("kubeconfig: %v; name another one with --kubeconfig, or a context of it with --context", err)
	}
	cfg.UserAgent = "ankole"
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if c.Account == "" {
		c.Account = DefaultAccount
	}
	t := &Tunnel{cfg: c, rest: cfg}
	t.ctx, t.stop = context.WithCancel(context.Background())
	if t.where, err = contextName(loaded, c.Context); err != nil {
		return nil, err
	}
	if t.base, _, err = rest.DefaultServerUrlFor(cfg); err != nil {
		return nil, failf("kubeconfig: %v", err)
	}
	return t, nil
}

// contextName is the context in use, for messages. It refuses one whose user is missing, for whom
// the library would go on without credentials.
func contextName(c clientcmd.ClientConfig, name string) (string, error) {
	raw, err := c.RawConfig()
	if err != nil {
		return "", failf("kubeconfig: %v", err)
	}
	if name == "" {
		name = raw.CurrentContext
	}
	used := raw.Contexts[name]
	if used == nil {
		return "this cluster", nil // no kubeconfig, but the account of a Pod
	}
	if raw.AuthInfos[used.AuthInfo] == nil && used.AuthInfo != "" {
		return "", failf("kubeconfig: context %s names user %q, whom it does not have", name, used.AuthInfo)
	}
	return "context " + name, nil
}

// Where says which cluster it is, for messages.
func (t *Tunnel) Where() string { return t.where + ", namespace " + t.cfg.Namespace }

// Close ends all connections, and what is under way to make some.
func (t *Tunnel) Close() {
	t.stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.streams != nil {
		_ = t.streams.Close() // nobody waits for what is under way
		t.streams = nil
	}
}

// path is that of something in the namespace of the system.
func (t *Tunnel) path(elements ...string) *url.URL {
	return t.base.JoinPath(append([]string{"api", "v1", "namespaces", t.cfg.Namespace}, elements...)...)
}

// status is an error object of the API server.
type status struct {
	Message string `json:"message"`
	Reason  string `json:"reason"`
	Code    int    `json:"code"`
}

// call asks the API server. right is what the user needs for it, for the message when it is
// missing.
func (t *Tunnel) call(ctx context.Context, method string, u *url.URL, in, into any, right string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	c, err := rest.HTTPClientFor(t.rest)
	if err != nil {
		return failf("kubeconfig: %v", err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return failf("no answer from the Kubernetes API server of %s: %v; is it the right one? See: kubectl config get-contexts",
			t.where, bare(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return failf("the Kubernetes API server of %s: %v", t.where, err)
	}
	if resp.StatusCode/100 != 2 {
		return t.refused(resp.StatusCode, text, right)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return failf("the Kubernetes API server of %s does not answer like one: %v", t.where, err)
	}
	return nil
}

// refused turns a refusal into words.
func (t *Tunnel) refused(code int, text []byte, right string) error {
	var s status
	if json.Unmarshal(text, &s) != nil || s.Message == "" {
		s.Message = http.StatusText(code)
	}
	switch code {
	case http.StatusUnauthorized:
		return failf("the Kubernetes API server of %s does not accept the credentials of the kubeconfig: %s", t.where, s.Message)
	case http.StatusForbidden:
		return failf("%s\nthe user of %s needs the right to %s in namespace %s", s.Message, t.where, right, t.cfg.Namespace)
	}
	return failf("the Kubernetes API server of %s: %s", t.where, s.Message)
}

// bare leaves out method and URL, which say nothing to a person.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// pod is the part of a Pod that counts here.
type pod struct {
	Metadata struct {
		Name              string  `json:"name"`
		DeletionTimestamp *string `json:"deletionTimestamp"`
	} `json:"metadata"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

func (p *pod) ready() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			return p.Metadata.DeletionTimestamp == nil
		}
	}
	return false
}

// manager finds a Pod that serves the API. Any will do: each hands requests to the one that leads.
func (t *Tunnel) manager(ctx context.Context) (string, error) {
	u := t.path("pods")
	u.RawQuery = url.Values{"labelSelector": {managerSelector}}.Encode()
	var list struct {
		Items []pod `json:"items"`
	}
	if err := t.call(ctx, http.MethodGet, u, nil, &list, "list pods"); err != nil {
		return "", err
	}
	for i := range list.Items {
		if list.Items[i].ready() {
			return list.Items[i].Metadata.Name, nil
		}
	}
	if len(list.Items) == 0 {
		return "", failf("namespace %s of %s has no managers; name another namespace with --namespace, or another cluster with "+
			"--context", t.cfg.Namespace, t.where)
	}
	return "", failf("none of %d managers in namespace %s of %s is ready; see why with: kubectl -n %s describe pods -l %s",
		len(list.Items), t.cfg.Namespace, t.where, t.cfg.Namespace, managerSelector)
}

// capture keeps the credentials of a request instead of sending it.
type capture struct{ authorization string }

func (c *capture) RoundTrip(r *http.Request) (*http.Response, error) {
	c.authorization = r.Header.Get("Authorization")
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r, Header: http.Header{}}, nil
}

// UserToken is the user's own bearer token, however the kubeconfig gets it. It is empty for a user
// with a client certificate only, which the API server alone can check. It is good for everything
// that the user may do in the cluster, so nobody is shown it on the way of a tunnel.
func (t *Tunnel) UserToken(ctx context.Context) (string, error) {
	var c capture
	transport, err := rest.HTTPWrappersForConfig(t.rest, &c)
	if err != nil {
		return "", failf("kubeconfig: %v", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, Server, nil)
	if err != nil {
		return "", err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", failf("credentials of %s: %v", t.where, err)
	}
	resp.Body.Close()
	token, ok := strings.CutPrefix(c.authorization, "Bearer ")
	if !ok {
		return "", nil
	}
	return token, nil
}

// Token is what to show to the managers: a short-lived token of the account, that is good at the
// managers only. The API server is asked for it, and for another one before it ends.
func (t *Tunnel) Token(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != "" && time.Now().Before(t.renew) {
		return t.token, nil
	}
	in := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"spec": map[string]any{"audiences": []string{audience}, "expirationSeconds": tokenSeconds}}
	var out struct {
		Status struct {
			Token               string    `json:"token"`
			ExpirationTimestamp time.Time `json:"expirationTimestamp"`
		} `json:"status"`
	}
	err := t.call(ctx, http.MethodPost, t.path("serviceaccounts", t.cfg.Account, "token"), in, &out,
		"create serviceaccounts/token of "+t.cfg.Account)
	if err != nil {
		return "", err
	}
	if out.Status.Token == "" {
		return "", failf("the Kubernetes API server of %s gives no token for account %s", t.where, t.cfg.Account)
	}
	t.token, t.renew = out.Status.Token, time.Now().Add(time.Until(out.Status.ExpirationTimestamp)/2)
	return t.token, nil
}
