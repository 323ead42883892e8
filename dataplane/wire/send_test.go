package wire

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
)

// pair is a sending and a receiving connection with a line between them that holds back and splits
// what is sent.
type pair struct {
	t     *rapid.T
	arena *loop.Arena
	tx    *Conn
	txOut []loop.Op
	rx    *receiver
	line  []byte
}

// pump completes one send and delivers some of what is on the line.
func (p *pair) pump() {
	if len(p.txOut) > 0 {
		op := p.txOut[0]
		p.txOut = nil
		if op.Segs == 0 || op.Segs > loop.MaxSegs {
			p.t.Fatalf("send of %d segments", op.Segs)
		}
		for _, s := range op.Vec[:op.Segs] {
			p.line = append(p.line, p.arena.Seg(s)...)
		}
		p.tx.Sent(&loop.Done{Kind: loop.Send, Tag: op.Tag}, &p.txOut)
		if len(p.txOut) > 1 {
			p.t.Fatal("two sends outstanding")
		}
	}
	if len(p.line) > 0 {
		n := rapid.IntRange(1, len(p.line)).Draw(p.t, "delivered")
		before := len(p.line)
		rest, ok := p.rx.feed(p.line, n)
		if !ok || len(rest) == before {
			p.t.Fatal("the receiver is stuck")
		}
		p.line = rest
	}
}

// send queues one frame in one of the ways an owner may.
func (p *pair) send(f frame) {
	h := f.h
	if f.payload == "" {
		p.tx.Send(&h)
		return
	}
	if !p.tx.Secured() || rapid.Bool().Draw(p.t, "message") {
		p.tx.SendMessage(&h, []byte(f.payload))
		return
	}
	lead := int32(rapid.SampledFrom([]int{0, 0, 512}).Draw(p.t, "lead"))
	if int(lead)+len(f.payload) > block.MaxTransfer {
		lead = 0
	}
	b, ok := p.arena.Get(int(lead) + len(f.payload))
	if !ok {
		p.t.Fatal("arena too small for the test")
	}
	seg := loop.Seg{Buf: b, Off: lead, Len: int32(len(f.payload))}
	copy(p.arena.Seg(seg), f.payload)
	data := NewPayload(p.arena, seg)
	p.tx.SendPayload(&h, &data, rapid.Bool().Draw(p.t, "alone"))
}

func TestWhatIsSentArrives(t *testing.T) {
	arena := newArena(64<<20, 2)
	rapid.Check(t, func(t *rapid.T) {
		p := &pair{t: t, arena: arena, tx: open(1, arena, 3, 4), rx: newReceiver(arena)}
		frames := drawFrames(t)
		if rapid.Bool().Draw(t, "tags") {
			here, there := testKeys()
			p.tx.Secure(here)
			p.rx.conn.Secure(there)
		}
		// Many small frames fill header buffers.
		for range rapid.IntRange(0, 200).Draw(t, "small") {
			h := drawHeader(t)
			frames = append(frames, frame{h: h})
		}
		for _, f := range frames {
			p.send(f)
			if rapid.Bool().Draw(t, "flush") {
				p.tx.Flush(&p.txOut)
				p.pump()
			}
		}
		p.tx.Flush(&p.txOut)
		for len(p.txOut) > 0 || len(p.line) > 0 {
			p.pump()
		}
		if len(p.tx.queue) != 0 || !p.tx.Idle() {
			t.Fatalf("%d frames still queued", len(p.tx.queue))
		}
		if err := sameFrames(p.rx.sink.got, frames); err != nil {
			t.Fatal(err)
		}
		p.tx.Free()
		if err := p.rx.end(arena); !strings.Contains(err.Error(), "closed") {
			t.Fatal(err)
		}
	})
}

// A connection that failed takes no more, and gives back what it was given, whatever is queued or
// under way.
func TestFailedConnectionLetsGo(t *testing.T) {
	arena := newArena(64<<20, 2)
	rapid.Check(t, func(t *rapid.T) {
		p := &pair{t: t, arena: arena, tx: open(1, arena, 3, 4)}
		p.tx.Start(&p.txOut)
		recv := p.txOut[0]
		p.txOut = nil
		queue := func() {
			for range rapid.IntRange(0, 10).Draw(t, "frames") {
				p.send(frame{Header{Type: Write, ID: 1}, content(rapid.IntRange(0, 5000).Draw(t, "size"), 1)})
			}
		}
		queue()
		if rapid.Bool().Draw(t, "flush") {
			p.tx.Flush(&p.txOut)
		}
		queue()
		p.tx.Fail(ErrClosed)
		queue()
		if p.tx.Flush(&p.txOut); len(p.txOut) > 1 {
			t.Fatal("a failed connection sends")
		}
		if len(p.txOut) > 0 {
			p.tx.Sent(&loop.Done{Kind: loop.Send, Errno: loop.Canceled}, &p.txOut)
		}
		if p.tx.Idle() {
			t.Fatal("idle while a receive is outstanding")
		}
		var out []loop.Op
		p.tx.Received(&loop.Done{Kind: loop.Recv, Tag: recv.Tag, Errno: loop.Canceled}, &sink{arena: arena}, &out)
		if !p.tx.Idle() || len(out) != 0 {
			t.Fatalf("not idle at the end, or %d operations more", len(out))
		}
		p.tx.Free()
		if n := arena.InUse(); n != 0 {
			t.Fatalf("%d buffers leaked", n)
		}
	})
}

// TestFullArena: requests may use up their part of the arena. Connections are had all the same, as
// many as were set aside for, and what is sent on them needs no more, however much it is.
func TestFullArena(t *testing.T) {
	const conns = 3
	arena := newArena(2<<20, conns)
	for _, ok := arena.Get(4096); ok; _, ok = arena.Get(4096) {
	}
	rapid.Check(t, func(t *rapid.T) {
		var made []*Conn
		for i := range conns {
			made = append(made, open(i, arena, 3, 4))
		}
		if _, err := NewConn(9, 9, arena, 3, 4); !errors.Is(err, ErrNoMemory) {
			t.Fatalf("one connection more than there is room for: %v", err)
		}
		p := &pair{t: t, arena: arena, tx: made[0], rx: &receiver{conn: made[1], sink: &sink{arena: arena, messages: true}}}
		p.rx.conn.Start(&p.rx.out)
		var frames []frame
		for range rapid.IntRange(1, 300).Draw(t, "frames") {
			f := frame{h: drawHeader(t)}
			if rapid.IntRange(0, 9).Draw(t, "message") == 0 {
				f.payload = content(rapid.IntRange(1, MaxPayload).Draw(t, "size"), 1)
			}
			frames = append(frames, f)
			p.tx.SendMessage(&f.h, []byte(f.payload))
		}
		p.tx.Flush(&p.txOut)
		for len(p.txOut) > 0 || len(p.line) > 0 {
			p.pump()
		}
		if err := sameFrames(p.rx.sink.got, frames); err != nil {
			t.Fatal(err)
		}
		for _, c := range made {
			c.Free()
		}
	})
}

// TestHotPathAllocatesNothing: neither sending nor receiving requests and answers.
func TestHotPathAllocatesNothing(t *testing.T) {
	arena := newArena(8<<20, 2)
	tx, rx := open(0, arena, 1, 2), open(1, arena, 3, 4)
	here, there := testKeys()
	tx.Secure(here)
	rx.Secure(there)
	var out, in []loop.Op
	rx.Start(&in)
	payload, _ := arena.Get(64 << 10)
	seg := loop.Seg{Buf: payload, Len: 64 << 10}
	var place Handler = drop{arena}
	var h Header
	round := func() {
		for i := range 32 {
			h = Header{Type: Write, ID: uint64(i)}
			p := NewPayload(arena, seg)
			arena.Retain(payload)
			tx.SendPayload(&h, &p, false)
			h = Header{Type: Write, Flags: Response, ID: uint64(i)}
			tx.Send(&h)
		}
		carry(arena, tx, rx, place, &out, &in)
	}
	if n := testing.AllocsPerRun(100, round); n > 0 {
		t.Errorf("%.1f allocations for 64 frames", n)
	}
	if tx.Err() != nil || rx.Err() != nil {
		t.Error(tx.Err(), rx.Err())
	}
}

// drop is a core that receives requests and forgets them.
type drop struct{ arena *loop.Arena }

func (d drop) PlacePayload(_ *Conn, h *Header) (loop.Seg, bool) {
	b, ok := d.arena.Get(int(h.Payload))
	return loop.Seg{Buf: b, Len: int32(h.Payload)}, ok
}

func (d drop) Frame(_ *Conn, _ *Header, payload loop.Seg, _ []byte) {
	if payload.Len > 0 {
		d.arena.Release(payload.Buf)
	}
}
