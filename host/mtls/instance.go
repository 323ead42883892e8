package mtls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"ankole.storage/host/listener"
)

// DialInstance connects to the control interface of an engine or a replica, "ip:port". Where this
// process has a certificate it speaks TLS. Plaintext follows only on this host, and only with what
// does not speak TLS: an instance of an older version, since nobody else can listen at an address
// of this Pod. A nil source has no certificate.
func (s *Source) DialInstance(ctx context.Context, address string) (net.Conn, error) {
	conn, older, err := s.dialInstance(ctx, address)
	if err != nil || !older {
		return conn, err
	}
	if !sameHost(conn) {
		_ = conn.Close() // nothing was said on it
		return nil, fmt.Errorf("%w: %s: there is a certificate here, and the instance there does not speak TLS", ErrPlaintext,
			address)
	}
	return conn, nil
}

// DialAnyInstance is DialInstance for commands that work with instances of instance managers of
// older versions: they serve plaintext on other hosts too.
func (s *Source) DialAnyInstance(ctx context.Context, address string) (net.Conn, error) {
	conn, _, err := s.dialInstance(ctx, address)
	return conn, err
}

// dialInstance returns a connection, and whether it is plaintext although there is a certificate
// here, since the peer does not speak TLS.
func (s *Source) dialInstance(ctx context.Context, address string) (conn net.Conn, older bool, err error) {
	raw, err := listener.Dial(ctx, address)
	if err != nil || s == nil {
		return raw, false, err
	}
	m := s.current()
	if m == nil {
		s.mu.Lock()
		err = s.lacking()
		s.mu.Unlock()
		if err != nil {
			_ = raw.Close() // nothing was said on it
			return nil, false, err
		}
		return raw, false, nil
	}
	conn, err = handshake(ctx, raw, m)
	var stranger tls.RecordHeaderError
	switch {
	case err == nil:
		return conn, false, nil
	case !errors.As(err, &stranger):
		return nil, false, fmt.Errorf("TLS with %s: %w", address, err)
	}
	// The connection has got what the peer does not understand; another one begins anew.
	raw, err = listener.Dial(ctx, address)
	return raw, true, err
}

// sameHost says whether the peer of a connection is in this network namespace. A variable for
// tests.
var sameHost = func(conn net.Conn) bool { return Near(conn.LocalAddr(), conn.RemoteAddr()) }

// Near says whether the peer of a connection is in the network namespace of its own end.
func Near(own, peer net.Addr) bool {
	p, ok := peer.(*net.TCPAddr)
	o, also := own.(*net.TCPAddr)
	return ok && also && (p.IP.IsLoopback() || p.IP.Equal(o.IP))
}
