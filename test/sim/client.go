package sim

import (
	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// Front is a frontend whose users are simulated clients.
type Front struct {
	arena  *loop.Arena
	signal *Signal
	handle loop.Handle
	tag    uint64
	queue  []*Call
	open   map[uint64]*Call
	nextID uint64
	stop   bool
	// suspended: nothing is taken in; listening: the signal is waited for.
	suspended, listening bool
}

// Call is one request of a client.
type Call struct {
	Kind block.Kind
	FUA  bool
	Off  int64
	Len  int64
	// Fill makes the data of a write.
	Fill func(p []byte)
	// Done is called with the result when the engine answers; data is what was read, valid until it
	// returns.
	Done func(code block.Code, data []byte)
	// Again is called before another engine is asked for it, nil for nobody who wants to know.
	Again func(e *EngineProcess)
	buf   loop.Buf
}

// owner of a frontend's operations, as the engine hands it out.
const owner = loop.Owner(1)

func newFront(p *Process, arena *loop.Arena) *Front {
	f := &Front{arena: arena, open: map[uint64]*Call{}, tag: loop.Tag(owner, 1)}
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
	f.listening = true
	*out = append(*out, loop.Op{Kind: loop.Recv, Handle: f.handle, Tag: f.tag})
}

// Handle implements frontend.Frontend.
func (f *Front) Handle(_ clock.Ticks, _ *loop.Done, reqs *[]frontend.Request, out *[]loop.Op) {
	if f.listening = false; f.suspended {
		return
	}
	f.Resume(reqs, nil)
	if !f.stop {
		f.listen(out)
	}
}

// Resume implements frontend.Resumer: calls wait for memory in their order.
func (f *Front) Resume(reqs *[]frontend.Request, _ *[]loop.Op) {
	for len(f.queue) > 0 && !f.suspended && !f.stop {
		c := f.queue[0]
		r := frontend.Request{ID: f.nextID + 1, Kind: c.Kind, FUA: c.FUA, Off: c.Off, Len: c.Len}
		if c.Kind == block.Read || c.Kind == block.Write {
			b, ok := f.arena.Get(int(c.Len))
			if !ok {
				return
			}
			r.Buf, c.buf = b, b
			if c.Fill != nil {
				c.Fill(f.arena.Bytes(b)[:c.Len])
			}
		}
		f.nextID++
		f.open[r.ID] = c
		*reqs = append(*reqs, r)
		f.queue = f.queue[1:]
	}
}

// Complete implements frontend.Frontend.
func (f *Front) Complete(id uint64, code block.Code, _ *[]loop.Op) {
	c := f.open[id]
	delete(f.open, id)
	var data []byte
	if c.buf != 0 {
		data = f.arena.Bytes(c.buf)[:c.Len]
	}
	c.Done(code, data)
	if c.buf != 0 {
		// The buffer is ours again: spoil it, so that somebody who still sends from it is found out.
		clear(data)
		f.arena.Release(c.buf)
	}
	if len(f.queue) > 0 {
		f.signal.Raise()
	}
}

// SetSize implements frontend.Frontend.
func (f *Front) SetSize(int64, *[]loop.Op) {}

// Stop implements frontend.Frontend.
func (f *Front) Stop(*[]loop.Op) { f.stop = true }

// Stopped implements frontend.Frontend.
func (f *Front) Stopped() bool { return f.stop && len(f.open) == 0 }
