package listener_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"ankole.storage/host/listener"
	"ankole.storage/test/wait"
)

// TestServeHealth: a check has its answer in the status and the reason in the body, nobody else's
// connections keep it out, and the end of the context ends the server.
func TestServeHealth(t *testing.T) {
	free, err := listener.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	var ill atomic.Bool
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- listener.ServeHealth(ctx, address, "/health", func(context.Context) error {
			if ill.Load() {
				return errors.New("not now")
			}
			return nil
		})
	}()
	ask := func(path string) (int, string) {
		t.Helper()
		var answer *http.Response
		wait.For(t, "an answer", func() (err error) {
			answer, err = http.Get("http://" + address + path)
			return err
		})
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	if code, _ := ask("/health"); code != http.StatusOK {
		t.Errorf("healthy: %d", code)
	}
	if code, _ := ask("/"); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
	ill.Store(true)
	if code, says := ask("/health"); code != http.StatusServiceUnavailable || !strings.Contains(says, "not now") {
		t.Errorf("ill: %d %q", code, says)
	}
	ill.Store(false)
	for range 100 {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
		c, err := d.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if code, _ := ask("/health"); code != http.StatusOK {
		t.Errorf("beside a hundred idle connections of a stranger: %d", code)
	}
	stop()
	if err := wait.Receive(t, "the server's end", ended); err != nil {
		t.Error(err)
	}
}
