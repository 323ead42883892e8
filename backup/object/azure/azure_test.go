package azure

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"ankole.storage/backup"
	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
	"ankole.storage/backup/object/objecttest"
)

func open(t *testing.T, s *server, change ...func(*Config)) *Store {
	t.Helper()
	c := Config{Container: "container", Prefix: "some/path/", Endpoint: s.URL + s.path, Account: account, Key: accountKey,
		pause: time.Millisecond}
	for _, f := range change {
		f(&c)
	}
	store, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestAzureConforms(t *testing.T) {
	t.Parallel()
	objecttest.Suite(t, func(t *testing.T) object.Store { return open(t, serve(t, httptest.NewServer)) })
}

// TestAzureAddressing: the account in the host's name, as in Azure, and in the path, as servers
// elsewhere have it.
func TestAzureAddressing(t *testing.T) {
	t.Parallel()
	for suffix, want := range map[string]string{"": "https://account.blob.core.windows.net/container",
		"core.chinacloudapi.cn": "https://account.blob.core.chinacloudapi.cn/container"} {
		s, err := New(Config{Container: "container", Account: account, Key: accountKey, Suffix: suffix})
		if err != nil || s.at.String() != want {
			t.Errorf("%q: %v, %v", suffix, s.at, err)
		}
	}
	s := serve(t, httptest.NewServer)
	s.path = "/" + account
	store := open(t, s, func(c *Config) { c.Endpoint += "/" })
	if err := store.Put(t.Context(), "a/x y+z", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if got, err := store.Get(t.Context(), "a/x y+z", nil, 10); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	if _, there := s.blobs["some/path/a/x y+z"]; !there {
		t.Errorf("%v", s.blobs)
	}
}

// TestAzureCA: a server with a certificate of its own authority is trusted if that is given.
func TestAzureCA(t *testing.T) {
	t.Parallel()
	s := serve(t, httptest.NewTLSServer)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := open(t, s, func(c *Config) { c.CA = ca }).Put(t.Context(), "x", []byte("x")); err != nil {
		t.Error(err)
	}
	if err := open(t, s).Put(t.Context(), "x", []byte("x")); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the authority: %v", err)
	}
}

// TestAzureCredentials: another key is refused, and messages hold no secret. What cannot be is told
// before anything is asked.
func TestAzureCredentials(t *testing.T) {
	t.Parallel()
	s := serve(t, httptest.NewServer)
	const other = "YW5vdGhlciBrZXkgaW4gYmFzZTY0"
	err := open(t, s, func(c *Config) { c.Key = other }).Put(t.Context(), "x", nil)
	if !errors.Is(err, object.ErrRefused) || strings.Contains(err.Error(), other) ||
		!strings.Contains(err.Error(), "AuthenticationFailed That is so.") || strings.Contains(err.Error(), "RequestId") {
		t.Errorf("%v", err)
	}
	good := Config{Container: "c", Account: account, Key: accountKey}
	for what, change := range map[string]func(*Config){
		"no container": func(c *Config) { c.Container = "" }, "no account": func(c *Config) { c.Account = "" },
		"no key": func(c *Config) { c.Key = "" }, "no base64": func(c *Config) { c.Key = "hunter2!" },
		"prefix": func(c *Config) { c.Prefix = "/x" }, "no URL": func(c *Config) { c.Endpoint = "azurite:10000" },
		"user": func(c *Config) { c.Endpoint = "http://u:hunter2!@h" }, "host": func(c *Config) { c.Account = "a/hunter2! " },
		"certificate": func(c *Config) { c.CA = []byte("none") },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil || strings.Contains(err.Error(), "hunter2!") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestAzureFaults: what passes is repeated; what does not is told for what it is.
func TestAzureFaults(t *testing.T) {
	t.Parallel()
	answer := func(status int, code string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { fails(w, status, code) }
	}
	cut := func(w http.ResponseWriter) { // the connection breaks within the content
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "half")
		panic(http.ErrAbortHandler)
	}
	for what, tt := range map[string]struct {
		answer  func(http.ResponseWriter)
		times   int64
		want    error
		message string
	}{
		"busy":         {answer(503, "ServerBusy"), 4, nil, ""},
		"busy forever": {answer(503, "ServerBusy"), 5, nil, "ServerBusy"},
		"too many":     {answer(429, "TooManyRequests"), 2, nil, ""},
		"error":        {answer(500, "InternalError"), 1, nil, ""},
		"cut":          {cut, 2, nil, ""},
		"refused":      {answer(403, "AuthorizationFailure"), 1, object.ErrRefused, "rights"},
		"no container": {answer(404, "ContainerNotFound"), 1, nil, "no such container"},
		"no space":     {answer(507, "InsufficientStorage"), 1, object.ErrNoSpace, "space"},
		"elsewhere":    {answer(307, "Redirected"), 1, nil, "reading a/x"},
		"not allowed":  {answer(405, "UnsupportedHttpVerb"), 1, nil, "reading a/x"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := serve(t, httptest.NewServer)
			store := open(t, s)
			if err := store.Put(t.Context(), "a/x", []byte("content")); err != nil {
				t.Fatal(err)
			}
			var n atomic.Int64
			s.before = func(w http.ResponseWriter, _ *http.Request) bool {
				if n.Add(1) > tt.times {
					return false
				}
				tt.answer(w)
				return true
			}
			got, err := store.Get(t.Context(), "a/x", []byte("before "), 1000)
			switch {
			case tt.message == "" && (err != nil || string(got) != "before content"):
				t.Errorf("%q, %v", got, err)
			case tt.message != "" && (err == nil || !strings.Contains(err.Error(), tt.message) || string(got) != "before "):
				t.Errorf("%q, %v", got, err)
			case tt.want != nil && !errors.Is(err, tt.want), tt.want == nil && errors.Is(err, object.ErrNotFound):
				t.Errorf("%v", err)
			}
		})
	}
}

// volume is a source and a target.
type volume []byte

func (v volume) SizeBytes() int64 { return int64(len(v)) }

func (v volume) Changed(context.Context, backup.Base) iter.Seq2[backup.Extent, error] {
	return func(yield func(backup.Extent, error) bool) { yield(backup.Extent{Length: int64(len(v))}, nil) }
}

func (v volume) ReadAt(_ context.Context, p []byte, offset int64) error {
	copy(p, v[offset:])
	return nil
}

func (v volume) WriteAt(p []byte, offset int64) (int, error) { return copy(v[offset:], p), nil }

func (v volume) ZeroAt(offset, length int64) error { clear(v[offset : offset+length]); return nil }

// TestAzureBackups: volumes are backed up, listed, restored, verified and deleted, and a poll costs
// ten requests for each volume at most, whatever it has.
func TestAzureBackups(t *testing.T) {
	t.Parallel()
	s := serve(t, httptest.NewServer)
	s.page = 5000
	store := open(t, s)
	v := make(volume, 4*format.DefaultBlockBytes)
	for i := range 4 {
		v[i*format.DefaultBlockBytes] = byte(i + 1)
	}
	names := []string{"vol-1", "vol-2", "vol-3"}
	each := func(do func(volume string) error) { // beside each other: a lock takes its time
		var all errgroup.Group
		for _, name := range names {
			all.Go(func() error { return do(name) })
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	each(func(volume string) error {
		_, err := backup.Create(t.Context(), store, v, backup.CreateOptions{Volume: volume, Backup: "b-1", Snapshot: "s",
			SnapshotCreated: time.Unix(1, 0)})
		return err
	})
	target := make(volume, len(v))
	_, err := backup.Restore(t.Context(), store, target, backup.RestoreOptions{Volume: "vol-2", Backup: "b-1"})
	if err != nil || !bytes.Equal(target, v) {
		t.Errorf("restored: %v", err)
	}
	if got, err := backup.Verify(t.Context(), store, "vol-2", backup.VerifyOptions{}); err != nil || len(got.Faults) > 0 ||
		got.Blocks != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	s.requests.Store(0)
	all, err := backup.Volumes(t.Context(), store)
	if n := s.requests.Load(); err != nil || len(all) != len(names) || n > 10*int64(len(names)) {
		t.Errorf("%d requests for %+v, %v", n, all, err)
	}
	for i, v := range all {
		if v.Name != names[i] || v.Modified.IsZero() {
			t.Errorf("%+v", v)
		}
	}
	each(func(volume string) error { return backup.DeleteVolume(t.Context(), store, volume) })
	if len(s.blobs) > 0 {
		t.Errorf("%d blobs stay", len(s.blobs))
	}
}
