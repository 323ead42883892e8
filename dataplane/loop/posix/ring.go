package posix

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/loop"
)

// ring does the operations of files through io_uring: a batch of them costs one system call, and
// what the disk can take at once keeps no thread waiting. What the kernel cannot begin without
// waiting (writes into holes, syncs, punches) its own workers do, as threads of this process.
//
// It belongs to the loop's thread. The structures and numbers are those of linux/io_uring.h.
type ring struct {
	fd             int
	sqMem, sqeMem  []byte
	sqHead, sqTail *uint32
	sqMask         uint32
	cqHead, cqTail *uint32
	cqMask         uint32
	sqes           []sqe
	cqes           []cqe

	// queued are entries that the kernel has not been told of yet.
	queued uint32
	// slots are the operations in flight, by user data; free are those that are not in use.
	slots   []*slot
	free    []uint32
	flying  int
	backlog taskRing
	// update is struct io_uring_files_update, about held: here, since what is on a stack moves.
	update struct {
		_, _ uint32
		fds  uint64
	}
	held int32
}

// slot is an operation in flight. It does not move: the kernel reads its vector.
type slot struct {
	task
	rest  []unix.Iovec // of task.iov, what is not done
	total int
}

const (
	// ringEntries is how many operations one system call takes in.
	ringEntries = 64
	// ringFlying bounds the operations in flight: what more there is waits here. There is a
	// completion entry for each.
	ringFlying = 512
	// ringWorkers bounds the kernel's workers for what cannot be begun without waiting.
	ringWorkers = 32
	// wholesale is the length from which a transfer is given to a worker of the kernel at once: to
	// begin it takes this thread longer than handing it over.
	wholesale = 256 << 10

	setupCQSize       = 1 << 3
	setupClamp        = 1 << 4
	setupCoopTaskrun  = 1 << 8
	featSingleMmap    = 1 << 0
	featNoDrop        = 1 << 1
	featSubmitStable  = 1 << 2
	featNativeWorkers = 1 << 9
	featWanted        = featSingleMmap | featNoDrop | featSubmitStable | featNativeWorkers

	offSQRing = 0
	offSQEs   = 0x10000000

	opReadv     = 1
	opWritev    = 2
	opFsync     = 3
	opFallocate = 17
	opRead      = 22
	opWrite     = 23

	sqeAsync       = 1 << 4
	fsyncDatasync  = 1
	enterGetevents = 1

	registerFiles          = 2
	registerFilesUpdate    = 6
	registerIOWQMaxWorkers = 19
)

// sqe is struct io_uring_sqe.
type sqe struct {
	opcode   uint8
	flags    uint8
	ioprio   uint16
	fd       int32
	off      uint64
	addr     uint64
	len      uint32
	opFlags  uint32
	userData uint64
	_        [3]uint64
}

// cqe is struct io_uring_cqe.
type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

// ringParams is struct io_uring_params.
type ringParams struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFd uint32
	_                                                                      [3]uint32
	sq                                                                     struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// newRing makes a ring, or says why there is none: an old kernel, or one that does not let this
// process.
func newRing() (*ring, error) {
	p := ringParams{flags: setupCQSize | setupClamp | setupCoopTaskrun, cqEntries: ringFlying}
	fd, err := setup(&p)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.19
		p = ringParams{flags: setupCQSize | setupClamp, cqEntries: ringFlying}
		fd, err = setup(&p)
	}
	if err != nil {
		return nil, fmt.Errorf("io_uring_setup: %w", err)
	}
	r := &ring{fd: fd}
	if p.features&featWanted != featWanted {
		return nil, errors.Join(errors.New("the io_uring of this kernel is too old: Linux 5.12 is needed"), r.unmap())
	}
	if err := r.mmap(&p); err != nil {
		return nil, errors.Join(fmt.Errorf("io_uring: map its rings: %w", err), r.unmap())
	}
	most := [2]uint32{ringWorkers, 0}
	_ = r.register(registerIOWQMaxWorkers, unsafe.Pointer(&most[0]), 2) // since Linux 5.15
	none := int32(-1)
	if err := r.register(registerFiles, unsafe.Pointer(&none), 1); err != nil {
		return nil, errors.Join(fmt.Errorf("io_uring: register files: %w", err), r.unmap())
	}
	return r, nil
}

func (r *ring) register(what uintptr, arg unsafe.Pointer, n uintptr) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), what, uintptr(arg), n, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// hold has the kernel keep a file open until nothing of the ring is in flight any more. A process
// that is killed is gone before its operations are: whoever is to come after them waits for a lock
// on that file.
func (r *ring) hold(fd int32) error {
	r.held = fd
	r.update.fds = uint64(uintptr(unsafe.Pointer(&r.held)))
	return r.register(registerFilesUpdate, unsafe.Pointer(&r.update), 1)
}

func setup(p *ringParams) (int, error) {
	fd, _, errno := unix.RawSyscall(unix.SYS_IO_URING_SETUP, ringEntries, uintptr(unsafe.Pointer(p)), 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func (r *ring) mmap(p *ringParams) (err error) {
	size := max(p.sq.array+p.sqEntries*4, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.sqMem, err = unix.Mmap(r.fd, offSQRing, int(size), prot, flags); err != nil {
		return err
	}
	if r.sqeMem, err = unix.Mmap(r.fd, offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(sqe{})), prot, flags); err != nil {
		return err
	}
	at := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.sqMem[off])) }
	r.sqHead, r.sqTail, r.sqMask = at(p.sq.head), at(p.sq.tail), *at(p.sq.mask)
	r.cqHead, r.cqTail, r.cqMask = at(p.cq.head), at(p.cq.tail), *at(p.cq.mask)
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&r.sqeMem[0])), p.sqEntries)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&r.sqMem[p.cq.cqes])), p.cqEntries)
	for i := range p.sqEntries { // entry i is always at place i
		*at(p.sq.array + 4*i) = i
	}
	return nil
}

func (r *ring) unmap() error {
	var errs []error
	for _, mem := range [][]byte{r.sqMem, r.sqeMem} {
		if mem != nil {
			errs = append(errs, unix.Munmap(mem))
		}
	}
	return errors.Join(append(errs, unix.Close(r.fd))...)
}

// submit takes an operation in; flush tells the kernel.
func (r *ring) submit(t *task) {
	if len(r.free) == 0 && !r.grow() {
		r.backlog.push(t)
		return
	}
	n := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	s := r.slots[n]
	s.task, s.total = *t, 0
	s.rest = s.iov[:s.segs]
	r.flying++
	r.enqueue(n)
}

// grow makes more slots, up to the bound.
func (r *ring) grow() bool {
	const some = 16
	if len(r.slots)+some > ringFlying {
		return false
	}
	made := make([]slot, some)
	for i := range made {
		r.free = append(r.free, uint32(len(r.slots)))
		r.slots = append(r.slots, &made[i])
	}
	return true
}

// enqueue makes the entry of what is left of an operation.
func (r *ring) enqueue(n uint32) {
	if r.queued == uint32(len(r.sqes)) {
		r.flush()
	}
	s := r.slots[n]
	tail := *r.sqTail // written here alone
	e := &r.sqes[tail&r.sqMask]
	*e = sqe{fd: int32(s.handle), userData: uint64(n)}
	switch s.kind {
	case loop.FileRead:
		r.transfer(e, s, opRead, opReadv)
	case loop.FileWrite:
		r.transfer(e, s, opWrite, opWritev)
	case loop.FileSync:
		e.opcode, e.opFlags = opFsync, fsyncDatasync
	case loop.FilePunch:
		e.opcode, e.off, e.addr = opFallocate, uint64(s.off), uint64(s.size)
		e.len = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	}
	atomic.StoreUint32(r.sqTail, tail+1)
	r.queued++
}

func (r *ring) transfer(e *sqe, s *slot, single, vector uint8) {
	e.off = uint64(s.off + int64(s.total))
	if len(s.rest) == 1 {
		e.opcode, e.addr = single, uint64(uintptr(unsafe.Pointer(s.rest[0].Base)))
		e.len = uint32(s.rest[0].Len)
	} else {
		e.opcode, e.len = vector, uint32(len(s.rest))
		if e.len > 0 {
			e.addr = uint64(uintptr(unsafe.Pointer(&s.rest[0])))
		}
	}
	if vecLen(s.rest) >= wholesale {
		e.flags = sqeAsync
	}
}

// flush tells the kernel of all that is queued. What it cannot take now, for want of memory, stays
// queued.
func (r *ring) flush() {
	for r.queued > 0 {
		n, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.queued), 0, 0, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno != 0 || n == 0:
			return
		default:
			r.queued -= uint32(n)
		}
	}
}

// stuck: the kernel has not taken all that is queued.
func (r *ring) stuck() bool { return r.queued > 0 }

// reap calls done with each operation that is complete, and goes on with those that came up short.
func (r *ring) reap(done func(loop.Done)) {
	head := *r.cqHead // written here alone
	for tail := atomic.LoadUint32(r.cqTail); head != tail; head++ {
		c := r.cqes[head&r.cqMask]
		atomic.StoreUint32(r.cqHead, head+1)
		r.complete(uint32(c.userData), c.res, done)
	}
	var t task
	for len(r.free) > 0 && r.backlog.pop(&t) {
		r.submit(&t)
	}
	r.flush()
}

func (r *ring) complete(n uint32, res int32, done func(loop.Done)) {
	s := r.slots[n]
	errno, more := s.advance(res)
	if more {
		r.enqueue(n)
		return
	}
	d := loop.Done{Kind: s.kind, Handle: s.handle, Tag: s.tag, N: s.total, Errno: loop.Errno(errno)}
	s.fn, s.rest = nil, nil
	r.free = append(r.free, n)
	r.flying--
	done(d)
}

// advance takes a result in. more: the operation goes on.
func (s *slot) advance(res int32) (errno unix.Errno, more bool) {
	transfer := s.kind == loop.FileRead || s.kind == loop.FileWrite
	switch {
	case res == -int32(unix.EINTR), res == -int32(unix.EAGAIN):
		return 0, true
	case res == -int32(unix.EINVAL) && s.total > 0 && s.kind == loop.FileRead:
		return 0, false // direct I/O refuses to go on at the unaligned end of a file
	case res < 0:
		return unix.Errno(-res), false
	case !transfer:
		return 0, false
	}
	s.total += int(res)
	left := vecLen(s.rest) - int(res)
	switch {
	case res > 0 && left > 0:
		s.rest = advance(s.rest, int(res))
		return 0, true
	case left > 0 && s.kind == loop.FileWrite:
		return unix.EIO, false
	}
	return 0, false
}

// close waits for what is in flight.
func (r *ring) close() error {
	for r.flying > 0 || r.backlog.n > 0 {
		r.reap(func(loop.Done) {})
		if r.flying > 0 {
			r.flush()
			r.wait()
		}
	}
	return r.unmap()
}

// wait waits for a completion of what the kernel has.
func (r *ring) wait() {
	_, _, _ = unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 0, 1, enterGetevents, 0, 0)
}
