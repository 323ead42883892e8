// Package kubetest is as much of a Kubernetes API server as the command line meets on its way to a
// manager: a list of Pods, forwarded ports, tokens of ServiceAccounts.
package kubetest

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Tokens that the server knows.
const (
	// UserToken may do everything here, and is to be shown to nobody else.
	UserToken = "of-user"
	// WeakToken may only list Pods.
	WeakToken = "of-weak"
	// AccountToken is what it gives for ServiceAccount "viewer", AdminToken for "longhorn-admin".
	AccountToken = "of-viewer"
	AdminToken   = "of-admin"
)

// Server is the API server. Its fields may be set before it is used.
type Server struct {
	*httptest.Server
	t *testing.T
	// Backend is the address behind the forwarded port, host:port.
	Backend string
	// Pods are the manager Pods by name; false: not ready.
	Pods map[string]bool
	// Websocket serves websockets on forwarded ports; nil: none are known here.
	Websocket http.Handler
	// Refuse makes forwarding fail in the Pod, as when nothing listens there.
	Refuse string

	mu       sync.Mutex
	forwards int
	tokens   int
	// websockets counts those among the forwards.
	websockets int
	streams    []httpstream.Connection
}

// New starts a server that leads to a backend.
func New(t *testing.T, backend string) *Server {
	t.Helper()
	s := &Server{t: t, Backend: strings.TrimPrefix(backend, "http://"), Pods: map[string]bool{"longhorn-manager-a": false,
		"longhorn-manager-b": true}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/{ns}/pods", s.pods)
	mux.HandleFunc("POST /api/v1/namespaces/{ns}/pods/{pod}/portforward", s.forward)
	mux.HandleFunc("GET /api/v1/namespaces/{ns}/pods/{pod}/portforward", s.websocket)
	mux.HandleFunc("POST /api/v1/namespaces/{ns}/serviceaccounts/{account}/token", s.token)
	s.Server = httptest.NewTLSServer(mux)
	t.Cleanup(func() {
		s.Break()
		s.Close()
	})
	return s
}

// Forwards counts the connections on which ports were forwarded, Tokens the tokens that were given.
func (s *Server) Forwards() int { return s.count(&s.forwards) }

// Tokens is described at Forwards.
func (s *Server) Tokens() int { return s.count(&s.tokens) }

// Websockets counts the connections that were asked for by websocket.
func (s *Server) Websockets() int { return s.count(&s.websockets) }

func (s *Server) count(n *int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *n
}

// Break ends all connections on which ports are forwarded.
func (s *Server) Break() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.streams {
		_ = c.Close() // it may have ended by itself
	}
	s.streams = nil
}

// Kubeconfig writes a kubeconfig with contexts admin, weak, stranger (an unknown token), nobody (a
// user without credentials), plugin (a credential plugin), and returns its path.
func (s *Server) Kubeconfig() string {
	s.t.Helper()
	dir := s.t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	plugin := "#!/bin/sh\necho '" + `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"` +
		UserToken + `"}}'` + "\n"
	text := "apiVersion: v1\nkind: Config\ncurrent-context: admin\nclusters:\n- {name: c, cluster: {server: '" + s.URL +
		"', certificate-authority: ca.pem}}\n- {name: other, cluster: {server: '" + s.URL + "'}}\ncontexts:\n" +
		"- {name: untrusted, context: {cluster: other, user: admin}}\n"
	for _, user := range []string{"admin", "weak", "stranger", "nobody", "plugin"} {
		text += "- {name: " + user + ", context: {cluster: c, user: " + user + "}}\n"
	}
	text += "users:\n- {name: admin, user: {token: " + UserToken + "}}\n- {name: weak, user: {token: " + WeakToken +
		"}}\n- {name: stranger, user: {token: wrong}}\n- {name: nobody, user: {}}\n" +
		"- {name: plugin, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, interactiveMode: Never}}}\n"
	for name, content := range map[string]string{"config": text, "ca.pem": string(ca), "plugin": plugin} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			s.t.Fatal(err)
		}
	}
	return filepath.Join(dir, "config")
}

// admit lets a caller in or refuses it, as an API server words that. A caller without any token is
// the owner of a client certificate, which TLS has checked before.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, weakMay bool) bool {
	refuse := func(code int, message string) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
			"message": message, "code": code}) // the caller may be gone
		return false
	}
	switch r.Header.Get("Authorization") {
	case "", "Bearer " + UserToken:
		return true
	case "Bearer " + WeakToken:
		if weakMay {
			return true
		}
		return refuse(http.StatusForbidden, `pods "`+r.PathValue("pod")+`" is forbidden: User "weak" cannot do that`)
	}
	return refuse(http.StatusUnauthorized, "Unauthorized")
}

func (s *Server) pods(w http.ResponseWriter, r *http.Request) {
	if !s.admit(w, r, true) {
		return
	}
	items := []any{}
	if r.PathValue("ns") == "longhorn-system" && r.URL.Query().Get("labelSelector") == "app=longhorn-ui" {
		for name, ready := range s.Pods {
			items = append(items, map[string]any{"metadata": map[string]any{"name": name}, "status": map[string]any{
				"conditions": []any{map[string]any{"type": "Ready", "status": map[bool]string{true: "True",
					false: "False"}[ready]}}}})
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "PodList", "apiVersion": "v1", "items": items}) // as above
}

// websocket answers as an API server that knows SPDY only, if nothing else is set.
func (s *Server) websocket(w http.ResponseWriter, r *http.Request) {
	switch {
	case !s.admit(w, r, false):
	case s.Websocket != nil:
		s.mu.Lock()
		s.websockets++
		s.mu.Unlock()
		s.Websocket.ServeHTTP(w, r)
	default:
		http.Error(w, "unable to upgrade: no websockets here", http.StatusBadRequest)
	}
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	if !s.admit(w, r, false) {
		return
	}
	given, ok := map[string]string{"viewer": AccountToken, "longhorn-admin": AdminToken}[r.PathValue("account")]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"kind":"Status","message":"serviceaccounts %s not found","code":404}`, r.PathValue("account"))
		return
	}
	var in struct {
		Spec struct {
			Audiences         []string
			ExpirationSeconds int
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Spec.Audiences) != 1 ||
		in.Spec.ExpirationSeconds != 600 {
		s.t.Errorf("token request %+v, %v", in, err)
	}
	s.mu.Lock()
	s.tokens++
	s.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"status":{"token":%q,"expirationTimestamp":%q}}`, given,
		time.Now().Add(10*time.Minute).Format(time.RFC3339))
}

// forward bridges pairs of streams to the backend, as a kubelet does.
func (s *Server) forward(w http.ResponseWriter, r *http.Request) {
	if !s.admit(w, r, false) {
		return
	}
	if !s.Pods[r.PathValue("pod")] {
		s.t.Errorf("a port of Pod %s is asked for", r.PathValue("pod"))
	}
	if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		s.t.Error(err)
		return
	}
	streams := make(chan httpstream.Stream, 16)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		streams <- stream
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	s.mu.Lock()
	s.forwards++
	s.streams = append(s.streams, conn)
	s.mu.Unlock()
	problems := map[string]httpstream.Stream{}
	for {
		select {
		case <-conn.CloseChan():
			return
		case one := <-streams:
			h := one.Headers()
			if h.Get("port") != "9500" {
				s.t.Errorf("port %s is asked for", h.Get("port"))
			}
			id := h.Get("requestID")
			if h.Get("streamType") == "error" {
				problems[id] = one
				continue
			}
			go s.bridge(one, problems[id])
		}
	}
}

func (s *Server) bridge(data, problem httpstream.Stream) {
	defer problem.Close()
	defer data.Close()
	if s.Refuse != "" {
		_, _ = io.WriteString(problem, s.Refuse) // the client may be gone
		return
	}
	c, err := net.Dial("tcp", s.Backend)
	if err != nil {
		_, _ = io.WriteString(problem, err.Error()) // as above
		return
	}
	defer c.Close()
	go func() {
		_, _ = io.Copy(c, data) // the end of either side ends both
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(data, c) // as above
}
