package posix

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/uring"
)

// ring does the operations of files through io_uring: a batch of them costs one system call, and
// what the disk can take at once keeps no thread waiting. What the kernel cannot begin without
// waiting (writes into holes, syncs, punches) its own workers do, as threads of this process.
//
// It belongs to the loop's thread.
type ring struct {
	*uring.Ring
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

	fsyncDatasync = 1

	registerFiles          = 2
	registerFilesUpdate    = 6
	registerIOWQMaxWorkers = 19
)

// newRing makes a ring, or says why there is none: an old kernel, or one that does not let this
// process.
func newRing() (*ring, error) {
	u, err := uring.New(ringEntries, ringFlying, uring.CoopTaskrun)
	if err != nil {
		return nil, err
	}
	r := &ring{Ring: u}
	most := [2]uint32{ringWorkers, 0}
	_ = r.Register(registerIOWQMaxWorkers, unsafe.Pointer(&most[0]), 2) // since Linux 5.15
	none := int32(-1)
	if err := r.Register(registerFiles, unsafe.Pointer(&none), 1); err != nil {
		return nil, errors.Join(fmt.Errorf("io_uring: register files: %w", err), r.Close())
	}
	return r, nil
}

// hold has the kernel keep a file open until nothing of the ring is in flight any more. A process
// that is killed is gone before its operations are: whoever is to come after them waits for a lock
// on that file.
func (r *ring) hold(fd int32) error {
	r.held = fd
	r.update.fds = uint64(uintptr(unsafe.Pointer(&r.held)))
	return r.Register(registerFilesUpdate, unsafe.Pointer(&r.update), 1)
}

// submit takes an operation in; Flush tells the kernel.
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
	s := r.slots[n]
	e := r.Next()
	e.FD, e.UserData = int32(s.handle), uint64(n)
	switch s.kind {
	case loop.FileRead:
		r.transfer(e, s, uring.OpRead, uring.OpReadv)
	case loop.FileWrite:
		r.transfer(e, s, uring.OpWrite, uring.OpWritev)
	case loop.FileSync:
		e.Opcode, e.OpFlags = uring.OpFsync, fsyncDatasync
	case loop.FilePunch:
		e.Opcode, e.Off, e.Addr = uring.OpFallocate, uint64(s.off), uint64(s.size)
		e.Len = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	}
	r.Push()
}

func (r *ring) transfer(e *uring.Entry, s *slot, single, vector uint8) {
	e.Off = uint64(s.off + int64(s.total))
	if len(s.rest) == 1 {
		e.Opcode, e.Addr = single, uint64(uintptr(unsafe.Pointer(s.rest[0].Base)))
		e.Len = uint32(s.rest[0].Len)
	} else {
		e.Opcode, e.Len = vector, uint32(len(s.rest))
		if e.Len > 0 {
			e.Addr = uint64(uintptr(unsafe.Pointer(&s.rest[0])))
		}
	}
	if vecLen(s.rest) >= wholesale {
		e.Flags = uring.Async
	}
}

// reap calls done with each operation that is complete, and goes on with those that came up short.
func (r *ring) reap(done func(loop.Done)) {
	r.Reap(func(n uint64, res int32) { r.complete(uint32(n), res, done) })
	var t task
	for len(r.free) > 0 && r.backlog.pop(&t) {
		r.submit(&t)
	}
	r.Flush()
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
			r.Flush()
			_ = r.Wait() // the next look tells
		}
	}
	return r.Close()
}
