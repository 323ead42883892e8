package wire

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/block"
	"ankole.storage/dataplane/loop"
)

// pair is a sending and a receiving connection with a line between them that holds back and splits what is sent.
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
	Prepare(p.arena, &h, seg)
	p.tx.SendPayload(&h, seg, EncodeInHeadroom(p.arena, &h, seg))
}

func TestWhatIsSentArrives(t *testing.T) {
	arena := loop.NewArena(64 << 20)
	rapid.Check(t, func(t *rapid.T) {
		p := &pair{t: t, arena: arena, tx: NewConn(4, 1, arena, 3, 4), rx: newReceiver(arena)}
		frames := drawFrames(t)
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
		if p.tx.Queued() != 0 || !p.tx.Idle() {
			t.Fatalf("%d bytes still queued", p.tx.Queued())
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

// A connection that failed takes no more, and gives back what it was given, whatever is queued or under way.
func TestFailedConnectionLetsGo(t *testing.T) {
	arena := loop.NewArena(64 << 20)
	rapid.Check(t, func(t *rapid.T) {
		p := &pair{t: t, arena: arena, tx: NewConn(4, 1, arena, 3, 4)}
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

// Payloads may use up the arena; the headers of the answers that free them must still find room.
func TestAnswersFindRoomInAFullArena(t *testing.T) {
	arena := loop.NewArena(8 << 20)
	arena.Reserve(1 << 20)
	c := NewConn(4, 1, arena, 3, 4)
	var held []loop.Buf
	for b, ok := arena.Get(block.MaxTransfer); ok; b, ok = arena.Get(block.MaxTransfer) {
		held = append(held, b)
	}
	for b, ok := arena.Get(4096); ok; b, ok = arena.Get(4096) {
		held = append(held, b)
	}
	for id := range uint64(1024) {
		h := Header{Type: Write, Flags: Response, ID: id}
		c.Send(&h)
	}
	if want := 1024 * HeaderSize; c.Queued() != want {
		t.Fatalf("%d bytes of answers queued, want %d", c.Queued(), want)
	}
	for _, b := range held {
		arena.Release(b)
	}
	c.Free()
	if n := arena.InUse(); n != 0 {
		t.Fatalf("%d buffers leaked", n)
	}
}
