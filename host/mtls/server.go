package mtls

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Server returns credentials for gRPC servers: what each new connection must speak is what s has at
// the time. A nil source never has anything.
func (s *Source) Server() credentials.TransportCredentials {
	if s == nil {
		return insecure.NewCredentials()
	}
	return &serverCredentials{Source: s}
}

// OrderServer is Server for what gives its client the node: where certificates tell controllers
// from nodes, only controllers connect.
func (s *Source) OrderServer() credentials.TransportCredentials {
	if s == nil {
		return insecure.NewCredentials()
	}
	return &serverCredentials{Source: s, orders: true}
}

// Permit refuses a call on a plaintext connection that was made before there was a certificate. It
// is for servers that do not look for one by themselves (Keep): at a call all such connections end.
func (s *Source) Permit(ctx context.Context) error {
	if s == nil || s.current() == nil {
		return nil
	}
	if p, ok := peer.FromContext(ctx); ok && p.AuthInfo != nil && p.AuthInfo.AuthType() == "tls" {
		return nil
	}
	return status.Error(codes.Unavailable, "there is a certificate now: connect again, with TLS")
}

// PermitOrder is Permit for one order on a server that answers nodes as well: where certificates
// tell controllers from nodes, only controllers give it.
func (s *Source) PermitOrder(ctx context.Context) error {
	if err := s.Permit(ctx); err != nil || !s.OfNode() {
		return err
	}
	var shown credentials.TLSInfo // of nobody, where the peer is not known
	if p, ok := peer.FromContext(ctx); ok {
		shown, _ = p.AuthInfo.(credentials.TLSInfo)
	}
	if err := ofController(shown.State); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return nil
}

type serverCredentials struct {
	*Source
	orders bool
}

// ServerHandshake begins a connection.
func (s *serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, err := s.admit(raw)
	switch {
	case err != nil:
		return nil, nil, err
	case c != nil:
		return insecure.NewCredentials().ServerHandshake(c)
	}
	conn, info, err := credentials.NewTLS(s.current().server(s.orders)).ServerHandshake(raw)
	// Liveness probes connect and say nothing.
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		s.log.Warn("refused a connection", "peer", raw.RemoteAddr(), "err", err)
	}
	return conn, info, err
}

// admit returns the connection that may speak plaintext, nil if it has to speak TLS. One in
// plaintext is known, to be ended when there is a certificate.
func (s *serverCredentials) admit(raw net.Conn) (net.Conn, error) {
	s.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil {
		return nil, nil
	}
	if err := s.lacking(); err != nil {
		return nil, err
	}
	c := &plainConn{raw, s.Source}
	s.plain[c] = struct{}{}
	return c, nil
}

// plainConn is a connection without TLS.
type plainConn struct {
	net.Conn
	source *Source
}

// Close implements net.Conn.
func (c *plainConn) Close() error {
	c.source.mu.Lock()
	delete(c.source.plain, c)
	c.source.mu.Unlock()
	return c.Conn.Close()
}

// ClientHandshake is not for servers.
func (s *serverCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("mtls: these credentials are a server's")
}

// Info implements credentials.TransportCredentials.
func (s *serverCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls or plaintext"}
}

// Clone implements credentials.TransportCredentials.
func (s *serverCredentials) Clone() credentials.TransportCredentials { return s }

// OverrideServerName implements credentials.TransportCredentials.
func (s *serverCredentials) OverrideServerName(string) error { return nil }
