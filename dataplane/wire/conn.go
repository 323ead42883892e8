package wire

import (
	"errors"
	"fmt"

	"ankole.storage/dataplane/loop"
)

// Handler is the core a connection belongs to.
type Handler interface {
	// PlacePayload says where the payload of frame h is to be received: a segment of exactly h.Payload bytes, with one
	// reference that Frame takes over. ok false means "no buffer now": receiving pauses until Conn.Resume.
	PlacePayload(c *Conn, h *Header) (seg loop.Seg, ok bool)
	// Frame delivers a complete frame. payload is the segment given by PlacePayload, or has Len 0.
	Frame(c *Conn, h *Header, payload loop.Seg)
}

// ErrClosed says that the peer ended the connection.
var ErrClosed = errors.New("wire: connection closed by peer")

// rxSize is the receive buffer of a connection: a system call can take in a batch of this many bytes.
const rxSize = 64 << 10

// txSize is one buffer of headers waiting to be sent.
const txSize = 4 << 10

// Conn moves frames over one connection. It is a part of a step core: its methods are called from the core's Step
// only, and it appends operations instead of performing them.
type Conn struct {
	Handle loop.Handle
	// Index is the owner's own number for the connection.
	Index int

	arena            *loop.Arena
	tagRecv, tagSend uint64
	err              error
	receiving        bool
	sending          bool
	paused           bool

	// Receiving: rx holds unparsed bytes [rxBeg, rxEnd). While a payload is incomplete, want is its header,
	// dst its place and got the bytes there.
	rx           loop.Buf
	rxBeg, rxEnd int
	want         Header
	haveWant     bool
	placed       bool
	dst          loop.Seg
	got          int32

	// Sending: queue of segments; sent ones are released. tx collects headers without payload.
	queue    []loop.Seg
	inFlight int
	tx       loop.Buf
	txBeg    int
	txEnd    int
	pending  int // bytes queued and not yet sent
}

// NewConn returns a connection over handle. recvTag and sendTag mark its operations. It panics if the arena has no
// room for its receive buffer: owners bound the number of connections well below the arena's budget.
func NewConn(h loop.Handle, index int, arena *loop.Arena, recvTag, sendTag uint64) *Conn {
	rx, ok := arena.Get(rxSize)
	if !ok {
		panic("wire: arena too small for a connection")
	}
	return &Conn{Handle: h, Index: index, arena: arena, tagRecv: recvTag, tagSend: sendTag, rx: rx}
}

// Start begins to receive.
func (c *Conn) Start(out *[]loop.Op) { c.recv(out) }

// Err returns why the connection is unusable, or nil.
func (c *Conn) Err() error { return c.err }

// Idle reports that no operation is outstanding, so that Free may be called.
func (c *Conn) Idle() bool { return !c.receiving && !c.sending }

// Queued returns the number of bytes waiting to be sent.
func (c *Conn) Queued() int { return c.pending }

// Fail marks the connection unusable; the owner closes the handle.
func (c *Conn) Fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// Free releases every buffer. Nothing may be outstanding.
func (c *Conn) Free() {
	for _, s := range c.queue {
		c.arena.Release(s.Buf)
	}
	c.queue, c.inFlight, c.pending = nil, 0, 0
	if c.tx != 0 {
		c.arena.Release(c.tx)
		c.tx = 0
	}
	if c.rx != 0 {
		c.arena.Release(c.rx)
		c.rx = 0
	}
	if c.placed && c.dst.Len > 0 {
		c.arena.Release(c.dst.Buf)
	}
	c.placed = false
}

func (c *Conn) recv(out *[]loop.Op) {
	if c.receiving || c.paused || c.err != nil {
		return
	}
	op := loop.Op{Kind: loop.Recv, Handle: c.Handle, Tag: c.tagRecv}
	if c.placed && c.got < c.dst.Len {
		op.Add(loop.Seg{Buf: c.dst.Buf, Off: c.dst.Off + c.got, Len: c.dst.Len - c.got})
	}
	if c.rxBeg == c.rxEnd {
		c.rxBeg, c.rxEnd = 0, 0
	} else if c.rxEnd == rxSize {
		p := c.arena.Bytes(c.rx)
		c.rxEnd = copy(p, p[c.rxBeg:c.rxEnd])
		c.rxBeg = 0
	}
	op.Add(loop.Seg{Buf: c.rx, Off: int32(c.rxEnd), Len: int32(rxSize - c.rxEnd)})
	c.receiving = true
	*out = append(*out, op)
}

// Received takes the completion of a receive, delivers the frames it completed and receives again.
func (c *Conn) Received(d *loop.Done, h Handler, out *[]loop.Op) {
	c.receiving = false
	switch {
	case c.err != nil:
		return
	case d.Errno != 0:
		c.Fail(fmt.Errorf("wire: receive: errno %d", d.Errno))
		return
	case d.N == 0:
		c.Fail(ErrClosed)
		return
	}
	n := d.N
	if c.placed {
		k := min(int32(n), c.dst.Len-c.got)
		c.got += k
		n -= int(k)
	}
	c.rxEnd += n
	c.parse(h)
	c.recv(out)
}

// Resume continues after PlacePayload had no buffer.
func (c *Conn) Resume(h Handler, out *[]loop.Op) {
	if !c.paused || c.err != nil {
		return
	}
	c.paused = false
	c.parse(h)
	c.recv(out)
}

func (c *Conn) parse(h Handler) {
	for c.err == nil && c.step(h) {
	}
}

// step makes one step of parsing and reports whether there may be more.
func (c *Conn) step(h Handler) bool {
	if !c.haveWant {
		if c.rxEnd-c.rxBeg < HeaderSize {
			return false
		}
		if err := c.want.Decode(c.arena.Bytes(c.rx)[c.rxBeg:]); err != nil {
			c.Fail(err)
			return false
		}
		c.rxBeg += HeaderSize
		c.haveWant = true
	}
	if c.want.Payload > 0 && !c.placed {
		seg, ok := h.PlacePayload(c, &c.want)
		if !ok {
			c.paused = c.err == nil
			return false
		}
		if seg.Len != int32(c.want.Payload) {
			panic("wire: payload placed in a segment of another size")
		}
		c.dst, c.got, c.placed = seg, 0, true
	}
	if c.placed && c.got < c.dst.Len {
		k := copy(c.arena.Seg(c.dst)[c.got:], c.arena.Bytes(c.rx)[c.rxBeg:c.rxEnd])
		c.rxBeg += k
		c.got += int32(k)
		if c.got < c.dst.Len {
			return false
		}
	}
	return c.deliver(h)
}

func (c *Conn) deliver(h Handler) bool {
	var payload loop.Seg
	if c.placed {
		payload = c.dst
		if Sum(c.arena.Seg(payload)) != c.want.Sum {
			c.Fail(fmt.Errorf("%w: payload checksum of %s", ErrFrame, c.want.Type))
			return false
		}
	}
	hdr := c.want
	c.haveWant, c.placed, c.dst = false, false, loop.Seg{}
	h.Frame(c, &hdr, payload)
	return true
}

// Send queues a frame without payload.
func (c *Conn) Send(h *Header) {
	if c.err != nil {
		return
	}
	h.Payload, h.Sum = 0, 0
	h.Encode(c.headerRoom())
}

// headerRoom returns HeaderSize bytes at the end of the queue.
func (c *Conn) headerRoom() []byte {
	if c.tx != 0 && c.txEnd+HeaderSize > txSize {
		c.sealTx()
	}
	if c.tx == 0 {
		b, ok := c.arena.GetReserved(txSize)
		if !ok {
			panic("wire: arena exhausted by headers; owners must keep a reserve and bound requests in flight")
		}
		c.tx, c.txBeg, c.txEnd = b, 0, 0
	}
	p := c.arena.Bytes(c.tx)[c.txEnd : c.txEnd+HeaderSize]
	c.txEnd += HeaderSize
	c.pending += HeaderSize
	return p
}

// flushTx moves the headers collected so far into the queue; the buffer stays open for more.
func (c *Conn) flushTx() {
	if c.tx == 0 || c.txEnd == c.txBeg {
		return
	}
	c.arena.Retain(c.tx)
	c.queue = append(c.queue, loop.Seg{Buf: c.tx, Off: int32(c.txBeg), Len: int32(c.txEnd - c.txBeg)})
	c.txBeg = c.txEnd
}

func (c *Conn) sealTx() {
	if c.tx == 0 {
		return
	}
	if c.err == nil {
		c.flushTx()
	}
	c.arena.Release(c.tx)
	c.tx = 0
}

// SendPayload queues a frame whose payload is seg; h.Payload and h.Sum must be set (see Prepare). The reference to the
// buffer is taken over. When the payload starts at offset 0 of its buffer the header is expected to be encoded in the
// headroom already (EncodeInHeadroom) and both leave in one segment.
func (c *Conn) SendPayload(h *Header, seg loop.Seg, inHeadroom bool) {
	if c.err != nil {
		c.arena.Release(seg.Buf)
		return
	}
	if inHeadroom {
		c.flushTx()
		c.queue = append(c.queue, loop.Seg{Buf: seg.Buf, Off: seg.Off - HeaderSize, Len: seg.Len + HeaderSize})
		c.pending += int(seg.Len) + HeaderSize
		return
	}
	h.Encode(c.headerRoom())
	c.flushTx()
	c.queue = append(c.queue, seg)
	c.pending += int(seg.Len)
}

// Prepare fills in payload size and checksum.
func Prepare(a *loop.Arena, h *Header, seg loop.Seg) {
	h.Payload = uint32(seg.Len)
	h.Sum = Sum(a.Seg(seg))
}

// EncodeInHeadroom writes the prepared header directly before the payload and reports whether there was room: only a
// segment at the start of its buffer has bytes before it that nobody else owns.
func EncodeInHeadroom(a *loop.Arena, h *Header, seg loop.Seg) bool {
	if seg.Off != 0 {
		return false
	}
	h.Encode(a.Seg(loop.Seg{Buf: seg.Buf, Off: -HeaderSize, Len: HeaderSize}))
	return true
}

// Flush submits what is queued, unless a send is outstanding. Owners call it once at the end of a step, so that
// everything queued in the step leaves in few system calls.
func (c *Conn) Flush(out *[]loop.Op) {
	if c.sending || c.err != nil {
		return
	}
	c.flushTx()
	if len(c.queue) == 0 {
		return
	}
	op := loop.Op{Kind: loop.Send, Handle: c.Handle, Tag: c.tagSend}
	for _, s := range c.queue {
		if op.Segs == loop.MaxSegs {
			break
		}
		op.Add(s)
	}
	c.inFlight = int(op.Segs)
	c.sending = true
	*out = append(*out, op)
}

// Sent takes the completion of a send and releases what left.
func (c *Conn) Sent(d *loop.Done, out *[]loop.Op) {
	c.sending = false
	for _, s := range c.queue[:c.inFlight] {
		c.pending -= int(s.Len)
		c.arena.Release(s.Buf)
	}
	n := copy(c.queue, c.queue[c.inFlight:])
	c.queue = c.queue[:n]
	c.inFlight = 0
	if d.Errno != 0 {
		c.Fail(fmt.Errorf("wire: send: errno %d", d.Errno))
		return
	}
	c.Flush(out)
}
