package rest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// fixture is a server on a fake API server.
type fixture struct {
	t      testing.TB
	client client.WithWatch
	server *Server
	url    string
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	return newFixtureWith(t, interceptor.Funcs{}, func(*Config) {}, objects...)
}

func newFixtureWith(t testing.TB, funcs interceptor.Funcs, change func(*Config), objects ...client.Object) *fixture {
	t.Helper()
	c := resttest.Client(t, funcs, objects...)
	cfg := Config{Client: c, Open: true, EngineImage: resttest.Image, Logger: slog.New(slog.DiscardHandler)}
	change(&cfg)
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return &fixture{t: t, client: c, server: s, url: web.URL}
}

// answer is a response, read.
type answer struct {
	status int
	header http.Header
	text   string
	json   map[string]any
}

func (a answer) message() string {
	m, _ := a.json["message"].(string)
	return m
}

func (f *fixture) do(method, path, body string, headers ...string) answer {
	f.t.Helper()
	req, err := http.NewRequest(method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	noFollow := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := noFollow.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, text: string(text)}
	if json.Unmarshal(text, &a.json) != nil {
		a.json = nil
	}
	return a
}

// tables are what every server serves.
func tables() Table {
	s, err := New(Config{Client: fake.NewFakeClient(), Open: true})
	if err != nil {
		panic(err)
	}
	return s.Table()
}

var (
	streamTable    = tables().Streams
	volumeHandlers = (&volumeAPI{}).actions()
)

// request is one that views are made for.
func (f *fixture) request(base, self string) *Request {
	return &Request{Request: (&http.Request{}).WithContext(f.t.Context()), Objects: &f.server.objects, server: f.server,
		base: base, Self: self}
}

func (f *fixture) get(path string) map[string]any {
	f.t.Helper()
	a := f.do(http.MethodGet, path, "")
	if a.status != http.StatusOK || a.json == nil {
		f.t.Fatalf("GET %s: %d %s", path, a.status, a.text)
	}
	return a.json
}

// refused checks for an error object with a text in its message.
func (f *fixture) refused(a answer, status int, text string) {
	f.t.Helper()
	if a.status != status || a.json["type"] != "error" {
		f.t.Fatalf("answer %d %s, want an error object with status %d", a.status, a.text, status)
	}
	if !strings.Contains(a.message(), text) {
		f.t.Errorf("message %q lacks %q", a.message(), text)
	}
	if a.json["status"] != float64(status) || a.json["code"] != http.StatusText(status) || a.json["detail"] != "" {
		f.t.Errorf("error object %v", a.json)
	}
	if !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") || a.header.Get(headerSchemas) != "" {
		f.t.Errorf("headers of an error: %v", a.header)
	}
}

func (f *fixture) read(name string, into client.Object) {
	f.t.Helper()
	if err := f.client.Get(context.Background(), client.ObjectKey{Namespace: lh.Namespace, Name: name}, into); err != nil {
		f.t.Fatal(err)
	}
}
