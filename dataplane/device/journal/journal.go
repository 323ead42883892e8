// Package journal keeps what a FUSE frontend has received in memory that outlives its process.
//
// A request that the kernel has handed out is forgotten by nobody but the server: the kernel waits
// for its answer for ever. Since Linux 6.9 a successor on the same connection can ask for it again.
// For older kernels the frontend receives into a memfd, which the instance manager keeps beside the
// connection's descriptor, so that the successor finds there what its predecessor had not answered.
//
// The memfd holds a head, Small cells and Large cells. A cell is a page of headroom and a payload.
// A receive is offered one of either kind: the kernel puts the request's first bytes into the
// headroom of the small cell, so that a write's data begins at the payload's start, and what does
// not fit goes on in the large one. A request keeps its small cell until its answer is accepted;
// the beginning of the cell's headroom says how far it has come:
//
//	Free ── Offer ──> Receiving ── Take ──> Taken ── Finish ──> Done ── Free ──> Free
//
// Receiving with a header in the cell is a request that the kernel has, at least, begun to hand
// out. Taken means that it is whole. Done comes with the result: the request is carried out, its
// data is not needed any more, and the answer may have been given.
//
// Each change is one atomic store after everything it speaks of, by one thread; a process that is
// killed leaves a prefix of them. Format, states and invariants are in docs/design/frontends.md.
// The successor relies on nothing: Open checks all of it.
package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/loop"
)

// Sizes of the format; a change needs another version.
const (
	// Small cells bound the requests under way: as many as the kernel keeps.
	Small     = 256
	SmallSize = 16 << 10
	// Large cells bound the writes of more than SmallSize under way. Memory that is not used costs
	// nothing.
	Large     = 64
	LargeSize = 1 << 20
	// HeaderSize is the longest fixed part of a request; it lies directly before the payload of a
	// small cell.
	HeaderSize = 80

	page      = 4096
	smallCell = page + SmallSize
	largeCell = page + LargeSize
	smallAt   = page
	largeAt   = smallAt + Small*smallCell
	total     = largeAt + Large*largeCell

	// In the headroom of a small cell. The last loop.Headroom bytes before the payload are other
	// protocols', and the kernel's.
	stateAt  = 0
	largeRef = 8
	headerAt = 16

	version = 1
	// inHeader is the head of every request: length, operation, identifier and more.
	inHeader = 40
	// opWrite is the one operation whose data goes on in a large cell.
	opWrite = 16
	// maxRequest is the longest request.
	maxRequest = HeaderSize + LargeSize
	// maxErrno is the greatest error the kernel takes for an answer.
	maxErrno = 511
)

const magic = "ankfusej"

// State is how far the request in a small cell has come.
type State uint32

// States. Their numbers are part of the format.
const (
	Free State = iota
	Receiving
	Taken
	Done
)

// ErrInvalid: what should be a journal is none, or says what no frontend writes.
var ErrInvalid = errors.New("no valid journal of requests")

var ne = binary.NativeEndian

// Journal is one, mapped. Its records are changed by one thread at a time.
type Journal struct {
	fd  int
	mem []byte
	// arena has the cells as pools, from Attach on.
	arena        *loop.Arena
	small, large loop.Pool
}

// Create makes an empty journal.
func Create() (*Journal, error) {
	fd, err := unix.MemfdCreate("ankole-fuse-journal", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("journal of requests: %w", err)
	}
	if err = unix.Ftruncate(fd, total); err == nil {
		// A size that cannot change makes every access to the mapping safe.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("journal of requests: %w", err)
	}
	j, err := mapped(fd)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	copy(j.mem, magic)
	for i, v := range geometry {
		ne.PutUint32(j.mem[len(magic)+4*i:], v)
	}
	return j, nil
}

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// geometry follows the magic.
var geometry = [...]uint32{version, Small, SmallSize, Large, LargeSize}

func mapped(fd int) (*Journal, error) {
	mem, err := syscall.Mmap(fd, 0, total, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("journal of requests: %w", err)
	}
	return &Journal{fd: fd, mem: mem}, nil
}

// Open opens the journal that another process has left. The descriptor belongs to the journal, and
// to the caller in case of an error.
func Open(fd int) (*Journal, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("journal of requests: %w", err)
	}
	if got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || got&seals != seals || st.Size != total {
		return nil, fmt.Errorf("%w: %d bytes instead of %d, or its size can change", ErrInvalid, st.Size, total)
	}
	j, err := mapped(fd)
	if err != nil {
		return nil, err
	}
	if err := j.check(); err != nil {
		_ = syscall.Munmap(j.mem) // it is ours
		return nil, err
	}
	return j, nil
}

// check validates everything.
func (j *Journal) check() error {
	if string(j.mem[:len(magic)]) != magic {
		return fmt.Errorf("%w: it does not begin like one", ErrInvalid)
	}
	for i, v := range geometry {
		if got := ne.Uint32(j.mem[len(magic)+4*i:]); got != v {
			return fmt.Errorf("%w: word %d of its head is %d; this engine knows %d", ErrInvalid, i, got, v)
		}
	}
	larges, uniques := map[int]bool{}, map[uint64]bool{}
	for i := range Small {
		e, err := j.entry(i)
		if err != nil {
			return err
		}
		if e.State == Free {
			continue
		}
		if e.Large >= 0 && larges[e.Large] {
			return fmt.Errorf("%w: two requests in large cell %d", ErrInvalid, e.Large)
		}
		larges[e.Large] = true
		if e.Len == 0 {
			continue
		}
		if uniques[e.Unique] {
			return fmt.Errorf("%w: request %d is there twice", ErrInvalid, e.Unique)
		}
		uniques[e.Unique] = true
	}
	return nil
}

// Entry is a request that a frontend has left.
type Entry struct {
	// Small and Large are its cells; Large is -1 without one.
	Small, Large int
	State        State
	// Errno is the result of a request that is Done.
	Errno int32
	// Len is its length, 0 if the kernel has not given any yet.
	Len    int
	Unique uint64
}

func (j *Journal) entry(i int) (Entry, error) {
	state := j.word(i, stateAt).Load()
	e := Entry{Small: i, Large: -1, State: State(uint32(state))}
	errno, large := state>>32, j.word(i, largeRef).Load()
	if e.State == Free {
		return e, nil
	}
	if e.State > Done || errno > maxErrno || large > Large {
		return e, fmt.Errorf("%w: cell %d: state %#x, large cell %d", ErrInvalid, i, state, large)
	}
	e.Errno, e.Large = int32(errno), int(large)-1
	head := j.header(i)
	if e.State != Receiving {
		head = j.kept(i)
	}
	e.Len, e.Unique = int(ne.Uint32(head)), ne.Uint64(head[8:])
	switch {
	case e.Len == 0 && e.State == Receiving:
	case e.Len < inHeader || e.Len > maxRequest || e.Unique == 0 || (split(head) && e.State != Done && e.Large < 0):
		return e, fmt.Errorf("%w: cell %d: a request of %d bytes, identifier %d, large cell %d", ErrInvalid, i, e.Len,
			e.Unique, e.Large)
	}
	return e, nil
}

// split tells whether the request with this header needs both its cells.
func split(head []byte) bool {
	return ne.Uint32(head) > HeaderSize+SmallSize && ne.Uint32(head[4:]) == opWrite
}

// Left returns the requests that were not answered, as far as the journal knows: those with a large
// cell of their own first.
func (j *Journal) Left() []Entry {
	var with, without []Entry
	for i := range Small {
		e, err := j.entry(i)
		if err != nil || e.Len == 0 {
			continue // Open has refused errors
		}
		if e.Large >= 0 {
			with = append(with, e)
		} else {
			without = append(without, e)
		}
	}
	return append(with, without...)
}

// Inherit is Left for the successor: cells that were offered in vain are free then, and the header
// of each request lies in front of its small cell's payload, where it was received.
func (j *Journal) Inherit() []Entry {
	list := j.Left()
	for i := range Small {
		if e, err := j.entry(i); err != nil || e.Len == 0 {
			j.Free(i)
		}
	}
	for _, e := range list {
		if e.State != Receiving {
			copy(j.header(e.Small), j.kept(e.Small))
		}
	}
	return list
}

// FD is the memfd, which stays the journal's.
func (j *Journal) FD() int { return j.fd }

// CloseFD closes the memfd; the mapping stays.
func (j *Journal) CloseFD() error {
	fd := j.fd
	j.fd = -1
	return unix.Close(fd)
}

// Discard closes and unmaps a journal that no arena has.
func (j *Journal) Discard() error { return errors.Join(j.CloseFD(), syscall.Munmap(j.mem)) }

// Attach makes the cells buffers of the arena, which owns the mapping from then on. It is called by
// the arena's thread, again by each frontend that uses the journal.
func (j *Journal) Attach(a *loop.Arena) (small, large loop.Pool) {
	if j.arena == nil {
		a.Own(j.mem)
		j.small = a.AddPool(j.mem[smallAt:largeAt], Small, smallCell)
		j.large = a.AddPool(j.mem[largeAt:], Large, largeCell)
		j.arena = a
	}
	return j.small, j.large
}

// Offer says that the kernel may fill small cell i, and what does not fit goes to a large cell.
// What an older request has left there is no request any more.
func (j *Journal) Offer(i, large int) {
	clear(j.header(i)[:inHeader])
	j.word(i, largeRef).Store(uint64(large + 1))
	j.word(i, stateAt).Store(uint64(Receiving))
}

// Take says that the request in cell i is whole. One that lies in its small cell alone leaves the
// large one for other receives. The header is copied, since the place in front of the payload is
// for the headers of whoever sends it on.
func (j *Journal) Take(i int) {
	copy(j.kept(i), j.header(i))
	j.word(i, stateAt).Store(uint64(Taken))
	if !split(j.kept(i)) {
		j.word(i, largeRef).Store(0)
	}
}

// Finish says that the request in cell i is carried out with a result, and will be answered so.
// Only then may its data be overwritten.
func (j *Journal) Finish(i int, errno int32) {
	j.word(i, stateAt).Store(uint64(Done) | uint64(errno)<<32)
	j.word(i, largeRef).Store(0)
}

// Free says that the answer was accepted, or that the cell is not offered any more.
func (j *Journal) Free(i int) { j.word(i, stateAt).Store(uint64(Free)) }

// Clear frees all cells: nothing that was received on another connection matters.
func (j *Journal) Clear() {
	for i := range Small {
		j.Free(i)
	}
}

func (j *Journal) cell(i int) []byte { return j.mem[smallAt+i*smallCell:][:smallCell] }

// header is where the kernel puts it; kept is its copy.
func (j *Journal) header(i int) []byte { return j.cell(i)[page-HeaderSize : page] }
func (j *Journal) kept(i int) []byte   { return j.cell(i)[headerAt : headerAt+HeaderSize] }

func (j *Journal) word(i, at int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&j.cell(i)[at]))
}
