package wire

import (
	"fmt"

	"ankole.storage/dataplane/loop"
)

// outgoing is a frame that waits to be sent. Headers and messages stay outside the arena until they
// leave: there is one send at a time, and its part of them goes through the connection's own
// buffer. So nothing that is queued, however much, needs memory of the arena but the data it
// carries, which is there already.
type outgoing struct {
	h Header
	// seg is a payload in the arena; with inHeadroom the header goes directly before it. message is
	// one outside.
	seg        loop.Seg
	inHeadroom bool
	message    []byte
	// tagged: it was queued after Secure; digest is that of seg then.
	tagged bool
	digest [TagSize]byte
	// begun: the header has left; message is what has not.
	begun bool
}

// Send queues a frame without payload.
func (c *Conn) Send(h *Header) { c.SendMessage(h, nil) }

// SendMessage queues a frame whose payload is p, which must not change any more.
func (c *Conn) SendMessage(h *Header, p []byte) {
	if c.err != nil {
		return
	}
	f := outgoing{h: *h, message: p, tagged: c.keys != nil}
	f.h.Payload, f.h.Sum = uint32(len(p)), 0
	if len(p) > 0 {
		if f.tagged {
			f.digest = c.keys.digester.sum(p)
		} else {
			f.h.Sum = Sum(p)
		}
	}
	c.unsent += HeaderSize + len(p)
	c.queue = append(c.queue, f)
}

// Payload is a payload in the arena that goes to one or more peers.
type Payload struct {
	arena *loop.Arena
	seg   loop.Seg
	// digest is by the digester of the connection that needed it last.
	digest [TagSize]byte
	by     *Digester
}

// NewPayload returns the payload in seg.
func NewPayload(a *loop.Arena, seg loop.Seg) Payload { return Payload{arena: a, seg: seg} }

// SendPayload queues a frame whose payload is p, on a connection that has keys: nothing of the
// arena is sent before. A reference to the buffer is taken over. alone: nobody else sends the
// buffer, so the header may be put before the payload, in room that only a segment at the start of
// its buffer has.
func (c *Conn) SendPayload(h *Header, p *Payload, alone bool) {
	if c.err != nil {
		c.arena.Release(p.seg.Buf)
		return
	}
	f := outgoing{h: *h, seg: p.seg, inHeadroom: alone && p.seg.Off == 0, tagged: true}
	f.h.Payload, f.h.Sum = uint32(p.seg.Len), 0
	if p.by != c.keys.digester {
		p.by = c.keys.digester
		p.digest = p.by.sum(p.arena.Seg(p.seg))
	}
	f.digest = p.digest
	c.unsent += HeaderSize
	c.queue = append(c.queue, f)
}

// encode writes the header of a frame, which is the next one to leave.
func (c *Conn) encode(f *outgoing, p []byte) {
	if !f.tagged {
		f.h.Encode(p)
		return
	}
	f.h.EncodeTagged(p)
	if f.h.Payload > 0 {
		c.keys.seal(p, &f.digest)
	} else {
		c.keys.seal(p, nil)
	}
}

// batch is a send that is being put together. [beg, end) of the connection's buffer is not a
// segment of it yet: what follows in the buffer leaves in the same segment.
type batch struct {
	op       loop.Op
	tx       loop.Buf
	beg, end int32
}

// seal makes a segment of what has been put into the connection's buffer.
func (b *batch) seal() {
	if b.beg < b.end {
		b.op.Add(loop.Seg{Buf: b.tx, Off: b.beg, Len: b.end - b.beg})
		b.beg = b.end
	}
}

// segs is how many segments there are with the one that is still open.
func (b *batch) segs() int {
	if b.beg < b.end {
		return int(b.op.Segs) + 1
	}
	return int(b.op.Segs)
}

// add puts a frame into the batch, as far as there is room, and reports whether all of it is there.
func (c *Conn) add(b *batch, f *outgoing, p []byte) bool {
	if f.inHeadroom {
		if b.segs() == loop.MaxSegs {
			return false
		}
		b.seal()
		c.encode(f, c.arena.Seg(loop.Seg{Buf: f.seg.Buf, Off: -HeaderSize, Len: HeaderSize}))
		b.op.Add(loop.Seg{Buf: f.seg.Buf, Off: f.seg.Off - HeaderSize, Len: f.seg.Len + HeaderSize})
		return true
	}
	need := 1 // the header's segment, which may be open already
	if f.seg.Len > 0 {
		need = 2
	}
	if b.beg < b.end {
		need--
	}
	if b.segs()+need > loop.MaxSegs {
		return false
	}
	if !f.begun {
		if len(p)-int(b.end) < HeaderSize {
			return false
		}
		c.encode(f, p[b.end:])
		b.end += HeaderSize
		f.begun = true
	}
	if f.seg.Len > 0 {
		b.seal()
		b.op.Add(f.seg)
		return true
	}
	n := copy(p[b.end:], f.message)
	b.end += int32(n)
	f.message = f.message[n:]
	return len(f.message) == 0
}

// Flush submits what is queued, unless a send is outstanding. Owners call it once at the end of a
// step, so that everything queued in the step leaves in few system calls.
func (c *Conn) Flush(out *[]loop.Op) {
	if c.sending || c.err != nil || len(c.queue) == 0 {
		return
	}
	b := batch{op: loop.Op{Kind: loop.Send, Handle: c.Handle, Tag: c.tagSend}, tx: c.tx}
	p := c.arena.Bytes(c.tx)[:txSize]
	for c.inFlight < len(c.queue) && c.add(&b, &c.queue[c.inFlight], p) {
		c.inFlight++
	}
	b.seal()
	c.sending = true
	*out = append(*out, b.op)
}

// Sent takes the completion of a send and releases what left.
func (c *Conn) Sent(d *loop.Done, out *[]loop.Op) {
	c.sending = false
	for i := range c.queue[:c.inFlight] {
		if f := &c.queue[i]; f.seg.Buf != 0 {
			c.arena.Release(f.seg.Buf)
			c.unsent -= HeaderSize
		} else {
			c.unsent -= HeaderSize + int(f.h.Payload)
		}
	}
	n := copy(c.queue, c.queue[c.inFlight:])
	clear(c.queue[n:])
	c.queue, c.inFlight = c.queue[:n], 0
	if d.Errno != 0 {
		c.Fail(fmt.Errorf("wire: send: errno %d", d.Errno))
		return
	}
	c.Flush(out)
}

// discard drops what was not sent.
func (c *Conn) discard() {
	for i := range c.queue {
		if f := &c.queue[i]; f.seg.Buf != 0 {
			c.arena.Release(f.seg.Buf)
		}
	}
	c.queue, c.inFlight, c.unsent = nil, 0, 0
}
