package serve_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
	"ankole.storage/rest"
	"ankole.storage/rest/access"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
	"ankole.storage/test/wait"
)

// TestWhoMayDoWhat: modes of anonymous access, credentials and rights together.
func TestWhoMayDoWhat(t *testing.T) {
	const body = `{"snapshotDataIntegrity":"disabled"}`
	list := [2]string{"GET", "/v1/volumes"}
	one := [2]string{"GET", "/v1/volumes/demo"}
	update := [2]string{"POST", "/v1/volumes/demo?action=updateSnapshotDataIntegrity"}
	schemas := [2]string{"GET", "/v1/schemas"}
	for _, mode := range []string{"none", "read-only", "all"} {
		f := guarded(t, &resttest.Reviews{Rights: apitest.Users}, mode, apitest.Same)
		anonymous := map[string][3]int{"none": {401, 401, 401}, "read-only": {200, 200, 401}, "all": {200, 200, 200}}[mode]
		least := func(status int, open int) int { // what nobody needs a right for, nobody is refused
			if open == 200 {
				return 200
			}
			return status
		}
		for _, tt := range []struct {
			name    string
			headers []string
			want    [3]int // list, one, update
			schemas int
		}{
			{"nothing", nil, anonymous, anonymous[0]},
			{"empty Basic", []string{"Authorization", "Basic Og=="}, anonymous, anonymous[0]},
			{"unknown Basic", []string{"Authorization", "Basic YTpi"}, anonymous, anonymous[0]},
			{"Basic without anything", []string{"Authorization", "basic"}, anonymous, anonymous[0]},
			{"another scheme", []string{"Authorization", "Digest x"}, [3]int{401, 401, 401}, 401},
			{"a bad token", []string{"Authorization", "Bearer x"}, [3]int{401, 401, 401}, 401},
			{"an empty token", []string{"Authorization", "Bearer "}, [3]int{401, 401, 401}, 401},
			{"a bad cookie", []string{"Cookie", "ankole-session=AAAA"}, [3]int{401, 401, 401}, 401},
			{"all rights", apitest.Bearer("admin"), [3]int{200, 200, 200}, 200},
			{"all rights, another spelling", []string{"Authorization", "bearer  of-admin"}, [3]int{200, 200, 200}, 200},
			{"reading", apitest.Bearer("reader"), [3]int{200, 200, least(403, anonymous[2])}, 200},
			{"one volume", apitest.Bearer("owner"), [3]int{least(403, anonymous[0]), 200, 200}, 200},
			{"no right", apitest.Bearer("nobody"), [3]int{least(403, anonymous[0]), least(403, anonymous[1]),
				least(403, anonymous[2])}, 200},
		} {
			for i, what := range [][2]string{list, one, update, schemas} {
				want := append(tt.want[:], tt.schemas)[i]
				a := f.Do(what[0], what[1], body, tt.headers...)
				if a.Status != want {
					t.Errorf("mode %s, %s: %s %s: %d %s, want %d", mode, tt.name, what[0], what[1], a.Status, a.Text, want)
				}
				if a.Status == 401 && a.Header.Get("WWW-Authenticate") == "" || a.Status > 200 && a.JSON["type"] != "error" {
					t.Errorf("mode %s, %s: %s: %v %s", mode, tt.name, what[1], a.Header, a.Text)
				}
			}
			for _, open := range []string{"/metrics", "/v1/healthz", "/"} {
				if a := f.Do("GET", open, "", tt.headers...); a.Status != 200 {
					t.Errorf("mode %s, %s: %s: %d", mode, tt.name, open, a.Status)
				}
			}
		}
	}
}

// TestRefusalsSayWhatToDo: a person who is refused knows what is missing and how to get it.
func TestRefusalsSayWhatToDo(t *testing.T) {
	f := guarded(t, &resttest.Reviews{Rights: apitest.Users}, "read-only", apitest.Same)
	f.Refused(f.Do("DELETE", "/v1/volumes/demo", ""), 401, `to delete volumes.longhorn.io "demo" a Kubernetes token is needed`)
	f.Refused(f.Do("DELETE", "/v1/volumes/demo", "", apitest.Bearer("reader")...), 403,
		`user "reader" may not delete volumes.longhorn.io "demo" in namespace longhorn-system; grant it with: kubectl`)
	var v lh.Volume
	f.Read("demo", &v)
}

// TestAPIServerAway: nobody who shows a token is let in, and is told why; who needs none is.
func TestAPIServerAway(t *testing.T) {
	r := &resttest.Reviews{Rights: apitest.Users}
	f := guarded(t, r, "read-only", apitest.Same)
	r.Away.Store(true)
	a := f.Do("GET", "/v1/volumes", "", apitest.Bearer("admin")...)
	f.Refused(a, 503, "the Kubernetes API server does not answer")
	if a.Header.Get("Retry-After") == "" {
		t.Error("a client is not told to retry")
	}
	if a := f.Do("GET", "/v1/volumes", ""); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Text)
	}
}

// TestUnknownPathsTellNothing: the answer to what is not there does not depend on the caller.
func TestUnknownPathsTellNothing(t *testing.T) {
	f := guarded(t, &resttest.Reviews{Rights: apitest.Users}, "none", apitest.Same)
	for path, want := range map[string]int{"/v1/nothing": 404, "/v1/volumes/demo?action=nothing": 401,
		"/v1/ws/nothing": 401} {
		if a := f.Do("GET", path, ""); a.Status != want {
			t.Errorf("%s: %d %s", path, a.Status, a.Text)
		}
	}
	if a := f.Do("POST", "/v1/volumes/demo?action=nothing", "", apitest.Bearer("nobody")...); a.Status != 404 {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	if a := f.Do("GET", "/v1/ws/nothing", "", apitest.Bearer("nobody")...); a.Status != 404 {
		t.Errorf("%d %s", a.Status, a.Text)
	}
}

// login begins a session and returns its cookie.
func (f *fixture) login(user string, headers ...string) *http.Cookie {
	f.T.Helper()
	a := f.Do("POST", "/v1/session", `{"token":"of-`+user+`"}`, headers...)
	set, err := http.ParseSetCookie(a.Header.Get("Set-Cookie"))
	if a.Status != 200 || err != nil || a.JSON["user"] != user {
		f.T.Fatalf("%d %s %v", a.Status, a.Text, err)
	}
	return set
}

// TestSession: a browser's way in and out.
func TestSession(t *testing.T) {
	f := guarded(t, &resttest.Reviews{Rights: apitest.Users}, "none", apitest.Same)
	if s := f.Get("/v1/session"); s["user"] != "" || s["anonymousAccess"] != "none" || s["type"] != "session" {
		t.Errorf("before: %v", s)
	}
	f.Refused(f.Do("POST", "/v1/session", `{"token":"wrong"}`), 401, "cannot log in")
	f.Refused(f.Do("POST", "/v1/session", `{}`), 401, "cannot log in")
	f.Refused(f.Do("POST", "/v1/session", `not JSON`), 500, "not the JSON object expected")
	f.Refused(f.Do("POST", "/v1/session", `{"token":"of-admin"}`, "Origin", "https://evil.example"), 403,
		"page of another site")
	c := f.login("admin", "X-Forwarded-Proto", "https")
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || !c.Secure || c.Path != "/" || c.Domain != "" {
		t.Errorf("cookie: %+v", c)
	}
	if left := time.Until(c.Expires); left < access.SessionLife-time.Minute || left > access.SessionLife {
		t.Errorf("the cookie expires in %s", left)
	}
	if plain := f.login("admin"); plain.Secure {
		t.Error("over plain HTTP a browser would not send the cookie back")
	}
	if c.Name != "__Host-ankole-session" {
		t.Errorf("by TLS the cookie is %s", c.Name)
	}
	byTLS := []string{"X-Forwarded-Proto", "https", "Cookie"}
	if s := f.Do("GET", "/v1/session", "", append(byTLS, c.Name+"="+c.Value)...).JSON; s["user"] != "admin" {
		t.Errorf("by TLS: %v", s)
	}
	if s := f.Do("GET", "/v1/session", "", append(byTLS, "ankole-session="+c.Value)...).JSON; s["user"] == "admin" {
		t.Error("by TLS a cookie is believed that a server without it, or of another host of the domain, may have set")
	}
	cookie := []string{"Cookie", "ankole-session=" + c.Value}
	if s := f.Do("GET", "/v1/session", "", cookie...).JSON; s["user"] != "admin" || s["expires"] == "" {
		t.Errorf("after: %v", s)
	}
	own := append(cookie, "Origin", f.URL)
	for _, tt := range []struct {
		name    string
		method  string
		headers []string
		status  int
	}{
		{"reading", "GET", cookie, 200},
		{"a change by an own page", "PUT", own, 200},
		{"a change by a foreign page", "PUT", append(cookie, "Origin", "https://evil.example"), 403},
		{"a change by no page", "PUT", cookie, 403},
		{"a change by an own page, as newer browsers say it", "PUT", append(cookie, "Sec-Fetch-Site", "same-origin"), 200},
		{"a change by another site", "PUT", append(cookie, "Sec-Fetch-Site", "cross-site"), 403},
		{"a change by another site of the domain", "PUT", append(cookie, "Sec-Fetch-Site", "same-site"), 403},
	} {
		if a := f.Do(tt.method, "/v1/settings/log-level", `{"value":"Debug"}`, tt.headers...); a.Status != tt.status {
			t.Errorf("%s: %d %s", tt.name, a.Status, a.Text)
		}
	}
	a := f.Do("DELETE", "/v1/session", "", own...)
	if out, err := http.ParseSetCookie(a.Header.Get("Set-Cookie")); a.Status != 200 || err != nil || out.Value != "" ||
		!out.Expires.Before(time.Now()) {
		t.Errorf("logging out: %d %s", a.Status, a.Text)
	}
	f.Refused(f.Do("GET", "/v1/volumes", "", cookie...), 401, "log in again")
	if a := f.Do("DELETE", "/v1/session", "", own...); a.Status != 200 {
		t.Errorf("logging out again: %d %s", a.Status, a.Text)
	}
}

// TestStreamsOfOneCaller: a user, or an address that shows nobody, cannot take the streams of
// others.
func TestStreamsOfOneCaller(t *testing.T) {
	f := guarded(t, &resttest.Reviews{Rights: apitest.Users}, "read-only", apitest.Same)
	open := func(header http.Header) (*websocket.Conn, int) {
		t.Helper()
		c, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(f.URL, "http")+"/v1/ws/orphans", header)
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		} else if resp == nil {
			t.Fatal(err)
		}
		return c, resp.StatusCode
	}
	admin := http.Header{"Authorization": {"Bearer of-admin"}}
	var first *websocket.Conn
	for i := range serve.MaxStreamsEach {
		c, status := open(admin)
		if status != http.StatusSwitchingProtocols {
			t.Fatalf("stream %d: %d", i+1, status)
		}
		if first == nil {
			first = c
		}
	}
	if _, status := open(admin); status != http.StatusTooManyRequests {
		t.Errorf("one more: %d", status)
	}
	if _, status := open(nil); status != http.StatusSwitchingProtocols {
		t.Errorf("of somebody else: %d", status)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the place of a stream that has ended is free", func() error {
		if _, status := open(admin); status != http.StatusSwitchingProtocols {
			return fmt.Errorf("%d", status)
		}
		return nil
	})
}

// TestStreamsOfPages: a page of another site reads no stream, by cookie or by anonymous access. An
// own page behind a proxy, which has changed the host, shows what it alone could read.
func TestStreamsOfPages(t *testing.T) {
	f := guarded(t, &resttest.Reviews{Rights: apitest.Users}, "read-only", apitest.Same)
	closed := guarded(t, &resttest.Reviews{Rights: apitest.Users}, "none", apitest.Same)
	dial := func(f *fixture, headers ...string) int {
		t.Helper()
		h := http.Header{}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		c, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(f.URL, "http")+"/v1/ws/volumes", h)
		if err == nil {
			_ = c.Close()
		} else if resp == nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	cookie := []string{"Cookie", "ankole-session=" + closed.login("reader").Value}
	proof := func(f *fixture, headers ...string) string {
		t.Helper()
		proof, _ := f.Do("GET", "/v1/session", "", headers...).JSON["streamProof"].(string)
		if proof == "" {
			t.Fatal("the session has no proof")
		}
		return "ankole, ankole.page." + proof
	}
	const protocols = "Sec-WebSocket-Protocol"
	proxied := []string{"Origin", "http://127.0.0.1:8001"}
	another := []string{"Cookie", "ankole-session=" + closed.login("owner").Value}
	for _, tt := range []struct {
		name    string
		f       *fixture
		headers []string
		want    int
	}{
		{"a program, anonymous", f, nil, 101},
		{"an own page, anonymous", f, []string{"Origin", f.URL}, 101},
		{"a foreign page, anonymous", f, []string{"Origin", "https://evil.example"}, 403},
		{"no page has no name", f, []string{"Origin", "null"}, 403},
		{"nobody", closed, nil, 401},
		{"a token", closed, apitest.Bearer("reader"), 101},
		{"a token without the right", closed, apitest.Bearer("owner"), 403},
		{"an own page by cookie", closed, append(cookie, "Origin", closed.URL), 101},
		{"a foreign page by cookie", closed, append(cookie, "Origin", "https://evil.example"), 403},
		{"no page by cookie", closed, cookie, 403},
		{"a proxied page, anonymous", f, append(proxied, protocols, proof(f)), 101},
		{"a proxied page by cookie", closed, append(append(proxied, cookie...), protocols, proof(closed, cookie...)), 101},
		{"a foreign page with another's proof", closed,
			append(append(proxied, cookie...), protocols, proof(closed, another...)), 403},
		{"a foreign page with nobody's proof", closed, append(append(proxied, cookie...), protocols, proof(closed)), 403},
		{"a proof alone", closed, append(proxied, protocols, proof(closed, cookie...)), 403},
	} {
		if got := dial(tt.f, tt.headers...); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestNamesOfTheServer is DNS rebinding: a page whose site's name was made to point here asks as if
// it were one of this server's own.
func TestNamesOfTheServer(t *testing.T) {
	f := guarded(t, &resttest.Reviews{Rights: apitest.Users}, "all", apitest.Same)
	rebound := func(host string, more ...string) []string {
		return append([]string{"Host", host, "Origin", "http://" + host}, more...)
	}
	for _, tt := range []struct {
		method, path string
		headers      []string
		status       int
	}{
		{"GET", "/v1/volumes", rebound("evil.example:9500"), 403},
		{"GET", "/v1/volumes", []string{"Host", "evil.example:9500"}, 403}, // browsers leave Origin out
		{"GET", "/metrics", []string{"Host", "evil.example:9500"}, 403},
		{"GET", "/v1/session", rebound("evil.example:9500"), 403},
		{"GET", "/", rebound("evil.example:9500"), 403},
		{"GET", "/v1/healthz", rebound("evil.example:9500"), 200},
		{"PUT", "/v1/settings/log-level", rebound("evil.example:9500"), 403},
		{"PUT", "/v1/settings/log-level", rebound("evil.example", "X-Forwarded-Host", "localhost"), 403},
		{"PUT", "/v1/settings/log-level", rebound("evil.example", "X-Forwarded-Host", "evil.example"), 403},
		{"PUT", "/v1/settings/log-level", rebound("longhorn-backend:9500", "X-Forwarded-Host", "evil.example"), 403},
		{"PUT", "/v1/settings/log-level", rebound("localhost:9500"), 200},
		{"PUT", "/v1/settings/log-level", rebound("127.0.0.1:9500"), 200},
		{"PUT", "/v1/settings/log-level", rebound("longhorn-backend.longhorn-system:9500"), 200},
		{"GET", "/v1/volumes", append(rebound("any.example"), apitest.Bearer("admin")...), 200}, // a page has no token
	} {
		if a := f.Do(tt.method, tt.path, `{"value":"Debug"}`, tt.headers...); a.Status != tt.status {
			t.Errorf("%s %s %v: %d %s, want %d", tt.method, tt.path, tt.headers, a.Status, a.Text, tt.status)
		}
	}
	for name, value := range map[string]string{setting.APIHostNames: "ui.example;other.example",
		setting.ManagerURL: "https://set.example:8443"} {
		s := &lh.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: lh.Namespace, Name: name}, Value: value}
		if err := f.Client.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for _, host := range []string{"ui.example", "other.example:1", "set.example:8443"} {
		if a := f.Do("GET", "/v1/volumes", "", "Host", host); a.Status != 200 {
			t.Errorf("%s, which a setting names: %d %s", host, a.Status, a.Text)
		}
	}
	f.Refused(f.Do("GET", "/v1/volumes", "", "Host", "evil.example"), 403, `this server is not known as "evil.example"`)
}

// TestAnonymousAccessIsNotForTheAnonymous: neither to widen it nor to lock themselves out, as a
// client would that writes all defaults back.
func TestAnonymousAccessIsNotForTheAnonymous(t *testing.T) {
	f := guarded(t, &resttest.Reviews{Rights: apitest.Users}, "all", apitest.Same)
	for name, value := range map[string]string{setting.APIAnonymousAccess: "none", setting.APIHostNames: "*",
		setting.ManagerURL: "http://evil.example"} {
		f.Refused(f.Do("PUT", "/v1/settings/"+name, `{"value":"`+value+`"}`), 403, "callers without a token may not change it")
	}
	if a := f.Do("PUT", "/v1/settings/api-anonymous-access", `{"value":"all"}`); a.Status != 200 {
		t.Errorf("the value it has: %d %s", a.Status, a.Text)
	}
	if a := f.Do("PUT", "/v1/settings/api-anonymous-access", `{"value":"none"}`, apitest.Bearer("admin")...); a.Status != 200 {
		t.Errorf("with a token: %d %s", a.Status, a.Text)
	}
	if a := f.Do("GET", "/v1/volumes", ""); a.Status != 401 {
		t.Errorf("after the change: %d %s", a.Status, a.Text)
	}
}

// plainRelay reaches the managers of tests, who need no proof.
type plainRelay struct{}

func (plainRelay) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Scheme = "http"
	return http.DefaultTransport.RoundTrip(r)
}

// TestForwarding: a follower lets callers in and has the leader answer, with links as the client
// sees them, and streams. The leader knows who asks; nobody else can tell it.
func TestForwarding(t *testing.T) {
	leader := guarded(t, &resttest.Reviews{}, "none", apitest.Same)
	var seen http.Header
	managers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		leader.Server.Forwarded().ServeHTTP(w, r)
	}))
	t.Cleanup(managers.Close)
	follower := newFixtureWith(t, (&resttest.Reviews{Rights: apitest.Users}).Funcs(), func(c *rest.Config) {
		apitest.Judge(c)
		c.Leader = func(*http.Request) *serve.Target {
			return &serve.Target{Host: strings.TrimPrefix(managers.URL, "http://")}
		}
		c.Relay = plainRelay{}
	})
	forged := access.Caller{User: "admin"}.Header()
	a := follower.Do("GET", "/v1/volumes/demo", "", append(apitest.Bearer("reader"), "X-Forwarded-Proto", "https",
		"X-Forwarded-Host", "ui.example", serve.HeaderCaller, forged, "Connection", serve.HeaderCaller, "Cookie", "a=b")...)
	if a.Status != 200 || a.JSON["links"].(map[string]any)["self"] != "https://ui.example/v1/volumes/demo" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	if c, err := access.ParseHeader(seen.Get(serve.HeaderCaller)); err != nil || c.User != "reader" ||
		len(seen.Values(serve.HeaderCaller)) != 1 || seen.Get("Authorization")+seen.Get("Cookie") != "" {
		t.Errorf("the leader was told %v", seen)
	}
	a = follower.Do("POST", "/v1/volumes/demo?action=attach", `{"hostId":"node-1"}`, apitest.Bearer("admin")...)
	if a.Status != 200 || a.JSON["links"].(map[string]any)["self"] != follower.URL+"/v1/volumes/demo" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	follower.Refused(follower.Do("DELETE", "/v1/volumes/demo", "", apitest.Bearer("reader")...), 403, "may not delete")
	if a := follower.Do("GET", "/v1/volumes/demo", "", serve.HeaderCaller, forged); a.Status != 401 {
		t.Errorf("a caller named itself: %d %s", a.Status, a.Text)
	}
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(follower.URL, "http")+"/v1/ws/1s/volumes",
		http.Header{"Authorization": {"Bearer of-reader"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var list map[string]any
	if err := conn.ReadJSON(&list); err != nil || len(list["data"].([]any)) != 1 {
		t.Errorf("stream: %v", err)
	}
	for _, path := range []string{"/v1/healthz", "/v1/session"} {
		seen = nil
		if a := follower.Do("GET", path, ""); a.Status != 200 || seen != nil {
			t.Errorf("%s is the follower's own matter: %d", path, a.Status)
		}
	}
	// With the leader gone the follower, which knows no volume, answers by itself what can be sent
	// again.
	conn.Close()
	managers.CloseClientConnections()
	managers.Close()
	if a := follower.Do("GET", "/v1/volumes/demo", "", apitest.Bearer("reader")...); a.Status != 404 {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	follower.Refused(follower.Do("POST", "/v1/volumes", `{"name":"demo","size":"1Gi"}`, apitest.Bearer("admin")...), 502,
		"the leading manager does not answer")
}

// TestForgedCallers: the public address believes no header, and the address for managers wants a
// caller.
func TestForgedCallers(t *testing.T) {
	leader := guarded(t, &resttest.Reviews{}, "none", apitest.Same)
	forged := access.Caller{User: "admin"}.Header()
	if a := leader.Do("GET", "/v1/volumes/demo", "", serve.HeaderCaller, forged); a.Status != 401 {
		t.Errorf("the leader believes anybody: %d", a.Status)
	}
	if a := leader.Do("GET", serve.ForwardPath+"/v1/volumes/demo", "", serve.HeaderCaller, forged); a.Status != 404 {
		t.Errorf("the path of forwarded requests is there for anybody: %d", a.Status)
	}
	for _, caller := range []string{"", "x"} {
		r := httptest.NewRequest("GET", serve.ForwardPath+"/v1/volumes/demo", nil)
		r.Header.Set(serve.HeaderCaller, caller)
		w := httptest.NewRecorder()
		if leader.Server.Forwarded().ServeHTTP(w, r); w.Code != 403 {
			t.Errorf("a forwarded request of caller %q: %d", caller, w.Code)
		}
	}
}

// TestNewWantsAJudge: a server that lets everybody in must say so.
func TestNewWantsAJudge(t *testing.T) {
	if _, err := rest.New(rest.Config{Config: serve.Config{Client: newFixture(t).Client}}); err == nil {
		t.Error("a server was made that asks nobody who he is")
	}
}
