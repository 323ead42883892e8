// Package apitest gives tests a server of the whole /v1 API, on the small cluster of package
// resttest.
package apitest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
)

// Fixture is a server on a fake API server.
type Fixture struct {
	T      testing.TB
	Client client.WithWatch
	Server *serve.Server
	// Config is what the server was made with.
	Config rest.Config
	URL    string
}

// New starts a server that answers everybody.
func New(t testing.TB, objects ...client.Object) *Fixture {
	t.Helper()
	return With(t, interceptor.Funcs{}, func(*rest.Config) {}, objects...)
}

// With starts one with another configuration, on an API server that funcs intercept.
func With(t testing.TB, funcs interceptor.Funcs, change func(*rest.Config), objects ...client.Object) *Fixture {
	t.Helper()
	c := resttest.Client(t, funcs, objects...)
	cfg := rest.Config{EngineImage: resttest.Image,
		Config: serve.Config{Client: c, Open: true, Logger: slog.New(slog.DiscardHandler)}}
	change(&cfg)
	s, err := rest.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return &Fixture{T: t, Client: c, Server: s, Config: cfg, URL: web.URL}
}

// Tables are what every server serves.
func Tables() serve.Table {
	s, err := rest.New(rest.Config{Config: serve.Config{Client: fake.NewFakeClient(), Open: true}})
	if err != nil {
		panic(err)
	}
	return s.Table()
}

// Answer is a response, read.
type Answer struct {
	Status int
	Header http.Header
	Text   string
	JSON   map[string]any
}

// Message is that of an error object.
func (a Answer) Message() string {
	m, _ := a.JSON["message"].(string)
	return m
}

// Do sends a request with headers, which are names and values in turn.
func (f *Fixture) Do(method, path, body string, headers ...string) Answer {
	f.T.Helper()
	req, err := http.NewRequest(method, f.URL+path, strings.NewReader(body))
	if err != nil {
		f.T.Fatal(err)
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
		f.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		f.T.Fatal(err)
	}
	a := Answer{Status: resp.StatusCode, Header: resp.Header, Text: string(text)}
	if json.Unmarshal(text, &a.JSON) != nil {
		a.JSON = nil
	}
	return a
}

// Get reads an object.
func (f *Fixture) Get(path string) map[string]any {
	f.T.Helper()
	a := f.Do(http.MethodGet, path, "")
	if a.Status != http.StatusOK || a.JSON == nil {
		f.T.Fatalf("GET %s: %d %s", path, a.Status, a.Text)
	}
	return a.JSON
}

// Refused checks for an error object with a text in its message.
func (f *Fixture) Refused(a Answer, status int, text string) {
	f.T.Helper()
	if a.Status != status || a.JSON["type"] != "error" {
		f.T.Fatalf("answer %d %s, want an error object with status %d", a.Status, a.Text, status)
	}
	if !strings.Contains(a.Message(), text) {
		f.T.Errorf("message %q lacks %q", a.Message(), text)
	}
	if a.JSON["status"] != float64(status) || a.JSON["code"] != http.StatusText(status) || a.JSON["detail"] != "" {
		f.T.Errorf("error object %v", a.JSON)
	}
	if !strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain") || a.Header.Get("X-API-Schemas") != "" {
		f.T.Errorf("headers of an error: %v", a.Header)
	}
}

// Read reads an object of the API server.
func (f *Fixture) Read(name string, into client.Object) {
	f.T.Helper()
	if err := f.Client.Get(context.Background(), client.ObjectKey{Namespace: lh.Namespace, Name: name}, into); err != nil {
		f.T.Fatal(err)
	}
}

// Follow opens a stream.
func (f *Fixture) Follow(path string) *websocket.Conn {
	f.T.Helper()
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(f.URL, "http")+path,
		http.Header{"Origin": {f.URL}})
	if err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(func() { conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	return conn
}

// Routes are the routes of a table, by path.
func Routes(t serve.Table) map[string]serve.Route {
	all := map[string]serve.Route{}
	for _, r := range t.Routes {
		all[r.Path] = r
	}
	return all
}

// State is everything that is stored, as text.
func (f *Fixture) State() string {
	f.T.Helper()
	var all []string
	for kind := range f.Client.Scheme().KnownTypes(lh.GroupVersion) {
		if !strings.HasSuffix(kind, "List") || strings.HasSuffix(kind, "ListOptions") ||
			kind == "List" {
			continue
		}
		o, err := f.Client.Scheme().New(lh.GroupVersion.WithKind(kind))
		if err != nil {
			f.T.Fatal(err)
		}
		list, ok := o.(client.ObjectList)
		if !ok {
			continue
		}
		if err := f.Client.List(f.T.Context(), list); err != nil {
			f.T.Fatal(err)
		}
		err = meta.EachListItem(list, func(o runtime.Object) error {
			text, err := json.Marshal(o)
			all = append(all, kind+string(text))
			return err
		})
		if err != nil {
			f.T.Fatal(err)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// Must fails a test for an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
