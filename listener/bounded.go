package listener

import (
	"net"
	"sync"
	"sync/atomic"
)

// Bounded returns l with at most so many connections open at the same time. More are closed as soon
// as they are made, so that clients that do not leave cannot use up memory and descriptors, which
// the process needs for its work.
func Bounded(l net.Listener, connections int64) net.Listener {
	return &bounded{Listener: l, most: connections}
}

type bounded struct {
	net.Listener
	most int64
	open atomic.Int64
}

// Accept implements net.Listener.
func (l *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &countedConn{Conn: conn, gone: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
		conn.Close()
	}
}

// countedConn gives its place back when it is closed.
type countedConn struct {
	net.Conn
	gone func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.gone()
	return c.Conn.Close()
}
