package sim

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
)

// What the kernel says of connections.
const (
	errnoReset   loop.Errno = 104
	errnoTimeout loop.Errno = 110
	errnoRefused loop.Errno = 111
)

// connectTimeout is how long a connection attempt into nothing lasts.
const connectTimeout = 7 * time.Second

// way is the network from one node to another.
type way struct {
	// blocked paths deliver nothing; what is sent waits, as TCP makes it wait.
	blocked int
	// slow is added to every chunk's way.
	slow time.Duration
	held []func()
}

// way returns the way from a to b; a node reaches itself whatever happens.
func (w *World) way(a, b *Node) *way {
	k := [2]int{a.index, b.index}
	p := w.ways[k]
	if p == nil {
		p = &way{}
		w.ways[k] = p
	}
	return p
}

// block cuts the way from a to b until the returned function is called.
func (w *World) block(a, b *Node) (heal func()) {
	if a == b {
		return func() {}
	}
	p := w.way(a, b)
	p.blocked++
	return func() {
		if p.blocked--; p.blocked > 0 {
			return
		}
		held := p.held
		p.held = nil
		for _, f := range held {
			f()
		}
	}
}

// reachable tells whether a's packets reach b.
func (w *World) reachable(a, b *Node) bool {
	return !a.off && !b.off && w.way(a, b).blocked == 0
}

// conn is one end of a connection. Bytes keep their order; each chunk takes its own time, never
// overtaking.
type conn struct {
	p       *Process
	h       loop.Handle
	peer    *conn
	at      string // the address it has come in at
	inbox   [][]byte
	head    int         // bytes of inbox[0] taken already
	arrival clock.Ticks // of the last chunk on its way to this end
	eof     bool
	broken  bool
	closed  bool
	// missed: something was sent here after the machine had lost power.
	missed bool
	recvOp *loop.Op
	sendOp *loop.Op
}

func sorted(m map[loop.Handle]*conn) []*conn {
	return slices.SortedFunc(maps.Values(m), func(a, b *conn) int { return cmp.Compare(a.h, b.h) })
}

func (p *Process) newConn() *conn {
	p.next++
	c := &conn{p: p, h: p.next}
	p.conns[c.h] = c
	return c
}

func (p *Process) connect(o loop.Op) {
	w := p.w
	addr := w.attacker.lead(o.Addr)
	finished := false
	fail := func(e loop.Errno) {
		if !finished {
			finished = true
			p.done(loop.Done{Kind: loop.Connect, Tag: o.Tag, New: loop.None, Errno: e})
		}
	}
	var try func()
	try = func() {
		if !p.alive || finished {
			return
		}
		server := w.listeners[addr]
		node := w.nodeAt(addr)
		switch {
		case node != nil && (!w.reachable(p.node, node) || !w.reachable(node, p.node)):
			w.After(200*time.Millisecond, try) // the next SYN
		case server == nil:
			fail(errnoRefused)
		default:
			finished = true
			a, b := p.newConn(), &conn{p: server, at: strings.TrimPrefix(addr, "tcp:")}
			a.peer, b.peer = b, a
			p.done(loop.Done{Kind: loop.Connect, Tag: o.Tag, New: a.h})
			server.pending = append(server.pending, b)
			server.matchAccepts()
		}
	}
	w.After(w.Between(10*time.Microsecond, 100*time.Microsecond), try)
	w.After(connectTimeout, func() { fail(errnoTimeout) })
}

// nodeAt returns the node an address "tcp:<node>:<port>" is on, nil for none.
func (w *World) nodeAt(addr string) *Node {
	for _, n := range w.nodes {
		if len(addr) > 5+len(n.Name) && addr[4:4+len(n.Name)] == n.Name && addr[4+len(n.Name)] == ':' {
			return n
		}
	}
	return nil
}

func (p *Process) matchAccepts() {
	for len(p.accepts) > 0 && len(p.pending) > 0 {
		o, c := p.accepts[0], p.pending[0]
		p.accepts, p.pending = p.accepts[1:], p.pending[1:]
		p.next++
		c.h = p.next
		p.conns[c.h] = c
		p.done(loop.Done{Kind: loop.Accept, Handle: o.Handle, Tag: o.Tag, New: c.h, Value: c.at})
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
		limit := len(c.inbox[0]) - c.head
		switch c.p.w.Rand.IntN(8) {
		case 0:
			limit = 1 + c.p.w.Rand.IntN(limit)
		case 1, 2, 3:
		default:
			limit = 1 << 30
		}
		for _, s := range o.Vec[:o.Segs] {
			d.N += c.take(c.p.arena.Seg(s), &limit)
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

// take moves up to limit arrived bytes to p.
func (c *conn) take(p []byte, limit *int) (n int) {
	for len(c.inbox) > 0 && n < len(p) && *limit > 0 {
		first := c.inbox[0]
		k := copy(p[n:min(len(p), n+*limit)], first[c.head:])
		n += k
		*limit -= k
		if c.head += k; c.head == len(first) {
			c.p.w.recycle(first)
			c.inbox = c.inbox[1:]
			c.head = 0
		}
	}
	return n
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
		// The bytes are taken now, not when the operation was submitted: a buffer that is changed
		// too early shows.
		n := 0
		for i := range o.Vec[:o.Segs] {
			n += int(o.Vec[i].Len)
		}
		chunk := w.chunk(n)
		for _, s := range o.Vec[:o.Segs] {
			chunk = append(chunk, c.p.arena.Seg(s)...)
		}
		d.N = n
		chunk = w.attacker.pass(c, chunk)
		if len(chunk) > 0 {
			c.transmit(func(peer *conn) { peer.inbox = append(peer.inbox, chunk) })
		}
		c.p.done(d)
	})
}

// transmit lets something happen at the peer after everything sent before.
func (c *conn) transmit(f func(peer *conn)) {
	w, peer := c.p.w, c.peer
	d := w.latency()
	if c.p.node != peer.p.node {
		road := w.way(c.p.node, peer.p.node)
		if road.blocked > 0 {
			road.held = append(road.held, func() { c.transmit(f) })
			return
		}
		d += road.slow
	}
	at := max(peer.arrival, w.now.Add(d))
	peer.arrival = at
	w.After(at.Sub(w.now), func() {
		switch {
		case peer.p.node.off:
			peer.missed = true
			return
		case !peer.p.alive && peer.p.node.forgot(peer):
			peer.reset() // the machine is back and knows nothing of this connection
			return
		}
		f(peer)
		if peer.p.alive && peer.h != 0 {
			peer.deliver()
		}
	})
}

// forgot takes an end that died with the node's power, and whose peer has not been told, off the
// list.
func (n *Node) forgot(c *conn) bool {
	i := slices.Index(n.ghosts, c)
	if i >= 0 {
		n.ghosts = slices.Delete(n.ghosts, i, i+1)
	}
	return i >= 0
}

// PowerOff ends every process of the node without a word to anybody and loses what its disk had not
// synced, at random.
func (n *Node) PowerOff(processes ...*Process) {
	n.off = true
	for _, p := range processes {
		p.vanish()
	}
	n.Disk.Crash()
}

// PowerOn lets the node work again. Who sends to what ran there before is told now.
func (n *Node) PowerOn() {
	n.off = false
	n.boot++
	ghosts := n.ghosts
	n.ghosts = nil
	for _, c := range ghosts {
		if c.missed {
			c.reset()
		} else {
			n.ghosts = append(n.ghosts, c)
		}
	}
}

// reset breaks the connection from this side: the process died.
func (c *conn) reset() {
	c.closed = true
	c.transmit(func(peer *conn) { peer.broken = true })
}

// cut breaks the connection for both ends, in the middle of the stream.
func (c *conn) cut() {
	for _, e := range []*conn{c, c.peer} {
		e.broken = true
		if e.h != 0 {
			e.deliver()
		}
	}
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
