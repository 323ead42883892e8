package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// Headers of streams of a forwarded port, as API server and kubelet know them.
const (
	headerStreamType = "streamType"
	headerPort       = "port"
	headerRequestID  = "requestID"
	streamError      = "error"
	streamData       = "data"
)

// maxTold bounds what is read of the reason for which a stream ended.
const maxTold = 4096

// toldTimeout is how long the end of a connection waits for its reason.
const toldTimeout = time.Second

// errBrokenOff is a connection to the API server that has ended.
var errBrokenOff = errors.New("it was closed")

// Dial opens a connection to a manager, whatever the address: it is a pair of streams of the
// connection to the API server. If that has ended meanwhile it is made again, once.
func (t *Tunnel) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	for again := false; ; again = true {
		streams, id, err := t.connection(ctx)
		if err != nil {
			return nil, err
		}
		c, err := t.pair(ctx, streams, id)
		if err == nil || ctx.Err() != nil {
			return c, err
		}
		t.forget(streams)
		if again {
			return nil, failf("the connection to the Kubernetes API server of %s broke off: %v", t.where, err)
		}
	}
}

// pair opens a pair of streams. The library waits half a minute for an answer that does not come
// any more when the connection ends meanwhile, so this does not wait for the library.
func (t *Tunnel) pair(ctx context.Context, streams httpstream.Connection, id int) (net.Conn, error) {
	type result struct {
		c   net.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		c, err := t.openPair(streams, id)
		done <- result{c, err}
	}()
	drop := func() {
		if late := <-done; late.c != nil {
			_ = late.c.Close() // nobody wants it any more
		}
	}
	select {
	case r := <-done:
		return r.c, r.err
	case <-ctx.Done():
		go drop()
		return nil, ctx.Err()
	case <-streams.CloseChan():
		go drop()
		return nil, errBrokenOff
	}
}

func (t *Tunnel) openPair(streams httpstream.Connection, id int) (net.Conn, error) {
	headers := http.Header{}
	headers.Set(headerStreamType, streamError)
	headers.Set(headerPort, strconv.Itoa(managerPort))
	headers.Set(headerRequestID, strconv.Itoa(id))
	problems, err := streams.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	_ = problems.Close() // we say nothing on it
	headers.Set(headerStreamType, streamData)
	data, err := streams.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	return t.join(streams, problems, data), nil
}

// connection returns the connection to the API server, and a number for a pair of streams on it.
// One that has ended is made again.
func (t *Tunnel) connection(ctx context.Context) (httpstream.Connection, int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nextID++
	if t.streams != nil {
		select {
		case <-t.streams.CloseChan():
		default:
			return t.streams, t.nextID, nil
		}
	}
	name, err := t.manager(ctx)
	if err != nil {
		return nil, 0, err
	}
	if t.streams, err = t.forward(ctx, name); err != nil {
		t.streams = nil
		return nil, 0, err
	}
	return t.streams, t.nextID, nil
}

// forward opens a port of a Pod: by a websocket, or by SPDY where the API server or a proxy before
// it does not know that.
func (t *Tunnel) forward(ctx context.Context, name string) (httpstream.Connection, error) {
	u := t.path("pods", name, "portforward")
	roundTripper, upgrader, err := spdy.RoundTripperFor(t.rest)
	if err != nil {
		return nil, failf("kubeconfig: %v", err)
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, u)
	websocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, t.rest)
	if err != nil {
		return nil, failf("kubeconfig: %v", err)
	}
	dialer := portforward.NewFallbackDialerForStreaming(websocket, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	type result struct {
		conn httpstream.Connection
		err  error
	}
	done := make(chan result, 1)
	go func() { // the dialer knows no context
		conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		done <- result{conn, err}
	}()
	select {
	case <-ctx.Done():
		go func() {
			if late := <-done; late.conn != nil {
				_ = late.conn.Close() // nobody wants it any more
			}
		}()
		return nil, ctx.Err()
	case r := <-done:
		if r.err == nil {
			return r.conn, nil
		}
		text := bare(r.err).Error()
		if strings.Contains(strings.ToLower(text), "forbidden") {
			return nil, failf("%s\nthe user of %s needs the right to create pods/portforward in namespace %s", text, t.where,
				t.cfg.Namespace)
		}
		return nil, failf("forwarding a port of Pod %s in namespace %s of %s: %s", name, t.cfg.Namespace, t.where, text)
	}
}

// forget gives a connection up on which nothing can be opened.
func (t *Tunnel) forget(streams httpstream.Connection) {
	t.mu.Lock()
	if t.streams == streams {
		t.streams = nil
	}
	t.mu.Unlock()
	_ = streams.Close() // it is of no use any more
}

// conn is the client's end of a pipe whose other end is joined with the streams. It knows why the
// far end closed.
type conn struct {
	net.Conn
	mu  sync.Mutex
	err error
}

func (c *conn) fail(err error) {
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
}

// Read gives the reason for which the far end closed, where it gave one.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.reason(err, io.EOF)
}

// Write gives that reason too: a client may have begun to write before it reads of the end.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.reason(err, io.ErrClosedPipe)
}

// reason returns the far end's reason instead of err where err says no more than that it closed.
func (c *conn) reason(err, closed error) error {
	if !errors.Is(err, closed) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return err
}

// join copies between streams and a pipe, and returns the pipe's other end. All ends when either
// side has.
func (t *Tunnel) join(streams httpstream.Connection, problems, data httpstream.Stream) net.Conn {
	near, far := net.Pipe()
	c := &conn{Conn: near}
	told, ended := make(chan struct{}), make(chan struct{})
	go func() {
		select {
		case <-streams.CloseChan():
			_ = far.Close() // the streams are not told of it
		case <-ended:
		}
	}()
	go func() {
		defer close(told)
		text, _ := io.ReadAll(io.LimitReader(problems, maxTold)) // what came before an end of any kind
		if len(text) > 0 {
			c.fail(failf("the manager could not be reached through %s: %s", t.Where(), text))
			_ = data.Reset() // the Pod's side is gone
		}
	}()
	go func() {
		_, _ = io.Copy(data, far) // the end of either side ends both
		_ = data.Close()
	}()
	go func() {
		defer close(ended)
		_, _ = io.Copy(far, data) // as above
		_ = data.Reset()
		select {
		case <-told:
		case <-time.After(toldTimeout):
		}
		_ = far.Close()
		streams.RemoveStreams(problems, data)
	}()
	return c
}
