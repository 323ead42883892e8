package nbd

import (
	"encoding/binary"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// script plays the loop, the clients and the engine around a Server, one event at a time.
type script struct {
	tb     testing.TB
	s      *Server
	arena  *loop.Arena
	out    []loop.Op
	done   []loop.Done
	reqs   []frontend.Request
	accept *loop.Op
	peers  map[loop.Handle]*peer
	next   loop.Handle
	auto   bool // complete requests as they come
	sends  int
	gone   bool // the listener is closed
	inbox  map[uint64][]byte
}

// peer is the far end of a connection.
type peer struct {
	h      loop.Handle
	in     []byte // to be received by the server
	eof    bool
	chunk  int // at most so many bytes per receive; 0 is no limit
	got    []byte
	recv   *loop.Op
	closed bool
	// lazy peers take only room bytes of what is sent; the send waits for more.
	lazy bool
	room int
	send *loop.Op
	sent int
}

const (
	testSize     = 64 << 20
	testListener = 1000
)

func newScript(tb testing.TB, tell func(c *Config)) *script {
	tb.Helper()
	k := &script{tb: tb, arena: loop.NewArena(48 << 20), peers: map[loop.Handle]*peer{}, auto: true}
	cfg := Config{Owner: 3, Arena: k.arena, Listener: testListener, Export: "vol", Size: testSize}
	if tell != nil {
		tell(&cfg)
	}
	var err error
	if k.s, err = New(cfg); err != nil {
		tb.Fatal(err)
	}
	k.s.Start(&k.out)
	k.run()
	return k
}

// connect lets a client in. It has sent nothing yet.
func (k *script) connect() *peer {
	k.next++
	p := &peer{h: k.next}
	k.peers[p.h] = p
	if k.accept == nil {
		k.tb.Fatal("the server does not accept")
	}
	k.done = append(k.done, loop.Done{Kind: loop.Accept, Handle: testListener, New: p.h, Tag: k.accept.Tag})
	k.accept = nil
	k.run()
	return p
}

// say gives the server bytes of a client.
func (k *script) say(p *peer, b ...[]byte) {
	for _, x := range b {
		p.in = append(p.in, x...)
	}
	k.run()
}

func (k *script) hangUp(p *peer) { p.eof = true; k.run() }

// run plays until nothing moves any more.
func (k *script) run() {
	for {
		k.perform()
		for _, p := range k.peers {
			k.deliver(p)
		}
		if len(k.done) == 0 {
			return
		}
		batch := k.done
		k.done = nil
		for i := range batch {
			k.s.Handle(0, &batch[i], &k.reqs, &k.out)
		}
		k.engine()
	}
}

// perform does the operations the server has asked for.
func (k *script) perform() {
	for i := range k.out {
		op := k.out[i]
		switch op.Kind {
		case loop.Accept:
			k.accept = &op
		case loop.Recv:
			p := k.peers[op.Handle]
			if p.recv != nil || p.closed {
				k.tb.Fatal("a second receive, or one on a closed connection")
			}
			p.recv = &op
		case loop.Send:
			k.send(&op)
		case loop.Close:
			k.close(&op)
		}
	}
	k.out = k.out[:0]
}

func (k *script) send(op *loop.Op) {
	k.sends++
	p := k.peers[op.Handle]
	if p.lazy {
		if p.send != nil || p.closed {
			k.tb.Fatal("a second send, or one on a closed connection")
		}
		own := *op
		p.send, p.sent = &own, 0
		k.trickle(p)
		return
	}
	n := 0
	for _, s := range op.Vec[:op.Segs] {
		p.got = append(p.got, k.arena.Seg(s)...)
		n += int(s.Len)
	}
	if n == 0 {
		k.tb.Fatal("a send of nothing")
	}
	k.done = append(k.done, loop.Done{Kind: loop.Send, Handle: op.Handle, N: n, Tag: op.Tag})
}

// trickle sends to a lazy peer as much as it takes.
func (k *script) trickle(p *peer) {
	if p.send == nil {
		return
	}
	op, at := p.send, 0
	for _, s := range op.Vec[:op.Segs] {
		b := k.arena.Seg(s)
		if skip := max(0, p.sent-at); skip < len(b) {
			n := min(p.room, len(b)-skip)
			p.got = append(p.got, b[skip:skip+n]...)
			p.sent += n
			p.room -= n
		}
		at += len(b)
	}
	if p.sent == at {
		p.send = nil
		k.done = append(k.done, loop.Done{Kind: loop.Send, Handle: p.h, N: at, Tag: op.Tag})
	}
}

func (k *script) cancel(p *peer) {
	if p.recv != nil {
		k.done = append(k.done, loop.Done{Kind: loop.Recv, Handle: p.h, Errno: loop.Canceled, Tag: p.recv.Tag})
		p.recv = nil
	}
	if p.send != nil {
		k.done = append(k.done, loop.Done{Kind: loop.Send, Handle: p.h, Errno: loop.Canceled, N: p.sent, Tag: p.send.Tag})
		p.send = nil
	}
}

func (k *script) close(op *loop.Op) {
	if op.Handle == testListener {
		k.gone, k.accept = true, nil
	} else {
		p := k.peers[op.Handle]
		if p.closed {
			k.tb.Fatal("closed twice")
		}
		p.closed = true
		k.cancel(p)
	}
	k.done = append(k.done, loop.Done{Kind: loop.Close, Handle: op.Handle, Tag: op.Tag})
}

func (k *script) deliver(p *peer) {
	if p.recv == nil || len(p.in) == 0 && !p.eof {
		return
	}
	op := p.recv
	p.recv = nil
	limit := len(p.in)
	if p.chunk > 0 {
		limit = min(limit, p.chunk)
	}
	n, room := 0, 0
	for _, s := range op.Vec[:op.Segs] {
		room += int(s.Len)
		c := copy(k.arena.Seg(s), p.in[n:limit])
		n += c
	}
	if room == 0 {
		k.tb.Fatal("a receive without room")
	}
	p.in = p.in[n:]
	k.done = append(k.done, loop.Done{Kind: loop.Recv, Handle: p.h, N: n, Tag: op.Tag})
}

// engine completes what has come, if told to: reads return a pattern of their position.
func (k *script) engine() {
	for i := range k.reqs {
		r := &k.reqs[i]
		if r.Kind != block.Flush && (r.Len <= 0 || r.Off < 0 || r.Off+r.Len > k.s.size || r.Off%512 != 0 || r.Len%512 != 0) {
			k.tb.Fatalf("the engine was given %+v", *r)
		}
		if r.Kind == block.Write && k.inbox != nil {
			k.inbox[uint64(r.Off)] = append([]byte(nil), k.arena.Bytes(r.Buf)[:r.Len]...)
		}
	}
	if !k.auto {
		return
	}
	reqs := k.reqs
	k.reqs = nil
	for i := range reqs {
		k.complete(&reqs[i], block.OK)
	}
}

func (k *script) complete(r *frontend.Request, code block.Code) {
	if r.Kind == block.Read {
		for i := range k.arena.Bytes(r.Buf)[:r.Len] {
			k.arena.Bytes(r.Buf)[i] = patternAt(r.Off + int64(i))
		}
	}
	k.s.Complete(r.ID, code, &k.out)
}

func patternAt(off int64) byte { return byte(off) ^ byte(off>>8) ^ byte(off>>16) }

// stop ends the server and checks for leaks.
func (k *script) stop() {
	k.tb.Helper()
	k.s.Stop(&k.out)
	k.run()
	k.auto = true
	k.engine()
	k.run()
	if !k.s.Stopped() || !k.gone {
		k.tb.Fatal("the server has not stopped")
	}
	if n := k.arena.InUse(); n != 0 {
		k.tb.Fatalf("%d buffers are in use after the stop", n)
	}
	k.arena.Close()
}

// Encoders of what clients say.

func hello() []byte { return binary.BigEndian.AppendUint32(nil, flagFixedNewstyle|flagNoZeroes) }

func optionBytes(opt uint32, data []byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, magicOption)
	b = binary.BigEndian.AppendUint32(b, opt)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

func infoData(name string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(name)))
	return append(append(b, name...), 0, 0)
}

func intoTransmission() []byte { return append(hello(), optionBytes(optGo, infoData("vol"))...) }

func requestBytes(flags, typ uint16, cookie, off uint64, size uint32, payload []byte) []byte {
	be := binary.BigEndian
	b := be.AppendUint32(nil, magicRequest)
	b = be.AppendUint16(b, flags)
	b = be.AppendUint16(b, typ)
	b = be.AppendUint64(b, cookie)
	b = be.AppendUint64(b, off)
	b = be.AppendUint32(b, size)
	return append(b, payload...)
}

// answer is a decoded simple reply.
type answer struct {
	cookie uint64
	errno  uint32
	data   []byte
}

// answers decodes what a peer got; sizes says how much data follows a successful reply to a cookie.
func (k *script) answers(p *peer, sizes map[uint64]int) []answer {
	k.tb.Helper()
	var list []answer
	b := p.got
	for len(b) > 0 {
		if len(b) < replyHeader || binary.BigEndian.Uint32(b) != magicReply {
			k.tb.Fatalf("not a reply: % x", b[:min(len(b), 32)])
		}
		a := answer{cookie: binary.BigEndian.Uint64(b[8:]), errno: binary.BigEndian.Uint32(b[4:])}
		b = b[replyHeader:]
		if a.errno == 0 {
			n := sizes[a.cookie]
			if len(b) < n {
				k.tb.Fatalf("reply to %d has %d bytes of %d", a.cookie, len(b), n)
			}
			a.data, b = b[:n], b[n:]
		}
		list = append(list, a)
	}
	p.got = nil
	return list
}
