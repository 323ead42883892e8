package posix

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/loop"
)

// handle is what the loop knows of a descriptor it has seen an operation on.
type handle struct {
	fd         loop.Handle
	known      bool // stream has been determined
	stream     bool // a stream socket: a short read means that nothing is left
	registered bool
	wantOut    bool // registered for EPOLLOUT too
	readable   bool // an edge was seen and not yet used up
	hangup     bool // end of stream or error: always readable from now on
	closing    bool
	files      int // file operations in flight
	closeTag   uint64
	commands   *commands // of a device that hands requests out by commands, else nil
	recv       side
	send       side
	more       []side // further Recvs of a device, behind recv
}

// side is the one outstanding operation of a direction.
type side struct {
	active bool
	kind   loop.Kind
	tag    uint64
	n      int // bytes done
	first  int // segments done
	segs   int
	iov    [loop.MaxSegs]unix.Iovec
}

func (s *side) done(h *handle, n int, errno unix.Errno) loop.Done {
	s.active = false
	return loop.Done{Kind: s.kind, Handle: h.fd, Tag: s.tag, N: n, Errno: loop.Errno(errno)}
}

func isFileOp(k loop.Kind) bool {
	return k == loop.FileRead || k == loop.FileWrite || k == loop.FileSync || k == loop.FilePunch
}

func (l *Loop) lookup(fd loop.Handle) *handle {
	if fd < 0 || int(fd) >= len(l.handles) {
		return nil
	}
	return l.handles[fd]
}

func (l *Loop) handle(fd loop.Handle) *handle {
	if h := l.lookup(fd); h != nil {
		return h
	}
	for int(fd) >= len(l.handles) {
		l.handles = append(l.handles, nil)
	}
	var h *handle
	if n := len(l.spare); n > 0 {
		h, l.spare = l.spare[n-1], l.spare[:n-1]
		*h = handle{more: h.more[:0]}
	} else {
		h = &handle{}
	}
	h.fd = fd
	l.handles[fd] = h
	return h
}

func (l *Loop) forget(h *handle) {
	l.handles[h.fd] = nil
	l.spare = append(l.spare, h)
}

// Submit implements loop.Loop.
func (l *Loop) Submit(ops []loop.Op) {
	l.quiet.ops += len(ops)
	for i := range ops {
		l.submit(&ops[i])
	}
	if l.ring != nil {
		l.ring.Flush()
	}
	l.flushCommands()
}

func (l *Loop) submit(op *loop.Op) {
	switch op.Kind {
	case loop.Call:
		l.calls.submit(&task{kind: loop.Call, handle: loop.None, tag: op.Tag, fn: op.Fn})
		return
	case loop.Connect:
		l.connect(op)
		return
	}
	if op.Handle < 0 {
		l.ready.push(loop.Done{Kind: op.Kind, Handle: op.Handle, Tag: op.Tag, Errno: loop.Errno(unix.EBADF)})
		return
	}
	h := l.handle(op.Handle)
	if h.closing {
		l.ready.push(loop.Done{Kind: op.Kind, Handle: op.Handle, Tag: op.Tag, Errno: loop.Canceled})
		return
	}
	switch op.Kind {
	case loop.Fetch, loop.Commit:
		l.command(h, op)
	case loop.FileRead, loop.FileWrite, loop.FileSync, loop.FilePunch:
		if h.commands != nil {
			l.copyNow(h, op)
			return
		}
		t := task{kind: op.Kind, handle: op.Handle, off: op.Off, size: op.Len, tag: op.Tag}
		t.segs = l.resolve(op, &t.iov)
		h.files++
		if l.ring != nil {
			l.ring.submit(&t)
		} else {
			l.files.submit(&t)
		}
	case loop.Accept, loop.Recv:
		if h.recv.active && h.known && !h.stream && op.Kind == loop.Recv {
			l.queueRecv(h, op)
			return
		}
		l.begin(h, &h.recv, op)
		if op.Kind == loop.Accept || !h.stream || !h.registered || h.readable || h.hangup {
			l.progressRecv(h)
		}
	case loop.Send:
		l.begin(h, &h.send, op)
		l.progressSend(h)
	case loop.Close:
		l.close(h, op.Tag)
	case loop.Release:
		l.release(h, op.Tag)
	default:
		panic("loop: cannot submit " + op.Kind.String())
	}
}

// begin records op as the outstanding operation of a side.
func (l *Loop) begin(h *handle, s *side, op *loop.Op) {
	if s.active {
		panic("loop: a second " + op.Kind.String() + " while a " + s.kind.String() + " is outstanding on one handle")
	}
	if !h.known {
		h.known = true
		if t, err := unix.GetsockoptInt(int(h.fd), unix.SOL_SOCKET, unix.SO_TYPE); err == nil {
			h.stream = t == unix.SOCK_STREAM
		}
	}
	s.active, s.kind, s.tag, s.n, s.first = true, op.Kind, op.Tag, 0, 0
	s.segs = l.resolve(op, &s.iov)
}

// queueRecv puts another Recv of a device in line.
func (l *Loop) queueRecv(h *handle, op *loop.Op) {
	s := side{active: true, kind: op.Kind, tag: op.Tag}
	s.segs = l.resolve(op, &s.iov)
	h.more = append(h.more, s)
}

// nextRecv makes the next Recv in line the outstanding one; false if there is none.
func (h *handle) nextRecv() bool {
	if len(h.more) == 0 {
		return false
	}
	h.recv = h.more[0]
	h.more = append(h.more[:0], h.more[1:]...)
	return true
}

// resolve turns an operation's segments into addresses.
func (l *Loop) resolve(op *loop.Op, iov *[loop.MaxSegs]unix.Iovec) int {
	n := 0
	for i := range op.Segs {
		if b := l.arena.Seg(op.Vec[i]); len(b) > 0 {
			iov[n].Base = unsafe.SliceData(b)
			iov[n].SetLen(len(b))
			n++
		}
	}
	return n
}

// close cancels what is outstanding and closes h once no file operation is in flight on it.
func (l *Loop) close(h *handle, tag uint64) {
	l.fail(h, unix.ECANCELED)
	h.closing, h.closeTag = true, tag
	if h.files == 0 {
		l.finishClose(h)
	}
}

// finishClose closes polled descriptors here; files on a worker, since the last close of a file may
// wait for the disk. The handle is forgotten first: from the moment of close(2) the number can
// belong to someone else.
func (l *Loop) finishClose(h *handle) {
	fd, tag, polled := h.fd, h.closeTag, h.known
	l.unstall(h)
	l.forget(h)
	if polled {
		unix.Close(int(fd))
		l.ready.push(loop.Done{Kind: loop.Close, Handle: fd, Tag: tag})
		return
	}
	l.files.submit(&task{kind: loop.Close, handle: fd, tag: tag})
}

// release cancels what is outstanding and forgets h, open as it is. Only handles that are polled
// are released: nothing of theirs is with a worker.
func (l *Loop) release(h *handle, tag uint64) {
	l.fail(h, unix.ECANCELED)
	if h.registered {
		unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, int(h.fd), nil) // it fails for a descriptor that is closed only
	}
	l.unstall(h)
	l.forget(h)
	l.ready.push(loop.Done{Kind: loop.Release, Handle: h.fd, Tag: tag})
}

func (l *Loop) unstall(h *handle) {
	for i, s := range l.stalled {
		if s == h {
			l.stalled = append(l.stalled[:i], l.stalled[i+1:]...)
			return
		}
	}
}

// fileDone accounts for a completion of a worker. A waiting Close follows the last one: its own
// completion can only be queued behind.
func (l *Loop) fileDone(d *loop.Done) {
	h := l.lookup(d.Handle)
	h.files--
	if h.closing && h.files == 0 {
		l.finishClose(h)
	}
}
