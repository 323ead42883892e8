package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"ankole.storage/clock"
	"ankole.storage/dataplane/loop"
)

// errnoReset and errnoRefused are what the kernel says.
const (
	errnoReset   loop.Errno = 104
	errnoRefused loop.Errno = 111
)

// conn is one end of a connection. Bytes keep their order; each chunk takes its own time, never overtaking.
type conn struct {
	p       *Process
	h       loop.Handle
	peer    *conn
	inbox   []byte
	arrival clock.Ticks // of the last chunk on its way to this end
	eof     bool
	broken  bool
	closed  bool
	recvOp  *loop.Op
	sendOp  *loop.Op
}

func sorted(m map[loop.Handle]*conn) []*conn {
	out := slices.Collect(maps.Values(m))
	slices.SortFunc(out, func(a, b *conn) int { return cmp.Compare(a.h, b.h) })
	return out
}

func (p *Process) newConn() *conn {
	p.next++
	c := &conn{p: p, h: p.next}
	p.conns[c.h] = c
	return c
}

func (p *Process) connect(o loop.Op) {
	w := p.w
	w.After(w.Between(10*time.Microsecond, 100*time.Microsecond), func() {
		if !p.alive {
			return
		}
		server := w.listeners[o.Addr]
		if server == nil {
			p.done(loop.Done{Kind: loop.Connect, Tag: o.Tag, New: loop.None, Errno: errnoRefused})
			return
		}
		a, b := p.newConn(), &conn{p: server}
		a.peer, b.peer = b, a
		p.done(loop.Done{Kind: loop.Connect, Tag: o.Tag, New: a.h})
		server.pending = append(server.pending, b)
		server.matchAccepts()
	})
}

func (p *Process) matchAccepts() {
	for len(p.accepts) > 0 && len(p.pending) > 0 {
		o, c := p.accepts[0], p.pending[0]
		p.accepts, p.pending = p.accepts[1:], p.pending[1:]
		p.next++
		c.h = p.next
		p.conns[c.h] = c
		p.done(loop.Done{Kind: loop.Accept, Handle: o.Handle, Tag: o.Tag, New: c.h})
	}
}

// latency is what one chunk takes.
func (w *World) latency() time.Duration { return w.Between(5*time.Microsecond, 80*time.Microsecond) }

func (c *conn) recv(o loop.Op) {
	c.recvOp = &o
	c.deliver()
}

// deliver completes an outstanding receive if there is something to tell.
func (c *conn) deliver() {
	if c.recvOp == nil || !c.p.alive || c.closed {
		return
	}
	o := *c.recvOp
	d := loop.Done{Kind: loop.Recv, Handle: c.h, Tag: o.Tag}
	switch {
	case len(c.inbox) > 0:
		// Any part of what has arrived may be handed over at once.
		limit := len(c.inbox)
		if c.p.w.Rand.IntN(4) == 0 {
			limit = 1 + c.p.w.Rand.IntN(limit)
		}
		for _, s := range o.Vec[:o.Segs] {
			k := copy(c.p.arena.Seg(s), c.inbox[:min(limit, len(c.inbox))])
			c.inbox = c.inbox[k:]
			limit -= k
			d.N += k
			if limit == 0 {
				break
			}
		}
	case c.broken:
		d.Errno = errnoReset
	case c.eof:
	default:
		return
	}
	c.recvOp = nil
	c.p.done(d)
}

func (c *conn) send(o loop.Op) {
	c.sendOp = &o
	w := c.p.w
	w.After(w.Between(time.Microsecond, 20*time.Microsecond), func() {
		if c.sendOp == nil || c.closed || !c.p.alive {
			return
		}
		c.sendOp = nil
		d := loop.Done{Kind: loop.Send, Handle: c.h, Tag: o.Tag}
		if c.broken || c.eof {
			d.Errno = errnoReset
			c.p.done(d)
			return
		}
		// The bytes are taken now, not when the operation was submitted: a buffer that is changed too early shows.
		var chunk []byte
		for _, s := range o.Vec[:o.Segs] {
			chunk = append(chunk, c.p.arena.Seg(s)...)
		}
		d.N = len(chunk)
		c.transmit(func(peer *conn) { peer.inbox = append(peer.inbox, chunk...) })
		c.p.done(d)
	})
}

// transmit lets something happen at the peer after everything sent before.
func (c *conn) transmit(f func(peer *conn)) {
	w, peer := c.p.w, c.peer
	at := max(peer.arrival, w.now.Add(w.latency()))
	peer.arrival = at
	w.After(at.Sub(w.now), func() {
		f(peer)
		if peer.p.alive && peer.h != 0 {
			peer.deliver()
		}
	})
}

// reset breaks the connection from this side: the process died.
func (c *conn) reset() {
	c.closed = true
	c.transmit(func(peer *conn) { peer.broken = true })
}

func (p *Process) closeHandle(o loop.Op) {
	c := p.conns[o.Handle]
	if c == nil {
		p.done(loop.Done{Kind: loop.Close, Handle: o.Handle, Tag: o.Tag})
		return
	}
	c.closed = true
	delete(p.conns, o.Handle)
	if c.recvOp != nil {
		p.done(loop.Done{Kind: loop.Recv, Handle: o.Handle, Tag: c.recvOp.Tag, Errno: loop.Canceled})
		c.recvOp = nil
	}
	if c.sendOp != nil {
		p.done(loop.Done{Kind: loop.Send, Handle: o.Handle, Tag: c.sendOp.Tag, Errno: loop.Canceled})
		c.sendOp = nil
	}
	c.transmit(func(peer *conn) { peer.eof = true })
	p.done(loop.Done{Kind: loop.Close, Handle: o.Handle, Tag: o.Tag})
}
