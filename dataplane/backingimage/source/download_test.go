package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ankole.storage/test/wait"
)

func anyAddress(netip.Addr) error { return nil }

// quick is for servers of a test: their address is loopback, and pauses are short.
var quick = Options{Policy: anyAddress, Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
	Pause: time.Microsecond}

func bytesOf(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(p)
	return p
}

// file is a server of one file that cuts each answer after some bytes.
type file struct {
	content []byte
	// cut is after how many bytes of an answer; 0: never.
	cut int
	// etag of the content, and what it is from the second request on, if not empty.
	etag, later string
	// noRange: ranges are not known. noLength: the size is not told. lie is added to it.
	noRange, noLength bool
	lie               int
	// refuse answers so many requests with 503 first.
	refuse   int32
	requests atomic.Int32
	ranges   []string
}

func (f *file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := f.requests.Add(1)
	if n <= f.refuse {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	etag := f.etag
	if n > 1 && f.later != "" {
		etag = f.later
	}
	if etag != "" {
		w.Header().Set("ETag", etag)
	}
	f.ranges = append(f.ranges, r.Header.Get("Range"))
	rest, status := f.content, http.StatusOK
	if from, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && !f.noRange &&
		(r.Header.Get("If-Range") == "" || r.Header.Get("If-Range") == etag) {
		at, err := strconv.Atoi(strings.TrimSuffix(from, "-"))
		if err != nil || at >= len(f.content) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		rest, status = f.content[at:], http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, len(f.content)-1, len(f.content)))
	}
	if !f.noLength {
		w.Header().Set("Content-Length", strconv.Itoa(len(rest)+f.lie))
	}
	w.WriteHeader(status)
	if f.noLength {
		w.(http.Flusher).Flush()
	}
	if f.cut > 0 && f.cut < len(rest) {
		_, _ = w.Write(rest[:f.cut])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(rest)
	if f.lie > 0 {
		panic(http.ErrAbortHandler)
	}
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = nil
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func fetch(t *testing.T, address string, o Options) (int64, []byte, error) {
	t.Helper()
	d, err := Open(t.Context(), address, o)
	if err != nil {
		return 0, nil, err
	}
	defer d.Close()
	size := d.Size()
	got, err := io.ReadAll(d)
	return size, got, err
}

// TestDownloadGoesOn: whatever the server does to the connection, what comes is its content, whole,
// or an error that says why not.
func TestDownloadGoesOn(t *testing.T) {
	t.Parallel()
	const size = 300_000
	for _, tt := range []struct {
		name    string
		f       *file
		checked bool
		says    string // of the error; "" is none
	}{
		{"whole", &file{}, false, ""}, {"size unknown", &file{noLength: true}, false, ""},
		{"cut, with an ETag", &file{cut: 70_000, etag: `"a"`}, false, ""},
		{"cut, size unknown", &file{cut: 70_000, etag: `"a"`, noLength: true}, false, ""},
		{"cut, nothing known", &file{cut: 70_000}, false, "give the expected checksum"},
		{"cut, nothing known, but a checksum", &file{cut: 70_000}, true, ""},
		{"cut, weak ETag", &file{cut: 70_000, etag: `W/"a"`}, false, "give the expected checksum"},
		{"cut, then another ETag", &file{cut: 70_000, etag: `"a"`, later: `"b"`}, false, "has changed"},
		{"cut, then another ETag, checksum", &file{cut: 70_000, etag: `"a"`, later: `"b"`}, true, "has changed"},
		{"cut once, no ranges", &file{cut: 299_999, etag: `"a"`, noRange: true}, false, "cut after 299999 bytes"},
		{"busy", &file{refuse: 3}, false, ""}, {"always busy", &file{refuse: 99}, false, "503"},
		{"shorter than told", &file{lie: 1000, etag: `"a"`}, false, "has changed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, o := tt.f, quick
			f.content, o.Checked = bytesOf(size), tt.checked
			told, got, err := fetch(t, serve(t, f).URL, o)
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Fatalf("%d bytes, %v, want %q", len(got), err, tt.says)
				}
				return
			}
			want := f.content
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%d bytes, %v; requests for %q", len(got), err, f.ranges)
			}
			if wantSize := int64(len(want)); f.noLength && told != -1 || !f.noLength && told != wantSize {
				t.Errorf("told to be %d", told)
			}
		})
	}
}

// TestServerWithoutRanges: one that can only begin anew is passed over what is there.
func TestServerWithoutRanges(t *testing.T) {
	t.Parallel()
	want := bytesOf(300_000)
	f := &file{content: want, cut: 200_000, etag: `"a"`, noRange: true}
	var served atomic.Int32
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1) > 1 {
			f.cut = 0
		}
		f.ServeHTTP(w, r)
	}))
	if _, got, err := fetch(t, s.URL, quick); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestShortRanges: a server that gives less of the rest than it was asked for is asked again.
func TestShortRanges(t *testing.T) {
	t.Parallel()
	want := bytesOf(300_000)
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"a"`)
		at, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-"))
		if err != nil { // the first request
			w.Header().Set("Content-Length", strconv.Itoa(len(want)))
			_, _ = w.Write(want[:1000])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		end := min(at+70_000, len(want))
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, end-1, len(want)))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(want[at:end])
	}))
	if _, got, err := fetch(t, s.URL, quick); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestWrongRanges: bytes from another place are not joined to those that are there.
func TestWrongRanges(t *testing.T) {
	t.Parallel()
	for _, contentRange := range []string{"", "bytes 0-9/20", "bytes 10-9/20", "bytes 10-19/30", "bytes 10-18/20",
		"bytes 11-19/20",
		"bytes 10-19", "octets 10-19/20", "bytes 10-99999999999999999999/*"} {
		s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"a"`)
			if r.Header.Get("Range") == "" {
				w.Header().Set("Content-Length", "20")
				_, _ = w.Write(make([]byte, 10))
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Content-Range", contentRange)
			w.Header().Set("Content-Length", "10")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(make([]byte, 10))
		}))
		if _, got, err := fetch(t, s.URL, quick); !errors.Is(err, ErrRefused) || len(got) != 10 {
			t.Errorf("%q: %d bytes, %v", contentRange, len(got), err)
		}
	}
}

// TestAnotherVersionAsARest: a server that takes no notice of If-Range tells by the ETag of the
// rest that it is another content's.
func TestAnotherVersionAsARest(t *testing.T) {
	t.Parallel()
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") == "" {
			w.Header().Set("ETag", `"a"`)
			w.Header().Set("Content-Length", "20")
			_, _ = w.Write(make([]byte, 10))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("ETag", `"b"`)
		w.Header().Set("Content-Range", "bytes 10-19/20")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(make([]byte, 10))
	}))
	o := quick
	o.Checked = true
	if _, got, err := fetch(t, s.URL, o); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(),
		"another version") {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestSilentServer: one that keeps the connection and sends nothing is left.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "20")
		_, _ = w.Write(make([]byte, 10))
		w.(http.Flusher).Flush()
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(over) })
	o := quick
	o.Silence, o.Checked = 50*time.Millisecond, true
	if _, got, err := fetch(t, s.URL, o); err == nil || !strings.Contains(err.Error(), "sends nothing") {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestHTTP2 and its cuts.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	f := &file{content: bytesOf(300_000), cut: 100_000, etag: `"a"`}
	var proto atomic.Value
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proto.Store(r.Proto)
		f.ServeHTTP(w, r)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	o := quick
	o.Client = func(tr *http.Transport) {
		tr.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	}
	if _, got, err := fetch(t, s.URL, o); err != nil || !bytes.Equal(got, f.content) || proto.Load() != "HTTP/2.0" {
		t.Errorf("%d bytes by %v, %v", len(got), proto.Load(), err)
	}
	if _, _, err := fetch(t, s.URL, quick); err == nil {
		t.Error("a server with an unknown certificate is believed")
	}
}

// TestCanceled: the end of the context is the end of the download, also in a pause.
func TestCanceled(t *testing.T) {
	t.Parallel()
	f := &file{content: bytesOf(1000), refuse: 99}
	o := quick
	o.Pause = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	address := serve(t, f).URL
	go func() {
		_, err := Open(ctx, address, o)
		done <- err
	}()
	wait.Until(t, "the first request", func() bool { return f.requests.Load() > 0 })
	cancel()
	if err := wait.Receive(t, "the end", done); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestOutside(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{"127.0.0.1": false, "127.8.8.8": false, "::1": false, "::ffff:127.0.0.1": false,
		"0.0.0.0": false, "0.1.2.3": false, "::": false, "169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false,
		"::ffff:169.254.169.254": false, "::ffff:0.1.2.3": false, "64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false,
		"224.0.0.1":       false,
		"ff02::1":         false,
		"255.255.255.255": false, "10.0.0.1": true, "192.168.1.1": true, "93.184.216.34": true, "2001:db8::1": true,
		"fd00::1":        true,
		"64:ff9b::a00:1": true} {
		if err := Outside(netip.MustParseAddr(text)); (err == nil) != ok || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestLoopbackIsRefused however it is named: as an address, as a name, or by a redirect; no request
// arrives.
func TestLoopbackIsRefused(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	secret := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	_, port, err := net.SplitHostPort(secret.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	o := quick
	o.Policy = nil
	for _, address := range []string{secret.URL, "http://localhost:" + port, "http://[::ffff:127.0.0.1]:" + port,
		"http://0.0.0.0:" + port, "http://[::]:" + port, "http://[::1]:" + port} {
		if _, _, err := fetch(t, address, o); err == nil {
			t.Errorf("%s is fetched", address)
		}
	}
	// A server that may be asked sends to one that may not: 127.0.0.1 is it, 127.0.0.2 is not.
	redirecting := serve(t, http.RedirectHandler("http://127.0.0.2:"+port, http.StatusFound))
	o.Policy = func(a netip.Addr) error {
		if a == netip.MustParseAddr("127.0.0.1") {
			return nil
		}
		return Outside(a)
	}
	if _, _, err := fetch(t, redirecting.URL, o); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(),
		"127.0.0.2") {
		t.Errorf("redirected: %v", err)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("%d requests have arrived", n)
	}
}

// TestURLsThatAreRefused, and answers that no repetition changes.
func TestURLsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	for address, says := range map[string]string{"file:///etc/passwd": "scheme", "ftp://host/x": "scheme",
		"http:///x": "no server",
		"":          "scheme", "http://[": "cannot be read", s.URL + "/loop": "redirects", s.URL + "/file": "scheme", s.URL +
			"/none": "404",
		"http://user:geheim@host:bad/": "cannot be read"} {
		_, _, err := fetch(t, address, quick)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v, want %q", address, err, says)
		}
	}
}

// TestProxy: where one is set it is asked, wherever it is, but not for what is refused.
func TestProxy(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	proxy := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.String())
		_, _ = w.Write([]byte("by the proxy"))
	}))
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Proxy: func(*http.Request) (*url.URL, error) { return at, nil }, Pause: time.Microsecond}
	const address = "http://203.0.113.1/x" // of documentation (RFC 5737): nobody is there
	if _, got, err := fetch(t, address, o); err != nil || string(got) != "by the proxy" || asked.Load() != address {
		t.Errorf("%q, %v, asked for %v", got, err, asked.Load())
	}
	for _, address := range []string{"http://127.0.0.1/", "http://169.254.169.254/latest", "http://localhost/"} {
		if _, _, err := fetch(t, address, o); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
