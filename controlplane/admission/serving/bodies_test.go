package serving

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/test/wait"
)

// TestStalledReviewsGiveWay: strangers who begin reviews and do not end them hold no more than the
// budget, and keep no review out that arrives whole.
func TestStalledReviewsGiveWay(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		fmt.Fprint(w, len(text), err)
	})
	s := &Server{Validation: echo, Mutation: echo}
	keys := ensure(t, fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(), time.Now(), "127.0.0.1")
	if err := s.Listen("127.0.0.1:0", keys); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	address := s.listener.Addr().(*net.TCPAddr).String()
	const stalled, sent = 12, 6 << 20
	for range stalled {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", naming.WebhookMutationPath, sent+1)
		// One that gives way may be closed before it has sent all of it.
		_, _ = c.Write(bytes.Repeat([]byte("x"), sent))
	}
	reviewer := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	defer reviewer.CloseIdleConnections()
	for _, size := range []int{100, 3 << 20, maxBodyBytes} {
		r, err := reviewer.Post("https://"+address+naming.WebhookValidationPath, "application/json",
			strings.NewReader(strings.Repeat("y", size)))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if want := fmt.Sprint(size, error(nil)); string(text) != want || r.ProtoMajor != 2 {
			t.Errorf("a review of %d bytes is answered by %d %q over %s, want %q", size, r.StatusCode, text, r.Proto, want)
		}
	}
}

// TestBodiesKeepTheirBudget: however many bodies come at once, what they hold stays within the
// budget, all that arrive whole are judged once there is room, and nothing stays charged.
func TestBodiesKeepTheirBudget(t *testing.T) {
	const budget = 4 * firstBytes
	b := newBodies(budget, time.Hour)
	judging, judged := make(chan int, 100), make(chan struct{})
	h := b.read(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		held := b.held
		b.mu.Unlock()
		if held > budget {
			t.Errorf("%d bytes are held, the budget is %d", held, budget)
		}
		judging <- len(text)
		<-judged
	}))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("short")))
			if w.Code != http.StatusOK {
				t.Errorf("a short review is answered by %d %s", w.Code, w.Body)
			}
		})
	}
	for range budget / firstBytes {
		wait.Receive(t, "a review that is judged", judging)
	}
	select {
	case <-judging:
		t.Error("more reviews are judged at a time than the budget has room for")
	default:
	}
	close(judged)
	all.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held != 0 || len(b.reading) != 0 {
		t.Errorf("%d bytes of %d bodies stay charged", b.held, len(b.reading))
	}
}
