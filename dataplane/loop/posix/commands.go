package posix

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/uring"
)

// commands is the ring of one device that hands requests out by commands: a ublk device. The kernel
// takes all of them from the thread of the first ones alone, and cancels them when the ring is
// closed. It copies nothing to or from memory of this process but in FileRead and FileWrite, which
// are done at once: they copy from and to memory.
type commands struct {
	ring *uring.Ring
	// flying are the tags of the operations in flight.
	flying map[uint64]loop.Kind
	// begun: the first operations are with the kernel.
	begun bool
}

const (
	// commandEntries bounds the operations in flight on one device. All that a device asks for at
	// first goes to the kernel in one system call: a process that is killed in between would leave a
	// queue that has a part of its commands, from which some kernels do not recover.
	commandEntries = 512

	commandFetch  = 0xc0107520 // UBLK_U_IO_FETCH_REQ, of linux/ublk_cmd.h
	commandCommit = 0xc0107521 // UBLK_U_IO_COMMIT_AND_FETCH_REQ
	// commandQueueShift is where a queue's number is in Op.Off, above the request's.
	commandQueueShift = 16
)

// command submits a Fetch or a Commit.
func (l *Loop) command(h *handle, op *loop.Op) {
	if h.commands == nil {
		c, err := l.newCommands()
		if err != nil {
			errno := unix.EIO
			errors.As(err, &errno)
			l.ready.push(loop.Done{Kind: op.Kind, Handle: op.Handle, Tag: op.Tag, Errno: loop.Errno(errno)})
			return
		}
		h.commands = c
		l.devices = append(l.devices, h)
	}
	c := h.commands
	if len(c.flying) == commandEntries {
		panic("loop: too many commands are outstanding on one device")
	}
	e, p := c.ring.NextCommand()
	e.Opcode, e.FD, e.UserData, e.Off = uring.OpCommand, int32(h.fd), op.Tag, commandFetch
	if op.Kind == loop.Commit {
		e.Off = commandCommit
	}
	binary.NativeEndian.PutUint16(p, uint16(op.Off>>commandQueueShift))
	binary.NativeEndian.PutUint16(p[2:], uint16(op.Off))
	binary.NativeEndian.PutUint32(p[4:], uint32(int32(op.Len)))
	c.ring.Push()
	c.flying[op.Tag] = op.Kind
}

func (l *Loop) newCommands() (*commands, error) {
	r, err := uring.New(commandEntries, 2*commandEntries, uring.CoopTaskrun)
	if err != nil {
		return nil, err
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET&0xffffffff, Fd: int32(r.FD())}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, r.FD(), &ev); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &commands{ring: r, flying: map[uint64]loop.Kind{}}, nil
}

// copyNow does a FileRead or FileWrite on a device of commands.
func (l *Loop) copyNow(h *handle, op *loop.Op) {
	d := loop.Done{Kind: op.Kind, Handle: op.Handle, Tag: op.Tag}
	for i := range op.Segs {
		p := l.arena.Seg(op.Vec[i])
		for len(p) > 0 && d.Errno == 0 {
			n, err := 0, error(nil)
			if op.Kind == loop.FileRead {
				n, err = unix.Pread(int(h.fd), p, op.Off+int64(d.N))
			} else {
				n, err = unix.Pwrite(int(h.fd), p, op.Off+int64(d.N))
			}
			switch {
			case err == unix.EINTR:
				continue
			case err != nil:
				errno := unix.EIO
				errors.As(err, &errno)
				d.Errno = loop.Errno(errno)
			case n <= 0:
				d.Errno = loop.EIO
			default:
				d.N += n
				p = p[n:]
			}
		}
	}
	l.ready.push(d)
}

// flush tells the kernel of what is queued. The first commands of a device come without the right
// to administer the system: the kernel leaves a device that is served so alone, and does not look
// for partitions on it when it is started, which would wait for this process while it may be
// killed.
func (c *commands) flush() {
	switch {
	case !c.ring.Stuck():
	case c.begun:
		c.ring.Flush()
	default:
		c.begun = true
		withoutAdmin(c.ring.Flush)
	}
}

// withoutAdmin calls f while this thread, which is locked, has not CAP_SYS_ADMIN.
func withoutAdmin(f func()) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had [2]unix.CapUserData
	if unix.Capget(&hdr, &had[0]) != nil {
		f()
		return
	}
	less := had
	less[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
	if unix.Capset(&hdr, &less[0]) == nil {
		defer func() {
			if err := unix.Capset(&hdr, &had[0]); err != nil {
				panic("loop: the thread's capabilities cannot be had back: " + err.Error())
			}
		}()
	}
	f()
}

// flushCommands tells the kernel of the commands of all devices.
func (l *Loop) flushCommands() {
	for _, h := range l.devices {
		h.commands.flush()
	}
}

// commandsStuck: the kernel has not taken all that is queued.
func (l *Loop) commandsStuck() bool {
	return slices.ContainsFunc(l.devices, func(h *handle) bool { return h.commands.ring.Stuck() })
}

// reapCommands takes in what has completed.
func (l *Loop) reapCommands() {
	for _, h := range l.devices {
		h.commands.ring.Reap(func(tag uint64, res int32) {
			d := loop.Done{Kind: h.commands.flying[tag], Handle: h.fd, Tag: tag}
			delete(h.commands.flying, tag)
			if res < 0 {
				d.Errno = loop.Errno(-res)
			}
			l.ready.push(d)
		})
		h.commands.flush() // what was stuck
	}
}

// endCommands cancels all commands of a device.
func (l *Loop) endCommands(h *handle) {
	c := h.commands
	if c == nil {
		return
	}
	h.commands = nil
	l.devices = slices.DeleteFunc(l.devices, func(d *handle) bool { return d == h })
	_ = c.ring.Close() // nothing of it is used any more
	for _, tag := range slices.Sorted(maps.Keys(c.flying)) {
		l.ready.push(loop.Done{Kind: c.flying[tag], Handle: h.fd, Tag: tag, Errno: loop.Canceled})
	}
}
