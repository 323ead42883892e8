package ssync_test

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/ssync"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/osdisk"
)

const token = "geheim"

var id = backingimage.ID{Name: "cirros", UUID: "0a1b2c3d"}

// sparse writes a file of n bytes with content in some places, and opens it.
func sparse(t testing.TB, n int64) (disk.File, []byte) {
	t.Helper()
	want := make([]byte, n)
	name := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(n); err != nil {
		t.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{3})
	for at := int64(0); at < n; at += 3 << 20 {
		p := want[at:min(at+1<<20+4096, n)]
		_, _ = random.Read(p)
		if _, err := f.WriteAt(p, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	opened, err := osdisk.New(nil).Open(name, disk.ReadOnly|disk.Direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return opened, want
}

func sumOf(p []byte) string {
	sum := sha512.Sum512(p)
	return hex.EncodeToString(sum[:])
}

// receiving is the receiver of a new file on a disk, behind a server.
type receiving struct {
	*ssync.Receiver
	disk   *store.Disk
	making *store.Making
	paths  backingimage.Paths
	server *httptest.Server
	done   atomic.Int64
	// before sees each request first; false drops its connection.
	before func(n int32, r *http.Request) bool
}

func receive(t testing.TB, size int64) *receiving {
	t.Helper()
	r := &receiving{disk: store.New(osdisk.New(nil), t.TempDir(), "", slog.New(slog.DiscardHandler))}
	r.paths = backingimage.InManager(r.disk.Root(), id)
	var err error
	if r.making, err = r.disk.Create(r.paths, id.UUID); err != nil {
		t.Fatal(err)
	}
	r.Receiver = ssync.NewReceiver(r.making, token, size, func(done, _ int64) { r.done.Store(done) })
	var n atomic.Int32
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.before != nil && !r.before(n.Add(1), q) {
			panic(http.ErrAbortHandler)
		}
		r.ServeHTTP(w, q)
	}))
	t.Cleanup(r.server.Close)
	return r
}

func (r *receiving) address() string { return strings.TrimPrefix(r.server.URL, "http://") }

// finish ends the transfer as a manager does.
func (r *receiving) finish(ctx context.Context, patience time.Duration) (backingimage.Record, error) {
	sum, err := r.Wait(ctx, patience)
	r.server.Close()
	r.Drain()
	if err != nil {
		return backingimage.Record{}, errors.Join(err, r.making.Abort())
	}
	return r.making.PublishRead(sum, nil)
}

// TestCopy: the file arrives as it is, holes as holes.
func TestCopy(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{512, 4096, 1<<20 + 1536, 10<<20 + 512, 12 << 20} {
		f, want := sparse(t, n)
		r := receive(t, n)
		sent := make(chan error, 1)
		go func() { sent <- ssync.Send(t.Context(), r.address(), token, f, sumOf(want)) }()
		record, err := r.finish(t.Context(), time.Minute)
		if err := errors.Join(<-sent, err); err != nil {
			t.Errorf("%d bytes: %v", n, err)
			continue
		}
		if record.CurrentChecksum != sumOf(want) || record.Size != n || r.done.Load() != n {
			t.Errorf("%d bytes: %+v, %d done", n, record, r.done.Load())
		}
		got, err := os.ReadFile(r.paths.File)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: other content, %v", n, err)
		}
		before, err := f.Stat()
		if err != nil || record.RealSize > before.Allocated+8192 {
			t.Errorf("%d bytes: %d allocated, the original has %d, %v", n, record.RealSize, before.Allocated, err)
		}
	}
}

// TestAnyRequestIsLost: the connection ends at each request in turn. The sender says so, the
// receiver gives up, and nothing is left.
func TestAnyRequestIsLost(t *testing.T) {
	t.Parallel()
	f, want := sparse(t, 4<<20)
	for lost := int32(1); ; lost++ {
		r := receive(t, 4<<20)
		var hit atomic.Bool
		r.before = func(n int32, _ *http.Request) bool {
			if n == lost {
				hit.Store(true)
			}
			return n < lost
		}
		sent := ssync.Send(t.Context(), r.address(), token, f, sumOf(want))
		_, err := r.finish(t.Context(), 50*time.Millisecond)
		if !hit.Load() {
			if sent != nil || err != nil || lost < 5 {
				t.Errorf("%d requests: %v, %v", lost-1, sent, err)
			}
			return
		}
		if sent == nil || err == nil {
			t.Errorf("request %d lost: sender %v, receiver %v", lost, sent, err)
		}
		if found, err := r.disk.Scan(); err != nil || len(found) > 0 {
			t.Errorf("request %d lost: %v, %v", lost, found, err)
		}
		if names, err := os.ReadDir(filepath.Dir(r.paths.Dir)); err != nil || len(names) > 0 {
			t.Errorf("request %d lost: %v, %v", lost, names, err)
		}
	}
}

// TestOtherContent: what the sender says of its file is compared with what has arrived.
func TestOtherContent(t *testing.T) {
	t.Parallel()
	f, _ := sparse(t, 1<<20)
	r := receive(t, 0)
	if err := ssync.Send(t.Context(), r.address(), token, f, sumOf(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.finish(t.Context(), time.Minute); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("%v", err)
	}
}

// TestAnotherSize: a sender whose file has another size than expected need not be waited for.
func TestAnotherSize(t *testing.T) {
	t.Parallel()
	f, want := sparse(t, 1<<20)
	r := receive(t, 1<<19)
	if err := ssync.Send(t.Context(), r.address(), token, f, sumOf(want)); err == nil {
		t.Error("it is sent")
	}
	if _, err := r.finish(t.Context(), time.Hour); err == nil || !strings.Contains(err.Error(), "of 1048576 bytes") {
		t.Errorf("%v", err)
	}
}

// TestStranger: without the token nothing happens, and the sender is not waited for any longer.
func TestStranger(t *testing.T) {
	t.Parallel()
	f, want := sparse(t, 1<<20)
	r := receive(t, 1<<20)
	if err := ssync.Send(t.Context(), r.address(), "another", f, sumOf(want)); err == nil ||
		!strings.Contains(err.Error(), "401") {
		t.Errorf("%v", err)
	}
	if _, err := r.finish(t.Context(), 20*time.Millisecond); !errors.Is(err, ssync.ErrSilent) || r.done.Load() > 0 {
		t.Errorf("%v, %d bytes", err, r.done.Load())
	}
}

// TestWrongRequests are refused and change nothing; those about content that is lost end the
// transfer.
func TestWrongRequests(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, method, request, body string
		status                      int
		ends                        bool
	}{
		{"open again", "GET", "open?begin=0&end=8192", "", 400, false}, {"no range", "POST", "sendHole", "", 400, false},
		{"backwards", "POST", "sendHole?begin=4096&end=0", "", 400, false}, {"beyond", "POST",
			"sendHole?begin=4096&end=12288", "", 400, false},
		{"negative", "POST", "sendHole?begin=-4096&end=4096", "", 400, false},
		{"empty", "POST", "sendHole?begin=0&end=0", "", 400, false},
		{"short", "POST", "writeData?begin=0&end=4096", "abc", 400, false}, {"nothing", "POST",
			"writeData?begin=0&end=4096", "", 400, false},
		{"another path", "GET", "list", "", 404, false}, {"another method", "GET", "close", "", 405, false},
		{"checksum", "GET", "getChecksum?begin=0&end=4096", "", 200, false}, {"metadata", "GET", "getRecordedMetadata", "",
			404, false},
		{"close early", "POST", "close", "", 500, true}, {"no block", "POST", "sendHole?begin=512&end=4096", "", 500, true},
	} {
		r := receive(t, 8192)
		ask := func(method, request, body string) int {
			t.Helper()
			q, err := http.NewRequestWithContext(t.Context(), method, r.server.URL+"/v1-ssync/"+request, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Authorization", ssync.Authorization(token))
			a, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			_, _ = io.Copy(io.Discard, a.Body)
			return a.StatusCode
		}
		if got := ask("POST", "sendHole?begin=0&end=4096", ""); got != 400 {
			t.Errorf("before it is open: %d", got)
		}
		if got := ask("GET", "open?begin=0&end=8192", ""); got != 200 {
			t.Fatalf("open: %d", got)
		}
		if got := ask(tt.method, tt.request, tt.body); got != tt.status {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.status)
		}
		after := ask("POST", "sendHole?begin=0&end=8192", "")
		if want := map[bool]int{false: 200, true: 409}[tt.ends]; after != want {
			t.Errorf("%s: then %d, want %d", tt.name, after, want)
		}
		if !tt.ends {
			if got := ask("POST", "close", ""); got != 200 {
				t.Errorf("%s: close: %d", tt.name, got)
			}
		}
		if _, err := r.finish(t.Context(), time.Minute); (err != nil) != tt.ends {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestARangeIsMissing: a range that comes twice does not stand for another one.
func TestARangeIsMissing(t *testing.T) {
	t.Parallel()
	r := receive(t, 8192)
	ask := func(method, request string) int {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, r.server.URL+"/v1-ssync/"+request, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", ssync.Authorization(token))
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		return a.StatusCode
	}
	for _, request := range []string{"GET open?begin=0&end=8192", "POST sendHole?begin=0&end=4096",
		"POST sendHole?begin=0&end=4096"} {
		method, request, _ := strings.Cut(request, " ")
		if got := ask(method, request); got != http.StatusOK {
			t.Fatalf("%s: %d", request, got)
		}
	}
	if got := ask("POST", "close"); got != http.StatusInternalServerError {
		t.Errorf("close: %d", got)
	}
	if _, err := r.finish(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), "4096 of 8192") {
		t.Errorf("%v", err)
	}
}

// TestReceiverIsCanceled, also while a sender is at work; the sender notices.
func TestReceiverIsCanceled(t *testing.T) {
	t.Parallel()
	f, want := sparse(t, 12<<20)
	r := receive(t, 12<<20)
	ctx, cancel := context.WithCancel(t.Context())
	r.before = func(n int32, _ *http.Request) bool {
		if n == 4 {
			cancel()
		}
		return true
	}
	sent := make(chan error, 1)
	go func() { sent <- ssync.Send(t.Context(), r.address(), token, f, sumOf(want)) }()
	if _, err := r.finish(ctx, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := <-sent; err == nil {
		t.Error("the sender has not noticed")
	}
}
