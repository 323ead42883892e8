package engine

import (
	"fmt"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// Window is memory that a replica on this machine can map too.
type Window struct {
	// Mem is wire.WindowSize bytes.
	Mem   []byte
	Offer wire.WindowOffer
	// Free gives it back here; whoever has mapped it keeps it.
	Free func()
}

// maxShared bounds what lies in one window at a time, in bytes: the slots have room for more.
const maxShared = 32 << 20

// window is what a session shares with a replica on this machine. A slot is taken for one request
// and given back with its answer. With the session the whole window is given up, so that nothing
// the replica's disk completes later is ever seen: docs/design/format-wire.md.
type window struct {
	w    *Window
	pool loop.Pool
	// agreed: the replica has mapped it.
	agreed bool
	// slots are the buffers that are taken, taken counts them, used the bytes of data in them.
	slots [wire.WindowSlots]sharedSlot
	taken int
	used  int32
}

// sharedSlot is a slot that was taken for a request; buf is 0 in a free one.
type sharedSlot struct {
	id   uint64
	buf  loop.Buf
	data loop.Seg
}

// windowMade is the result of Config.NewWindow.
type windowMade struct {
	w   *Window
	err error
}

// offerWindow has a window made for a session that has just begun, if the replica is on this
// machine.
func (s *session) offerWindow() {
	if c := &s.e.cfg; s.window == nil && c.NewWindow != nil && isAt(s.addr, c.LocalHost) {
		s.e.op(loop.Op{Kind: loop.Call, Tag: s.peer.tag(tagWindow), Fn: func() any {
			w, err := c.NewWindow()
			return windowMade{w, err}
		}})
	}
}

// windowMade offers the replica the window. s is nil if the session is over for which it was made.
func (e *Engine) windowMade(s *session, m windowMade) {
	if m.err != nil {
		if s != nil {
			e.event("no-shared-memory", s.addr, m.err.Error())
		}
		return
	}
	pool, ok := loop.Pool(0), false
	if s != nil && s.phase == sessionReady && s.window == nil {
		pool, ok = e.arena.AddWindow(m.w.Mem, wire.WindowSlots, wire.SlotSize)
	}
	if !ok {
		m.w.Free()
		return
	}
	w := &window{w: m.w, pool: pool}
	s.window = w
	s.peer.control(&wire.ControlRequest{Window: &m.w.Offer}, func(code block.Code, r *wire.ControlReply) {
		switch {
		case s.window != w:
		case code != block.OK:
			e.event("no-shared-memory", s.addr, r.Error)
			s.dropWindow()
		default:
			w.agreed = true
			e.event("shared-memory", s.addr, fmt.Sprintf("%d requests", wire.WindowSlots))
		}
	})
}

// dropWindow gives the window up. What was asked for by slots of it is over, or fails.
func (s *session) dropWindow() {
	w := s.window
	if w == nil {
		return
	}
	for i := range w.slots {
		w.free(s.e.arena, i)
	}
	s.window = nil
	s.e.arena.RemovePool(w.pool)
	w.w.Free()
}

func (w *window) free(a *loop.Arena, i int) {
	if s := &w.slots[i]; s.buf != 0 {
		a.Release(s.buf)
		w.taken--
		w.used -= s.data.Len
		*s = sharedSlot{}
	}
}

// share takes a slot for the request id, whose data is in seg, or comes there, and puts there what
// is written; h is told. False: the data goes the ordinary way.
func (s *session) share(id uint64, h *wire.Header, seg loop.Seg) bool {
	w := s.window
	if w == nil || !w.agreed || seg.Len == 0 || !h.Type.Shares() || w.used+seg.Len > maxShared {
		return false
	}
	b, ok := s.e.arena.GetPool(w.pool)
	if !ok {
		return false
	}
	i := loop.PoolIndex(b)
	data := loop.Seg{Buf: b, Off: int32(h.Off % block.Size), Len: seg.Len}
	w.slots[i] = sharedSlot{id: id, buf: b, data: data}
	w.taken++
	w.used += seg.Len
	if h.Type == wire.Write || h.Type == wire.LayerWrite {
		copy(s.e.arena.Seg(data), s.e.arena.Seg(seg))
	}
	h.Flags, h.Slot = h.Flags|wire.Shared, uint8(i)
	return true
}

// takeBack takes the slot of an answer to the request id back; what was read goes to seg, unless
// that is the zero segment. shared: that request had a slot. False: it is not the answer to what
// was asked.
func (s *session) takeBack(shared bool, id uint64, h *wire.Header, seg loop.Seg) bool {
	if !shared || h.Flags&wire.Shared == 0 {
		return !shared && h.Flags&wire.Shared == 0
	}
	w := s.window
	if w == nil || int(h.Slot) >= len(w.slots) || w.slots[h.Slot].buf == 0 || w.slots[h.Slot].id != id || h.Payload > 0 {
		return false
	}
	if seg.Len > 0 && h.Code == block.OK {
		copy(s.e.arena.Seg(seg), s.e.arena.Seg(w.slots[h.Slot].data))
	}
	w.free(s.e.arena, int(h.Slot))
	return true
}
