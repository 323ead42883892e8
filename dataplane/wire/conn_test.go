package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
)

// frame is a frame as a test sends or has received it.
type frame struct {
	h       Header
	payload string
}

// sink is the core behind a connection: it places payloads and keeps frames.
type sink struct {
	arena *loop.Arena
	got   []frame
	// refuse says that there is no buffer now; it is asked at every placement.
	refuse func() bool
	// offset places payloads away from the start of their buffer, as a replica does with unaligned
	// writes.
	offset int32
	// messages says that payloads are collected outside the arena.
	messages bool
}

// newArena has room for so many connections.
func newArena(budget, conns int) *loop.Arena {
	a := loop.NewArena(budget)
	a.SetAside(loop.Connections, conns*ConnMemory)
	return a
}

// open makes a connection of an arena that has room for it.
func open(index int, arena *loop.Arena, recvTag, sendTag uint64) *Conn {
	c, err := NewConn(loop.Handle(index+3), index, arena, recvTag, sendTag)
	if err != nil {
		panic(err)
	}
	return c
}

func (s *sink) PlacePayload(_ *Conn, h *Header) (loop.Seg, bool) {
	if s.refuse != nil && s.refuse() {
		return loop.Seg{}, false
	}
	if s.messages {
		return loop.Seg{}, true
	}
	off := s.offset
	if int(h.Payload)+int(off) > block.MaxTransfer {
		off = 0
	}
	b, ok := s.arena.Get(int(h.Payload) + int(off))
	return loop.Seg{Buf: b, Off: off, Len: int32(h.Payload)}, ok
}

func (s *sink) Frame(_ *Conn, h *Header, payload loop.Seg, message []byte) {
	f := frame{h: *h, payload: string(message)}
	if payload.Len > 0 {
		f.payload = string(s.arena.Seg(payload))
		s.arena.Release(payload.Buf)
	}
	s.got = append(s.got, f)
}

// receiver feeds a connection with bytes as a loop would.
type receiver struct {
	conn *Conn
	sink *sink
	out  []loop.Op
}

func newReceiver(arena *loop.Arena) *receiver {
	r := &receiver{conn: open(0, arena, 1, 2), sink: &sink{arena: arena}}
	r.conn.Start(&r.out)
	return r
}

// feed completes the outstanding receive with at most n bytes of p and returns the rest; ok is
// false when there is none outstanding.
func (r *receiver) feed(p []byte, n int) (rest []byte, ok bool) {
	if len(r.out) == 0 {
		return p, false
	}
	op := r.out[0]
	r.out = r.out[1:]
	d := loop.Done{Kind: loop.Recv, Handle: op.Handle, Tag: op.Tag}
	for _, s := range op.Vec[:op.Segs] {
		k := copy(r.sink.arena.Seg(s), p[:min(n, len(p))])
		p, n = p[k:], n-k
		d.N += k
	}
	r.conn.Received(&d, r.sink, &r.out)
	return p, true
}

// end lets the stream end and gives everything back.
func (r *receiver) end(arena *loop.Arena) error {
	if len(r.out) > 0 {
		r.out = nil
		r.conn.Received(&loop.Done{Kind: loop.Recv}, r.sink, &r.out)
	}
	err := r.conn.Err()
	r.conn.Free()
	if n := arena.InUse(); n != 0 {
		return fmt.Errorf("%d buffers leaked", n)
	}
	return err
}

// testKeys are the keys of the two sides of a session.
func testKeys() (engine, replica *Keys) {
	secret := []byte("secret")
	e, p := Initiate(&InitiationMessage{Nonce: make([]byte, NonceSize)}, secret, NewDigester(secret))
	_, r, err := Accept(p, secret, "uuid", NewDigester(secret))
	if err != nil {
		panic("an initiation is not proved by its proof")
	}
	e.Greet([]byte(`{"version":6}`))
	r.Greet([]byte(`{"version":6}`))
	p, engine = e.Hello(&HelloMessage{Engine: "e"})
	if _, replica, err = r.ReadHello(p); err != nil {
		panic("a hello is not proved by its proof")
	}
	return engine, replica
}

// encodeTagged is what a side sends whose session has keys.
func encodeTagged(frames []frame, k *Keys) []byte {
	var p []byte
	for _, f := range frames {
		p = append(p, tagged(f, k)...)
	}
	return p
}

func tagged(f frame, k *Keys) []byte {
	var b [HeaderSize]byte
	f.h.Payload = uint32(len(f.payload))
	f.h.EncodeTagged(b[:])
	if f.payload == "" {
		k.seal(b[:], nil)
		return b[:]
	}
	digest := k.digester.sum([]byte(f.payload))
	k.seal(b[:], &digest)
	return append(b[:], f.payload...)
}

// encodeAs encodes frames with checksums, or with tags; the receiver is given the keys.
func encodeAs(t *rapid.T, frames []frame, r *receiver) []byte {
	if !rapid.Bool().Draw(t, "tags") {
		return encode(frames)
	}
	here, there := testKeys()
	r.conn.Secure(there)
	return encodeTagged(frames, here)
}

func encode(frames []frame) []byte {
	var p []byte
	for _, f := range frames {
		h := f.h
		h.Payload, h.Sum = uint32(len(f.payload)), 0
		if f.payload != "" {
			h.Sum = Sum([]byte(f.payload))
		}
		var b [HeaderSize]byte
		h.Encode(b[:])
		p = append(append(p, b[:]...), f.payload...)
	}
	return p
}

func drawFrames(t *rapid.T) []frame {
	var frames []frame
	for range rapid.IntRange(1, 20).Draw(t, "frames") {
		n := 0
		if rapid.Bool().Draw(t, "has payload") {
			n = rapid.OneOf(rapid.IntRange(1, 300), rapid.IntRange(1, 40000), rapid.Just(4096),
				rapid.Just(MaxPayload)).Draw(t, "size")
		}
		h := drawHeader(t)
		h.Payload, h.Sum = 0, 0
		frames = append(frames, frame{h, content(n, rapid.Uint64().Draw(t, "content"))})
	}
	return frames
}

func content(n int, seed uint64) string {
	p := make([]byte, n+8)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], r.Uint64())
	}
	return string(p[:n])
}

func sameFrames(got, want []frame) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d frames of %d", len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		g.h.Payload, g.h.Sum, w.h.Payload, w.h.Sum = 0, 0, 0, 0
		if g.h != w.h || g.payload != w.payload {
			return fmt.Errorf("frame %d is %+v with %d bytes, sent %+v with %d", i, got[i].h, len(g.payload), want[i].h,
				len(w.payload))
		}
	}
	return nil
}

// However a stream is cut into pieces, and however often there is no buffer, the same frames come
// out.
func TestFramesSurviveAnyChunking(t *testing.T) {
	arena := newArena(32<<20, 2)
	rapid.Check(t, func(t *rapid.T) {
		frames := drawFrames(t)
		r := newReceiver(arena)
		p := encodeAs(t, frames, r)
		r.sink.offset = int32(rapid.SampledFrom([]int{0, 512, 3584}).Draw(t, "offset"))
		r.sink.messages = rapid.Bool().Draw(t, "messages")
		busy := rapid.IntRange(0, 3).Draw(t, "refused at most")
		left := busy
		r.sink.refuse = func() bool {
			left--
			if left < 0 {
				left = busy
				return false
			}
			return true
		}
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(1, 70), rapid.IntRange(1, 1<<20)), 1, 50).Draw(t, "chunks")
		for i := 0; len(p) > 0; i++ {
			rest, ok := r.feed(p, sizes[i%len(sizes)])
			p = rest
			if !ok {
				r.conn.Resume(r.sink, &r.out)
			}
			if r.conn.Err() != nil {
				t.Fatal(r.conn.Err())
			}
		}
		for len(r.out) == 0 { // the last payload may still wait for a buffer
			r.conn.Resume(r.sink, &r.out)
		}
		if err := sameFrames(r.sink.got, frames); err != nil {
			t.Fatal(err)
		}
		if err := r.end(arena); !errors.Is(err, ErrClosed) {
			t.Fatalf("the end of the stream is reported as %v", err)
		}
	})
}

// A stream that ends in the middle of a frame delivers what is complete, and nothing leaks.
func TestStreamEndsAnywhere(t *testing.T) {
	arena := newArena(32<<20, 2)
	rapid.Check(t, func(t *rapid.T) {
		frames := drawFrames(t)
		r := newReceiver(arena)
		p := encodeAs(t, frames, r)
		p = p[:rapid.IntRange(0, len(p)-1).Draw(t, "cut")]
		complete, n := 0, 0
		for _, f := range frames {
			if n += HeaderSize + len(f.payload); n > len(p) {
				break
			}
			complete++
		}
		for len(p) > 0 {
			p, _ = r.feed(p, 1<<20)
		}
		if err := sameFrames(r.sink.got, frames[:complete]); err != nil {
			t.Fatal(err)
		}
		if err := r.end(arena); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
	})
}

// One damaged byte anywhere ends the connection; frames before it were delivered, none after it.
func TestDamageClosesTheConnection(t *testing.T) {
	arena := newArena(32<<20, 2)
	rapid.Check(t, func(t *rapid.T) {
		frames := drawFrames(t)
		r := newReceiver(arena)
		p := encodeAs(t, frames, r)
		at := rapid.IntRange(0, len(p)-1).Draw(t, "at")
		p[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "xor"))
		whole, n, damaged := 0, 0, 0
		for _, f := range frames {
			damaged = at - n
			if n += HeaderSize + len(f.payload); n > at {
				break
			}
			whole++
		}
		for len(p) > 0 && r.conn.Err() == nil {
			p, _ = r.feed(p, 100000)
		}
		if err := sameFrames(r.sink.got, frames[:whole]); err != nil {
			t.Fatal(err)
		}
		// A tagged header is checked together with its payload, so a length that has become larger is
		// noticed when that much has come, or when nothing comes any more.
		waits := r.conn.Secured() && damaged >= 40 && damaged < 44
		err := r.end(arena)
		if !errors.Is(err, ErrFrame) && !errors.Is(err, ErrPeer) && (!waits || !errors.Is(err, ErrClosed)) {
			t.Fatalf("byte %d damaged, connection ended with %v", at, err)
		}
	})
}

func TestReceiveErrorEndsTheConnection(t *testing.T) {
	arena := newArena(1<<20, 2)
	r := newReceiver(arena)
	op := r.out[0]
	r.out = nil
	r.conn.Received(&loop.Done{Kind: loop.Recv, Tag: op.Tag, Errno: 104}, r.sink, &r.out)
	if r.conn.Err() == nil || len(r.out) != 0 {
		t.Errorf("error %v, %d operations after a failed receive", r.conn.Err(), len(r.out))
	}
	if err := r.end(arena); err == nil {
		t.Error("the error is forgotten")
	}
}

// FuzzStream: whatever arrives, nothing panics, nothing leaks, and frames that come out were
// checked.
func FuzzStream(f *testing.F) {
	f.Add(encode([]frame{{Header{Type: Write, ID: 1}, "hello"}, {Header{Type: Flush, ID: 2}, ""}}), uint16(10))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n and some more to fill up a whole header"), uint16(7))
	f.Add(bytes.Repeat([]byte{0}, 200), uint16(64))
	f.Fuzz(func(t *testing.T, p []byte, chunk uint16) {
		arena := newArena(4<<20, 2)
		defer arena.Close()
		r := newReceiver(arena)
		for len(p) > 0 && r.conn.Err() == nil {
			var ok bool
			if p, ok = r.feed(p, int(chunk)+1); !ok {
				t.Fatal("an open connection does not receive")
			}
		}
		for _, g := range r.sink.got {
			if len(g.payload) != int(g.h.Payload) || (g.payload != "" && Sum([]byte(g.payload)) != g.h.Sum) {
				t.Fatalf("frame %+v with %d bytes was delivered", g.h, len(g.payload))
			}
		}
		if err := r.end(arena); err == nil {
			t.Fatal("an ended connection has no error")
		}
	})
}
