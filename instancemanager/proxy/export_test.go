package proxy

import (
	"time"

	"google.golang.org/grpc"
)

// Conn is conn for tests.
func (e *Engines) Conn(address string) (*grpc.ClientConn, func(), error) { return e.conn(address) }

// SweepAt is sweepAt.
const SweepAt = sweepAt

// Kept is the number of connections.
func (e *Engines) Kept() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// SetTimeout replaces the bound of calls that are passed on; before the first one.
func (e *Engines) SetTimeout(d time.Duration) { e.timeout = d }
