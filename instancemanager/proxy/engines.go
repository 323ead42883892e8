// Package proxy is the engine proxy of an instance manager: managers ask it, at the port after the
// process service, for operations on engines, so that they need neither a way into the network of
// the data nor an engine binary of the engine's version.
//
// Two services do the same work. imrpc.ProxyEngineService has the methods and messages that clients
// of the reference know; each call runs against the engine at the address it names.
// ankole.engine.v1.Engine, the engine's own service with its stream of states, is passed on as it
// is to the engine named by the metadata key "engine-address".
//
// The engine checks whom it is asked for: names of volume and engine travel as metadata and an
// engine of another name refuses. A name that is empty is not checked.
package proxy

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"ankole.storage/host/mtls"
)

const (
	// idleTimeout closes the connection to an engine that nobody asks for any more.
	idleTimeout = 5 * time.Minute
	// maxMessage bounds an engine's answer: 250 snapshots with labels and 20 replicas stay far below.
	maxMessage = 4 << 20
	// sweepAt is the number of connections at which those to engines that are gone are looked for;
	// a node runs at most some hundreds of engines.
	sweepAt = 256
)

// reconnect is how soon a connection that could not be made is tried again: what gRPC does by
// itself is up to two minutes, for which an engine would not be there for its clients after a
// shortage, of descriptors say, that has passed.
var reconnect = grpc.ConnectParams{MinConnectTimeout: 20 * time.Second,
	Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}}

// Engines are connections to engines by address. The zero value is ready; Close it.
type Engines struct {
	// Systems works on the file systems mounted from volumes. nil: nothing is mounted.
	Systems Systems
	// Binary looks into backup stores; nil: nobody does.
	Binary Binary
	// Certificates secure the connections; nil: they are plaintext.
	Certificates *mtls.Source
	// Log is told of connections; nil for nobody.
	Log *slog.Logger

	// timeout bounds calls that are passed on; 0 is callTimeout.
	timeout time.Duration
	// options are for tests.
	options []grpc.DialOption

	mu    sync.Mutex
	conns map[string]*engineConn
}

// engineConn is the connection to an engine, and how many calls have it.
type engineConn struct {
	*grpc.ClientConn
	users int
}

// conn returns the connection to "ip:port", and what to call when it is not needed any more. It
// connects when it is used, and again after a loss.
func (e *Engines) conn(address string) (c *grpc.ClientConn, done func(), err error) {
	if err := checkAddress(address); err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	k, err := e.find(address)
	if err != nil {
		return nil, nil, err
	}
	k.users++
	return k.ClientConn, func() {
		e.mu.Lock()
		k.users--
		e.mu.Unlock()
	}, nil
}

// find returns the connection to an address, a new one if there is none. The lock is held.
func (e *Engines) find(address string) (*engineConn, error) {
	if c := e.conns[address]; c != nil {
		return c, nil
	}
	if len(e.conns) >= sweepAt {
		e.sweep()
	}
	c, err := grpc.NewClient("passthrough:///"+address, append([]grpc.DialOption{
		// What the connection speaks is decided when it is dialled.
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(e.Certificates.DialInstance),
		grpc.WithIdleTimeout(idleTimeout), grpc.WithConnectParams(reconnect),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage))}, e.options...)...)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "engine address %q: %v", address, err)
	}
	if e.conns == nil {
		e.conns = map[string]*engineConn{}
	}
	if e.Log != nil {
		e.Log.Info("connection to an engine", "address", address, "network", "management network")
	}
	k := &engineConn{ClientConn: c}
	e.conns[address] = k
	return k, nil
}

// sweep closes what is not connected and not in use. The lock is held.
func (e *Engines) sweep() {
	for address, c := range e.conns {
		if s := c.GetState(); c.users == 0 && (s == connectivity.Idle || s == connectivity.TransientFailure) {
			_ = c.Close() // nothing is outstanding
			delete(e.conns, address)
		}
	}
}

// Close closes every connection; calls in flight fail.
func (e *Engines) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.conns {
		_ = c.Close() // as in sweep
	}
	e.conns = nil
}

// checkAddress wants IP:PORT: names would be looked up, and nothing here has one.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err == nil && net.ParseIP(host) != nil {
		if n, err := strconv.ParseUint(port, 10, 16); err == nil && n > 0 {
			return nil
		}
	}
	return status.Errorf(codes.InvalidArgument, "engine address %q: want IP:PORT", address)
}

// scheme is what engines put before replica addresses; clients may leave it out.
const scheme = "tcp://"

func replicaAddress(address string) (string, error) {
	plain := strings.TrimPrefix(address, scheme)
	if err := checkAddress(plain); err != nil {
		return "", fmt.Errorf("replica: %w", err)
	}
	return scheme + plain, nil
}
