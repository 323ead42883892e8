package engineclient

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/controlplane/object/naming"
)

// pingTimeout bounds the question whether a proxy is alive. It answers without asking anybody else.
const pingTimeout = 3 * time.Second

// Manager is an instance manager, as calls to the engines in it need it.
type Manager struct {
	// Name is the InstanceManager object's. Pod is the UID of its Pod: another Pod is another proxy.
	Name, Pod string
	// IP is the Pod's, Node where it runs.
	IP, Node string
	// ProxyAPIVersion as the instance manager reports it; 0: it has no proxy.
	ProxyAPIVersion int
}

// Proxies holds one connection to the proxy of each instance manager. The controller of instance
// managers looks after them: Ensure at every look at a running one, Drop when it is gone. It is
// safe for concurrent use.
type Proxies struct {
	dial func(address string) (*grpc.ClientConn, error)

	mu       sync.Mutex
	managers map[string]*managed
}

type managed struct {
	Manager
	conn *grpc.ClientConn // nil without a proxy, or while it is down
}

// NewProxies returns it without a connection. dial opens one to "ip:port", with what TLS asks for,
// without connecting yet.
func NewProxies(dial func(address string) (*grpc.ClientConn, error)) *Proxies {
	return &Proxies{dial: dial, managers: map[string]*managed{}}
}

// Ensure makes m's proxy reachable and asks it whether it is alive. A connection to a proxy that
// does not answer is closed and the error says so; the next look makes a new one. Without a proxy
// there is no connection, and no error.
func (p *Proxies) Ensure(ctx context.Context, m Manager) error {
	conn, err := p.conn(m)
	if conn == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err = ping(ctx, conn); err == nil {
		return nil
	}
	p.mu.Lock()
	if held := p.managers[m.Name]; held != nil && held.conn == conn {
		held.conn = nil
	}
	p.mu.Unlock()
	_ = conn.Close() // nobody answers there
	return fmt.Errorf("%w: the proxy of instance manager %s at %s does not answer: %s", ErrUnavailable, m.Name, m.IP,
		status.Convert(err).Message())
}

// conn notes what is known of m and returns the connection to its proxy, a new one if there is none
// to this Pod; nil without a proxy.
func (p *Proxies) conn(m Manager) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.managers[m.Name]
	if held != nil && held.Manager == m && (held.conn != nil || m.ProxyAPIVersion == 0) {
		return held.conn, nil
	}
	if held != nil && held.conn != nil {
		_ = held.conn.Close() // of a Pod that is gone
	}
	held = &managed{Manager: m}
	p.managers[m.Name] = held
	if m.ProxyAPIVersion == 0 {
		return nil, nil
	}
	conn, err := p.dial(net.JoinHostPort(m.IP, strconv.Itoa(naming.PortProxy)))
	if err != nil {
		return nil, fmt.Errorf("connect to the proxy of instance manager %s: %w", m.Name, err)
	}
	held.conn = conn
	slog.Info("connection to the proxy of an instance manager", "instanceManager", m.Name, "address", conn.Target(),
		"network", naming.ManagementNetwork)
	return conn, nil
}

// ping asks a proxy whether it is alive. Peers that know no Ping are asked by the health service.
func ping(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := imrpc.NewProxyEngineServiceClient(conn).Ping(ctx, &emptypb.Empty{})
	if status.Code(err) == codes.Unimplemented {
		_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	}
	return err
}

// Drop closes the connection to an instance manager that does not run.
func (p *Proxies) Drop(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if held := p.managers[name]; held != nil && held.conn != nil {
		_ = held.conn.Close() // calls in flight fail as unavailable
	}
	delete(p.managers, name)
}

// Close closes every connection; calls in flight fail.
func (p *Proxies) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, held := range p.managers {
		if held.conn != nil {
			_ = held.conn.Close() // as in Drop
		}
	}
	clear(p.managers)
}

// find returns what is known of the instance manager of that name.
func (p *Proxies) find(name string) (*managed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.managers[name]
	switch {
	case held == nil:
		return nil, fmt.Errorf("%w: instance manager %s is not running, or its processes are not known yet",
			ErrUnavailable, name)
	case held.conn == nil && held.ProxyAPIVersion != 0:
		return nil, fmt.Errorf("%w: the proxy of instance manager %s is down", ErrUnavailable, name)
	}
	found := *held
	return &found, nil
}

func noProxy(name string) error {
	return fmt.Errorf("%w: instance manager %s has no proxy", ErrInvalid, name)
}
