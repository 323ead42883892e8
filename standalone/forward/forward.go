// Package forward passes TCP connections from a fixed loopback address on to whichever server is
// alive.
//
// It is what a Service would do on a cluster with a network: clients keep one address while the
// Pods behind it come and go.
package forward

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"ankole.storage/host/listener"
)

const (
	// dialTimeout per target: loopback answers at once or not at all.
	dialTimeout = time.Second
	// pickTimeout is how long a new connection waits for some target to appear.
	pickTimeout = 10 * time.Second
	// pickInterval between looks at the targets while none answers.
	pickInterval = 100 * time.Millisecond
	// maxConnections bounds what a runaway client can hold open.
	maxConnections = 1024
)

// Forwarder is a listening address.
type Forwarder struct {
	listener net.Listener
	targets  func() []string
	log      *slog.Logger
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	slots    chan struct{}
}

// Start listens on addr. targets lists the servers' addresses, best first; it is asked anew for
// every connection.
func Start(addr string, targets func() []string, log *slog.Logger) (*Forwarder, error) {
	ctx, cancel := context.WithCancel(context.Background())
	l, err := listener.Listen(ctx, "tcp", addr)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("forward %s: %w", addr, err)
	}
	f := &Forwarder{listener: l, targets: targets, log: log, cancel: cancel, slots: make(chan struct{}, maxConnections)}
	f.wg.Go(func() { f.accept(ctx) })
	return f, nil
}

// Addr is the address listened on.
func (f *Forwarder) Addr() string { return f.listener.Addr().String() }

// Close stops listening and cuts all connections.
func (f *Forwarder) Close() {
	f.cancel()
	_ = f.listener.Close()
	f.wg.Wait()
}

func (f *Forwarder) accept(ctx context.Context) {
	for {
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		c, err := f.listener.Accept()
		if err != nil {
			return // it is closed
		}
		f.wg.Go(func() {
			defer func() { <-f.slots }()
			f.pass(ctx, c)
		})
	}
}

// pass joins a client with the first target that answers, until either side or the forwarder ends.
func (f *Forwarder) pass(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := f.dial(ctx)
	if err != nil {
		f.log.Warn("no server behind forwarded address", "address", f.Addr(), "error", err)
		return
	}
	defer func() { _ = server.Close() }()
	stop := context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = server.Close()
	})
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { oneWay(server, client) })
	wg.Go(func() { oneWay(client, server) })
	wg.Wait()
}

// oneWay copies until the source ends and passes that end on.
func oneWay(dst, src net.Conn) {
	_, err := io.Copy(dst, src)
	if tcp, ok := dst.(*net.TCPConn); ok && err == nil {
		_ = tcp.CloseWrite()
		return
	}
	_ = dst.Close()
}

func (f *Forwarder) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, pickTimeout)
	defer cancel()
	err := fmt.Errorf("no server is there")
	for {
		for _, t := range f.targets() {
			var c net.Conn
			d := net.Dialer{Timeout: dialTimeout}
			if c, err = d.DialContext(ctx, "tcp", t); err == nil {
				return c, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pickInterval):
		}
	}
}
