package listener

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// handshakeRecord begins every TLS connection: the type of its first record (RFC 8446, 5.1). No
// request of HTTP begins with it.
const handshakeRecord = 22

// Either has the connections of l that begin with a TLS handshake be TLS, and leaves others as they
// are: a server sees from a request which it was. A connection on which nothing comes for the time
// of patience is closed.
func Either(l net.Listener, secure *tls.Config, patience time.Duration) net.Listener {
	e := &either{Listener: l, secure: secure, patience: patience, begun: make(chan net.Conn)}
	e.over, e.end = context.WithCancel(context.Background())
	return e
}

type either struct {
	net.Listener
	secure   *tls.Config
	patience time.Duration
	start    sync.Once
	// begun are connections of which the first byte is known.
	begun chan net.Conn
	// over ends when l accepts nothing any more, and with it the connections on which nothing came.
	over context.Context
	end  context.CancelFunc
}

// Accept implements net.Listener. It fails with net.ErrClosed after Close.
func (e *either) Accept() (net.Conn, error) {
	e.start.Do(func() { go e.run() })
	select {
	case conn := <-e.begun:
		return conn, nil
	case <-e.over.Done():
		return nil, net.ErrClosed
	}
}

func (e *either) run() {
	defer e.end()
	for {
		conn, err := e.Listener.Accept()
		if err != nil {
			return
		}
		go e.look(conn)
	}
}

// look waits for the first byte. Whoever sends none must keep nobody else waiting.
func (e *either) look(conn net.Conn) {
	first := make([]byte, 1)
	_ = conn.SetReadDeadline(time.Now().Add(e.patience)) // fails on what is closed, as the read does
	stop := context.AfterFunc(e.over, func() { _ = conn.Close() })
	_, err := conn.Read(first)
	if !stop() || err != nil {
		_ = conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	var c net.Conn = &peeked{Conn: conn, first: first}
	if first[0] == handshakeRecord {
		c = tls.Server(c, e.secure)
	}
	select {
	case e.begun <- c:
	case <-e.over.Done():
		_ = conn.Close()
	}
}

// peeked is a connection of which some bytes were read.
type peeked struct {
	net.Conn
	first []byte
}

// Read returns what was read before, and then what comes.
func (p *peeked) Read(b []byte) (int, error) {
	if len(p.first) > 0 && len(b) > 0 {
		n := copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}
