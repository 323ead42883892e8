package wire

import (
	"errors"
	"fmt"

	"ankole.storage/dataplane/loop"
)

// Handler is the core a connection belongs to.
type Handler interface {
	// PlacePayload says where the payload of frame h is to be received: a segment of exactly
	// h.Payload bytes, with one reference that Frame takes over, or the zero segment for a message,
	// which is collected in memory of its own. ok false means "no buffer now": receiving pauses
	// until Conn.Resume. Whoever is on the other side decides what h says.
	PlacePayload(c *Conn, h *Header) (seg loop.Seg, ok bool)
	// Frame delivers a complete frame; h is valid until it returns. Its payload is in the segment
	// given by PlacePayload, or is the message, which is the handler's from then on.
	Frame(c *Conn, h *Header, payload loop.Seg, message []byte)
}

// ErrClosed says that the peer ended the connection.
var ErrClosed = errors.New("wire: connection closed by peer")

// rxSize is the receive buffer of a connection: a system call can take in a batch of this many
// bytes.
const rxSize = 64 << 10

// txSize is the buffer from which a connection sends headers and messages: as many leave with one
// system call.
const txSize = 16 << 10

// ConnMemory is what one connection takes from the arena's part for connections, and all it ever
// takes: owners set as much aside for each that they allow.
const ConnMemory = rxSize + txSize

// ErrNoMemory says that there are no buffers for another connection.
var ErrNoMemory = errors.New("wire: no memory for another connection")

// Conn moves frames over one connection. It is a part of a step core: its methods are called from
// the core's Step only, and it appends operations instead of performing them.
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

	// Receiving: rx holds unparsed bytes [rxBeg, rxEnd). While a payload is incomplete, want is its
	// header, dst or message its place and got the bytes there.
	rx           loop.Buf
	rxBeg, rxEnd int
	want         Header
	wantRaw      [HeaderSize]byte // want as received, if it is tagged
	wantTagged   bool
	haveWant     bool
	placed       bool
	dst          loop.Seg
	message      []byte
	got          int32
	// whole is the header of the frame that is being delivered.
	whole Header

	// keys authenticate frames in both directions, nil before the hello.
	keys   *Keys
	digest [TagSize]byte

	// Sending, see send.go: the first inFlight frames of the queue leave with the send that is
	// outstanding, whose headers and messages are in tx.
	queue    []outgoing
	inFlight int
	unsent   int // bytes of headers and messages in it
	tx       loop.Buf
}

// NewConn returns a connection over handle. recvTag and sendTag mark its operations.
func NewConn(h loop.Handle, index int, arena *loop.Arena, recvTag, sendTag uint64) (*Conn, error) {
	rx, ok := arena.GetFor(loop.Connections, rxSize)
	if !ok {
		return nil, ErrNoMemory
	}
	tx, ok := arena.GetFor(loop.Connections, txSize)
	if !ok {
		arena.Release(rx)
		return nil, ErrNoMemory
	}
	return &Conn{Handle: h, Index: index, arena: arena, tagRecv: recvTag, tagSend: sendTag, rx: rx, tx: tx}, nil
}

// Start begins to receive.
func (c *Conn) Start(out *[]loop.Op) { c.recv(out) }

// Err returns why the connection is unusable, or nil.
func (c *Conn) Err() error { return c.err }

// Idle reports that no operation is outstanding, so that Free may be called.
func (c *Conn) Idle() bool { return !c.receiving && !c.sending }

// Unsent returns how many bytes of headers and messages have not left: what the peer, if it does
// not take them, makes this side keep outside the arena.
func (c *Conn) Unsent() int { return c.unsent }

// Fail marks the connection unusable; the owner closes the handle.
func (c *Conn) Fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// Free releases every buffer. Nothing may be outstanding.
func (c *Conn) Free() {
	c.discard()
	for _, b := range []*loop.Buf{&c.tx, &c.rx, &c.dst.Buf} {
		if *b != 0 {
			c.arena.Release(*b)
			*b = 0
		}
	}
	c.placed, c.message = false, nil
}

// Secure gives the connection the keys of its session: what is queued from now on has a tag, and so
// must have what is received.
func (c *Conn) Secure(k *Keys) { c.keys = k }

// Secured reports whether the connection has keys.
func (c *Conn) Secured() bool { return c.keys != nil }

func (c *Conn) recv(out *[]loop.Op) {
	if c.receiving || c.paused || c.err != nil {
		return
	}
	op := loop.Op{Kind: loop.Recv, Handle: c.Handle, Tag: c.tagRecv}
	if c.dst.Buf != 0 {
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
	if c.dst.Buf != 0 {
		k := min(int32(n), c.dst.Len-c.got)
		c.got += k
		n -= int(k)
	}
	c.rxEnd += n
	c.parse(h)
	c.recv(out)
}

// Pause stops receiving until Resume: what has come already is delivered after it.
func (c *Conn) Pause() { c.paused = true }

// Resume continues after PlacePayload had no buffer, or after Pause.
func (c *Conn) Resume(h Handler, out *[]loop.Op) {
	if !c.paused || c.err != nil {
		return
	}
	c.paused = false
	c.parse(h)
	c.recv(out)
}

func (c *Conn) parse(h Handler) {
	for c.err == nil && !c.paused && c.step(h) {
	}
}

// step makes one step of parsing and reports whether there may be more.
func (c *Conn) step(h Handler) bool {
	if !c.haveWant {
		if c.rxEnd-c.rxBeg < HeaderSize {
			return false
		}
		if err := c.header(c.arena.Bytes(c.rx)[c.rxBeg:][:HeaderSize]); err != nil {
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
		switch {
		case seg.Buf == 0:
			c.message = make([]byte, c.want.Payload)
		case seg.Len != int32(c.want.Payload):
			panic("wire: payload placed in a segment of another size")
		}
		c.dst, c.got, c.placed = seg, 0, true
	}
	if c.placed {
		k := copy(c.place()[c.got:], c.arena.Bytes(c.rx)[c.rxBeg:c.rxEnd])
		c.rxBeg += k
		c.got += int32(k)
		if c.got < int32(c.want.Payload) {
			return false
		}
	}
	return c.deliver(h)
}

// header takes the header of the next frame. Nothing may follow from one that is tagged before its
// payload is there and the tag is checked, but where the payload goes.
func (c *Conn) header(p []byte) (err error) {
	if c.wantTagged, err = c.want.Decode(p); err != nil {
		return err
	}
	switch {
	case c.wantTagged && c.keys == nil:
		return fmt.Errorf("%w: %s with a tag before the hello", ErrFrame, c.want.Type)
	case c.wantTagged:
		copy(c.wantRaw[:], p)
	case c.keys != nil:
		return fmt.Errorf("%w: %s without a tag after the hello", ErrFrame, c.want.Type)
	}
	return nil
}

// check checks a frame that is there in full.
func (c *Conn) check() error {
	switch {
	case c.wantTagged:
		var digest *[TagSize]byte
		if c.placed {
			c.digest = c.keys.digester.sum(c.place())
			digest = &c.digest
		}
		switch ok := c.keys.open(c.wantRaw[:], digest); {
		case !ok && !c.keys.fromPeer:
			return ErrPeer
		case !ok:
			return fmt.Errorf("%w: tag of %s: it was changed, repeated or moved on its way, or one before it was left out",
				ErrFrame, c.want.Type)
		}
		c.keys.fromPeer = true
	case c.placed && Sum(c.place()) != c.want.Sum:
		return fmt.Errorf("%w: payload checksum of %s", ErrFrame, c.want.Type)
	}
	return nil
}

// place is where the payload goes that is being received.
func (c *Conn) place() []byte {
	if c.dst.Buf != 0 {
		return c.arena.Seg(c.dst)
	}
	return c.message
}

func (c *Conn) deliver(h Handler) bool {
	if err := c.check(); err != nil {
		c.Fail(err)
		return false
	}
	payload, message := c.dst, c.message
	c.whole, c.haveWant, c.placed, c.dst, c.message = c.want, false, false, loop.Seg{}, nil
	h.Frame(c, &c.whole, payload, message)
	return true
}
