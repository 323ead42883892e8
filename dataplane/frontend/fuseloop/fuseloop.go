// Package fuseloop offers a volume as one file of a FUSE file system. A loop device on that file,
// in direct mode, is a block device of the node without any kernel module of ours; package blockdev
// below this one sets it up.
//
// Frontend is the server of the FUSE file system, a codec inside the engine's step core with the
// device /dev/fuse as its connection. It knows one directory with one file and the few requests a
// loop device makes of it.
//
// What the kernel makes of the answers shapes the code. Without ASYNC_DIO it keeps one request
// under way, so that is asked for. A request answered ENOSYS once is never sent again and reported
// as success from then on, so FSYNC and FALLOCATE get a real answer always. Requests beyond the
// size a file reports are not stopped by the kernel when they write, so they are checked here.
// Attributes stay valid, since the kernel asks for them on behalf of anybody who lists the host's
// loop devices; a new size is told.
//
// A server that was killed leaves requests behind that the kernel has handed out and nobody will
// answer. Where another server may follow on the same connection they are received into a journal
// (Config.Journal), and the successor (Config.Resume) finds them there, see recover.go. Doing one
// of them a second time is harmless: it was never answered, so nothing later may depend on it
// having been done only once, and the engine before can no longer write anywhere.
//
// Buffers: each receive offers a small buffer with the request's header in its headroom and a large
// one behind it. A write of up to 16 KiB is received where the engine can use it; one above 128 KiB
// is completed in the large buffer, which is then handed on; those between are copied once. Every
// request can be served with the two buffers it came in on, so no request that was read from the
// kernel ever waits for memory; the next receive does. Every page of a receive is touched before
// the kernel is asked to fill it: with a kill pending it would fail the request rather than fault a
// page in.
package fuseloop

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/device/journal"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// Config describes a FUSE frontend.
type Config struct {
	// Owner marks the tags of the frontend's operations.
	Owner loop.Owner
	Arena *loop.Arena
	// Device is /dev/fuse, non-blocking and mounted; the frontend closes it when it stops.
	Device loop.Handle
	// File is the name of the one file.
	File string
	// Size of the volume in bytes, a multiple of block.SectorSize.
	Size int64
	// Resume says that another server has had the connection before: it is set up, and what that
	// one left is in Journal.
	Resume bool
	// Journal is where requests are received and how a successor knows of them; nil: there will be
	// none. With Resume it is the predecessor's.
	Journal *journal.Journal
	// MaxInFlight bounds unanswered requests. Default 256.
	MaxInFlight int
	// Gone is called once if the kernel ends the connection of a frontend that was not stopped: the
	// file system was unmounted, or the connection aborted. It must not block; nil: nobody is told.
	Gone func()
}

const (
	defaultInFlight = 256
	maxFileName     = 255
	// receives is how many requests are taken in per step when many come; a quiet frontend keeps
	// the buffers of one.
	receives = 4
	// page is what is touched at once.
	page = 4096
	// smallSize is received in place; most requests are no larger.
	smallSize = 16 << 10
	// copyLimit is the largest write that is copied into a buffer of its own size, to keep the
	// large one.
	copyLimit = 128 << 10
	// minArena holds the answers and the buffers of one receive.
	minArena = 2 * block.MaxTransfer
	// answerSize is room for the answer of any request without data: the longest is a directory.
	answerSize = 512
)

// Frontend is the FUSE frontend of one volume. It implements frontend.Frontend and
// frontend.Resumer.
type Frontend struct {
	cfg     Config
	size    int64
	answers loop.Buf // answerSize bytes for each request slot
	recv    [receives]intake
	slots   []request
	free    []uint32
	waiting int // receives submitted
	pending int // requests with the engine
	sends   int
	flags   uint64 // negotiated
	gone    bool   // the file system was unmounted, or the connection aborted
	closing bool
	closed  bool
	suspending
	recovery
}

// intake is one receive: the buffers it offers.
type intake struct {
	small, large loop.Buf
	busy         bool
}

// request is one FUSE request in progress.
type request struct {
	unique uint64
	kind   block.Kind
	buf    loop.Buf
	size   int
	// cell is where it lies in the journal, until its answer is accepted; 0 without a journal.
	cell loop.Buf
}

// New returns a frontend, or an error when the configuration makes no sense.
func New(cfg Config) (*Frontend, error) {
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = defaultInFlight
	}
	switch {
	case cfg.Arena == nil || cfg.Device < 0:
		return nil, fmt.Errorf("fuse file %q: needs an arena and a mounted device", cfg.File)
	case cfg.Arena.Part(loop.Requests) < minArena:
		return nil, fmt.Errorf("fuse file %q: %d bytes for requests cannot take in one; %d can", cfg.File,
			cfg.Arena.Part(loop.Requests), minArena)
	case cfg.File == "" || len(cfg.File) > maxFileName:
		return nil, fmt.Errorf("fuse file name of %d bytes: 1 to %d", len(cfg.File), maxFileName)
	case cfg.Size <= 0 || cfg.Size%block.SectorSize != 0:
		return nil, fmt.Errorf("fuse file %q: size %d is not a positive multiple of %d", cfg.File, cfg.Size, block.SectorSize)
	case cfg.Resume && cfg.Journal == nil:
		return nil, fmt.Errorf("fuse file %q: a server that follows another one needs the journal of its requests", cfg.File)
	case cfg.MaxInFlight < receives || cfg.MaxInFlight*answerSize > block.MaxTransfer:
		return nil, fmt.Errorf("fuse file %q: %d requests in flight is out of range", cfg.File, cfg.MaxInFlight)
	}
	f := &Frontend{cfg: cfg, size: cfg.Size, slots: make([]request, cfg.MaxInFlight)}
	for i := range f.slots {
		f.free = append(f.free, uint32(i))
	}
	return f, nil
}

// What an operation of the frontend was for; part of its tag.
const (
	tagRecv = iota + 1
	tagSend
	tagClose
	tagRelease
	tagProbe
)

func (f *Frontend) tag(what int, index int) uint64 {
	return loop.Tag(f.cfg.Owner, uint64(what)<<32|uint64(index))
}

// Start implements frontend.Frontend.
func (f *Frontend) Start(out *[]loop.Op) {
	f.openJournal()
	f.receive(out)
}

// Resume implements frontend.Resumer.
func (f *Frontend) Resume(reqs *[]frontend.Request, out *[]loop.Op) {
	f.recover(reqs, out)
	if f.waiting < f.wanted() && !f.closing && !f.gone {
		f.receive(out)
	}
}

// wanted is how many receives should be there: one for the first request of a quiet time, more
// while there are many.
func (f *Frontend) wanted() int { return max(1, min(receives, f.pending)) }

// receive submits the receives that are not, as far as buffers and request slots go: each needs one
// slot for what it brings.
func (f *Frontend) receive(out *[]loop.Op) {
	if f.suspended || f.releasing {
		return
	}
	if f.answers == 0 {
		var ok bool
		if f.answers, ok = f.cfg.Arena.Get(len(f.slots) * answerSize); !ok {
			return
		}
	}
	if len(f.left) > 0 {
		return // first what a predecessor has received
	}
	for i := range f.recv {
		r := &f.recv[i]
		if r.busy {
			continue
		}
		if f.waiting >= f.wanted() {
			f.drop(r)
			continue
		}
		if f.closing || f.gone || f.waiting >= len(f.free) || !f.equip(r) {
			return
		}
		r.busy, f.released = true, false
		f.waiting++
		f.offer(r)
		op := loop.Op{Kind: loop.Recv, Handle: f.cfg.Device, Tag: f.tag(tagRecv, i)}
		op.Add(loop.Seg{Buf: r.small, Off: -requestHeader, Len: requestHeader + smallSize})
		op.Add(loop.Seg{Buf: r.large, Off: smallSize, Len: block.MaxTransfer - smallSize})
		*out = append(*out, op)
	}
}

// equip gets the buffers a receive lacks, resident.
func (f *Frontend) equip(r *intake) bool {
	ok := true
	if r.small == 0 {
		if r.small, ok = f.cell(smallSize); !ok {
			return false
		}
		touch(f.cfg.Arena.Seg(loop.Seg{Buf: r.small, Off: -requestHeader, Len: requestHeader + smallSize}))
	}
	if r.large == 0 {
		if r.large, ok = f.cell(block.MaxTransfer); !ok {
			r.large = 0
			return false
		}
		touch(f.cfg.Arena.Bytes(r.large)[:block.MaxTransfer])
	}
	return true
}

// touch makes the memory of p resident.
func touch(p []byte) {
	for i := 0; i < len(p); i += page {
		p[i] = 0
	}
	p[len(p)-1] = 0
}

// drop gives an intake's buffers back.
func (f *Frontend) drop(r *intake) {
	f.forgetCell(r.small)
	for _, b := range []*loop.Buf{&r.small, &r.large} {
		if *b != 0 {
			f.cfg.Arena.Release(*b)
			*b = 0
		}
	}
}

// Handle implements frontend.Frontend.
func (f *Frontend) Handle(_ clock.Ticks, d *loop.Done, reqs *[]frontend.Request, out *[]loop.Op) {
	value := loop.ValueOf(d.Tag)
	index := int(uint32(value))
	switch value >> 32 {
	case tagRecv:
		f.waiting--
		r := &f.recv[index]
		r.busy = false
		if f.releasing && d.Errno == loop.Canceled {
			return // the kernel keeps what comes
		}
		if d.Errno == errNoMemory || d.Errno == errFault {
			f.receive(out) // the kernel has failed the request that it could not hand out
			return
		}
		if d.Errno != 0 || d.N == 0 {
			f.lost() // unmounted, aborted or closing: nothing more comes
			return
		}
		f.message(r, d.N, reqs, out)
		f.receive(out)
	case tagSend:
		// An error concerns this request only: the kernel has forgotten it (aborted meanwhile).
		f.sends--
		f.release(uint32(index))
		f.receive(out)
	case tagProbe:
		f.sends--
		f.probed(uint32(index), d.Errno == 0)
		f.receive(out)
	case tagRelease:
		f.forgotten(out)
	case tagClose:
		f.closed = true
	}
	f.releaseDevice(out)
	f.clean()
}

// Complete implements frontend.Frontend.
func (f *Frontend) Complete(id uint64, code block.Code, out *[]loop.Op) {
	slot := uint32(id)
	r := &f.slots[slot]
	f.pending--
	f.finish(r, errno(code))
	if r.buf != 0 && (r.kind == block.Write || code != block.OK) {
		f.cfg.Arena.Release(r.buf)
		r.buf = 0
	}
	defer f.releaseDevice(out)
	if f.closing || f.gone {
		f.release(slot)
		f.clean()
		return
	}
	switch {
	case code != block.OK:
		f.answer(slot, errno(code), 0, out)
	case r.kind == block.Write:
		p := f.answerBytes(slot)
		ne.PutUint32(p[outHeader:], uint32(r.size))
		ne.PutUint32(p[outHeader+4:], 0)
		f.answer(slot, 0, writeOut, out)
	case r.kind == block.Read:
		seg := loop.Seg{Buf: r.buf, Off: -outHeader, Len: int32(outHeader + r.size)}
		putOut(f.cfg.Arena.Seg(seg), outHeader+r.size, 0, r.unique)
		f.send(slot, seg, out)
	default:
		f.answer(slot, 0, 0, out)
	}
}

// answerBytes is the piece of the answer buffer that belongs to a slot.
func (f *Frontend) answerBytes(slot uint32) []byte {
	return f.cfg.Arena.Seg(loop.Seg{Buf: f.answers, Off: int32(slot) * answerSize, Len: answerSize})
}

// answer sends the answer of a slot, whose first n bytes after the header have been filled in.
func (f *Frontend) answer(slot uint32, errno int32, n int, out *[]loop.Op) {
	putOut(f.answerBytes(slot), outHeader+n, errno, f.slots[slot].unique)
	f.send(slot, loop.Seg{Buf: f.answers, Off: int32(slot) * answerSize, Len: int32(outHeader + n)}, out)
}

func (f *Frontend) send(slot uint32, seg loop.Seg, out *[]loop.Op) {
	op := loop.Op{Kind: loop.Send, Handle: f.cfg.Device, Tag: f.tag(tagSend, int(slot))}
	op.Add(seg)
	f.sends++
	f.released = false
	*out = append(*out, op)
}

// take returns a free slot; there is one for every receive.
func (f *Frontend) take(unique uint64) uint32 {
	slot := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	f.slots[slot] = request{unique: unique, cell: f.current}
	return slot
}

func (f *Frontend) release(slot uint32) {
	r := &f.slots[slot]
	f.forgetCell(r.cell)
	for _, b := range []*loop.Buf{&r.buf, &r.cell} {
		if *b != 0 {
			f.cfg.Arena.Release(*b)
			*b = 0
		}
	}
	f.free = append(f.free, slot)
}

// SetSize implements frontend.Frontend. The kernel is told by whoever has the block device.
func (f *Frontend) SetSize(size int64, _ *[]loop.Op) { f.size = size }

// lost notes that the connection has ended.
func (f *Frontend) lost() {
	told := f.gone || f.closing || f.cfg.Gone == nil
	f.gone = true
	if !told {
		f.cfg.Gone()
	}
}

// Gone reports whether the kernel has ended the connection: the file system was unmounted or
// aborted.
func (f *Frontend) Gone() bool { return f.gone }

// Negotiated returns the flags agreed with the kernel at INIT; 0 before it.
func (f *Frontend) Negotiated() uint64 { return f.flags }

// Stop implements frontend.Frontend. Closing the device aborts what the kernel waits for.
func (f *Frontend) Stop(out *[]loop.Op) {
	if f.closing {
		return
	}
	f.closing = true
	*out = append(*out, loop.Op{Kind: loop.Close, Handle: f.cfg.Device, Tag: f.tag(tagClose, 0)})
}

// Stopped implements frontend.Frontend.
func (f *Frontend) Stopped() bool {
	return f.closed && f.pending == 0 && f.sends == 0 && f.waiting == 0
}

// clean releases the frontend's own buffers at the end.
func (f *Frontend) clean() {
	if !f.Stopped() {
		return
	}
	for i := range f.recv {
		f.drop(&f.recv[i])
	}
	f.abandon()
	if f.answers != 0 {
		f.cfg.Arena.Release(f.answers)
		f.answers = 0
	}
}
