package listener

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// refusedNotice is the least time between two lines in the log about connections that were refused.
const refusedNotice = time.Minute

// Bounds are how many connections may be open at the same time: in all, and from one address.
type Bounds struct{ Connections, OfAddress int }

// Bounded returns l with bounds. Connections beyond them are closed as soon as they are made: to
// keep them waiting would let whoever holds many keep everybody else out. Those of one address do
// not use up the places of all others.
func Bounded(l net.Listener, bounds Bounds, log *slog.Logger) net.Listener {
	return &bounded{Listener: l, bounds: bounds, log: log, from: map[string]int{}}
}

type bounded struct {
	net.Listener
	bounds Bounds
	log    *slog.Logger

	mu      sync.Mutex
	open    int
	from    map[string]int
	noticed time.Time
}

// Accept returns the next connection that is within the bounds.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := Host(c.RemoteAddr().String())
		if b.take(address) {
			return &countedConn{Conn: c, release: sync.OnceFunc(func() { b.give(address) })}, nil
		}
		_ = c.Close()
	}
}

func (b *bounded) take(address string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open >= b.bounds.Connections || b.from[address] >= b.bounds.OfAddress {
		if now := time.Now(); now.Sub(b.noticed) >= refusedNotice {
			b.noticed = now
			b.log.Warn("connections are refused", "listener", b.Addr().String(), "from", address,
				"ofThisAddress", b.from[address], "open", b.open, "limit", b.bounds.Connections,
				"limitOfOneAddress", b.bounds.OfAddress)
		}
		return false
	}
	b.open++
	b.from[address]++
	return true
}

func (b *bounded) give(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
	if b.from[address]--; b.from[address] == 0 {
		delete(b.from, address)
	}
}

// countedConn gives its place back when it is closed.
type countedConn struct {
	net.Conn
	release func()
}

// Close closes the connection.
func (c *countedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// Host is an address without its port.
func Host(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
