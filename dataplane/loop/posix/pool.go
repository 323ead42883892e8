package posix

import (
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/loop"
)

// task is a file operation or call on its way to a worker. Buffers are resolved to addresses on the
// loop's thread: the arena has no lock.
type task struct {
	kind   loop.Kind
	segs   int
	handle loop.Handle
	off    int64
	size   int64
	tag    uint64
	fn     func() any
	iov    [loop.MaxSegs]unix.Iovec
	// since is when it was submitted, if it is a file operation of a pool.
	since time.Time
}

// pool runs tasks on limit goroutines, or on most if tasks wait for long: then the disk is slow,
// and its own queue is not full. They are started when work waits and nobody is parked, the one
// parked last is used first, and a timer that only runs while there are workers lets those go that
// were not needed.
type pool struct {
	mu      sync.Mutex
	limit   int
	most    int
	idle    time.Duration
	inbox   *inbox
	tasks   taskRing
	workers int
	parked  []chan bool // true: look for work; false: exit
	fewest  int         // parked at the fewest since the last trim
	trimmer *time.Timer
	closed  bool
	done    sync.WaitGroup
}

// slow is how long a task waits on a slow disk: on others it is taken sooner, however many there
// are.
const slow = time.Millisecond

func newPool(limit, most int, idle time.Duration, in *inbox) *pool {
	return &pool{limit: limit, most: most, idle: idle, inbox: in}
}

// waitsLong reports whether the task that has waited longest has waited for a slow disk.
func (p *pool) waitsLong(now time.Time) bool {
	return p.tasks.n > 1 && now.Sub(p.tasks.buf[p.tasks.head].since) > slow
}

func (p *pool) submit(t *task) {
	p.mu.Lock()
	if p.most > p.limit {
		t.since = time.Now()
	}
	p.tasks.push(t)
	var wake chan bool
	switch last := len(p.parked) - 1; {
	case last >= 0:
		wake = p.parked[last]
		p.parked = p.parked[:last]
		p.fewest = min(p.fewest, last)
	case p.workers < p.limit, p.workers < p.most && p.waitsLong(t.since):
		p.start()
	}
	p.mu.Unlock()
	if wake != nil {
		wake <- true
	}
}

func (p *pool) start() {
	p.workers++
	p.done.Add(1)
	if p.workers == 1 {
		if p.trimmer == nil {
			p.trimmer = time.AfterFunc(p.idle, p.trim)
		} else {
			p.trimmer.Reset(p.idle)
		}
	}
	go p.work()
}

func (p *pool) work() {
	defer p.done.Done()
	wake := make(chan bool, 1)
	var t task
	for {
		p.mu.Lock()
		if !p.tasks.pop(&t) {
			if p.closed {
				p.workers--
				p.mu.Unlock()
				return
			}
			p.parked = append(p.parked, wake)
			p.mu.Unlock()
			if !<-wake {
				return
			}
			continue
		}
		p.mu.Unlock()
		d := loop.Done{Kind: t.kind, Handle: t.handle, Tag: t.tag}
		t.run(&d)
		t.fn = nil
		p.inbox.complete(d)
	}
}

// trim lets the workers exit that stayed parked through the whole period.
func (p *pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	n := min(p.fewest, len(p.parked))
	for _, w := range p.parked[:n] {
		w <- false
	}
	p.workers -= n
	p.parked = append(p.parked[:0], p.parked[n:]...)
	p.fewest = len(p.parked)
	if p.workers > 0 {
		p.trimmer.Reset(p.idle)
	}
}

// close finishes queued tasks and waits for the workers.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, w := range p.parked {
		w <- true
	}
	p.parked = nil
	if p.trimmer != nil {
		p.trimmer.Stop()
	}
	p.mu.Unlock()
	p.done.Wait()
}

type taskRing struct {
	buf  []task
	head int
	n    int
}

func (r *taskRing) push(t *task) {
	if r.n == len(r.buf) {
		bigger := make([]task, max(32, 2*len(r.buf)))
		for i := range r.n {
			bigger[i] = r.buf[(r.head+i)%len(r.buf)]
		}
		r.buf, r.head = bigger, 0
	}
	r.buf[(r.head+r.n)%len(r.buf)] = *t
	r.n++
}

func (r *taskRing) pop(t *task) bool {
	if r.n == 0 {
		return false
	}
	*t = r.buf[r.head]
	r.buf[r.head].fn = nil
	r.head = (r.head + 1) % len(r.buf)
	r.n--
	return true
}

func (t *task) run(d *loop.Done) {
	var errno unix.Errno
	switch t.kind {
	case loop.FileRead:
		d.N, errno = t.transfer(unix.SYS_PREADV, unix.SYS_PREAD64)
	case loop.FileWrite:
		d.N, errno = t.transfer(unix.SYS_PWRITEV, unix.SYS_PWRITE64)
		if errno == 0 && d.N < vecLen(t.iov[:t.segs]) {
			errno = unix.EIO
		}
	case loop.FileSync:
		errno = retryIntr(func() unix.Errno {
			_, _, e := unix.Syscall(unix.SYS_FDATASYNC, uintptr(t.handle), 0, 0)
			return e
		})
	case loop.FilePunch:
		errno = retryIntr(func() unix.Errno {
			_, _, e := unix.Syscall6(unix.SYS_FALLOCATE, uintptr(t.handle),
				unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, uintptr(t.off), uintptr(t.size), 0, 0)
			return e
		})
	case loop.Close:
		// Linux frees the descriptor whatever close returns; an error here is a delayed write error
		// of a file that was not synced, and nobody was promised anything about it.
		unix.Close(int(t.handle))
	case loop.Call:
		d.Value = t.fn()
	}
	d.Errno = loop.Errno(errno)
}

func retryIntr(f func() unix.Errno) unix.Errno {
	for {
		if e := f(); e != unix.EINTR {
			return e
		}
	}
}

// transfer does one vectored read or write and continues it while it comes up short.
func (t *task) transfer(vec, single uintptr) (int, unix.Errno) {
	iov := t.iov[:t.segs]
	want, total := vecLen(iov), 0
	for {
		n, errno := t.once(vec, single, iov, t.off+int64(total))
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EINVAL && total > 0 && vec == unix.SYS_PREADV:
			return total, 0 // direct I/O refuses to go on at the unaligned end of a file
		case errno != 0:
			return total, errno
		}
		total += n
		if n == 0 || total >= want {
			return total, 0
		}
		iov = advance(iov, n)
	}
}

func (t *task) once(vec, single uintptr, iov []unix.Iovec, off int64) (int, unix.Errno) {
	var n uintptr
	var errno unix.Errno
	if len(iov) == 1 {
		n, _, errno = unix.Syscall6(single, uintptr(t.handle), uintptr(unsafe.Pointer(iov[0].Base)),
			uintptr(iov[0].Len), uintptr(off), 0, 0)
	} else {
		n, _, errno = unix.Syscall6(vec, uintptr(t.handle), uintptr(unsafe.Pointer(&iov[0])), uintptr(len(iov)),
			uintptr(off), 0, 0)
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func vecLen(iov []unix.Iovec) int {
	n := 0
	for i := range iov {
		n += int(iov[i].Len)
	}
	return n
}

// advance drops the first n bytes of iov.
func advance(iov []unix.Iovec, n int) []unix.Iovec {
	for n > 0 {
		if n < int(iov[0].Len) {
			iov[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(iov[0].Base), n))
			iov[0].SetLen(int(iov[0].Len) - n)
			break
		}
		n -= int(iov[0].Len)
		iov = iov[1:]
	}
	return iov
}
