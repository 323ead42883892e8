package nbd

import (
	"encoding/binary"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// phase is where a connection stands.
type phase uint8

const (
	awaitFlags phase = iota
	negotiation
	transmission
	draining // DISC received: what is in flight is answered, nothing more is read
)

// client is one connection.
type client struct {
	s     *Server
	index int
	conn  loop.Handle
	phase phase

	noZeroes bool
	options  int

	rx       loop.Buf
	from, to int // unread bytes of rx
	current  int // slot+1 of the write whose payload is being received
	skip     int64
	skipped  uint64 // cookie to answer once skip is done
	skipErr  uint32

	tx     loop.Buf
	queued int // bytes of tx filled
	posted int // bytes of tx given to a send

	replies []uint32 // answered requests, in order, not given to a send
	sending []uint32 // requests whose data the outstanding send carries
	sendTag uint64
	sendAt  int
	seq     uint32

	inFlight  int
	owing     owing
	receiving bool
	sendBusy  bool
	held      bool // waits for a buffer, a request slot or room in tx
	closing   bool
	gone      bool
}

func (c *client) bytes() []byte { return c.s.cfg.Arena.Bytes(c.rx)[c.from:c.to] }

// received takes the bytes of a Recv and reads on.
func (c *client) received(d *loop.Done, reqs *[]frontend.Request, out *[]loop.Op) {
	c.receiving = false
	if c.closing {
		return
	}
	if d.Errno != 0 || d.N == 0 {
		c.disconnect(out)
		return
	}
	n := int64(d.N)
	if c.current != 0 {
		r := &c.s.requests[c.current-1]
		direct := min(n, r.size-r.written)
		c.took(r, direct, reqs)
		n -= direct
	}
	c.to += int(n)
	c.advance(reqs, out)
}

// took accounts for n more payload bytes of the current write and hands complete pieces to the
// engine.
func (c *client) took(r *request, n int64, reqs *[]frontend.Request) {
	before := r.written
	r.written += n
	for p := before / block.MaxTransfer; p < int64(r.pieces()); p++ {
		if p*block.MaxTransfer+r.pieceLen(int(p)) > r.written {
			break
		}
		c.s.emit(c.current-1, int(p), reqs)
	}
	if r.written == r.size {
		c.current = 0
	}
}

// advance reads what is in the receive buffer as far as possible and then asks for more.
func (c *client) advance(reqs *[]frontend.Request, out *[]loop.Op) {
	c.hold(false)
	for !c.closing && c.step(reqs, out) {
	}
	if c.closing || c.held {
		return
	}
	if c.phase == draining {
		c.finishDraining(out)
		return
	}
	c.receive(out)
}

func (c *client) hold(held bool) {
	if c.held != held {
		c.held = held
		if held {
			c.s.held++
		} else {
			c.s.held--
		}
	}
}

// step consumes one unit of input; false means that it needs more bytes, or is held back.
func (c *client) step(reqs *[]frontend.Request, out *[]loop.Op) bool {
	in := c.bytes()
	switch {
	case c.phase == draining:
		return false
	case c.current != 0:
		return c.copyPayload(in, reqs)
	case c.skip > 0:
		return c.skipPayload(in, out)
	case c.phase == transmission:
		return c.command(in, reqs, out)
	case c.phase == negotiation:
		return c.option(in, out)
	default:
		return c.clientFlags(in, out)
	}
}

func (c *client) copyPayload(in []byte, reqs *[]frontend.Request) bool {
	if len(in) == 0 {
		return false
	}
	r := &c.s.requests[c.current-1]
	p := r.written / block.MaxTransfer
	at := r.written - p*block.MaxTransfer
	n := copy(c.s.cfg.Arena.Bytes(r.bufs[p])[at:r.pieceLen(int(p))], in)
	c.from += n
	c.took(r, int64(n), reqs)
	return true
}

// skipPayload drops the payload of a write that is refused, and then says so.
func (c *client) skipPayload(in []byte, out *[]loop.Op) bool {
	if len(in) == 0 {
		return false
	}
	n := min(int64(len(in)), c.skip)
	if n == c.skip && !c.room(replyHeader) {
		return false
	}
	c.from += int(n)
	c.skip -= n
	if c.skip == 0 {
		c.answer(c.skipped, c.skipErr, out)
	}
	return true
}

// room reports whether tx can take n more bytes; if not, the client is held back until a send is
// done.
func (c *client) room(n int) bool {
	if c.queued+n > txSize {
		c.hold(true)
		return false
	}
	return true
}

// receive asks for more input: the rest of the current write's payload in place, and whatever
// follows.
func (c *client) receive(out *[]loop.Op) {
	if c.receiving {
		return
	}
	if c.from == c.to {
		c.from, c.to = 0, 0
	} else if c.from > 0 {
		p := c.s.cfg.Arena.Bytes(c.rx)
		c.to = copy(p, p[c.from:c.to])
		c.from = 0
	}
	op := loop.Op{Kind: loop.Recv, Handle: c.conn, Tag: c.s.tag(tagRecv, c.index, 0)}
	whole := true
	if c.current != 0 {
		r := &c.s.requests[c.current-1]
		p := int(r.written / block.MaxTransfer)
		at := r.written % block.MaxTransfer
		for ; p < r.pieces(); p++ {
			if op.Segs == loop.MaxSegs-1 {
				whole = false
				break
			}
			op.Add(loop.Seg{Buf: r.bufs[p], Off: int32(at), Len: int32(r.pieceLen(p) - at)})
			at = 0
		}
	}
	if whole {
		op.Add(loop.Seg{Buf: c.rx, Off: int32(c.to), Len: int32(rxSize - c.to)})
	}
	c.receiving = true
	*out = append(*out, op)
}

// command reads one request header.
func (c *client) command(in []byte, reqs *[]frontend.Request, out *[]loop.Op) bool {
	if len(in) < requestHeader {
		return false
	}
	be := binary.BigEndian
	flags, typ := be.Uint16(in[4:]), be.Uint16(in[6:])
	cookie, off, size := be.Uint64(in[8:]), be.Uint64(in[16:]), int64(be.Uint32(in[24:]))
	if be.Uint32(in) != magicRequest || typ == cmdWrite && size > MaxRequest {
		c.disconnect(out) // no request header, or a payload over the limit
		return false
	}
	if typ == cmdDisc {
		c.from += requestHeader
		c.phase = draining
		return false
	}
	kind, bad := c.s.check(typ, flags, off, size)
	if bad != 0 {
		return c.refuse(typ, cookie, size, bad, out)
	}
	if c.inFlight >= c.s.cfg.MaxInFlight || c.s.first != nil && c.s.first != c {
		c.hold(true)
		return false
	}
	if kind == block.Flush {
		off, size = 0, 0
	}
	slot, ok := c.s.slot(kind, size)
	if !ok {
		c.s.first = c
		c.hold(true)
		return false
	}
	c.s.first = nil
	c.from += requestHeader
	c.inFlight++
	r := &c.s.requests[slot]
	r.client, r.cookie, r.off, r.left = c, cookie, int64(off), r.pieces()
	r.fua = flags&cmdFlagFUA != 0 && (kind == block.Write || kind == block.WriteZeroes)
	r.unmap = kind == block.WriteZeroes && flags&cmdFlagNoHole == 0
	if kind == block.Write {
		c.current = int(slot) + 1
		c.owing.begun++
		return true
	}
	for p := range r.left {
		c.s.emit(int(slot), p, reqs)
	}
	return true
}

// refuse answers a request with an error; the payload of a write has to be passed over first.
func (c *client) refuse(typ uint16, cookie uint64, size int64, errno uint32, out *[]loop.Op) bool {
	if typ == cmdWrite && size > 0 {
		c.from += requestHeader
		c.skip, c.skipped, c.skipErr = size, cookie, errno
		return true
	}
	if !c.room(replyHeader) {
		return false
	}
	c.from += requestHeader
	c.answer(cookie, errno, out)
	return true
}

// check judges a request by itself. The errors are those the protocol asks for.
func (s *Server) check(typ, flags uint16, off uint64, size int64) (block.Kind, uint32) {
	allowed := uint16(cmdFlagFUA)
	var kind block.Kind
	beyond := uint32(errnoInvalid)
	switch typ {
	case cmdRead:
		kind = block.Read
	case cmdWrite:
		kind, beyond = block.Write, errnoNoSpace
	case cmdFlush:
		if flags&^allowed != 0 {
			return 0, errnoInvalid
		}
		return block.Flush, 0
	case cmdTrim:
		// FUA means nothing here: a discarded range may read as before the discard, after a crash
		// as well.
		kind = block.Discard
	case cmdWriteZeroes:
		kind, beyond = block.WriteZeroes, errnoNoSpace
		allowed |= cmdFlagNoHole
	default:
		return 0, errnoInvalid
	}
	switch {
	case flags&^allowed != 0, size == 0, off%block.SectorSize != 0, size%block.SectorSize != 0:
		return 0, errnoInvalid
	case off > uint64(s.size), uint64(size) > uint64(s.size)-off:
		return 0, beyond
	case kind == block.Read && size > MaxRequest:
		return 0, errnoInvalid
	}
	return kind, 0
}

// emit hands piece p of a request to the engine.
func (s *Server) emit(slot, p int, reqs *[]frontend.Request) {
	r := &s.requests[slot]
	q := frontend.Request{ID: uint64(slot)<<8 | uint64(p), Kind: r.kind, FUA: r.fua, Unmap: r.unmap, Off: r.off,
		Len: r.size}
	if r.kind == block.Read || r.kind == block.Write {
		q.Off += int64(p) * block.MaxTransfer
		q.Len = r.pieceLen(p)
		q.Buf = r.bufs[p]
	}
	s.pending++
	*reqs = append(*reqs, q)
}

// disconnect closes the connection. What it holds is freed when the close is done, since the loop
// uses it until then.
func (c *client) disconnect(out *[]loop.Op) {
	if c.closing {
		return
	}
	c.hold(false)
	if c.s.first == c {
		c.s.first = nil
	}
	c.closing = true
	*out = append(*out, loop.Op{Kind: loop.Close, Handle: c.conn, Tag: c.s.tag(tagClose, c.index, 0)})
}

func (c *client) finishDraining(out *[]loop.Op) {
	if c.phase == draining && c.inFlight == 0 && !c.sendBusy {
		c.disconnect(out)
	}
}

// closed frees a connection; requests still with the engine are freed by their completion.
func (c *client) closed() {
	s := c.s
	c.gone = true
	s.clients[c.index] = nil
	s.cfg.Arena.Release(c.rx)
	s.cfg.Arena.Release(c.tx)
	for _, slot := range c.sending {
		s.free(slot)
	}
	for _, slot := range c.replies {
		s.free(slot)
	}
	c.sending, c.replies = nil, nil
	if c.current != 0 {
		slot := uint32(c.current - 1)
		r := &s.requests[slot]
		for p := int(r.written / block.MaxTransfer); p < r.pieces(); p++ {
			s.drop(r, p)
			r.left--
		}
		if r.left == 0 {
			s.free(slot)
		}
	}
}
