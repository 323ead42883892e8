package nbd

import (
	"encoding/binary"

	"ankole.storage/dataplane/loop"
)

// greet opens the negotiation.
func (c *client) greet(out *[]loop.Op) {
	var b [18]byte
	binary.BigEndian.PutUint64(b[:], magicGreeting)
	binary.BigEndian.PutUint64(b[8:], magicOption)
	binary.BigEndian.PutUint16(b[16:], flagFixedNewstyle|flagNoZeroes)
	c.put(b[:])
	c.send(out)
	c.receive(out)
}

func (c *client) clientFlags(in []byte, out *[]loop.Op) bool {
	if len(in) < 4 {
		return false
	}
	flags := binary.BigEndian.Uint32(in)
	if flags&^(flagFixedNewstyle|flagNoZeroes) != 0 {
		c.disconnect(out)
		return false
	}
	c.from += 4
	c.noZeroes = flags&flagNoZeroes != 0
	c.phase = negotiation
	return true
}

// optionRoom is enough tx for the answers to any one option.
const optionRoom = 1024

// option reads and answers one option.
func (c *client) option(in []byte, out *[]loop.Op) bool {
	if len(in) < optionHeader {
		return false
	}
	be := binary.BigEndian
	opt, size := be.Uint32(in[8:]), be.Uint32(in[12:])
	if be.Uint64(in) != magicOption || size > maxOptionData || c.options >= maxOptions {
		c.disconnect(out)
		return false
	}
	if len(in) < optionHeader+int(size) || !c.room(optionRoom) {
		return false
	}
	c.options++
	c.from += optionHeader + int(size)
	data := in[optionHeader : optionHeader+int(size)]
	switch opt {
	case optExportName:
		return c.exportName(string(data), out)
	case optAbort:
		c.optReply(opt, repAck, nil)
		c.phase = draining
	case optList:
		c.list(data)
	case optInfo, optGo:
		c.info(opt, data)
	default:
		c.optReply(opt, repErrUnsup, nil)
	}
	c.send(out)
	return true
}

func (c *client) optReply(opt, typ uint32, data []byte) {
	var h [20]byte
	be := binary.BigEndian
	be.PutUint64(h[:], magicOptReply)
	be.PutUint32(h[8:], opt)
	be.PutUint32(h[12:], typ)
	be.PutUint32(h[16:], uint32(len(data)))
	c.put(h[:])
	c.put(data)
}

func (c *client) knows(name string) bool { return name == "" || name == c.s.cfg.Export }

// exportName is the old way into transmission; it has no way to refuse but to hang up.
func (c *client) exportName(name string, out *[]loop.Op) bool {
	if !c.knows(name) {
		c.disconnect(out)
		return false
	}
	b := make([]byte, 10, 134)
	binary.BigEndian.PutUint64(b, uint64(c.s.size))
	binary.BigEndian.PutUint16(b[8:], transFlags)
	if !c.noZeroes {
		b = b[:134]
	}
	c.put(b)
	c.phase = transmission
	c.send(out)
	return true
}

func (c *client) list(data []byte) {
	if len(data) != 0 {
		c.optReply(optList, repErrInvalid, nil)
		return
	}
	name := c.s.cfg.Export
	b := binary.BigEndian.AppendUint32(nil, uint32(len(name)))
	c.optReply(optList, repServer, append(b, name...))
	c.optReply(optList, repAck, nil)
}

// info answers INFO and GO: the export's size and flags, and the block sizes whether asked for or
// not, since requests that ignore the smallest one are refused.
func (c *client) info(opt uint32, data []byte) {
	be := binary.BigEndian
	if len(data) < 6 {
		c.optReply(opt, repErrInvalid, nil)
		return
	}
	n := uint64(be.Uint32(data))
	if n > uint64(len(data)-6) || uint64(len(data)) != 6+n+2*uint64(be.Uint16(data[4+n:])) {
		c.optReply(opt, repErrInvalid, nil)
		return
	}
	if !c.knows(string(data[4 : 4+n])) {
		c.optReply(opt, repErrUnknown, nil)
		return
	}
	b := be.AppendUint16(nil, infoExport)
	b = be.AppendUint64(b, uint64(c.s.size))
	c.optReply(opt, repInfo, be.AppendUint16(b, transFlags))
	b = be.AppendUint16(nil, infoBlockSize)
	b = be.AppendUint32(b, minBlock)
	b = be.AppendUint32(b, preferredBlock)
	c.optReply(opt, repInfo, be.AppendUint32(b, MaxRequest))
	c.optReply(opt, repAck, nil)
	if opt == optGo {
		c.phase = transmission
	}
}
