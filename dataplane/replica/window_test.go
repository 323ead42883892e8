package replica_test

import (
	"bytes"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// share offers a window, as an engine does.
func (p *peer) share() *engine.Window {
	p.g.t.Helper()
	w, err := p.g.v.NewWindow()
	if err != nil {
		p.g.t.Fatal(err)
	}
	if code, r := p.control(wire.ControlRequest{Window: &w.Offer}); code != block.OK {
		p.g.t.Fatalf("the window is refused: %s %s", code, r.Error)
	}
	return w
}

// slot is where the data of a request is.
func slot(w *engine.Window, h wire.Header) []byte {
	at := int64(h.Slot)*wire.SlotSize + 4096 + h.Off%block.Size
	return w.Mem[at : at+h.Len]
}

// shared is a request whose data is in a slot.
func shared(typ wire.Type, n uint8, off, size int64) wire.Header {
	return wire.Header{Type: typ, Flags: wire.Shared, Slot: n, Off: off, Len: size}
}

// What is in a slot is written, and what is read comes there, whatever its size and place; a
// request without a slot reads the same.
func TestDataInSlots(t *testing.T) {
	g := newRig(t)
	e := g.engine(1, "e")
	w := e.share()
	for i, r := range []struct{ off, n int64 }{
		{0, 4096}, {512, 512}, {8192 - 512, 1024}, {1 << 20, 1 << 20}, {5120, 3584},
	} {
		h := shared(wire.Write, uint8(i), r.off, r.n)
		for k := range slot(w, h) {
			slot(w, h)[k] = byte(i + k)
		}
		want := bytes.Clone(slot(w, h))
		if a := e.ask(h, nil); a.h.Code != block.OK || a.h.Flags&wire.Shared == 0 || a.h.Slot != h.Slot {
			t.Fatalf("write of %d bytes at %d: %+v", r.n, r.off, a.h)
		}
		if a := e.ask(wire.Header{Type: wire.Read, Off: r.off, Len: r.n}, nil); !bytes.Equal(a.payload, want) {
			t.Errorf("%d bytes at %d are others than were written", r.n, r.off)
		}
		h = shared(wire.Read, 63, r.off, r.n)
		if a := e.ask(h, nil); a.h.Code != block.OK || a.h.Flags&wire.Shared == 0 || a.h.Slot != 63 || len(a.payload) > 0 ||
			!bytes.Equal(slot(w, h), want) {
			t.Errorf("read of %d bytes at %d: %+v with %d bytes", r.n, r.off, a.h, len(a.payload))
		}
	}
	// A failure gives the slot back too.
	for range 2 {
		if a := e.ask(shared(wire.Read, 5, volumeSize, 4096), nil); a.h.Code != block.Invalid || a.h.Flags&wire.Shared == 0 {
			t.Errorf("read beyond the end: %+v", a.h)
		}
	}
}

// A frame that speaks of a slot which there is not, or is in use, or cannot hold the data, ends the
// session, and the replica goes on.
func TestFramesOfOtherSlots(t *testing.T) {
	for name, c := range map[string]struct {
		h       wire.Header
		payload []byte
		bare    bool
	}{
		"without a window": {h: shared(wire.Read, 0, 0, 4096), bare: true},
		"no such slot":     {h: shared(wire.Read, wire.WindowSlots, 0, 4096)},
		"the last number":  {h: shared(wire.Write, 255, 0, 4096)},
		"too long":         {h: shared(wire.Read, 0, 0, 1<<20+4096)},
		"too far":          {h: shared(wire.Write, 0, 512, 1<<20)},
		"data beside it":   {h: shared(wire.Write, 0, 0, 4096), payload: make([]byte, 4096)},
		"no data at all":   {h: shared(wire.Flush, 0, 0, 0)},
		"a hash":           {h: shared(wire.Hash, 0, 0, 4096)},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			e := g.engine(1, "e")
			if !c.bare {
				e.share()
			}
			a := e.request(c.h, c.payload)
			g.until("the session ends", func() bool { return e.gone })
			if a.done {
				t.Errorf("answered: %+v", a.h)
			}
			g.alive(2)
			g.until("the window is given back", func() bool { return g.v.Held() <= 1 }) // the peer keeps its own
		})
	}
	t.Run("in use", func(t *testing.T) {
		g := newRig(t)
		e := g.engine(1, "e")
		e.share()
		e.request(shared(wire.Write, 3, 0, 4096), nil)
		e.request(shared(wire.Write, 3, 8192, 4096), nil)
		g.until("the session ends", func() bool { return e.gone })
		g.alive(2)
	})
}

// Offers that are none, a second one and a reader's are refused, and the session goes on.
func TestWindowsThatAreRefused(t *testing.T) {
	g := newRig(t)
	e := g.engine(1, "e")
	for _, o := range []wire.WindowOffer{{}, {PID: 1, FD: 99}, {PID: -1, FD: -1, Token: make([]byte, 32)}} {
		if code, r := e.control(wire.ControlRequest{Window: &o}); code == block.OK || r.Error == "" {
			t.Errorf("%+v: %s %q", o, code, r.Error)
		}
	}
	w := e.share()
	if code, r := e.control(wire.ControlRequest{Window: &w.Offer}); code == block.OK || r.Error == "" {
		t.Errorf("a second window: %s %q", code, r.Error)
	}
	if a := e.ask(shared(wire.Read, 0, 0, 4096), nil); a.h.Code != block.OK {
		t.Error(a.h.Code)
	}
}

// The memory of a session stays until everything that the session has on the disk is complete: its
// successor is answered after that, and it is given back.
func TestWindowOutlivesItsSession(t *testing.T) {
	g := newRig(t)
	e := g.engine(1, "e")
	w := e.share()
	h := shared(wire.Write, 0, 0, 4096)
	copy(slot(w, h), bytes.Repeat([]byte{9}, 4096))
	const slow = 100 * time.Millisecond
	g.r.Disk.Slow(slow)
	e.request(h, nil)
	g.w.Until(slow/2, func() bool { return false })
	e.proc.Post(func(out *[]loop.Op) { *out = append(*out, loop.Op{Kind: loop.Close, Handle: e.conn.Handle, Tag: 99}) })
	w.Free()
	if g.v.Held() == 0 {
		t.Fatal("the memory is given back although a write of it is on its way to the disk")
	}
	g.r.Disk.Slow(0)
	next := g.engine(2, "e2")
	a := next.ask(wire.Header{Type: wire.Read, Len: 4096}, nil)
	if !bytes.Equal(a.payload, bytes.Repeat([]byte{9}, 4096)) {
		t.Error("the write was changed on its way")
	}
	if g.v.Held() > 0 {
		t.Error("the memory of a session that is over is kept")
	}
}

// A reader reads its snapshot through slots, and only so many at a time.
func TestReaderInSlots(t *testing.T) {
	g, _ := snapshotted(t)
	p := g.reader("a")
	w := p.share()
	h := shared(wire.Read, 1, 0, 3*block.Size)
	h.Flags |= wire.AtView
	want := append(filled(2, 2*block.Size), filled(1, block.Size)...)
	if a := p.ask(h, nil); a.h.Code != block.OK || len(a.payload) > 0 || !bytes.Equal(slot(w, h), want) {
		t.Errorf("%+v with %d bytes", a.h, len(a.payload))
	}
	if a := p.ask(shared(wire.Write, 1, 0, block.Size), nil); a.h.Code != block.Refused {
		t.Errorf("a write: %s", a.h.Code)
	}
	g.r.Disk.Slow(100 * time.Millisecond)
	for i := range uint8(wire.ReaderSlots + 1) {
		h.Slot = i
		p.request(h, nil)
	}
	g.until("the session ends", func() bool { return p.gone })
	g.r.Disk.Slow(0)
	g.alive(3)
}
