package replica

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// window is memory that an engine on this machine shares with this process: what its frames say to
// be in a slot is read and written there. It belongs to a session and stays until everything that
// the session has on the disk has completed, whatever has become of the engine.
type window struct {
	pool loop.Pool
	mem  []byte
}

// openedWindow is the result of Config.OpenWindow.
type openedWindow struct {
	mem []byte
	err error
}

// openWindow maps what the engine offers.
func (s *session) openWindow(h *wire.Header, o wire.WindowOffer) {
	r := s.r
	open := r.cfg.OpenWindow
	if open == nil || s.window != nil || s.windowAsked {
		r.reply(s, h, block.Invalid, wire.ControlReply{Error: "this session takes no window, or has one"})
		return
	}
	s.windowAsked = true
	j := r.requests.add(s, h, loop.Seg{})
	r.op(loop.Op{Kind: loop.Call, Tag: j.tag(opCall), Fn: func() any {
		mem, err := open(&o)
		return openedWindow{mem, err}
	}})
}

// windowOpened answers.
func (s *session) windowOpened(j *job, w openedWindow) {
	r := s.r
	s.windowAsked = false
	if w.err == nil {
		pool, ok := r.arena.AddForeign(w.mem, wire.WindowSlots, wire.SlotSize)
		if ok {
			s.window = &window{pool, w.mem}
		} else {
			r.cfg.FreeWindow(w.mem)
			w.err = fmt.Errorf("%w: there are windows of other sessions", block.LimitReached)
		}
	}
	reply, code := wire.ControlReply{}, block.OK
	if w.err != nil {
		reply.Error, code = w.err.Error(), block.Invalid
	}
	j.answer = wire.Marshal(reply)
	r.requests.finish(j, code, loop.Seg{})
}

// freeWindow gives the window up. Nothing of the session is in flight.
func (s *session) freeWindow() {
	if s.window == nil {
		return
	}
	s.r.arena.RemovePool(s.window.pool)
	s.r.cfg.FreeWindow(s.window.mem)
	s.window = nil
}

// shared returns the data of a frame with the flag Shared: what a write writes, or room for what a
// read reads. It lies at its block offset in the slot, so there is room for whole blocks around it.
func (s *session) shared(h *wire.Header) (loop.Seg, error) {
	lead := h.Off % block.Size
	switch {
	case s.window == nil || !h.Type.Shares() || h.Payload > 0:
		return loop.Seg{}, fmt.Errorf("%w: %s of %d bytes with a slot", wire.ErrFrame, h.Type, h.Payload)
	case h.Len > block.MaxTransfer || lead+h.Len > block.MaxTransfer:
		return loop.Seg{}, fmt.Errorf("%w: %s of %d bytes at %d covers more than a slot", wire.ErrFrame, h.Type, h.Len, h.Off)
	}
	if s.reader && s.r.arena.PoolInUse(s.window.pool) >= wire.ReaderSlots {
		return loop.Seg{}, fmt.Errorf("%w: a reader uses more than %d slots", wire.ErrFrame, wire.ReaderSlots)
	}
	b, ok := s.r.arena.ClaimPool(s.window.pool, int(h.Slot))
	if !ok {
		return loop.Seg{}, fmt.Errorf("%w: %s with slot %d, which is in use", wire.ErrFrame, h.Type, h.Slot)
	}
	return loop.Seg{Buf: b, Off: int32(lead), Len: int32(h.Len)}, nil
}
