// Package posix is the production loop: one thread for everything that can be polled, and io_uring
// for files; where the kernel lets this process have none, a bounded pool of workers.
//
// Sockets, listeners and the FUSE device are non-blocking. An operation on them is tried at once on
// the loop's thread and, if the kernel is not ready, again when epoll reports an edge. Files always
// look ready to epoll although they wait for the disk. Their operations go into a ring, a batch by
// one system call (ring), or to workers, which read and write while the loop's thread goes on.
// Completions of workers and posted messages meet in one inbox; the loop is woken through an
// eventfd, and only when it really sleeps, so a burst of completions costs one wake-up.
//
// The thread never spins: with nothing to do it sits in epoll_pwait2 until something happens or the
// core's own deadline comes.
package posix

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
)

// Options configure a Loop; the zero value means defaults.
type Options struct {
	// Files says how operations of files are done: FilesByRing, FilesByPool; "": by a ring where the
	// kernel lets this process have one.
	Files string
	// Workers bounds the goroutines that do file operations, and so the queue depth at the disk;
	// slowWorkers times as many on a disk that is slow. Default 16.
	Workers int
	// Callers bounds the goroutines that run Call operations. Default 4.
	Callers int
	// WorkerIdle is how long an unused worker is kept. Default 5 s.
	WorkerIdle time.Duration
	// TrimEvery is how often buffers that were not needed meanwhile give their memory back. Default
	// 3 s.
	TrimEvery time.Duration
	// OnQuiet is called on a goroutine of its own when there is little to do after there was much,
	// the start included: what a load has left in the process besides buffers can be given back.
	// OnRest is called likewise a few times after that, each time after a little was done: work that
	// follows a load by up to half a minute leaves something too. nil: nobody is told.
	OnQuiet, OnRest func()
}

// Ways to do operations of files.
const (
	FilesByRing = "ring"
	FilesByPool = "pool"
)

const (
	defaultWorkers    = 16
	defaultCallers    = 4
	defaultWorkerIdle = 5 * time.Second
	defaultTrimEvery  = 3 * time.Second
	slowWorkers       = 4
	// maxWorkers bounds both pools: more threads than this only queue in the kernel instead of in
	// the loop.
	maxWorkers = 256
)

func (o *Options) defaults() error {
	if o.Workers == 0 {
		o.Workers = defaultWorkers
	}
	if o.Callers == 0 {
		o.Callers = defaultCallers
	}
	if o.WorkerIdle == 0 {
		o.WorkerIdle = defaultWorkerIdle
	}
	if o.TrimEvery == 0 {
		o.TrimEvery = defaultTrimEvery
	}
	if o.TrimEvery < 0 || o.Workers < 1 || o.Workers > maxWorkers || o.Callers < 1 || o.Callers > maxWorkers ||
		o.WorkerIdle < 0 {
		return fmt.Errorf("loop: workers (%d) and callers (%d) must be 1 to %d, times (%v, %v) positive",
			o.Workers, o.Callers, maxWorkers, o.WorkerIdle, o.TrimEvery)
	}
	return nil
}

// Loop is the production loop. It implements loop.Loop and loop.Poster.
type Loop struct {
	arena *loop.Arena
	epoll int
	inbox inbox
	files *pool
	calls *pool
	// ring does the operations of files; nil: files does. noRing is why.
	ring   *ring
	noRing error

	handles  []*handle // by descriptor
	spare    []*handle
	trim     time.Duration
	nextTrim clock.Ticks
	quiet    quiet

	devices []*handle // those that hand requests out by commands
	stalled []*handle // listeners waiting for descriptors or memory to come free
	ready   queue
	busy    int // Reaps answered without looking at epoll
	events  [maxEvents]unix.EpollEvent
	taken   []loop.Done

	closeOnce sync.Once
}

// maxEvents is harvested per epoll call: as many connections as an engine normally has; with NBD
// clients it may have a hundred.
const maxEvents = 64

// New returns a loop whose operations use buffers of arena.
func New(arena *loop.Arena, opts Options) (*Loop, error) {
	if err := opts.defaults(); err != nil {
		return nil, err
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("loop: cannot create an epoll descriptor: %w", err)
	}
	efd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("loop: cannot create an event descriptor: %w", err)
	}
	l := &Loop{arena: arena, epoll: ep, trim: opts.TrimEvery, quiet: newQuiet(&opts)}
	l.inbox.efd = efd
	// Edge-triggered and never read: every write is a new edge, which saves a read per wake-up.
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(efd)}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, efd, &ev); err != nil {
		unix.Close(ep)
		unix.Close(efd)
		return nil, fmt.Errorf("loop: cannot watch the event descriptor: %w", err)
	}
	l.files = newPool(opts.Workers, min(slowWorkers*opts.Workers, maxWorkers), opts.WorkerIdle, &l.inbox)
	l.calls = newPool(opts.Callers, opts.Callers, opts.WorkerIdle, &l.inbox)
	if err := l.openRing(opts.Files); err != nil {
		l.Close()
		return nil, err
	}
	if l.ring == nil {
		reserveProcs(opts.Workers)
	} else {
		reserveProcs(opts.Callers)
	}
	return l, nil
}

// openRing makes the ring, if there is to be one.
func (l *Loop) openRing(files string) (err error) {
	switch files {
	case FilesByPool:
		l.noRing = errors.New("it was asked for")
		return nil
	case "", FilesByRing:
	default:
		return fmt.Errorf("loop: files are done by %q or %q, not by %q", FilesByRing, FilesByPool, files)
	}
	if l.ring, err = newRing(); err == nil {
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET&0xffffffff, Fd: int32(l.ring.FD())}
		if err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, l.ring.FD(), &ev); err == nil {
			return nil
		}
		err = errors.Join(err, l.ring.Close())
		l.ring = nil
	}
	if files == FilesByRing {
		return fmt.Errorf("loop: %w", err)
	}
	l.noRing = err
	return nil
}

// Hold keeps a file open, in place of the one before, until no operation of this loop is in flight
// any more, even if the process is killed: then it is gone before its operations are. A lock on
// that file says when others may have what they change. It may be called from any goroutine.
func (l *Loop) Hold(fd loop.Handle) error {
	if l.ring == nil {
		return nil // the threads that are in system calls keep the process, and all that it has open
	}
	if err := l.ring.hold(int32(fd)); err != nil {
		return fmt.Errorf("loop: file %d cannot be kept open: %w", fd, err)
	}
	return nil
}

// Files tells how operations of files are done; why is why not by a ring.
func (l *Loop) Files() (how string, why error) {
	if l.ring != nil {
		return FilesByRing, nil
	}
	return FilesByPool, l.noRing
}

// Arena returns the arena given to New.
func (l *Loop) Arena() *loop.Arena { return l.arena }

var procs struct {
	sync.Mutex
	extra int
}

// reserveProcs raises GOMAXPROCS. A goroutine in a system call keeps its processor slot until the
// runtime's monitor notices, tens of microseconds to milliseconds later; with as many slots as
// CPUs, two workers waiting for the disk stop everything else in the process. Slots beyond the CPUs
// cost little memory and remove the wait. The largest loop of the process decides; the number never
// shrinks.
func reserveProcs(workers int) {
	procs.Lock()
	defer procs.Unlock()
	if want := workers + 2; want > procs.extra {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + want - procs.extra)
		procs.extra = want
	}
}

// Close waits for workers and closes every listener, connection and device the loop still knows.
// Files belong to whoever opened them and stay open. No method may be called afterwards.
func (l *Loop) Close() {
	l.closeOnce.Do(func() {
		l.quiet.told.Wait()
		if l.ring != nil {
			_ = l.ring.close() // nothing of it is used any more
		}
		l.files.close()
		l.calls.close()
		for _, h := range l.handles {
			if h == nil {
				continue
			}
			device := h.commands != nil
			l.endCommands(h)
			if h.known || device {
				unix.Close(int(h.fd))
			}
		}
		l.handles = nil
		unix.Close(l.epoll)
		l.inbox.mu.Lock()
		unix.Close(l.inbox.efd)
		l.inbox.efd = -1
		l.inbox.mu.Unlock()
	})
}

var origin = time.Now()

// Now is the time since the process started, by the monotonic clock.
func (l *Loop) Now() clock.Ticks { return clock.Ticks(time.Since(origin)) }

// Post hands v to the core as a Posted completion. It may be called from any goroutine and never
// blocks. After Close it does nothing.
func (l *Loop) Post(v any) {
	l.inbox.put(loop.Done{Kind: loop.Posted, Value: v})
}

// reapsPerPoll is how many Reaps may be answered from completions at hand before epoll is asked
// again, so that one busy connection cannot starve the others.
const reapsPerPoll = 4

// Reap implements loop.Loop.
func (l *Loop) Reap(done []loop.Done, wait time.Duration) int {
	l.collect()
	switch {
	case l.ready.len() == 0:
		l.wait(wait)
	case l.busy >= reapsPerPoll:
		l.busy = 0
		l.poll(0)
		l.collect()
	default:
		l.busy++
	}
	return l.ready.drain(done)
}

// wait polls until there is a completion, wait has passed, or the loop was interrupted.
func (l *Loop) wait(wait time.Duration) {
	l.busy = 0
	deadline := clock.Never
	if wait >= 0 {
		deadline = l.Now().Add(wait)
	}
	for {
		l.trimArena()
		switch {
		case wait == 0:
			l.poll(0)
		case l.inbox.sleep():
			l.poll(wait)
		}
		l.collect()
		if l.ready.len() > 0 || l.inbox.interrupted() {
			return
		}
		if wait >= 0 {
			if wait = deadline.Sub(l.Now()); wait <= 0 {
				return
			}
		}
	}
}

// trimArena is called before the loop blocks, when there is time for it.
func (l *Loop) trimArena() {
	if now := l.Now(); now >= l.nextTrim {
		l.nextTrim = now.Add(l.trim)
		l.arena.Trim()
		l.quiet.look(l.arena.Slack())
	}
}

// collect moves what workers and posters left in the inbox to the ready queue.
func (l *Loop) collect() {
	l.taken = l.inbox.take(l.taken)
	for i := range l.taken {
		d := &l.taken[i]
		if d.Handle >= 0 && isFileOp(d.Kind) {
			l.fileDone(d)
		}
		l.ready.push(*d)
		*d = loop.Done{}
	}
	l.taken = l.taken[:0]
	if l.ring != nil {
		l.ring.reap(func(d loop.Done) {
			l.fileDone(&d)
			l.ready.push(d)
		})
	}
	l.reapCommands()
}

// stalledRetry is how often a listener that met a lack of descriptors or memory is tried again.
const stalledRetry = 100 * time.Millisecond

// stuckRetry is when operations of files are begun that the kernel had no memory for.
const stuckRetry = time.Millisecond

// poll asks epoll once, blocking up to wait (negative: without bound), and lets operations go on.
// full: there may have been more to report.
func (l *Loop) poll(wait time.Duration) (full bool) {
	if len(l.stalled) > 0 && (wait < 0 || wait > stalledRetry) {
		wait = stalledRetry
	}
	if (l.ring != nil && l.ring.Stuck() || l.commandsStuck()) && (wait < 0 || wait > stuckRetry) {
		wait = stuckRetry
	}
	if (l.arena.Slack() || l.quiet.due()) && (wait < 0 || wait > l.trim) {
		wait = l.trim
	}
	n := l.epollWait(wait)
	for i := range n {
		ev := &l.events[i]
		if int(ev.Fd) == l.inbox.efd {
			continue
		}
		if h := l.lookup(loop.Handle(ev.Fd)); h != nil {
			l.edge(h, ev.Events)
		}
	}
	if len(l.stalled) > 0 {
		list := l.stalled
		l.stalled = nil
		for _, h := range list {
			if h.recv.active {
				l.progressRecv(h)
			}
		}
	}
	return n == maxEvents
}

// pollAll looks at everything that is ready now. What epoll has reported it reports behind all
// others the next time, so it comes to an end although peers go on sending.
func (l *Loop) pollAll() {
	for range len(l.handles)/maxEvents + 1 {
		if !l.poll(0) {
			return
		}
	}
}

func (l *Loop) epollWait(wait time.Duration) int {
	ev := uintptr(unsafe.Pointer(&l.events[0]))
	var n uintptr
	var errno unix.Errno
	switch {
	case wait == 0:
		n, _, errno = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epoll), ev, maxEvents,
			uintptr(unsafe.Pointer(&unix.Timespec{})), 0, 0)
	case wait < 0:
		n, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epoll), ev, maxEvents, 0, 0, 0)
	default:
		ts := unix.NsecToTimespec(int64(wait))
		n, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epoll), ev, maxEvents,
			uintptr(unsafe.Pointer(&ts)), 0, 0)
	}
	if errno == unix.ENOSYS { // before Linux 5.11: milliseconds, rounded up
		ms := -1
		if wait >= 0 {
			ms = int((wait + time.Millisecond - 1) / time.Millisecond)
		}
		k, err := unix.EpollWait(l.epoll, l.events[:], ms)
		if err != nil {
			return 0
		}
		return k
	}
	if errno != 0 {
		return 0
	}
	return int(n)
}

// Stopper is implemented by cores that end by themselves: Run returns once Stopped reports true.
type Stopper interface {
	Stopped() bool
}

// batch is how many completions one Step is given: about the deepest queue a user drives.
const batch = 256

// standstill is how long the thread may have stood still between two looks at the clock without the
// loop looking for completions again. Deadlines of cores are longer by far.
const standstill = 10 * time.Millisecond

// rest adds to in[:n] whatever else has completed, and returns a time after all that: the thread
// may have stood still since it looked last, and a core that takes what it has not been handed for
// silence drops somebody who has answered. The time must not be from before, since leases are
// judged by the time at which a request came.
func (l *Loop) rest(in []loop.Done, n int) ([]loop.Done, int, clock.Ticks) {
	for before := l.Now(); ; {
		l.busy = 0
		l.pollAll()
		l.collect()
		if more := n + l.ready.len() - len(in); more > 0 {
			in = append(in, make([]loop.Done, more)...)
		}
		n += l.ready.drain(in[n:])
		now := l.Now()
		if now.Sub(before) < standstill {
			return in, n, now
		}
		before = now
	}
}

// Run drives core with l on a locked thread until ctx ends (it returns the context's error) or the
// core, being a Stopper, has stopped (nil). No step follows the end of ctx: what has completed by
// then is left, since whatever the core would do about it might be durable. Run does not close l.
func Run(ctx context.Context, l *Loop, core loop.Core) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l.inbox.resume()
	defer context.AfterFunc(ctx, l.inbox.interrupt)()
	stopper, _ := core.(Stopper)
	in := make([]loop.Done, batch)
	out := make([]loop.Op, 0, batch)
	n, wake := 0, clock.Never
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		now := l.Now()
		if now >= wake {
			in, n, now = l.rest(in, n)
		}
		wake = core.Step(now, in[:n], &out)
		clear(in[:n])
		l.Submit(out)
		clear(out) // closures and addresses must not outlive their operation
		out = out[:0]
		if stopper != nil && stopper.Stopped() {
			return nil
		}
		wait := time.Duration(-1)
		if wake != clock.Never {
			wait = max(0, wake.Sub(l.Now()))
		}
		n = l.Reap(in, wait)
	}
}
