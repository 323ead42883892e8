package client

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/rest"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
)

func newServer(t *testing.T) *httptest.Server {
	t.Helper()
	c := resttest.Client(t, interceptor.Funcs{}, resttest.Cluster(resttest.Volume("demo")...)...)
	s, err := rest.New(rest.Config{EngineImage: resttest.Image,
		Config: serve.Config{Client: c, Open: true, Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return web
}

func newClient(t *testing.T, server string) *Client {
	t.Helper()
	c, err := New(server, "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNew(t *testing.T) {
	for server, want := range map[string]string{
		"http://h:9500":             "http://h:9500",
		"http://h:9500/":            "http://h:9500",
		"http://h:9500/v1":          "http://h:9500",
		"http://h:9500/v1/":         "http://h:9500",
		"h:9500":                    "http://h:9500",
		"https://ui.example/a/b/v1": "https://ui.example/a/b",
	} {
		if got := newClient(t, server).Server(); got != want {
			t.Errorf("%s: %s, want %s", server, got, want)
		}
	}
	for _, server := range []string{"", "ftp://h", "http://", "http://h:port"} {
		if _, err := New(server, ""); err == nil {
			t.Errorf("%q was accepted", server)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	c, ctx := newClient(t, newServer(t).URL), t.Context()
	v, err := c.CreateVolume(ctx, VolumeSpec{Name: "mine", Size: "1Gi", NumberOfReplicas: 2})
	if err != nil || v.Size != "1073741824" || v.Links["self"] == "" {
		t.Fatalf("%+v, %v", v, err)
	}
	if v, err := c.AttachVolume(ctx, "demo", resource.AttachInput{HostID: "node-1"}); err != nil ||
		v.VolumeAttachment.Attachments[""].NodeID != "node-1" {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := c.DetachVolume(ctx, "demo", resource.DetachInput{}); err != nil ||
		len(v.VolumeAttachment.Attachments) != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := c.UpdateDataLocality(ctx, "demo", "best-effort"); err != nil || v.DataLocality != "best-effort" {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := c.UpdateDataLocality(ctx, "demo", "disable"); err == nil ||
		!strings.Contains(err.Error(), "invalid data locality mode") {
		t.Errorf("data locality disable: %v", err)
	}
	if all, err := c.Volumes(ctx); err != nil || len(all) != 2 {
		t.Errorf("%d volumes, %v", len(all), err)
	}
	if s, err := c.SetSetting(ctx, "default-backup-block-size", "16"); err != nil || s.Value != "16" ||
		len(s.Definition.Options) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	n, err := c.Node(ctx, "node-1")
	if err != nil || n.Conditions["Ready"].Status != "True" || n.Disks["disk-1"].StorageMaximum == 0 {
		t.Errorf("%+v, %v", n, err)
	}
	if err := c.DeleteVolume(ctx, "mine"); err != nil {
		t.Error(err)
	}
	if images, err := c.EngineImages(ctx); err != nil || len(images) != 1 {
		t.Errorf("%v, %v", images, err)
	}
	if all, err := c.InstanceManagers(ctx); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestErrors(t *testing.T) {
	c, ctx := newClient(t, newServer(t).URL), t.Context()
	_, err := c.Volume(ctx, "nope")
	if !IsNotFound(err) || err.Error() != "/v1/volumes/nope: not found" {
		t.Errorf("missing volume: %v", err)
	}
	_, err = c.Setting(ctx, "nope")
	var refused *Error
	if IsNotFound(err) || !errors.As(err, &refused) || refused.Status != 500 ||
		!strings.Contains(err.Error(), "is not supported") {
		t.Errorf("missing setting: %v", err)
	}
	if _, err := newClient(t, "http://127.0.0.1:1").Volumes(ctx); !errors.Is(err, ErrUnreachable) {
		t.Errorf("no server: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Volumes(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	// An empty name would be the whole collection; odd ones must stay in their place in the path.
	if err := c.DeleteVolume(ctx, ""); err == nil {
		t.Error("an empty name was accepted")
	}
	for _, name := range []string{"..", "../nodes/node-1", "a/b", "demo?action=x", "%2e%2e", " "} {
		if _, err := c.Volume(ctx, name); !IsNotFound(err) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestToken(t *testing.T) {
	var got string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(`{"data":[]}`))
	}))
	defer web.Close()
	c, err := New(web.URL, "secret")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Volumes(t.Context()); err != nil || got != "Bearer secret" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWaitVolume(t *testing.T) {
	c := newClient(t, newServer(t).URL)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	calls := 0
	err := c.WaitVolume(ctx, "demo", func(v *resource.Volume) (bool, error) {
		if calls++; calls == 1 {
			if _, err := c.AttachVolume(ctx, "demo", resource.AttachInput{HostID: "node-2"}); err != nil {
				return false, err
			}
		}
		return v.VolumeAttachment.Attachments[""].NodeID == "node-2", nil
	})
	if err != nil || calls < 2 {
		t.Errorf("%d calls, %v", calls, err)
	}
	wrong := errors.New("wrong")
	if err := c.WaitVolume(ctx, "nope", func(v *resource.Volume) (bool, error) {
		if v != nil {
			t.Error("a volume that does not exist was found")
		}
		return false, wrong
	}); !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
}

// A stream that breaks is opened again, until the context or the caller ends it.
func TestWatchReconnects(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"collection","resourceType":"volume","data":[]}`))
		conn.Close()
	}))
	c := newClient(t, server.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lists, losses := 0, 0
	err := c.WatchVolumes(ctx, func(error) error { losses++; return nil }, func([]resource.Volume) error {
		if lists++; lists == 1 {
			return nil
		}
		return ErrStop
	})
	if err != nil || lists != 2 || losses == 0 {
		t.Errorf("%d lists, %d losses, %v", lists, losses, err)
	}
	server.Close()
	gone := errors.New("gone")
	if err := c.WatchVolumes(ctx, func(error) error { return gone }, nil); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if err := c.WatchVolumes(short, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestRefusedCallers: each request asks for the token, which may be another one by then; and
// whoever is not let in is not asked about again.
func TestRefusedCallers(t *testing.T) {
	long := strings.Repeat("a long explanation ", 40) // the websocket library keeps 1024 bytes
	var shown []string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = append(shown, r.Header.Get("Authorization"))
		w.WriteHeader(map[bool]int{true: http.StatusUnauthorized, false: http.StatusForbidden}[len(shown) == 1])
		_, _ = io.WriteString(w, `{"type":"error","message":"`+long+`"}`)
	}))
	t.Cleanup(web.Close)
	n := 0
	c, err := NewWith(web.URL, func(context.Context) (string, error) { n++; return strconv.Itoa(n), nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Volumes(t.Context()); !IsUnauthenticated(err) || err.Error() != long {
		t.Errorf("unknown: %v", err)
	}
	err = c.WatchVolumes(t.Context(), nil, func([]resource.Volume) error { return nil })
	if err == nil || err.Error() != long || IsUnauthenticated(err) {
		t.Errorf("without the right: %v", err)
	}
	if !slices.Equal(shown, []string{"Bearer 1", "Bearer 2"}) {
		t.Errorf("shown: %v", shown)
	}
	failing, err := NewWith(web.URL, func(context.Context) (string, error) { return "", errors.New("no token") })
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		failing.DeleteVolume(t.Context(), "x"),
		failing.InstanceLog(t.Context(), "x", LogOptions{}, io.Discard),
		failing.WatchVolumes(t.Context(), nil, func([]resource.Volume) error { return nil }),
	} {
		if err == nil || err.Error() != "no token" {
			t.Errorf("without a token: %v", err)
		}
	}
}

// TestTokenOfWhoLeaves: who does not wait any more is told that, and not that there is no token.
func TestTokenOfWhoLeaves(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, err := NewWith("http://127.0.0.1:1", func(context.Context) (string, error) {
		cancel()
		return "", errors.New("the server of tokens does not answer")
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Volumes(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
