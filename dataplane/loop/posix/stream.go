package posix

import (
	"net/netip"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/loop"
	"ankole.storage/host/listener"
)

// edge takes a report of epoll.
func (l *Loop) edge(h *handle, events uint32) {
	if events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		h.hangup = true
	}
	h.readable = true
	if h.recv.active {
		l.progressRecv(h)
	}
	if h.send.active && events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		l.progressSend(h)
	}
}

// watch registers h with epoll, edge-triggered; EPOLLOUT only while a send waits, since a unix
// socket reports it each time the peer reads.
func (l *Loop) watch(h *handle, out bool) {
	if h.registered && h.wantOut == out {
		return
	}
	op := unix.EPOLL_CTL_ADD
	if h.registered {
		op = unix.EPOLL_CTL_MOD
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff, Fd: int32(h.fd)}
	if out {
		ev.Events |= unix.EPOLLOUT
	}
	h.registered, h.wantOut = true, out
	if err := unix.EpollCtl(l.epoll, op, int(h.fd), &ev); err != nil {
		h.registered = false
		l.fail(h, err.(unix.Errno)) // it cannot be watched, so nothing would ever complete what is outstanding
	}
}

// fail completes what is outstanding with errno.
func (l *Loop) fail(h *handle, errno unix.Errno) {
	l.endCommands(h)
	if h.recv.active {
		l.ready.push(h.recv.done(h, 0, errno))
		for h.nextRecv() {
			l.ready.push(h.recv.done(h, 0, errno))
		}
	}
	if h.send.active && h.send.kind == loop.Connect {
		l.notConnected(h, int(errno))
	} else if h.send.active {
		l.ready.push(h.send.done(h, h.send.n, errno))
	}
}

// progressRecv tries the outstanding Recv or Accept, and on a device those in line behind it.
func (l *Loop) progressRecv(h *handle) {
	s := &h.recv
	if s.kind == loop.Accept {
		l.accept(h)
		return
	}
	for {
		n, errno := rw(unix.SYS_READV, unix.SYS_READ, h.fd, s.iov[:s.segs])
		switch errno {
		case 0:
			if h.stream && n < vecLen(s.iov[:s.segs]) {
				h.readable = false
			}
			l.ready.push(s.done(h, n, 0))
			if h.stream {
				l.watch(h, h.wantOut) // the next Recv can then wait for the edge without trying
			}
		case unix.EINTR, unix.ENOENT: // ENOENT: the FUSE request was interrupted before it was read
			continue
		case unix.EAGAIN:
			h.readable = false
			l.watch(h, h.wantOut)
			return
		default:
			l.ready.push(s.done(h, 0, errno))
		}
		if !h.nextRecv() {
			return
		}
	}
}

// rw is one non-blocking transfer on the loop's thread. It does not tell the scheduler: it cannot
// wait.
func rw(vec, single uintptr, fd loop.Handle, iov []unix.Iovec) (int, unix.Errno) {
	var n uintptr
	var errno unix.Errno
	switch len(iov) {
	case 0:
		return 0, unix.EINVAL
	case 1:
		n, _, errno = unix.RawSyscall(single, uintptr(fd), uintptr(unsafe.Pointer(iov[0].Base)), uintptr(iov[0].Len))
	default:
		n, _, errno = unix.RawSyscall(vec, uintptr(fd), uintptr(unsafe.Pointer(&iov[0])), uintptr(len(iov)))
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// progressSend tries the outstanding Send or Connect.
func (l *Loop) progressSend(h *handle) {
	s := &h.send
	if s.kind == loop.Connect {
		l.connected(h)
		return
	}
	iov := s.iov[s.first:s.segs]
	for {
		n, errno := rw(unix.SYS_WRITEV, unix.SYS_WRITE, h.fd, iov)
		switch errno {
		case 0:
			s.n += n
			iov = advance(iov, n)
			if len(iov) == 0 {
				l.ready.push(s.done(h, s.n, 0))
				l.unwatchOut(h)
				return
			}
		case unix.EINTR:
		case unix.EAGAIN:
			s.first = s.segs - len(iov)
			l.watch(h, true)
			return
		default:
			l.ready.push(s.done(h, s.n, errno))
			l.unwatchOut(h)
			return
		}
	}
}

func (l *Loop) unwatchOut(h *handle) {
	if h.wantOut {
		l.watch(h, false)
	}
}

// accept tries the outstanding Accept.
func (l *Loop) accept(h *handle) {
	for {
		fd, _, err := unix.Accept4(int(h.fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			tuneTCP(fd)
			d := h.recv.done(h, 0, 0)
			d.New = loop.Handle(fd)
			at, _ := localAddress(fd) // "" if the connection has ended already
			d.Value = at
			l.ready.push(d)
			return
		case unix.EINTR, unix.ECONNABORTED:
			continue
		case unix.EAGAIN:
			l.watch(h, h.wantOut)
			return
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			l.watch(h, h.wantOut)
			if h.recv.active {
				l.stalled = append(l.stalled, h)
			}
			return
		default:
			l.ready.push(h.recv.done(h, 0, err.(unix.Errno)))
			return
		}
	}
}

// tuneTCP turns Nagle's algorithm off, and has a silent peer given up; it fails harmlessly on
// sockets that are not TCP.
func tuneTCP(fd int) {
	if unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) == nil {
		listener.GiveUpSilent(fd)
	}
}

// connectRetries bounds a connect to a silent address: SYNs at 0, 1 and 3 s, given up after 7 s.
const connectRetries = 2

func (l *Loop) connect(op *loop.Op) {
	refuse := func(errno unix.Errno) {
		l.ready.push(loop.Done{Kind: loop.Connect, Handle: loop.None, New: loop.None, Tag: op.Tag, Errno: loop.Errno(errno)})
	}
	family, sa := sockaddr(op.Addr)
	if sa == nil {
		refuse(unix.EINVAL)
		return
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		refuse(err.(unix.Errno))
		return
	}
	if family != unix.AF_UNIX {
		tuneTCP(fd)
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_SYNCNT, connectRetries)
	}
	err = unix.Connect(fd, sa)
	if err != nil && err != unix.EINPROGRESS && err != unix.EINTR {
		unix.Close(fd)
		refuse(err.(unix.Errno))
		return
	}
	h := l.handle(loop.Handle(fd))
	l.begin(h, &h.send, op)
	if err == nil {
		l.connected(h)
		return
	}
	l.watch(h, true)
}

// connected ends a Connect: the socket is writable or has failed.
func (l *Loop) connected(h *handle) {
	errno, err := unix.GetsockoptInt(int(h.fd), unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		errno = int(err.(unix.Errno))
	}
	if errno != 0 {
		l.notConnected(h, errno)
		return
	}
	d := h.send.done(h, 0, 0)
	d.Handle, d.New = loop.None, h.fd
	l.unwatchOut(h)
	l.ready.push(d)
}

// notConnected closes the socket of a Connect that fails: nobody else knows of it.
func (l *Loop) notConnected(h *handle, errno int) {
	d := h.send.done(h, 0, unix.Errno(errno))
	d.Handle, d.New = loop.None, loop.None
	fd := h.fd
	l.forget(h)
	unix.Close(int(fd))
	l.ready.push(d)
}

// sockaddr parses "tcp:ip:port" and "unix:path"; nil if it is neither.
func sockaddr(addr string) (int, unix.Sockaddr) {
	kind, rest, _ := strings.Cut(addr, ":")
	switch kind {
	case "unix":
		if rest != "" {
			return unix.AF_UNIX, &unix.SockaddrUnix{Name: rest}
		}
	case "tcp":
		ap, err := netip.ParseAddrPort(rest)
		if err != nil {
			return 0, nil
		}
		a := ap.Addr().Unmap()
		if a.Is4() {
			return unix.AF_INET, &unix.SockaddrInet4{Port: int(ap.Port()), Addr: a.As4()}
		}
		return unix.AF_INET6, &unix.SockaddrInet6{Port: int(ap.Port()), Addr: a.As16()}
	}
	return 0, nil
}
