package s3

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"ankole.storage/backup"
	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
	"ankole.storage/backup/object/objecttest"
)

// server is an S3 server with bucket "bucket" on loopback; before may answer a request itself.
type server struct {
	*httptest.Server
	requests atomic.Int64
	before   func(w http.ResponseWriter, r *http.Request) (answered bool)
}

func serve(t *testing.T, start func(http.Handler) *httptest.Server, options ...gofakes3.Option) *server {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	s := &server{}
	fake := gofakes3.New(backend, append(options, gofakes3.WithLogger(gofakes3.DiscardLog()))...).Server()
	s.Server = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if s.before == nil || !s.before(w, r) {
			fake.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func open(t *testing.T, s *server, change ...func(*Config)) *Store {
	t.Helper()
	c := Config{Bucket: "bucket", Prefix: "some/path/", Endpoint: s.URL, AccessKeyID: "id", SecretAccessKey: "secret"}
	for _, f := range change {
		f(&c)
	}
	store, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestS3Conforms(t *testing.T) {
	t.Parallel()
	objecttest.Suite(t, func(t *testing.T) object.Store { return open(t, serve(t, httptest.NewServer)) })
}

// TestS3Addressing: the bucket in the path, and in the host's name.
func TestS3Addressing(t *testing.T) {
	t.Parallel()
	for _, virtual := range []bool{false, true} {
		s := serve(t, httptest.NewServer, gofakes3.WithHostBucket(virtual))
		var path, host string
		s.before = func(_ http.ResponseWriter, r *http.Request) bool { path, host = r.URL.Path, r.Host; return false }
		store := open(t, s, func(c *Config) {
			c.VirtualHosted, c.Endpoint = virtual, "http://s3.test"
			c.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, s.Listener.Addr().String())
			}
		})
		if err := store.Put(t.Context(), "a/x", []byte("x")); err != nil {
			t.Fatal(err)
		}
		if want := [2]string{"/bucket/some/path/a/x", "s3.test"}; !virtual && [2]string{path, host} != want {
			t.Errorf("path style: %s at %s", path, host)
		}
		if want := [2]string{"/some/path/a/x", "bucket.s3.test"}; virtual && [2]string{path, host} != want {
			t.Errorf("virtual-hosted style: %s at %s", path, host)
		}
		if got, err := store.Get(t.Context(), "a/x", nil, 10); err != nil || string(got) != "x" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// TestS3CA: a server with a certificate of its own authority is trusted if that is given.
func TestS3CA(t *testing.T) {
	t.Parallel()
	s := serve(t, httptest.NewTLSServer)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := open(t, s, func(c *Config) { c.CA = ca }).Put(t.Context(), "x", []byte("x")); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := open(t, s).Put(ctx, "x", []byte("x")); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the authority: %v", err)
	}
	if _, err := New(Config{Bucket: "b", AccessKeyID: "i", SecretAccessKey: "s", CA: []byte("none")}); err == nil {
		t.Error("no certificate is taken for one")
	}
}

// TestS3Credentials: requests are signed, with the token of a session, and messages hold no secret.
func TestS3Credentials(t *testing.T) {
	t.Parallel()
	s := serve(t, httptest.NewServer)
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("X-Amz-Security-Token") == "the-token" &&
			strings.Contains(r.Header.Get("Authorization"), "Credential=id/") {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `<Error><Code>InvalidAccessKeyId</Code><Message>no</Message></Error>`)
		return true
	}
	if err := open(t, s, func(c *Config) { c.SessionToken = "the-token" }).Put(t.Context(), "x", nil); err != nil {
		t.Error(err)
	}
	err := open(t, s, func(c *Config) { c.SessionToken = "another-token" }).Put(t.Context(), "x", nil)
	if !errors.Is(err, object.ErrRefused) || strings.Contains(err.Error(), "another-token") ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
	for _, c := range []Config{{}, {Bucket: "b", SecretAccessKey: "s"}, {Bucket: "b", AccessKeyID: "i"},
		{Bucket: "b", AccessKeyID: "i", SecretAccessKey: "s", Prefix: "/x"}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// TestS3Faults: what passes is repeated; what does not is told for what it is.
func TestS3Faults(t *testing.T) {
	t.Parallel()
	answer := func(status int, code string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(status)
			fmt.Fprintf(w, `<Error><Code>%s</Code><Message>m</Message></Error>`, code)
		}
	}
	later := func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "1")
		answer(503, "ServiceUnavailable")(w)
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
		"busy":        {answer(503, "SlowDown"), 2, nil, ""},
		"later":       {later, 2, nil, ""},
		"error":       {answer(500, "InternalError"), 1, nil, ""},
		"cut":         {cut, 2, nil, ""},
		"refused":     {answer(403, "AccessDenied"), 100, object.ErrRefused, "rights"},
		"no bucket":   {answer(404, "NoSuchBucket"), 100, nil, "no such bucket"},
		"full":        {answer(403, "QuotaExceeded"), 100, object.ErrNoSpace, "s3://bucket"},
		"no space":    {answer(507, "XMinioStorageFull"), 100, object.ErrNoSpace, "space"},
		"not allowed": {answer(405, "MethodNotAllowed"), 100, nil, "reading a/x"},
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
			got, err := store.Get(t.Context(), "a/x", nil, 1000)
			switch {
			case tt.message == "" && (err != nil || string(got) != "content"):
				t.Errorf("%q, %v", got, err)
			case tt.message != "" && (err == nil || !strings.Contains(err.Error(), tt.message)):
				t.Errorf("%v", err)
			case tt.want != nil && !errors.Is(err, tt.want), tt.want == nil && errors.Is(err, object.ErrNotFound):
				t.Errorf("%v", err)
			}
		})
	}
}

// TestS3Poll: a list of volumes takes a request for each, and one more, whatever they have; that of
// the backups of one a request for each thousand.
func TestS3Poll(t *testing.T) {
	t.Parallel()
	s := serve(t, httptest.NewServer)
	store := open(t, s)
	const volumes, backups = 7, 1205
	put := func(name string) {
		if err := store.Put(t.Context(), name, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	for i := range volumes {
		v := fmt.Sprint("vol-", i)
		put(format.VolumeRecord(v))
		put(format.BackupRecord(v, "backup-1"))
		put(format.BlocksFolder(v) + "aa/bb/cc.blk")
	}
	for i := range backups {
		put(format.BackupRecord("vol-1", fmt.Sprint("backup-", i)))
	}
	// Consoles of S3 make such an object for a folder that somebody makes by hand.
	_, err := store.client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &store.bucket,
		Key: aws.String(store.prefix + format.VolumesFolder() + "ff/")})
	if err != nil {
		t.Fatal(err)
	}
	s.requests.Store(0)
	all, err := backup.Volumes(t.Context(), store)
	if n := s.requests.Load(); err != nil || len(all) != volumes || n > volumes+1 {
		t.Errorf("%d requests for %+v, %v", n, all, err)
	}
	for _, v := range all {
		if v.Modified.IsZero() {
			t.Errorf("%+v", v)
		}
	}
	s.requests.Store(0)
	names, err := backup.Backups(t.Context(), store, "vol-1")
	if n := s.requests.Load(); err != nil || len(names) != backups || n > 2 {
		t.Errorf("%d requests for %d backups, %v", n, len(names), err)
	}
}

// volume is a source whose blocks below size have changed.
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

// TestS3Requests: a backup to S3 takes a request for each changed block and at most 20 more.
func TestS3Requests(t *testing.T) {
	t.Parallel()
	s := serve(t, httptest.NewServer)
	store := open(t, s)
	const blocks = 12
	for run := range 3 {
		v := make(volume, blocks*2<<20)
		for i := range blocks {
			v[i*2<<20] = byte(i + 1)
			v[i*2<<20+1] = byte(max(run, 1)) // the last two runs have the same content
		}
		s.requests.Store(0)
		b, err := backup.Create(t.Context(), store, v, backup.CreateOptions{Volume: "vol1", Backup: fmt.Sprint("b-", run),
			Snapshot: fmt.Sprint("s-", run), SnapshotCreated: time.Unix(int64(run), 0)})
		if err != nil || len(b.Blocks) != blocks {
			t.Fatalf("%+v, %v", b, err)
		}
		n := s.requests.Load()
		t.Logf("run %d: %d requests for %d blocks", run, n, blocks)
		// A list of a large store takes 8 requests, here 1.
		if n+7 > blocks+20 {
			t.Errorf("run %d: %d requests for %d blocks", run, n, blocks)
		}
		target := make(volume, len(v))
		_, err = backup.Restore(t.Context(), store, target, backup.RestoreOptions{Volume: "vol1", Backup: b.Name})
		if err != nil || !bytes.Equal(target, v) {
			t.Errorf("restored: %v", err)
		}
	}
	v, err := backup.Verify(t.Context(), store, "vol1", backup.VerifyOptions{})
	if err != nil || len(v.Faults) > 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := backup.Delete(t.Context(), store, "vol1", "b-0"); err != nil {
		t.Error(err)
	}
	if err := backup.DeleteVolume(t.Context(), store, "vol1"); err != nil {
		t.Error(err)
	}
	for info, err := range store.List(t.Context(), "", true) {
		t.Errorf("%s stays, %v", info.Name, err)
	}
}
