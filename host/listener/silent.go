package listener

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// A silent peer is given up: the machine behind it is gone, or the network is. One that owes
// nothing is asked after half a minute, and given up after three questions ten seconds apart; one
// that does not confirm what it was sent, after half a minute. A cut that is shorter is survived.
const (
	keepIdleSeconds         = 30
	keepIntervalSeconds     = 10
	keepProbes              = 3
	unconfirmedMilliseconds = 30_000
)

// GiveUpSilent has the kernel end a TCP connection whose peer is silent. It fails harmlessly on
// sockets that are not TCP. A listener does not hand all of it on to what it accepts.
func GiveUpSilent(fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepIdleSeconds)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepIntervalSeconds)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepProbes)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, unconfirmedMilliseconds)
}

// givesUp is the Control of dialers; their own keep-alive has to be off (-1).
func givesUp(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { GiveUpSilent(int(fd)) })
}

// accepted has a connection end when its peer is silent.
func accepted(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { GiveUpSilent(int(fd)) }) // it may be closed already
		}
	}
}

// Dial connects to a TCP address. The connection ends when its peer is silent; it is a dialer of
// gRPC too, which by itself asks no peer whether it is still there.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{Control: givesUp, KeepAlive: -1}
	return d.DialContext(ctx, "tcp", address)
}
