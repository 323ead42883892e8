package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/host/listener"
)

// maxConnections bounds engines of one node; one more is refused.
const maxConnections = 4096

// Server keeps descriptors for engines.
type Server struct {
	log *slog.Logger
	// wait is for devices whose owner names no time.
	wait time.Duration

	// ended is told of volumes whose device is held here no more; nil: nobody is.
	ended func(volume string)
	// second tells another holder what is kept, nil if there is none.
	second *second

	mu   sync.Mutex
	kept map[string]*device
	// abandoned are engines that have ended for good, for a while: what they said before their end may
	// not have been read yet.
	abandoned map[string]*time.Timer
	// revision counts changes of devices.
	revision uint64
	conns    map[*net.UnixConn]struct{}
	closed   bool
	// ending is closed when closed becomes true.
	ending chan struct{}
	work   sync.WaitGroup
}

// device is the descriptors of one.
type device struct {
	fds   []int
	state json.RawMessage
	// revision is that of its last change.
	revision uint64
	// engine is the instance name of its last owner, wait how long it is kept after that one.
	engine string
	wait   time.Duration
	// owner is the connection of the engine that serves it, nil for an orphan, which ends when the
	// timer fires.
	owner *net.UnixConn
	timer *time.Timer
}

// NewServer returns a server that keeps nothing yet. wait 0 means OrphanWait.
func NewServer(log *slog.Logger, wait time.Duration) *Server {
	if wait == 0 {
		wait = OrphanWait
	}
	return &Server{log: log, wait: wait, kept: map[string]*device{}, abandoned: map[string]*time.Timer{},
		conns: map[*net.UnixConn]struct{}{}, ending: make(chan struct{})}
}

// WithEnded has f called, on a goroutine of its own, when a volume's device is held no more by this
// server or by the second holder, and returns s: not every kind of device ends with its last
// descriptor. It must be called before Serve.
func (s *Server) WithEnded(f func(volume string)) *Server {
	s.ended = f
	return s
}

// tellEnded tells whoever wants to know of a device that is not held any more.
func (s *Server) tellEnded(volume string) {
	if s.ended != nil {
		go s.ended(volume)
	}
}

// Listen opens the socket at path, which must not exist, for the owner alone; the directory is the
// owner's alone already.
func Listen(path string) (listener.Unix, error) {
	l, err := listener.ListenUnix("unixpacket", path)
	if err != nil {
		return l, fmt.Errorf("socket for devices: %w", err)
	}
	if err := unix.Chmod(path, 0o600); err != nil {
		l.Close()
		return l, fmt.Errorf("socket for devices: %w", err)
	}
	return l, nil
}

// Serve answers engines until ctx ends, then closes every descriptor and returns. What the second
// holder has stays there: only its owner, Abandon and the bound end a device in both.
func (s *Server) Serve(ctx context.Context, l listener.Unix) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	done := make(chan struct{})
	var second sync.WaitGroup
	if s.second != nil {
		second.Go(func() { s.second.run(done) })
	}
	defer func() {
		s.hangUp()
		close(done)
		second.Wait()
		s.forgetAll()
	}()
	for {
		conn, err := l.Accept()
		if err != nil {
			return // it is closed
		}
		if !s.admit(conn) {
			conn.Close()
			continue
		}
		go func() {
			defer s.work.Done()
			s.serve(conn)
		}()
	}
}

func (s *Server) admit(conn *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxConnections {
		return false
	}
	s.conns[conn] = struct{}{}
	s.work.Add(1)
	return true
}

// serve answers one engine until its connection ends. What it owned then is an orphan.
func (s *Server) serve(conn *net.UnixConn) {
	defer s.over(conn)
	for {
		var r request
		fds, err := receive(conn, &r)
		var a answer
		var out []int
		switch {
		case errors.Is(err, errNoDescriptor):
			// The connection goes on: its owner is alive, and has to be able to say what becomes of
			// what is kept.
			a.Error = err.Error()
		case err != nil:
			return
		default:
			if err := s.fetch(&r); err != nil {
				closeAll(fds)
				a.Error = "the second holder of devices: " + err.Error()
				if errors.Is(err, ErrInUse) {
					a.Kind = kindOwned
				}
				break
			}
			a, out = s.handle(conn, &r, fds)
		}
		_ = send(conn, a, out) // one that does not hear it may have said more before its end
		closeAll(out)
	}
}

// over ends a connection.
func (s *Server) over(conn *net.UnixConn) {
	s.mu.Lock()
	delete(s.conns, conn)
	for volume, d := range s.kept {
		if d.owner == conn {
			s.orphan(volume, d)
		}
	}
	s.mu.Unlock()
	conn.Close()
}

// orphan lets a device wait for its next engine. The lock is held.
func (s *Server) orphan(volume string, d *device) {
	d.owner = nil
	if s.closed {
		return
	}
	s.log.Warn("engine ended without taking its block device down; I/O waits for the next engine", "volume", volume,
		"most", d.wait)
	d.timer = time.AfterFunc(d.wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.kept[volume] == d && d.owner == nil {
			s.log.Error("no engine came for a block device: its I/O fails now", "volume", volume, "waited", d.wait)
			s.forget(volume)
		}
	})
}

// forget closes what is kept of a device. The lock is held.
func (s *Server) forget(volume string) {
	d := s.kept[volume]
	if d.timer != nil {
		d.timer.Stop()
	}
	closeAll(d.fds)
	delete(s.kept, volume)
	s.changed(nil)
	s.tellEnded(volume)
}

// handle carries a request out. The descriptors that came with it are used or closed; those
// returned are the caller's, duplicates that stay what they are if the device ends before they are
// sent.
func (s *Server) handle(conn *net.UnixConn, r *request, fds []int) (a answer, out []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := false
	defer func() {
		if !used {
			closeAll(fds)
			if len(fds) > 0 {
				s.tellEnded(r.Volume)
			}
		}
	}()
	d := s.kept[r.Volume]
	if s.overFor(conn, r.Engine) {
		if d != nil && (d.owner == nil || d.owner == conn) {
			s.forget(r.Volume)
		}
		a.Error, a.Kind = "volume "+r.Volume, kindNone
		return a, nil
	}
	if d != nil && d.owner != nil && d.owner != conn && ended(d.owner) {
		// The goroutine of that connection has not got round to it yet. Whoever asks was started
		// because the owner has ended.
		s.orphan(r.Volume, d)
	}
	switch {
	case r.Volume == "" || s.closed:
		a.Error = "no volume is named, or the instance manager is stopping"
	case d != nil && d.owner != nil && d.owner != conn:
		a.Error, a.Kind = "volume "+r.Volume, kindInUse
	case r.Op == opKeep && len(fds) > 0:
		if d != nil {
			s.forget(r.Volume) // the owner's own, or of a device that its engine could not go on with
		}
		s.kept[r.Volume] = &device{fds: fds, state: r.State, engine: r.Engine, wait: s.waitOf(r), owner: conn}
		used = true
		s.changed(s.kept[r.Volume])
	case r.Op == opTake && d != nil:
		if out = duplicates(d.fds); out == nil {
			a.Error = "no descriptor is free"
			break
		}
		if d.timer != nil {
			d.timer.Stop()
			d.timer = nil
		}
		d.owner, d.engine, d.wait = conn, r.Engine, s.waitOf(r)
		a.State = d.state
		s.changed(d)
	case r.Op == opTake || (r.Op == opDrop && d == nil):
		a.Error, a.Kind = "volume "+r.Volume, kindNone
	case r.Op == opDrop:
		s.forget(r.Volume)
	default:
		a.Error = fmt.Sprintf("unknown request %q, or its descriptor is missing", r.Op)
	}
	return a, out
}

func (s *Server) waitOf(r *request) time.Duration {
	if r.Wait <= 0 {
		return s.wait
	}
	return time.Duration(r.Wait) * time.Millisecond
}

// ended reports that the other side of a connection is gone, whatever of it is still to be read.
func ended(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}} // the end is told unasked
		n, perr := unix.Poll(fds, 0)
		gone = perr == nil && n > 0 && fds[0].Revents&unix.POLLHUP != 0
	})
	return gone || err != nil
}

// overFor tells whether a request is a last word of an engine that has been abandoned since. One of
// that name that is alive is another process, made for the volume again. The lock is held.
func (s *Server) overFor(conn *net.UnixConn, engine string) bool {
	t := s.abandoned[engine]
	if t == nil || ended(conn) {
		return t != nil
	}
	t.Stop()
	delete(s.abandoned, engine)
	return false
}

// abandonedFor is how long the words of an engine that has ended may wait to be read: far longer
// than this process stands still on a busy node.
const abandonedFor = 10 * time.Minute

// Abandon gives up the device of a volume's engine that has ended and that no other one follows
// here: its I/O fails now, and so does that of a device of which it has spoken last and nobody has
// heard yet, and of one that the second holder alone has.
func (s *Server) Abandon(volume, engine string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if t := s.abandoned[engine]; t != nil {
		t.Stop()
	}
	var t *time.Timer
	t = time.AfterFunc(abandonedFor, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.abandoned[engine] == t {
			delete(s.abandoned, engine)
		}
	})
	s.abandoned[engine] = t
	switch d := s.kept[volume]; {
	case d == nil && s.second != nil:
		s.second.told[volume] = 0
		s.changed(nil)
	case d != nil && d.engine == engine:
		// Its connection may not have been seen to end yet, but the process has.
		s.log.Warn("engine has ended for good without taking its block device down: I/O fails now", "volume",
			volume, "engine", engine)
		s.forget(volume)
	}
}

// duplicates returns a duplicate of each descriptor, or nil.
func duplicates(fds []int) []int {
	var out []int
	for _, fd := range fds {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			closeAll(out)
			return nil
		}
		out = append(out, dup)
	}
	return out
}

// hangUp ends the connections of all engines, and takes no others.
func (s *Server) hangUp() {
	s.mu.Lock()
	if !s.closed { // it may serve at several sockets
		close(s.ending)
	}
	s.closed = true
	for _, t := range s.abandoned {
		t.Stop()
	}
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// forgetAll closes every descriptor: what nobody else holds fails.
func (s *Server) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for volume := range s.kept {
		s.forget(volume)
	}
}
