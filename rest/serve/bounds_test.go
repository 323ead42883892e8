package serve_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/host/listener"
	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resttest"
	"ankole.storage/rest/serve"
	"ankole.storage/test/lack"
	"ankole.storage/test/wait"
)

// serving runs the fixture's server on an address of its own, with the listener's bounds.
func (f *fixture) serving() (address string) {
	f.T.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.T.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Server.Serve(ctx, l) }()
	f.T.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			f.T.Errorf("the server's end: %v", err)
		}
	})
	return l.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// TestSlowClients: who does not finish a header or a body is cut off in time, and the answer to a
// slow body is a refusal.
func TestSlowClients(t *testing.T) {
	f := guarded(t, &resttest.Reviews{Rights: apitest.Users}, "all", func(c *rest.Config) {
		c.Limits = serve.Limits{Header: 300 * time.Millisecond, Body: 300 * time.Millisecond}
	})
	address := f.serving()
	for _, tt := range []struct{ name, sent, want string }{
		{"half a header", "GET /v1/volumes HTTP/1.1\r\nHost: localhost\r\n", ""},
		{"nothing", "", ""},
		{"half a body", "POST /v1/volumes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"name\":", "500"},
		{"half a chunk", "POST /v1/volumes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{", "500"},
		{"a body that nobody reads", "POST /v1/volumes/demo?action=recurringJobList HTTP/1.1\r\nHost: localhost\r\n" +
			"Content-Length: 100\r\n\r\n{", "200"},
		{"a body of a stream", "GET /v1/ws/volumes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", "500"},
	} {
		c := dial(t, address)
		began := time.Now()
		if _, err := io.WriteString(c, tt.sent); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(bufio.NewReader(c))
		if took := time.Since(began); err != nil || took > 30*time.Second || tt.want == "" && len(answer) > 0 ||
			!strings.HasPrefix(string(answer), strings.TrimSpace("HTTP/1.1 "+tt.want)) && tt.want != "" {
			t.Errorf("%s: %q, %v after %s", tt.name, answer, err, took)
		}
	}
	var list lh.VolumeList
	if err := f.Client.List(t.Context(), &list); err != nil || len(list.Items) != 1 {
		t.Errorf("%d volumes, %v", len(list.Items), err)
	}
}

// TestManyConnections is 10,000 connections in small: those of one address do not keep others out,
// and a place is free again when its connection ends.
func TestManyConnections(t *testing.T) {
	const one, all = 40, 60
	f := guarded(t, &resttest.Reviews{}, "all", func(c *rest.Config) {
		c.Limits = serve.Limits{Bounds: listener.Bounds{Connections: all, OfAddress: one}}
	})
	address := f.serving()
	ask := func(c net.Conn) error {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, "GET /v1/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return err
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if err == nil && !strings.Contains(line, "200") {
			err = fmt.Errorf("answer %q", line)
		}
		return err
	}
	from := func(ip string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		c, err := d.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	var greedy []net.Conn
	for range 500 {
		greedy = append(greedy, from("127.0.0.2"))
	}
	served := map[int]bool{}
	for i, c := range greedy {
		served[i] = ask(c) == nil
	}
	count := 0
	for _, ok := range served {
		if ok {
			count++
		}
	}
	if count != one {
		t.Errorf("%d connections of one address are served, want %d", count, one)
	}
	var others []net.Conn
	for range all - one {
		c := from("127.0.0.3")
		if err := ask(c); err != nil {
			t.Fatalf("another address is kept out: %v", err)
		}
		others = append(others, c)
	}
	if err := ask(from("127.0.0.4")); err == nil {
		t.Errorf("more than %d connections are served", all)
	}
	_ = others[0].Close()
	// Not longer: after serve.IdleTimeout the places of the others are free too.
	wait.Within(t, serve.IdleTimeout/2, "the place of a closed connection is free again", func() error {
		return ask(from("127.0.0.4"))
	})
}

// TestPathTricks: no spelling of a path leads anywhere but its plain one.
func TestPathTricks(t *testing.T) {
	f := guarded(t, &resttest.Reviews{Rights: apitest.Users}, "none", apitest.Same)
	address := f.serving()
	for _, path := range []string{"/v1//volumes", "//v1/volumes", "/v1/./volumes", "/v1/healthz/../volumes",
		"/v1/healthz/../../v1/volumes", "/v1/%2e%2e/v1/volumes", "/v1/healthz/%2e%2e/volumes", "/v1/volumes/..",
		"/v1/volumes/%2e%2e", "/v1/volumes/..%2fsettings", "/v1/volumes/demo%2f..%2fdemo", "/v1/volumes/a%2fb",
		"/v1/volumes/a%5cb", "/v1/volumes/a%00b", "/v1/volumes/a%252fb", "/v1/volumes/a%0d%0ab", "/v1/Volumes", "/V1/volumes",
		"/v1/volumes;x", "/v1%2fvolumes", "/metrics/../v1/volumes", "/v1/manager/rest/v1/volumes", "/etc/passwd",
		"/v1/supportbundles/..%2f/x", "/v1/ws/..%2f/volumes", "http://localhost/v1/healthz/../volumes"} {
		for _, credentials := range []string{"", "Authorization: Bearer of-admin\r\n"} {
			c := dial(t, address)
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n%sConnection: close\r\n\r\n", path, credentials)
			answer, err := io.ReadAll(c)
			if head, _, _ := strings.Cut(string(answer), "\r\n"); err != nil || !strings.Contains(head, " 404 ") &&
				!strings.Contains(head, " 400 ") {
				t.Errorf("%s: %q, %v", path, head, err)
			}
		}
	}
}

// TestTenThousandConnections: of 10,000 connections of one address, each with half a request, so
// many are kept as the bounds of a manager say; another address is served all the while, and the
// places are free again when the time for a request's header is over.
func TestTenThousandConnections(t *testing.T) {
	lack.RealTime(t, "10,000 connections, and a header that takes its time")
	const tried = 10_000
	var limit unix.Rlimit
	if apitest.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)); limit.Cur < tried+2*serve.MaxAddressConnections+100 {
		lack.Skip(t, "as many open files as the test has connections")
	}
	f := guarded(t, &resttest.Reviews{}, "all", apitest.Same)
	address := f.serving()
	ask := func(ip string) error {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, "GET /v1/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return err
		}
		_, err = bufio.NewReader(c).ReadString('\n')
		return err
	}
	greedy := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all []net.Conn
	for range tried {
		c, err := greedy.Dial("tcp", address)
		apitest.Must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, "GET /v1/volumes HTTP/1.1\r\n") // a refused one may be closed already
		all = append(all, c)
	}
	if err := ask("127.0.0.3"); err != nil {
		t.Errorf("another address is kept out: %v", err)
	}
	runtime.ReadMemStats(&during)
	if grown := int64(during.HeapAlloc) - int64(before.HeapAlloc); grown > 128<<20 {
		t.Errorf("%d MiB are held", grown>>20)
	}
	if err := ask("127.0.0.2"); err == nil {
		t.Errorf("more than %d connections of one address are served", serve.MaxAddressConnections)
	}
	wait.Within(t, 3*serve.ReadHeaderTimeout, "the places of slow headers are free again",
		func() error { return ask("127.0.0.2") })
	open := 0
	for _, c := range all {
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if n, _ := c.Read(make([]byte, 100)); n > 0 { // 408 of the server's, whereas a refused one gets nothing
			open++
		}
	}
	if open > serve.MaxAddressConnections {
		t.Errorf("%d connections were served, at most %d of an address are", open, serve.MaxAddressConnections)
	}
}
