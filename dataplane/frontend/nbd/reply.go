package nbd

import (
	"encoding/binary"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
)

// Answers wait in two places: bytes in tx (negotiation, and answers to requests that never reached
// the engine), and requests in replies. A send takes tx first, then as many replies as its vector
// holds.

// put appends raw bytes to tx; the caller has made sure of the room.
func (c *client) put(b []byte) {
	copy(c.s.cfg.Arena.Bytes(c.tx)[c.queued:txSize], b)
	c.queued += len(b)
}

// answer queues a reply without data for a request that was refused.
func (c *client) answer(cookie uint64, errno uint32, out *[]loop.Op) {
	var h [replyHeader]byte
	putReply(h[:], errno, cookie)
	c.put(h[:])
	c.send(out)
}

func putReply(h []byte, errno uint32, cookie uint64) {
	binary.BigEndian.PutUint32(h, magicReply)
	binary.BigEndian.PutUint32(h[4:], errno)
	binary.BigEndian.PutUint64(h[8:], cookie)
}

// send gives what waits to a Send. One that was appended earlier in the same step is still in out
// and not submitted: it is extended, so that the answers of one step leave together.
func (c *client) send(out *[]loop.Op) {
	if c.closing || c.queued == c.posted && len(c.replies) == 0 {
		return
	}
	if !c.sendBusy {
		c.seq++
		c.sendTag = c.s.tag(tagSend, c.index, c.seq)
		c.sendAt = len(*out)
		c.sendBusy = true
		c.owing.begun++
		*out = append(*out, loop.Op{Kind: loop.Send, Handle: c.conn, Tag: c.sendTag})
	} else if c.sendAt >= len(*out) || (*out)[c.sendAt].Tag != c.sendTag {
		return // submitted already; what waits goes when it is done
	}
	c.fill(&(*out)[c.sendAt])
}

// fill puts into op what goes next: the rest of an answer that the send before could not hold, then
// what is in tx, then further answers.
func (c *client) fill(op *loop.Op) {
	if len(c.replies) > 0 && c.s.requests[c.replies[0]].sent > 0 {
		if !c.reply(op, c.replies[0]) {
			return
		}
		c.replies = append(c.replies[:0], c.replies[1:]...)
	}
	if !c.flushTx(op) {
		return
	}
	taken := 0
	for _, slot := range c.replies {
		if !c.reply(op, slot) {
			break
		}
		taken++
	}
	c.replies = append(c.replies[:0], c.replies[taken:]...)
}

// flushTx puts the bytes of tx that wait into op, in one segment with those before them where
// possible.
func (c *client) flushTx(op *loop.Op) bool {
	n := c.queued - c.posted
	if n == 0 {
		return true
	}
	if last := int(op.Segs) - 1; last >= 0 && op.Vec[last].Buf == c.tx {
		op.Vec[last].Len += int32(n)
	} else if op.Segs == maxPieces {
		return false
	} else {
		op.Add(loop.Seg{Buf: c.tx, Off: int32(c.posted), Len: int32(n)})
	}
	c.posted = c.queued
	return true
}

// reply puts the answer to a request into op; false means that (the rest of) it has to wait for the
// next send.
func (c *client) reply(op *loop.Op, slot uint32) bool {
	s := c.s
	r := &s.requests[slot]
	if r.kind != block.Read || r.code != block.OK {
		if c.queued+replyHeader > txSize {
			return false
		}
		var h [replyHeader]byte
		putReply(h[:], errno(r.code), r.cookie)
		c.put(h[:])
		if !c.flushTx(op) {
			c.queued -= replyHeader
			return false
		}
		s.free(slot)
		return true
	}
	for ; r.sent < r.pieces(); r.sent++ {
		if op.Segs == maxPieces {
			return false
		}
		seg := loop.Seg{Buf: r.bufs[r.sent], Len: int32(r.pieceLen(r.sent))}
		if r.sent == 0 {
			seg.Off, seg.Len = -replyHeader, seg.Len+replyHeader
			putReply(s.cfg.Arena.Seg(loop.Seg{Buf: seg.Buf, Off: -replyHeader, Len: replyHeader}), 0, r.cookie)
		}
		op.Add(seg)
	}
	c.sending = append(c.sending, slot)
	return true
}

// sendDone frees what was sent and sends what has come up meanwhile.
func (c *client) sendDone(d *loop.Done, out *[]loop.Op) {
	c.sendBusy = false
	if c.closing {
		return
	}
	if d.Errno != 0 {
		c.disconnect(out)
		return
	}
	for _, slot := range c.sending {
		c.s.free(slot)
	}
	c.sending = c.sending[:0]
	if c.posted == c.queued {
		c.posted, c.queued = 0, 0
	}
	c.send(out)
	c.finishDraining(out)
}
