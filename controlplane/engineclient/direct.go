package engineclient

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// idleTimeout closes connections that nobody uses any more.
const idleTimeout = 5 * time.Minute

// Direct dials engines on their own port: for instance managers without a proxy. Close releases its connections.
type Direct struct {
	calls
	options []grpc.DialOption

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

var _ Client = (*Direct)(nil)

// NewDirect returns a client without connections. Options come on top of the defaults.
func NewDirect(options ...grpc.DialOption) *Direct {
	d := &Direct{options: options, conns: map[string]*grpc.ClientConn{}}
	d.calls = calls{d}
	return d
}

func (d *Direct) to(t Target) (*grpc.ClientConn, []string, error) {
	conn, err := d.conn(t.Address)
	return conn, nil, err
}

// conn returns the pooled connection to an address. It is made lazily and reconnects by itself.
func (d *Direct) conn(address string) (*grpc.ClientConn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.conns[address]; c != nil {
		return c, nil
	}
	opts := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), // engines serve plain text, as the reference's do
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxStateBytes)),
	}, d.options...)
	c, err := grpc.NewClient("passthrough:///"+address, opts...)
	if err != nil {
		return nil, fmt.Errorf("%w: address %q: %w", ErrInvalid, address, err)
	}
	d.conns[address] = c
	return c, nil
}

// Forget implements Client.
func (d *Direct) Forget(t Target) {
	d.mu.Lock()
	c := d.conns[t.Address]
	delete(d.conns, t.Address)
	d.mu.Unlock()
	if c != nil {
		_ = c.Close() // nothing is lost: calls under way fail as unavailable
	}
}

// Close closes every connection; calls under way fail.
func (d *Direct) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		_ = c.Close() // as in Forget
	}
	clear(d.conns)
}
