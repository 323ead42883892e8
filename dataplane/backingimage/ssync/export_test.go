package ssync_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ankole.storage/dataplane/backingimage/ssync"
	"ankole.storage/dataplane/disk"
)

// failing is a file that cannot be read from some place on.
type failing struct {
	disk.File
	from int64
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off >= f.from {
		return 0, errors.New("the replica is gone")
	}
	return f.File.ReadAt(p, off)
}

// TestSenderGivesUp: a sender that fails says why, and the receiver waits no longer.
func TestSenderGivesUp(t *testing.T) {
	t.Parallel()
	f, _ := sparse(t, 4<<20)
	r := receive(t, 0)
	if err := ssync.Send(t.Context(), r.address(), token, failing{f, 2 << 20}, ""); err == nil {
		t.Error("it is sent")
	}
	if _, err := r.finish(t.Context(), time.Hour); !errors.Is(err, ssync.ErrGivenUp) ||
		!strings.Contains(err.Error(), "the replica is gone") {
		t.Errorf("%v", err)
	}
}

// TestSecondSender: a sender that comes second is refused, and does not end the first one's
// transfer.
func TestSecondSender(t *testing.T) {
	t.Parallel()
	f, want := sparse(t, 4<<20)
	r := receive(t, 0)
	second := make(chan error, 1)
	var once sync.Once
	r.before = func(_ int32, q *http.Request) bool {
		if strings.HasSuffix(q.URL.Path, "/writeData") {
			once.Do(func() { second <- ssync.Send(t.Context(), r.address(), token, f, "") })
		}
		return true
	}
	if err := ssync.Send(t.Context(), r.address(), token, f, sumOf(want)); err != nil {
		t.Error(err)
	}
	if err := <-second; err == nil || !strings.Contains(err.Error(), "opened already") {
		t.Errorf("the second one: %v", err)
	}
	if _, err := r.finish(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
}

// TestSendInOrder: ranges come one after the other, and the file is the same.
func TestSendInOrder(t *testing.T) {
	t.Parallel()
	f, want := sparse(t, 10<<20+512)
	r := receive(t, 0)
	var next lastEnd
	r.before = func(_ int32, q *http.Request) bool {
		if what := q.URL.Path; strings.HasSuffix(what, "/writeData") || strings.HasSuffix(what, "/sendHole") {
			next.follow(t, q)
		}
		return true
	}
	if err := ssync.SendInOrder(t.Context(), r.address(), token, f, sumOf(want)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.finish(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(r.paths.File); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other content, %v", err)
	}
}

// lastEnd is where the last range has ended.
type lastEnd struct {
	mu sync.Mutex
	at string
}

func (e *lastEnd) follow(t *testing.T, q *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	begin := q.URL.Query().Get("begin")
	if n, err := strconv.Atoi(begin); err != nil || e.at != "" && e.at != begin || e.at == "" && n != 0 {
		t.Errorf("%s begins after %q", q.URL, e.at)
	}
	e.at = q.URL.Query().Get("end")
}

// TestPatient: a receiver that is patient waits for its sender, and then no longer than others.
func TestPatient(t *testing.T) {
	t.Parallel()
	r := receive(t, 0)
	r.Patient = true
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := r.Wait(ctx, time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before anything has come: %v", err)
	}
	r = receive(t, 0)
	r.Patient = true
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+r.address()+"/v1-ssync/open?begin=0&end=4096&directIO=true", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", ssync.Authorization(token))
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close() // its status is what counts
	if _, err := r.finish(t.Context(), 50*time.Millisecond); a.StatusCode != http.StatusOK ||
		!errors.Is(err, ssync.ErrSilent) {
		t.Errorf("%s, %v", a.Status, err)
	}
}

// TestSenderIsGone: a sender that ends its connections is waited for a moment, not for as long as
// one that is silent.
func TestSenderIsGone(t *testing.T) {
	t.Parallel()
	r := receive(t, 0)
	r.Patient = true
	mine, its := net.Pipe()
	defer mine.Close()
	defer its.Close()
	r.Connection(mine, http.StateNew)
	r.Connection(mine, http.StateActive)
	w := httptest.NewRecorder()
	q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1-ssync/open?begin=0&end=4096", http.NoBody)
	q.Header.Set("Authorization", ssync.Authorization(token))
	r.ServeHTTP(w, q)
	ended := make(chan error, 1)
	go func() {
		_, err := r.finish(t.Context(), time.Hour)
		ended <- err
	}()
	r.Connection(mine, http.StateIdle)
	r.Connection(mine, http.StateClosed)
	if err := <-ended; !errors.Is(err, ssync.ErrSilent) || !strings.Contains(err.Error(), "ended its connections") {
		t.Errorf("%v", err)
	}
}
