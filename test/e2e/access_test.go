package e2e

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/test/lack"
	"ankole.storage/test/testcluster"
)

// accessTest is a cluster whose API asks who its callers are: each manager judges, by the real API
// server, and followers hand on to the leader.
type accessTest struct {
	*cluster
	clients kubernetes.Interface
}

// TestAccess tries who may ask the REST API, at the address of each manager.
func TestAccess(t *testing.T) {
	if testing.Short() {
		lack.Later(t, "starts a cluster; not with -short")
	}
	t.Parallel()
	c := startWith(t, testcluster.Options{Manager: true, Nodes: 2, NodeGrace: nodeGrace})
	clients := kubernetesOf(t, c)
	a := &accessTest{cluster: c, clients: clients}
	a.setAnonymous("all") // as in a cluster of another user than root
	a.everywhere(t, "open to this machine", nil, 200)
	a.everywhere(t, "by a name that was made to point here", http.Header{"Host": {"evil.example:9500"}}, 403)
	a.setAnonymous("none")
	a.accounts()
	t.Run("tokens", a.testTokens)
	t.Run("forged", a.testForged)
	t.Run("session", a.testSession)
	t.Run("the leader knows who asks", a.testLeaderKnows)
}

// ask sends a request to the manager of a node.
func (a *accessTest) ask(node int, method, path, body string, header http.Header) (status int, text string,
	answer http.Header) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, "http://"+a.controllers()[node]+":9500"+path,
		strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	r.Host = header.Get("Host")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp.StatusCode, string(all), resp.Header
}

// everywhere expects each manager to answer a list of volumes so.
func (a *accessTest) everywhere(t *testing.T, name string, header http.Header, want int) {
	t.Helper()
	for node := range a.Nodes {
		if status, text, _ := a.ask(node, http.MethodGet, "/v1/volumes", "", header); status != want {
			t.Errorf("%s, manager of node %d: %d %s, want %d", name, node+1, status, text, want)
		}
	}
}

func (a *accessTest) setAnonymous(mode string) {
	a.t.Helper()
	a.eventually("anonymous access is "+mode, func(ctx context.Context) error {
		s := &longhorn.Setting{}
		if err := a.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "api-anonymous-access"}, s); err != nil {
			return err
		}
		if s.Value != mode {
			s.Value = mode
			if err := a.kube.Update(ctx, s); err != nil {
				return err
			}
		}
		for node := range a.Nodes {
			_, text, _ := a.ask(node, http.MethodGet, "/v1/session", "", nil)
			if !strings.Contains(text, fmt.Sprintf(`"anonymousAccess":%q`, mode)) {
				return fmt.Errorf("node %d: %s", node+1, text)
			}
		}
		return nil
	})
}

// accounts makes the users: each a service account with a role, in a namespace.
func (a *accessTest) accounts() {
	a.t.Helper()
	ctx := a.t.Context()
	must := func(err error) {
		a.t.Helper()
		if err != nil {
			a.t.Fatal(err)
		}
	}
	_, err := a.clients.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}, metav1.CreateOptions{})
	must(err)
	for name, role := range map[string][2]string{
		"admin": {"longhorn-admin", namespace}, "viewer": {"longhorn-view", namespace},
		"stranger": {"longhorn-admin", "elsewhere"}, "leaver": {"longhorn-view", namespace},
	} {
		meta := metav1.ObjectMeta{Name: name}
		_, err := a.clients.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta},
			metav1.CreateOptions{})
		must(err)
		_, err = a.clients.RbacV1().RoleBindings(role[1]).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role[0]},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
		}, metav1.CreateOptions{})
		must(err)
	}
}

// token is one of an account, for the API server or for somebody else.
func (a *accessTest) token(account string, audiences ...string) string {
	a.t.Helper()
	r, err := a.clients.CoreV1().ServiceAccounts("default").CreateToken(a.t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return r.Status.Token
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// expired is a token that was good until a minute ago, signed as the API server signs.
func (a *accessTest) expired(token string) string {
	a.t.Helper()
	parts := strings.Split(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims map[string]any
	if err == nil {
		err = json.Unmarshal(text, &claims)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	for claim, ago := range map[string]time.Duration{"exp": time.Minute, "iat": time.Hour, "nbf": time.Hour} {
		claims[claim] = time.Now().Add(-ago).Unix()
	}
	return a.sign(parts[0], claims)
}

// sign makes a token with the API server's key.
func (a *accessTest) sign(header string, claims map[string]any) string {
	a.t.Helper()
	text, err := json.Marshal(claims)
	if err != nil {
		a.t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(a.Dir, "pki", "service-account.key"))
	if err != nil {
		a.t.Fatal(err)
	}
	block, _ := pem.Decode(file)
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		a.t.Fatal(err)
	}
	signed := header + "." + base64.RawURLEncoding.EncodeToString(text)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		a.t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func (a *accessTest) testTokens(t *testing.T) {
	good := a.token("viewer")
	for _, tt := range []struct {
		name   string
		header http.Header
		want   int
	}{
		{"no token", nil, 401},
		{"empty Basic credentials", http.Header{"Authorization": {"Basic Og=="}}, 401},
		{"nonsense", bearer("nonsense"), 401},
		{"a token for the API server", bearer(good), 200},
		{"a token for this API", bearer(a.token("viewer", "longhorn-backend")), 200},
		{"a token for another server", bearer(a.token("viewer", "vault")), 401},
		{"an expired token", bearer(a.expired(good)), 401},
		{"a token with a broken signature", bearer(good[:len(good)-8] + "AAAAAAAA"), 401},
		{"the right of another namespace", bearer(a.token("stranger")), 403},
		{"all rights", bearer(a.token("admin")), 200},
	} {
		a.everywhere(t, tt.name, tt.header, tt.want)
	}
	for node := range a.Nodes {
		status, text, _ := a.ask(node, http.MethodPut, "/v1/settings/log-level", `{"value":"Info"}`, bearer(good))
		if status != 403 || !strings.Contains(text, "may not update settings.longhorn.io") {
			t.Errorf("a change by somebody who may read: %d %s", status, text)
		}
		if status, text, _ := a.ask(node, http.MethodGet, "/metrics", "", nil); status != 200 {
			t.Errorf("metrics: %d %s", status, text)
		}
	}
	// A token whose account is gone is good for seconds at most: package rest/access holds how many.
	leaver := bearer(a.token("leaver"))
	a.everywhere(t, "before the account is deleted", leaver, 200)
	accounts := a.clients.CoreV1().ServiceAccounts("default")
	if err := accounts.Delete(t.Context(), "leaver", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.eventually("the token of a deleted account is refused", func(context.Context) error {
		for node := range a.Nodes {
			if status, _, _ := a.ask(node, http.MethodGet, "/v1/volumes", "", leaver); status != 401 {
				return fmt.Errorf("node %d: %d", node+1, status)
			}
		}
		return nil
	})
}

// testForged: nobody can pass for a manager that forwards.
func (a *accessTest) testForged(t *testing.T) {
	caller := base64.RawURLEncoding.EncodeToString([]byte(`{"user":"system:admin","groups":["system:masters"]}`))
	forged := http.Header{"X-Ankole-Caller": {caller}}
	a.everywhere(t, "a caller that names itself", forged, 401)
	by := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer by.CloseIdleConnections()
	for _, address := range a.controllers() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"https://"+address+":9502/v1/manager/rest/v1/volumes", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = forged
		resp, err := by.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != 403 || !strings.Contains(string(text), "managers only") {
			t.Errorf("at the port of managers at %s: %d %s %v", address, resp.StatusCode, text, err)
		}
	}
}

// testSession: begun at one manager, a session is good at the other; ended there, it has ended.
func (a *accessTest) testSession(t *testing.T) {
	status, text, header := a.ask(0, http.MethodPost, "/v1/session", `{"token":"`+a.token("viewer")+`"}`, nil)
	cookie, err := http.ParseSetCookie(header.Get("Set-Cookie"))
	if status != 200 || err != nil || !strings.Contains(text, "system:serviceaccount:default:viewer") {
		t.Fatalf("%d %s %v", status, text, err)
	}
	with := http.Header{"Cookie": {cookie.Name + "=" + cookie.Value}}
	a.everywhere(t, "a session", with, 200)
	foreign := maps.Clone(with)
	foreign.Set("Origin", "https://evil.example")
	status, text, _ = a.ask(1, http.MethodDelete, "/v1/session", "", foreign)
	if status != 403 || !strings.Contains(text, "page of another site") {
		t.Errorf("a change by a page of another site: %d %s", status, text)
	}
	a.everywhere(t, "still a session", with, 200)
	own := maps.Clone(with)
	own.Set("Origin", "http://"+a.controllers()[1]+":9500")
	if status, text, _ := a.ask(1, http.MethodDelete, "/v1/session", "", own); status != 200 {
		t.Errorf("logging out: %d %s", status, text)
	}
	a.eventually("the session has ended at all managers", func(context.Context) error {
		for node := range a.Nodes {
			if status, _, _ := a.ask(node, http.MethodGet, "/v1/volumes", "", with); status != 401 {
				return fmt.Errorf("node %d: %d", node+1, status)
			}
		}
		return nil
	})
}

// testLeaderKnows: whichever manager lets a caller in, the one that makes the change knows it.
func (a *accessTest) testLeaderKnows(t *testing.T) {
	admin := bearer(a.token("admin"))
	for node := range a.Nodes {
		status, text, _ := a.ask(node, http.MethodPut, "/v1/settings/log-level", `{"value":"Info"}`, admin)
		if status != 200 {
			t.Fatalf("%d %s", status, text)
		}
	}
	a.eventually("both changes are in the leader's log", func(context.Context) error {
		logs, err := filepath.Glob(filepath.Join(a.Dir, "nodes", "*", "logs", "*longhorn-controller*", "*", "*.log"))
		more, err2 := filepath.Glob(filepath.Join(a.Dir, "nodes", "*", "logs", "*longhorn-controller*", "*.log"))
		if err != nil || err2 != nil {
			return fmt.Errorf("%w, %w", err, err2)
		}
		var counts []int
		for _, l := range append(logs, more...) {
			text, err := os.ReadFile(l)
			if err != nil {
				return err
			}
			n := 0
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, "request done") && strings.Contains(line, "system:serviceaccount:default:admin") {
					n++
				}
			}
			counts = append(counts, n)
		}
		if len(counts) != 2 || counts[0]+counts[1] != 2 || counts[0]*counts[1] != 0 {
			return fmt.Errorf("lines in the logs of the managers: %v", counts)
		}
		return nil
	})
}
