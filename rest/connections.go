package rest

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// refusedNotice is the least time between two lines in the log about connections that were refused.
const refusedNotice = time.Minute

// boundedListener closes connections beyond its bounds at once. To keep them waiting instead would
// let whoever holds many keep everybody else out, and connections of one address must not use up
// those of all others.
type boundedListener struct {
	net.Listener
	limits Limits
	log    *slog.Logger

	mu      sync.Mutex
	open    int
	from    map[string]int
	noticed time.Time
}

func bounded(l net.Listener, limits Limits, log *slog.Logger) net.Listener {
	return &boundedListener{Listener: l, limits: limits, log: log, from: map[string]int{}}
}

// Accept returns the next connection that is within the bounds.
func (b *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := hostOf(c.RemoteAddr().String())
		if b.take(address) {
			return &countedConn{Conn: c, release: sync.OnceFunc(func() { b.give(address) })}, nil
		}
		_ = c.Close()
	}
}

func (b *boundedListener) take(address string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open >= b.limits.Connections || b.from[address] >= b.limits.AddressConnections {
		if now := time.Now(); now.Sub(b.noticed) >= refusedNotice {
			b.noticed = now
			b.log.Warn("connections are refused", "from", address, "ofThisAddress", b.from[address], "open", b.open,
				"limit", b.limits.Connections, "limitOfOneAddress", b.limits.AddressConnections)
		}
		return false
	}
	b.open++
	b.from[address]++
	return true
}

func (b *boundedListener) give(address string) {
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
