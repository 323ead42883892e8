package sim

import (
	"encoding/binary"

	"ankole.storage/block"
	"ankole.storage/clock"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// Front is a frontend whose users are simulated clients.
type Front struct {
	p      *Process
	arena  *loop.Arena
	signal *Signal
	handle loop.Handle
	tag    uint64
	queue  []*Call
	open   map[uint64]*Call
	nextID uint64
	stop   bool
}

// Call is one request of a client.
type Call struct {
	Kind block.Kind
	FUA  bool
	Off  int64
	Len  int64
	Data []byte
	// Done is called with the result when the engine answers; Data then holds what was read.
	Done func(code block.Code)
	buf  loop.Buf
}

// owner of a frontend's operations, as the engine hands it out.
const owner = loop.Owner(1)

func newFront(p *Process, arena *loop.Arena) *Front {
	f := &Front{p: p, arena: arena, open: map[uint64]*Call{}, tag: loop.Tag(owner, 1)}
	f.signal, f.handle = p.NewSignal()
	return f
}

// Submit hands a call in. It is never answered if the engine dies.
func (f *Front) Submit(c *Call) {
	f.queue = append(f.queue, c)
	f.signal.Raise()
}

// Start implements frontend.Frontend.
func (f *Front) Start(out *[]loop.Op) { f.listen(out) }

func (f *Front) listen(out *[]loop.Op) {
	*out = append(*out, loop.Op{Kind: loop.Recv, Handle: f.handle, Tag: f.tag})
}

// Handle implements frontend.Frontend.
func (f *Front) Handle(_ clock.Ticks, _ *loop.Done, reqs *[]frontend.Request, out *[]loop.Op) {
	for _, c := range f.queue {
		f.nextID++
		r := frontend.Request{ID: f.nextID, Kind: c.Kind, FUA: c.FUA, Off: c.Off, Len: c.Len}
		if c.Kind == block.Read || c.Kind == block.Write {
			b, ok := f.arena.Get(int(c.Len))
			if !ok {
				panic("sim: arena too small for the clients")
			}
			r.Buf, c.buf = b, b
			copy(f.arena.Bytes(b), c.Data)
		}
		f.open[r.ID] = c
		*reqs = append(*reqs, r)
	}
	f.queue = nil
	if !f.stop {
		f.listen(out)
	}
}

// Complete implements frontend.Frontend.
func (f *Front) Complete(id uint64, code block.Code, _ *[]loop.Op) {
	c := f.open[id]
	delete(f.open, id)
	if c.buf != 0 {
		if c.Kind == block.Read {
			copy(c.Data, f.arena.Bytes(c.buf))
		} else {
			// The buffer is ours again: spoil it, so that somebody who still sends from it is found out.
			clear(f.arena.Bytes(c.buf)[:c.Len])
		}
		f.arena.Release(c.buf)
	}
	c.Done(code)
}

// SetSize implements frontend.Frontend.
func (f *Front) SetSize(int64, *[]loop.Op) {}

// Stop implements frontend.Frontend.
func (f *Front) Stop(*[]loop.Op) { f.stop = true }

// Stopped implements frontend.Frontend.
func (f *Front) Stopped() bool { return f.stop }

// sector content: every sector of a write carries the write's number and its own.
func stamp(p []byte, write uint64, first int64) {
	for i := 0; i+block.SectorSize <= len(p); i += block.SectorSize {
		s := p[i : i+block.SectorSize]
		for j := 0; j < len(s); j += 16 {
			binary.LittleEndian.PutUint64(s[j:], write)
			binary.LittleEndian.PutUint64(s[j+8:], uint64(first)+uint64(i/block.SectorSize))
		}
	}
}

// read returns which write a sector holds, 0 for zeroes; ok is false for content nobody wrote.
func unstamp(s []byte, sector int64) (write uint64, ok bool) {
	write = binary.LittleEndian.Uint64(s)
	for j := 0; j < len(s); j += 16 {
		w, n := binary.LittleEndian.Uint64(s[j:]), binary.LittleEndian.Uint64(s[j+8:])
		if w != write || (w != 0 && n != uint64(sector)) || (w == 0 && n != 0) {
			return 0, false
		}
	}
	return write, true
}
