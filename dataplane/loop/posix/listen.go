package posix

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/loop"
	"ankole.storage/host/listener"
)

// backlog is how many connections wait to be accepted: far more than an engine or replica ever has
// at once.
const backlog = 128

// Listen opens a non-blocking listener for a loop: network "unix" with a path (mode 0600) or "tcp"
// with ip:port (port 0: any). It returns the handle and the address bound. A socket file nobody
// listens on any more is replaced; one in use is EADDRINUSE; anything else in the way is left
// alone. It blocks and belongs into the shell.
func Listen(network, addr string) (loop.Handle, string, error) {
	family, sa := sockaddr(network + ":" + addr)
	if sa == nil {
		return loop.None, "", fmt.Errorf("listen on %s %q: not an address (want unix and a path, or tcp and ip:port)",
			network, addr)
	}
	if family == unix.AF_UNIX {
		if err := listener.RemoveStale(addr); err != nil {
			return loop.None, "", fmt.Errorf("listen on unix socket %s: %w", addr, err)
		}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return loop.None, "", fmt.Errorf("listen on %s %s: %w", network, addr, err)
	}
	bound, err := bindAndListen(fd, family, addr, sa)
	if err != nil {
		unix.Close(fd)
		return loop.None, "", fmt.Errorf("listen on %s %s: %w", network, addr, err)
	}
	return loop.Handle(fd), bound, nil
}

func bindAndListen(fd, family int, addr string, sa unix.Sockaddr) (string, error) {
	if family == unix.AF_UNIX {
		if err := unix.Bind(fd, sa); err != nil {
			return "", err
		}
		// Nobody can connect between bind and chmod: listen comes after both.
		if err := unix.Chmod(addr, 0o600); err != nil {
			return "", err
		}
		return addr, unix.Listen(fd, backlog)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return "", err
	}
	if err := unix.Bind(fd, sa); err != nil {
		return "", err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return "", err
	}
	return localAddress(fd)
}

// localAddress is what a TCP socket is bound to, "" for a socket of another kind.
func localAddress(fd int) (string, error) {
	got, err := unix.Getsockname(fd)
	if err != nil {
		return "", err
	}
	switch a := got.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String(), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)).String(), nil
	}
	return "", nil
}
