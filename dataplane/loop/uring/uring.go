// Package uring is an io_uring of the kernel: the two queues that it shares with a process, and the
// system calls to them. What operations mean is the caller's.
//
// A Ring belongs to one thread. The structures and numbers are those of linux/io_uring.h.
package uring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flags of New.
const (
	// Entries128 makes entries twice as long: 80 bytes for a command instead of 16.
	Entries128 = 1 << 10
	// CoopTaskrun spares interrupts of the thread, since Linux 5.19: completions are there when it
	// calls the kernel next.
	CoopTaskrun = 1 << 8

	setupCQSize = 1 << 3
	setupClamp  = 1 << 4

	featSingleMmap    = 1 << 0
	featNoDrop        = 1 << 1
	featSubmitStable  = 1 << 2
	featNativeWorkers = 1 << 9
	featWanted        = featSingleMmap | featNoDrop | featSubmitStable | featNativeWorkers

	offSQRing = 0
	offSQEs   = 0x10000000

	enterGetevents = 1

	commandAt = 48 // of a command's bytes in an entry
)

// Operations.
const (
	OpReadv     = 1
	OpWritev    = 2
	OpFsync     = 3
	OpFallocate = 17
	OpRead      = 22
	OpWrite     = 23
	OpCommand   = 46 // since Linux 5.19; the command's number is in Off
)

// Async, of an entry's flags, gives it to a worker of the kernel at once.
const Async = 1 << 4

// Entry is struct io_uring_sqe.
type Entry struct {
	Opcode   uint8
	Flags    uint8
	ioprio   uint16
	FD       int32
	Off      uint64
	Addr     uint64
	Len      uint32
	OpFlags  uint32
	UserData uint64
	_        uint64
	command  [16]byte
}

// completion is struct io_uring_cqe.
type completion struct {
	userData uint64
	res      int32
	flags    uint32
}

// params is struct io_uring_params.
type params struct {
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

// Ring is one io_uring.
type Ring struct {
	fd             int
	sqMem, sqeMem  []byte
	sqHead, sqTail *uint32
	sqMask         uint32
	cqHead, cqTail *uint32
	cqMask         uint32
	entries        uint32
	entrySize      uint32
	cqes           []completion
	// queued are entries that the kernel has not been told of yet.
	queued uint32
}

// New makes a ring for as many entries at once, and as many operations in flight, or says why there
// is none: an old kernel, or one that does not let this process.
func New(entries, flying, flags uint32) (*Ring, error) {
	p := params{flags: setupCQSize | setupClamp | flags, cqEntries: flying}
	fd, err := setup(entries, &p)
	if errors.Is(err, unix.EINVAL) && flags&CoopTaskrun != 0 { // before Linux 5.19
		p = params{flags: setupCQSize | setupClamp | flags&^CoopTaskrun, cqEntries: flying}
		fd, err = setup(entries, &p)
	}
	if err != nil {
		return nil, fmt.Errorf("io_uring_setup: %w", err)
	}
	r := &Ring{fd: fd, entries: p.sqEntries, entrySize: uint32(unsafe.Sizeof(Entry{}))}
	if flags&Entries128 != 0 {
		r.entrySize *= 2
	}
	if p.features&featWanted != featWanted {
		return nil, errors.Join(errors.New("the io_uring of this kernel is too old: Linux 5.12 is needed"), r.Close())
	}
	if err := r.mmap(&p); err != nil {
		return nil, errors.Join(fmt.Errorf("io_uring: map its rings: %w", err), r.Close())
	}
	return r, nil
}

func setup(entries uint32, p *params) (int, error) {
	fd, _, errno := unix.RawSyscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func (r *Ring) mmap(p *params) (err error) {
	size := max(p.sq.array+p.sqEntries*4, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(completion{})))
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.sqMem, err = unix.Mmap(r.fd, offSQRing, int(size), prot, flags); err != nil {
		return err
	}
	if r.sqeMem, err = unix.Mmap(r.fd, offSQEs, int(p.sqEntries*r.entrySize), prot, flags); err != nil {
		return err
	}
	at := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.sqMem[off])) }
	r.sqHead, r.sqTail, r.sqMask = at(p.sq.head), at(p.sq.tail), *at(p.sq.mask)
	r.cqHead, r.cqTail, r.cqMask = at(p.cq.head), at(p.cq.tail), *at(p.cq.mask)
	r.cqes = unsafe.Slice((*completion)(unsafe.Pointer(&r.sqMem[p.cq.cqes])), p.cqEntries)
	for i := range p.sqEntries { // entry i is always at place i
		*at(p.sq.array + 4*i) = i
	}
	return nil
}

// FD is the ring's descriptor, which can be waited for.
func (r *Ring) FD() int { return r.fd }

// Register is io_uring_register.
func (r *Ring) Register(what uintptr, arg unsafe.Pointer, n uintptr) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), what, uintptr(arg), n, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Next returns the next entry, empty, to be filled in and followed by Push. All of them being
// queued, the kernel is told first.
func (r *Ring) Next() *Entry {
	if r.queued == r.entries {
		r.Flush()
	}
	at := (*r.sqTail & r.sqMask) * r.entrySize // the tail is written here alone
	clear(r.sqeMem[at : at+r.entrySize])
	return (*Entry)(unsafe.Pointer(&r.sqeMem[at]))
}

// NextCommand is Next, and the command's bytes: 16, or 80 with Entries128.
func (r *Ring) NextCommand() (*Entry, []byte) {
	e := r.Next()
	at := (*r.sqTail & r.sqMask) * r.entrySize
	return e, r.sqeMem[at+commandAt : at+r.entrySize]
}

// Push queues the entry that Next has returned.
func (r *Ring) Push() {
	atomic.StoreUint32(r.sqTail, *r.sqTail+1)
	r.queued++
}

// Flush tells the kernel of all that is queued, all at once. What it cannot take now, for want of
// memory, stays queued.
func (r *Ring) Flush() {
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

// Stuck: the kernel has not taken all that is queued.
func (r *Ring) Stuck() bool { return r.queued > 0 }

// Reap calls done with the result of each operation that is complete.
func (r *Ring) Reap(done func(userData uint64, res int32)) {
	head := *r.cqHead // written here alone
	for tail := atomic.LoadUint32(r.cqTail); head != tail; head++ {
		c := r.cqes[head&r.cqMask]
		atomic.StoreUint32(r.cqHead, head+1)
		done(c.userData, c.res)
	}
}

// Wait waits for a completion of what the kernel has.
func (r *Ring) Wait() error {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 0, 1, enterGetevents, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Close gives the ring up. The kernel cancels what is in flight, after this has returned perhaps.
func (r *Ring) Close() error {
	var errs []error
	for _, mem := range [][]byte{r.sqMem, r.sqeMem} {
		if mem != nil {
			errs = append(errs, unix.Munmap(mem))
		}
	}
	r.sqMem, r.sqeMem = nil, nil
	return errors.Join(append(errs, unix.Close(r.fd))...)
}
