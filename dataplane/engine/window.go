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

// window is what a link shares with a replica on this machine in one session. A slot is taken for
// one request and given back with its answer. With the session the whole window is given up, so
// that nothing the replica's disk completes later is ever seen: docs/design/format-wire.md.
type window struct {
	w    *Window
	pool loop.Pool
	// agreed: the replica has mapped it.
	agreed bool
	// slots are the buffers that are taken, used the bytes of data in them.
	slots [wire.WindowSlots]sharedSlot
	used  int32
}

// sharedSlot is a slot that was taken for a task; buf is 0 in a free one.
type sharedSlot struct {
	task uint64
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
func (l *link) offerWindow() {
	if c := &l.e.cfg; l.local && l.window == nil && c.NewWindow != nil {
		l.e.op(loop.Op{Kind: loop.Call, Tag: l.tag(tagWindow), Fn: func() any {
			w, err := c.NewWindow()
			return windowMade{w, err}
		}})
	}
}

// windowMade offers the replica the window. now: it was made for the present session of l.
func (k *links) windowMade(l *link, now bool, m windowMade) {
	e := k.e
	if m.err != nil {
		if now {
			e.event("no-shared-memory", l.addr, m.err.Error())
		}
		return
	}
	pool, ok := loop.Pool(0), false
	if now && l.phase == sessionReady && l.window == nil {
		pool, ok = e.arena.AddWindow(m.w.Mem, wire.WindowSlots, wire.SlotSize)
	}
	if !ok {
		m.w.Free()
		return
	}
	w := &window{w: m.w, pool: pool}
	l.window = w
	l.control(&wire.ControlRequest{Window: &m.w.Offer}, func(code block.Code, r *wire.ControlReply) {
		switch {
		case l.window != w:
		case code != block.OK:
			e.event("no-shared-memory", l.addr, r.Error)
			l.dropWindow()
		default:
			w.agreed = true
			e.event("shared-memory", l.addr, fmt.Sprintf("%d requests", wire.WindowSlots))
		}
	})
}

// dropWindow gives the window up. What was asked for by slots of it is over, or fails.
func (l *link) dropWindow() {
	w := l.window
	if w == nil {
		return
	}
	for i := range w.slots {
		l.freeSlot(i)
	}
	l.window = nil
	l.e.arena.RemovePool(w.pool)
	w.w.Free()
}

func (l *link) freeSlot(i int) {
	w := l.window
	if s := &w.slots[i]; s.buf != 0 {
		l.e.arena.Release(s.buf)
		w.used -= s.data.Len
		*s = sharedSlot{}
	}
}

// share takes a slot for what t reads or writes, and puts there what it writes; h is told. False:
// the data goes the ordinary way.
func (l *link) share(t *task, h *wire.Header, seg loop.Seg) bool {
	w := l.window
	if w == nil || !w.agreed || seg.Len == 0 || !t.kind.Shares() || w.used+seg.Len > maxShared {
		return false
	}
	b, ok := l.e.arena.GetPool(w.pool)
	if !ok {
		return false
	}
	i := loop.PoolIndex(b)
	data := loop.Seg{Buf: b, Off: int32(h.Off % block.Size), Len: seg.Len}
	w.slots[i] = sharedSlot{task: t.id(), buf: b, data: data}
	w.used += seg.Len
	t.shared |= l.bit()
	if !t.reads() {
		copy(l.e.arena.Seg(data), l.e.arena.Seg(seg))
	}
	h.Flags, h.Slot = h.Flags|wire.Shared, uint8(i)
	return true
}

// takeBack takes the slot of an answer to t back, with what was read. False: it is not the answer
// to what was asked.
func (l *link) takeBack(t *task, h *wire.Header) bool {
	if asked := t.shared&l.bit() != 0; !asked || h.Flags&wire.Shared == 0 {
		return !asked && h.Flags&wire.Shared == 0
	}
	t.shared &^= l.bit()
	w := l.window
	if w == nil || int(h.Slot) >= len(w.slots) || w.slots[h.Slot].buf == 0 || w.slots[h.Slot].task != t.id() ||
		h.Payload > 0 {
		return false
	}
	if t.reads() && h.Code == block.OK {
		copy(l.e.arena.Seg(t.seg), l.e.arena.Seg(w.slots[h.Slot].data))
	}
	l.freeSlot(int(h.Slot))
	return true
}
