// Package server is the gRPC face of an instance manager: the process service, the health service
// that kubelets and clients ask, reflection, and the rules every listener of the Pod shares.
//
// A server listens on its Pod's address, never on a wildcard: Listen maps one to the other. More
// services at the neighbouring ports (proxy at +1, disks at +2, instances at +3) are further values
// of New with other registrations.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"ankole.storage/host/listener"
)

const (
	// minClientPing is how often a client may ping, with or without calls; more often gets it
	// disconnected.
	minClientPing = 10 * time.Second
	// serverPing finds clients that vanished without closing, so that their streams end.
	serverPing        = 30 * time.Second
	serverPingTimeout = 20 * time.Second
	// handshakeTime ends connections that say nothing.
	handshakeTime = 10 * time.Second
	// maxStreams bounds calls in flight of one connection. A manager needs a handful.
	maxStreams = 1024
	// maxMessage bounds a request, in bytes; gRPC answers ResourceExhausted to a longer one. The
	// largest real one is a process with a few dozen arguments.
	maxMessage = 1 << 20
	// maxConnections bounds clients of one port: a connection of each manager, and people. Each
	// costs about 50 kB.
	maxConnections = 2048
	// maxAddressConnections bounds those of one address, so that no stranger keeps the managers out.
	// Managers and people may share one, that of a node.
	maxAddressConnections = 1024
)

// Listen opens a TCP listener. With a Pod address known, a wildcard host in addr means that
// address.
func Listen(ctx context.Context, addr, podIP string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("listen address %q: %w; want HOST:PORT", addr, err)
	}
	if ip := net.ParseIP(host); podIP != "" && (host == "" || ip != nil && ip.IsUnspecified()) {
		host = podIP
	}
	l, err := listener.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", net.JoinHostPort(host, port), err)
	}
	return listener.Bounded(l, listener.Bounds{Connections: maxConnections, OfAddress: maxAddressConnections},
		slog.Default()), nil
}

// Neighbour returns the address n ports above addr, "HOST:PORT". Port 0, any free one, has no
// neighbours and stays.
func Neighbour(addr string, n int) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("listen address %q: %w; want HOST:PORT", addr, err)
	}
	first, err := strconv.ParseUint(port, 10, 16)
	if err != nil || int(first)+n > math.MaxUint16 {
		return "", fmt.Errorf("listen address %q: there is no port %d above %s", addr, n, port)
	}
	if first == 0 {
		return addr, nil
	}
	return net.JoinHostPort(host, strconv.Itoa(int(first)+n)), nil
}

// New returns a server with health, reflection and the given services. Without credentials it
// speaks plaintext; see package mtls.
func New(secure credentials.TransportCredentials, register ...func(grpc.ServiceRegistrar)) *grpc.Server {
	return NewWith(nil, secure, register...)
}

// NewWith is New with further options.
func NewWith(further []grpc.ServerOption, secure credentials.TransportCredentials,
	register ...func(grpc.ServiceRegistrar)) *grpc.Server {
	options := []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: serverPing, Timeout: serverPingTimeout}),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.ConnectionTimeout(handshakeTime),
		// Stop then returns only after every handler has: no goroutine outlives its owner.
		grpc.WaitForHandlers(true),
	}
	if secure != nil {
		options = append(options, grpc.Creds(secure))
	}
	s := grpc.NewServer(append(options, further...)...)
	healthpb.RegisterHealthServer(s, health{})
	for _, r := range register {
		r(s)
	}
	reflection.Register(s)
	return s
}
