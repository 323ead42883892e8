package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// SecondSocket is where the second holder of a node's devices listens, as Pods see it.
const SecondSocket = "/host/var/lib/longhorn/device-holder.sock"

// secondAgain is when a second holder that could not be told is told again, and how often it is
// looked whether one that was told is still there.
const secondAgain = time.Second

const (
	// ownerEnds is how long one request waits for the end of a device's owner, below answerTimeout;
	// who goes on waiting asks again. takeAgain is the pause between two looks.
	ownerEnds = 4 * time.Second
	takeAgain = 20 * time.Millisecond
)

// second tells another Server, in another process of the node, all that this one keeps, so that
// devices outlive the end of this process with all engines. It is told after the engine has been
// answered: what it has is the present state or one from a moment before, and an engine that finds
// the latter ends the device instead of going on with it (package kept).
type second struct {
	s      *Server
	socket string
	log    *slog.Logger
	// wake has an element when there may be something to tell.
	wake chan struct{}
	// ends is ownerEnds.
	ends time.Duration

	// mu is held during an exchange. What is below changes with s.mu held too.
	mu   sync.Mutex
	conn *net.UnixConn
	// told is what the other holder has, by volume: the revision of the device. 0 is one that it may
	// have, as it was told over a connection that has ended, or as it had it before.
	told   map[string]uint64
	failed bool
}

// WithSecond has everything that is kept held by the server at socket too, and returns s. It must
// be called before Serve.
func (s *Server) WithSecond(socket string) *Server {
	s.second = &second{s: s, socket: socket, log: s.log, wake: make(chan struct{}, 1), ends: ownerEnds,
		told: map[string]uint64{}}
	return s
}

// changed gives a device a new revision and has the second holder told. The lock is held.
func (s *Server) changed(d *device) {
	s.revision++
	if d != nil {
		d.revision = s.revision
	}
	if s.second != nil {
		select {
		case s.second.wake <- struct{}{}:
		default:
		}
	}
}

// run tells the second holder until done is closed. What is kept here at that moment stays there,
// and waits for the next instance manager.
func (x *second) run(done <-chan struct{}) {
	var again <-chan time.Time
	for {
		select {
		case <-done:
			x.tell() // what has come and what has been dropped last
			x.mu.Lock()
			x.hangUp()
			x.mu.Unlock()
			return
		case <-x.wake:
		case <-again:
		}
		again = nil
		if x.tell() {
			again = time.After(secondAgain)
		}
	}
}

// news is what one device's owner would say to the second holder.
type news struct {
	r        request
	fds      []int
	revision uint64
}

// news returns what the other holder has not been told; the descriptors are duplicates. whole is
// false if no descriptor was free for some of it.
func (x *second) news() (out []news, whole bool) {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	whole = true
	for volume, d := range x.s.kept {
		if x.told[volume] == d.revision {
			continue
		}
		fds := duplicates(d.fds)
		if fds == nil {
			whole = false
			continue
		}
		o := Owner{Volume: volume, Engine: d.engine, Wait: d.wait}
		out = append(out, news{o.request(opKeep, d.state), fds, d.revision})
	}
	for volume := range x.told {
		if x.s.kept[volume] == nil {
			out = append(out, news{r: request{Op: opDrop, Volume: volume}})
		}
	}
	return out, whole
}

// tell brings the other holder up to date, and reports whether to look again without a change here:
// it could not be told, or has something that it may lose.
func (x *second) tell() (again bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lookAt()
	var err error
	all, whole := x.news()
	for _, n := range all {
		if err == nil || x.conn != nil { // who refuses one device takes the others
			err = errors.Join(err, x.tellOne(&n))
		}
		closeAll(n.fds)
	}
	if failed := err != nil; failed != x.failed {
		x.failed = failed
		if failed {
			x.log.Warn("block devices have no second holder now: they fail if this process is killed", "error", err)
		} else {
			x.log.Info("block devices have a second holder")
		}
	}
	return err != nil || !whole || len(x.told) > 0
}

// tellOne tells the other holder of one device, and remembers that. x.mu is held.
func (x *second) tellOne(n *news) error {
	_, _, err := x.ask(n.r, n.fds...)
	drop := n.r.Op == opDrop
	if drop && (errors.Is(err, ErrNone) || errors.Is(err, ErrInUse)) {
		err = nil // it has ended there, or another instance manager has it now
	}
	if err != nil {
		return err
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if drop {
		delete(x.told, n.r.Volume)
		x.s.tellEnded(n.r.Volume)
	} else {
		x.told[n.r.Volume] = n.revision
	}
	return nil
}

// HeldElsewhere names the engines whose devices the second holder has. They go on in the next
// instance manager if the engines end without dropping them, and this server after them: what the
// second holder has not been told yet it is told at the end.
func (s *Server) HeldElsewhere() map[string]bool {
	held := map[string]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.second == nil || s.second.conn == nil || ended(s.second.conn) {
		return held
	}
	for volume, d := range s.kept {
		if s.second.told[volume] != 0 {
			held[d.engine] = true
		}
	}
	return held
}

// take asks for the device of a volume that the other holder alone has: that of an engine which
// ended together with the process that was this one, or with another one of the node. It waits here
// for the engine that takes it. Where its owner lives, that is waited for: an instance manager that
// is replaced by one beside it is about to end. ErrInUse: it has not, or this server ends first.
func (x *second) take(r *request) error {
	late := time.After(x.ends)
	for {
		err := x.takeNow(r)
		if !errors.Is(err, ErrInUse) {
			return err
		}
		select {
		case <-late:
			return err
		case <-x.s.ending:
			return err
		case <-time.After(takeAgain):
		}
	}
}

func (x *second) takeNow(r *request) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lookAt()
	a, fds, err := x.ask(*r)
	switch {
	case errors.Is(err, ErrNone), isNoWay(err):
		return nil
	case err != nil:
		return err
	}
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // the other holder has it still, when the connection has ended
		closeAll(fds)
		return nil
	}
	x.told[r.Volume] = 0 // it has what is kept here, also if that is given up before it is told more
	if s.kept[r.Volume] != nil {
		closeAll(fds)
		return nil
	}
	s.log.Info("block device comes from the second holder", "volume", r.Volume)
	d := &device{fds: fds, state: append(json.RawMessage(nil), a.State...), engine: r.Engine, wait: s.waitOf(r)}
	s.kept[r.Volume] = d
	s.changed(d)
	s.orphan(r.Volume, d)
	return nil
}

// isNoWay tells that a holder could not be reached for a reason that does not pass by itself, so
// that nothing can be there: nobody listens, or nobody can at such a path. What this process or the
// kernel is short of for a moment passes, and a device may be there all the same.
func isNoWay(err error) bool {
	for _, reason := range []unix.Errno{unix.ENOENT, unix.ECONNREFUSED, unix.EINVAL, unix.ENOTDIR, unix.EACCES, unix.EPERM,
		unix.EPROTOTYPE, unix.ENAMETOOLONG, unix.ELOOP} {
		if errors.Is(err, errNoDial) && errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// errNoDial marks an error of dialling.
var errNoDial = errors.New("not reached")

// ask sends one request over the connection, which stands for this process. The lock is held.
func (x *second) ask(r request, fds ...int) (answer, []int, error) {
	if x.conn == nil {
		conn, err := dial(x.socket)
		if err != nil {
			return answer{}, nil, fmt.Errorf("%w: %w", errNoDial, err)
		}
		x.s.mu.Lock()
		x.conn = conn
		x.s.mu.Unlock()
	}
	h := &Held{conn: x.conn}
	a, got, err := h.ask(r, fds...)
	if err != nil && !errors.Is(err, ErrNone) && !errors.Is(err, ErrInUse) {
		x.hangUp()
	}
	return a, got, err
}

// lookAt gives a connection up that the other holder has ended. The lock is held.
func (x *second) lookAt() {
	if x.conn != nil && ended(x.conn) {
		x.hangUp()
	}
}

// hangUp ends the connection. The other holder is told anew what it was told over it, also of what
// is dropped by then: it would keep that for as long as it waits for an engine.
func (x *second) hangUp() {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if x.conn != nil {
		x.conn.Close()
	}
	x.conn = nil
	for volume := range x.told {
		x.told[volume] = 0
	}
}

// fetch brings a device here that the second holder alone has, before an engine takes it.
func (s *Server) fetch(r *request) error {
	if s.second == nil || r.Op != opTake {
		return nil
	}
	s.mu.Lock()
	there := s.kept[r.Volume] != nil || s.closed
	s.mu.Unlock()
	if there {
		return nil
	}
	return s.second.take(r)
}
