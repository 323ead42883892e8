// Package ublk offers a volume as a block device of the kernel's driver ublk_drv, without a file
// system and a loop device between: the kernel has queues of places, puts a request into a free
// one, and says so by completing the command that waits for it. Package blockdev makes and removes
// the device; docs/design/ublk.md has the states.
//
// Frontend is a codec inside the engine's step core. All queues are served by the loop's one
// thread. The description of a request lies in memory that the kernel shares (Config.Queues) and is
// read once. Its data is copied by reading and writing the device (UBLK_F_USER_COPY), and not by
// the kernel into buffers that every place would have to have: so only requests that exist take
// memory of the arena, one that finds none waits in its place, and nothing is written to memory of
// this process after its own system calls.
//
// A server that is killed leaves requests that were handed out and not answered. The kernel hands
// them out again to the next one, and none that was answered: nothing of them is noted here.
package ublk

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// Config describes a frontend.
type Config struct {
	// Owner marks the tags of the frontend's operations.
	Owner loop.Owner
	Arena *loop.Arena
	// Device is the character device of the block device; the frontend closes it when it stops.
	Device loop.Handle
	// Queues is the memory with the descriptions of each queue, at least Depth times DescriptorSize
	// bytes. It must be there until the frontend has stopped, and is looked at only when a request has
	// come.
	Queues [][]byte
	// Depth is the number of places of each queue.
	Depth int
	// Size of the volume in bytes, a multiple of block.SectorSize.
	Size int64
	// Asked is called once when the kernel has been asked for the first requests of all places. It
	// must not block; nil: nobody is told.
	Asked func()
	// Gone is called once if the kernel ends the device of a frontend that was not stopped. It must
	// not block; nil: nobody is told.
	Gone func()
}

// Frontend is the ublk frontend of one volume. It implements frontend.Frontend and
// frontend.Resumer.
type Frontend struct {
	cfg    Config
	size   int64
	places []place
	// waiting are places whose request has no buffer yet, in the order in which they came.
	waiting []uint32
	flying  int // places that wait for a request
	copies  int // copies of data under way, and what tells that the kernel was asked
	pending int // requests with the engine
	gone    bool
	closing bool
	closed  bool
}

// place is one of a queue's places: it waits for a request, or has one.
type place struct {
	req frontend.Request
}

// New returns a frontend, or an error when the configuration makes no sense.
func New(cfg Config) (*Frontend, error) {
	switch {
	case cfg.Arena == nil || cfg.Device < 0:
		return nil, fmt.Errorf("ublk device: needs an arena and an open device")
	case cfg.Arena.Part(loop.Requests) < block.MaxTransfer:
		return nil, fmt.Errorf("ublk device: %d bytes for requests cannot take in one; %d can",
			cfg.Arena.Part(loop.Requests), block.MaxTransfer)
	case cfg.Size <= 0 || cfg.Size%block.SectorSize != 0:
		return nil, fmt.Errorf("ublk device: size %d is not a positive multiple of %d", cfg.Size, block.SectorSize)
	case len(cfg.Queues) == 0 || cfg.Depth <= 0 || !Fits(len(cfg.Queues), cfg.Depth):
		return nil, fmt.Errorf("ublk device: %d queues of %d requests are out of range", len(cfg.Queues), cfg.Depth)
	}
	for i, q := range cfg.Queues {
		if len(q) < cfg.Depth*DescriptorSize {
			return nil, fmt.Errorf("ublk device: queue %d has room for %d bytes of descriptions, not for %d", i, len(q),
				cfg.Depth*DescriptorSize)
		}
	}
	return &Frontend{cfg: cfg, size: cfg.Size, places: make([]place, len(cfg.Queues)*cfg.Depth)}, nil
}

// MaxInFlight bounds the places of all queues: as many requests as an engine has under way.
const MaxInFlight = 256

// Fits tells whether a frontend can serve so many queues of such a depth.
func Fits(queues, depth int) bool {
	return queues > 0 && depth > 0 && queues <= maxQueues && depth <= maxQueueDepth && queues*depth <= MaxInFlight
}

// What an operation of the frontend was for; part of its tag.
const (
	tagPlace = iota + 1
	tagIn
	tagOut
	tagClose
	tagAsked
)

func (f *Frontend) tag(what int, i uint32) uint64 {
	return loop.Tag(f.cfg.Owner, uint64(what)<<32|uint64(i))
}

// Start implements frontend.Frontend.
func (f *Frontend) Start(out *[]loop.Op) {
	for i := range f.places {
		f.ask(loop.Fetch, uint32(i), 0, out)
	}
	if f.cfg.Asked != nil {
		f.copies++
		// Its end is handed to a later step, and what a step has submitted is with the kernel by then.
		*out = append(*out, loop.Op{Kind: loop.Call, Handle: loop.None, Tag: f.tag(tagAsked, 0),
			Fn: func() any { return nil }})
	}
}

// ask gives a place to the kernel, with the result of the request before if it is a Commit.
func (f *Frontend) ask(kind loop.Kind, i uint32, result int64, out *[]loop.Op) {
	queue, tag := int(i)/f.cfg.Depth, int(i)%f.cfg.Depth
	f.flying++
	*out = append(*out, loop.Op{Kind: kind, Handle: f.cfg.Device, Tag: f.tag(tagPlace, i),
		Off: int64(queue)<<placeShift | int64(tag), Len: result})
}

func (f *Frontend) commit(i uint32, result int64, out *[]loop.Op) {
	f.places[i] = place{}
	if !f.closing {
		f.ask(loop.Commit, i, result, out)
	}
}

// Handle implements frontend.Frontend.
func (f *Frontend) Handle(_ clock.Ticks, d *loop.Done, reqs *[]frontend.Request, out *[]loop.Op) {
	value := loop.ValueOf(d.Tag)
	i := uint32(value)
	switch value >> 32 {
	case tagPlace:
		f.flying--
		switch {
		case f.closing:
		case d.Errno != 0:
			f.lost() // the device was stopped: this place has no request any more
		default:
			f.take(i, reqs, out)
		}
	case tagIn:
		f.copies--
		p := &f.places[i]
		if f.closing || d.Errno != 0 || d.N != int(p.req.Len) {
			f.release(p)
			f.commit(i, -errIO, out)
			return
		}
		f.emit(p, reqs)
	case tagOut:
		f.copies--
		p := &f.places[i]
		result := p.req.Len
		if d.Errno != 0 || d.N != int(p.req.Len) {
			result = -errIO
		}
		f.release(p)
		f.commit(i, result, out)
	case tagAsked:
		f.copies--
		f.cfg.Asked()
	case tagClose:
		f.closed = true
	}
}

// take looks at the request that the kernel has put into a place.
func (f *Frontend) take(i uint32, reqs *[]frontend.Request, out *[]loop.Op) {
	queue, tag := int(i)/f.cfg.Depth, int(i)%f.cfg.Depth
	d := parse(f.cfg.Queues[queue][tag*DescriptorSize:])
	p := &f.places[i]
	p.req = frontend.Request{ID: uint64(i), FUA: d.op&flagFUA != 0}
	switch d.op & opMask {
	case opRead:
		p.req.Kind, p.req.FUA = block.Read, false
	case opWrite:
		p.req.Kind = block.Write
	case opFlush:
		p.req.Kind, p.req.FUA = block.Flush, false
		f.emit(p, reqs)
		return
	case opDiscard:
		p.req.Kind, p.req.FUA = block.Discard, false
	case opWriteZeroes:
		p.req.Kind, p.req.Unmap = block.WriteZeroes, d.op&flagNoUnmap == 0
	default:
		f.commit(i, -errOpNotSupp, out)
		return
	}
	if !d.within(f.size) {
		f.commit(i, -errIO, out) // the kernel has checked that
		return
	}
	p.req.Off, p.req.Len = int64(d.start)*block.SectorSize, int64(d.sectors)*block.SectorSize
	switch {
	case p.req.Kind != block.Read && p.req.Kind != block.Write:
		f.emit(p, reqs)
	case p.req.Len > block.MaxTransfer:
		f.commit(i, -errIO, out) // it was told how long a request may be
	case len(f.waiting) > 0 || !f.equip(i, reqs, out):
		f.waiting = append(f.waiting, i)
	}
}

// equip gets a buffer for a place's request and goes on with it, or says that there is none.
func (f *Frontend) equip(i uint32, reqs *[]frontend.Request, out *[]loop.Op) bool {
	p := &f.places[i]
	b, ok := f.cfg.Arena.Get(int(p.req.Len))
	if !ok {
		return false
	}
	p.req.Buf = b
	if p.req.Kind == block.Read {
		f.emit(p, reqs)
	} else {
		f.copy(loop.FileRead, tagIn, i, out)
	}
	return true
}

// copy copies the data of a place's request between the kernel and its buffer.
func (f *Frontend) copy(kind loop.Kind, what int, i uint32, out *[]loop.Op) {
	p := &f.places[i]
	op := loop.Op{Kind: kind, Handle: f.cfg.Device, Tag: f.tag(what, i),
		Off: dataOffset(int(i)/f.cfg.Depth, int(i)%f.cfg.Depth)}
	op.Add(loop.Seg{Buf: p.req.Buf, Len: int32(p.req.Len)})
	f.copies++
	*out = append(*out, op)
}

func (f *Frontend) emit(p *place, reqs *[]frontend.Request) {
	f.pending++
	*reqs = append(*reqs, p.req)
}

func (f *Frontend) release(p *place) {
	if p.req.Buf != 0 {
		f.cfg.Arena.Release(p.req.Buf)
		p.req.Buf = 0
	}
}

// Complete implements frontend.Frontend.
func (f *Frontend) Complete(id uint64, code block.Code, out *[]loop.Op) {
	i := uint32(id)
	p := &f.places[i]
	f.pending--
	if p.req.Kind == block.Read && code == block.OK && !f.closing {
		f.copy(loop.FileWrite, tagOut, i, out)
		return
	}
	f.release(p)
	result := errno(code)
	if code == block.OK && p.req.Kind == block.Write {
		result = p.req.Len
	}
	f.commit(i, result, out)
}

// Resume implements frontend.Resumer.
func (f *Frontend) Resume(reqs *[]frontend.Request, out *[]loop.Op) {
	for len(f.waiting) > 0 && !f.closing && f.equip(f.waiting[0], reqs, out) {
		f.waiting = f.waiting[1:]
	}
}

// SetSize implements frontend.Frontend. The kernel is told by whoever has the block device.
func (f *Frontend) SetSize(size int64, _ *[]loop.Op) { f.size = size }

// lost notes that the device has ended.
func (f *Frontend) lost() {
	told := f.gone || f.cfg.Gone == nil
	f.gone = true
	if !told {
		f.cfg.Gone()
	}
}

// Stop implements frontend.Frontend. What the device was asked for is cancelled; what it has handed
// out and was not answered waits for the next server, or fails if the device is ended.
func (f *Frontend) Stop(out *[]loop.Op) {
	if f.closing {
		return
	}
	f.closing, f.waiting = true, nil
	*out = append(*out, loop.Op{Kind: loop.Close, Handle: f.cfg.Device, Tag: f.tag(tagClose, 0)})
}

// Stopped implements frontend.Frontend.
func (f *Frontend) Stopped() bool {
	return f.closed && f.pending == 0 && f.copies == 0 && f.flying == 0
}
