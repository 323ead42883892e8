package listener

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// secured is the certificate of a test server, and a client that trusts it.
func secured(t *testing.T) (*tls.Config, *http.Client) {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	return &tls.Config{Certificates: s.TLS.Certificates, MinVersion: tls.VersionTLS12}, s.Client()
}

// TestEither: one port answers with TLS and without, each as it asks, beside connections that say
// nothing; these are closed after a while.
func TestEither(t *testing.T) {
	config, client := secured(t)
	bound, err := Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const patience = time.Second
	l := Either(bound, config, patience)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if r.TLS != nil {
				_, _ = io.WriteString(w, "tls")
			}
		})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	var silent []net.Conn
	for range 20 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	for url, want := range map[string]string{"http://" + l.Addr().String(): "", "https://" + l.Addr().String(): "tls"} {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if resp.Body.Close(); err != nil || string(body) != want {
			t.Errorf("%s: %q, %v", url, body, err)
		}
	}
	for _, c := range silent {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a connection that said nothing: %v", err)
		}
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after its end: %v", err)
	}
}

// TestEitherEnds: with the listener the connections end on which nothing came.
func TestEitherEnds(t *testing.T) {
	config, _ := secured(t)
	bound, err := Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Either(bound, config, time.Hour)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection that said nothing: %v", err)
	}
}

// TestEitherCutShort: handshakes that are cut at each byte leave the port to others.
func TestEitherCutShort(t *testing.T) {
	config, client := secured(t)
	bound, err := Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Either(bound, config, time.Minute)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.NotFoundHandler(),
		ErrorLog: log.New(io.Discard, "", 0)}
	defer server.Close()
	go func() { _ = server.Serve(l) }()
	hello := []byte{handshakeRecord, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3}
	for n := range hello {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(hello[:n]); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := client.Get("https://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}
