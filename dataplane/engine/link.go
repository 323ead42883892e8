package engine

import (
	"fmt"
	"strings"

	"ankole.storage/block"
	"ankole.storage/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/dataplane/wire"
)

// Mode of a replica in this engine.
type Mode uint8

// Modes.
const (
	// Unknown: not yet decided; the replica is being contacted.
	Unknown Mode = iota
	WO
	RW
	ERR
)

// String is the mode as clients know it.
func (m Mode) String() string { return [...]string{"", "WO", "RW", "ERR"}[m] }

// phases of a link's connection.
type linkPhase uint8

const (
	linkIdle linkPhase = iota
	linkConnecting
	linkGreeting // connected, waiting for the greeting
	linkHello    // hello sent
	linkProbed   // told what it has promised; nothing is promised to us
	linkReady
	linkClosing // close submitted, waiting until nothing is outstanding
	linkClosed
)

// operations of a link, in the low byte of its tags.
const (
	tagConnect = iota
	tagRecv
	tagSend
	tagClose
)

// link is the engine's side of one replica.
type link struct {
	e     *Engine
	index int
	addr  string
	phase linkPhase
	mode  Mode
	// run counts connection attempts; completions of earlier ones are recognised by it.
	run     uint64
	member  string
	err     string
	conn    *wire.Conn
	handle  loop.Handle
	nonce   []byte
	theirs  []byte
	version int
	hello   wire.HelloReply
	load    int         // requests in flight
	heard   clock.Ticks // last time anything was received, or the first request after idleness was sent
	// confirmedAt is when the last request was sent that it has answered in this session; pinging: one was sent for that alone.
	confirmedAt clock.Ticks
	pinging     bool
	helloAt     clock.Ticks
	probing     bool // ask what it has promised, no more
	removed     bool // forget it once closed
	again       bool // connect again once closed
	joining     *rebuildJob
	rebuild     *Rebuild // progress of the last rebuild
	purge       *Purge   // progress of the last purge
	heals       int      // ranges that its disk could not read and that were written again
}

func (e *Engine) newLink(addr string) *link {
	index := -1
	for i, l := range e.links {
		if l == nil {
			index = i
		}
	}
	l := &link{e: e, addr: addr, handle: loop.None}
	if index < 0 {
		index = len(e.links)
		e.links = append(e.links, nil)
	}
	l.index = index
	e.links[index] = l
	return l
}

func (l *link) bit() uint32 { return 1 << l.index }

func (l *link) tag(what uint64) uint64 {
	return loop.Tag(ownerLink, l.run<<16|uint64(l.index)<<8|what)
}

// connect opens the data connection: the port after the replica's first.
func (l *link) connect() {
	if l.phase != linkIdle && l.phase != linkClosed {
		// Contacted again with a higher epoch: the old connection ends first.
		l.again = true
		l.close()
		return
	}
	l.run++
	l.confirmedAt, l.pinging = 0, false
	l.phase = linkConnecting
	l.heard = l.e.now
	l.e.op(loop.Op{Kind: loop.Connect, Addr: "tcp:" + dataAddress(l.addr), Tag: l.tag(tagConnect)})
}

// dataAddress is the address of the data port: control port + 1, fixed by the layout of a replica's ports.
func dataAddress(addr string) string {
	i := strings.LastIndexByte(addr, ':')
	var port int
	if _, err := fmt.Sscanf(addr[i+1:], "%d", &port); err != nil || i < 0 {
		return addr
	}
	return fmt.Sprintf("%s:%d", addr[:i], port+1)
}

func (e *Engine) linkDone(d *loop.Done) {
	v := loop.ValueOf(d.Tag)
	index := int(v >> 8 & 0xff)
	if index >= len(e.links) || e.links[index] == nil {
		return
	}
	l := e.links[index]
	if v>>16 != l.run&(1<<40-1) {
		return
	}
	switch v & 0xff {
	case tagConnect:
		l.connected(d)
	case tagRecv:
		if d.Errno == 0 && d.N > 0 {
			l.heard = e.now
		}
		l.conn.Received(d, l, e.out)
	case tagSend:
		l.conn.Sent(d, e.out)
	case tagClose:
		l.phase = linkClosed
	}
	if l.conn != nil && l.conn.Err() != nil {
		l.fail(l.conn.Err().Error())
	}
	l.settle()
}

func (l *link) connected(d *loop.Done) {
	switch {
	case d.Errno != 0:
		l.phase = linkClosed
		l.fail(fmt.Sprintf("cannot connect to %s (errno %d): is the replica process running?", dataAddress(l.addr), d.Errno))
		return
	case l.phase == linkClosing: // given up while connecting
		l.handle = d.New
		l.e.op(loop.Op{Kind: loop.Close, Handle: d.New, Tag: l.tag(tagClose)})
		return
	}
	l.handle = d.New
	l.phase = linkGreeting
	l.conn = wire.NewConn(d.New, l.index, l.e.arena, l.tag(tagRecv), l.tag(tagSend))
	l.conn.Start(l.e.out)
}

// fail drops the replica: mode ERR, connection closed, membership told. Requests it still has are settled when the
// connection is down.
func (l *link) fail(reason string) {
	if l.e.stopped || l.e.fatal != "" {
		// Hanging up is not a failure of the replica: the set of members stays as it is.
		l.close()
		return
	}
	if l.again || (l.mode == ERR && (l.phase == linkClosing || l.phase == linkClosed)) {
		return // it is being closed already, perhaps to be contacted again
	}
	phase := l.e.quorum.Phase()
	gathering := l.mode == Unknown && (phase == quorum.Gathering || ((phase == quorum.Probing || phase == quorum.Preparing) && l.phase != linkProbed))
	member := l.member
	if l.mode != ERR {
		l.err = reason
		l.mode = ERR
		l.e.event("replica-dropped", l.addr, reason)
	}
	l.close()
	if j := l.joining; j != nil {
		l.joining = nil
		j.abort(reason)
	}
	if gathering {
		l.e.quorum.Silent()
	} else if member != "" {
		l.e.quorum.Failed(member)
	}
	l.e.sourceLost(l)
	if l.e.count(RW) == 0 {
		l.e.settled() // nothing will be agreed any more: whoever waits for it finds nobody
	}
	if l.e.serving && l.e.count(RW) == 0 && l.e.lostSince == clock.Never {
		l.e.lostSince = l.e.now
		l.e.event("no-replica-left", "", fmt.Sprintf("requests wait up to %s", l.e.cfg.NoReplicaTimeout))
	}
}

func (l *link) close() {
	switch l.phase {
	case linkIdle:
		l.phase = linkClosed
	case linkConnecting:
		l.phase = linkClosing
	case linkGreeting, linkHello, linkProbed, linkReady:
		l.phase = linkClosing
		if l.conn.Err() == nil {
			l.conn.Fail(wire.ErrClosed)
		}
		l.e.op(loop.Op{Kind: loop.Close, Handle: l.handle, Tag: l.tag(tagClose)})
	}
	l.e.changed = true
}

// settle finishes a link whose connection is down: only now can no late completion touch a request's buffer.
func (l *link) settle() {
	if l.phase != linkClosed || (l.conn != nil && !l.conn.Idle()) {
		return
	}
	if l.conn != nil {
		l.conn.Free()
		l.conn = nil
	}
	l.e.settleLink(l)
	l.load = 0
	if l.again {
		l.again = false
		l.mode = Unknown
		l.connect()
		return
	}
	if l.removed {
		l.e.forget(l)
	}
}

func (e *Engine) forget(l *link) {
	if e.byName[l.member] == l {
		delete(e.byName, l.member)
	}
	e.links[l.index] = nil
	// Slots in the middle keep their place, since indices are in tags.
	for n := len(e.links); n > 0 && e.links[n-1] == nil; n-- {
		e.links = e.links[:n-1]
	}
	e.changed = true
}

// deadline is when the link must have made progress.
func (l *link) deadline() clock.Ticks {
	if l == nil {
		return clock.Never
	}
	switch l.phase {
	case linkConnecting, linkGreeting, linkHello:
	case linkReady:
		if l.load == 0 {
			return clock.Never
		}
	default:
		return clock.Never
	}
	return l.heard.Add(l.e.replicaTimeout())
}

func (l *link) flush() {
	if l != nil && l.conn != nil {
		l.conn.Flush(l.e.out)
	}
}

// PlacePayload implements wire.Handler.
func (l *link) PlacePayload(_ *wire.Conn, h *wire.Header) (loop.Seg, bool) {
	if l.phase == linkReady {
		if t := l.e.taskOf(h.ID, l); t != nil && h.IsResponse() && h.Type == t.kind && t.reads() && h.Code == block.OK {
			return l.e.place(l.conn, h, t.seg)
		}
	}
	return l.e.place(l.conn, h, loop.Seg{})
}

// place says where a payload goes: to its place, which it has to fill, or into a buffer of its own where it has none.
func (e *Engine) place(conn *wire.Conn, h *wire.Header, into loop.Seg) (loop.Seg, bool) {
	switch {
	case into.Len == 0:
		b, ok := e.arena.GetReserved(int(h.Payload))
		return loop.Seg{Buf: b, Len: int32(h.Payload)}, ok
	case int64(h.Payload) != int64(into.Len):
		conn.Fail(fmt.Errorf("%w: read answer of %d bytes for %d", wire.ErrFrame, h.Payload, into.Len))
		return loop.Seg{}, false
	}
	e.arena.Retain(into.Buf)
	return into, true
}

// Frame implements wire.Handler.
func (l *link) Frame(_ *wire.Conn, h *wire.Header, payload loop.Seg) {
	var p []byte
	if payload.Len > 0 {
		p = l.e.arena.Seg(payload)
		defer l.e.arena.Release(payload.Buf)
	}
	var err error
	switch {
	case l.phase == linkGreeting && h.Type == wire.Greeting:
		err = l.greeted(p)
	case l.phase == linkHello && h.Type == wire.Hello && h.IsResponse():
		err = l.welcomed(h, p)
	case l.phase == linkReady && h.IsResponse():
		l.e.answered(l, h, p)
	default:
		err = fmt.Errorf("%w: unexpected %s", wire.ErrFrame, h.Type)
	}
	if err != nil {
		l.conn.Fail(err)
	}
}

func (l *link) greeted(p []byte) error {
	var g wire.GreetingMessage
	if err := wire.Unmarshal(p, &g); err != nil {
		return err
	}
	v, err := wire.Pick(g.MinVersion, g.Version)
	if err != nil {
		return err
	}
	if len(g.Nonce) != wire.NonceSize || g.Member == "" {
		return fmt.Errorf("%w: greeting of member %q with a nonce of %d bytes", wire.ErrFrame, g.Member, len(g.Nonce))
	}
	if o := l.e.otherLink(g.Member, l); o != nil && l.joining == nil {
		return fmt.Errorf("replica %s is served at %s already", g.Member, o.addr)
	} else if o == nil {
		l.e.byName[g.Member] = l
	}
	l.member = g.Member
	l.theirs, l.version = g.Nonce, v
	l.sayHello()
	return nil
}

// sayHello asks for the promise of this engine's epoch, or only for what the replica has promised.
func (l *link) sayHello() {
	c, epoch := &l.e.cfg, l.e.quorum.Epoch()
	l.nonce = c.Nonce()
	m := wire.HelloMessage{Version: l.version, VolumeName: c.VolumeName, VolumeUUID: c.VolumeUUID, Engine: l.e.identity,
		InstanceManager: c.InstanceManager, Epoch: epoch, Prepared: l.probing, Nonce: l.nonce,
		Proof: wire.EngineProof(c.Secret, c.VolumeUUID, epoch, l.theirs, l.nonce)}
	if l.version >= wire.BuildVersion {
		m.Build = c.Build
	}
	if err := l.e.sendMessage(l.conn, &wire.Header{Type: wire.Hello, Epoch: epoch}, wire.Marshal(m)); err != nil {
		l.conn.Fail(err)
	}
	l.phase, l.helloAt, l.heard = linkHello, l.e.now, l.e.now
}

// told handles the answer to a hello that promises nothing.
func (l *link) told(r *wire.HelloReply) {
	l.phase = linkProbed
	_, im, _ := cutLast(r.PromisedTo, "@")
	l.e.quorum.Told(quorum.Probed{Answer: l.answer(r), Promised: r.Promised, InstanceManager: im})
}

// cutLast cuts s at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func (l *link) answer(r *wire.HelloReply) quorum.Answer {
	a := quorum.Answer{Member: l.member, Blank: r.Blank, Empty: r.Empty, Rebuilding: r.Rebuilding}
	if r.Record != nil && r.Record.VolumeUUID == l.e.cfg.VolumeUUID {
		a.Record = recordFrom(r.Record)
	}
	return a
}

// otherLink returns the link other than l that a member is reached by, nil if there is none.
func (e *Engine) otherLink(member string, l *link) *link {
	if o := e.byName[member]; o != nil && o != l && o.phase != linkClosed && o.mode != ERR {
		return o
	}
	return nil
}

// sendMessage queues a frame with a small payload.
func (e *Engine) sendMessage(conn *wire.Conn, h *wire.Header, p []byte) error {
	b, ok := e.arena.GetReserved(len(p))
	if !ok {
		return fmt.Errorf("no buffer for %s", h.Type)
	}
	seg := loop.Seg{Buf: b, Len: int32(len(p))}
	copy(e.arena.Seg(seg), p)
	wire.Prepare(e.arena, h, seg)
	conn.SendPayload(h, seg, wire.EncodeInHeadroom(e.arena, h, seg))
	return nil
}

// welcomed handles the replica's answer to hello: it has promised the epoch and told its record.
func (l *link) welcomed(h *wire.Header, p []byte) error {
	var r wire.HelloReply
	if err := wire.Unmarshal(p, &r); err != nil {
		return err
	}
	c := &l.e.cfg
	if h.Code == block.Fenced && l.e.quorum.Phase() != quorum.Serving {
		l.e.quorum.Outbid(r.Promised)
		return fmt.Errorf("replica has promised epoch %d", r.Promised)
	}
	if h.Code != block.OK {
		return fmt.Errorf("refused: %s: %s", h.Code, r.Error)
	}
	if !wire.SameProof(r.Proof, wire.ReplicaProof(c.Secret, c.VolumeUUID, l.e.quorum.Epoch(), l.theirs, l.nonce)) {
		return fmt.Errorf("replica does not know the volume's secret")
	}
	if o := l.e.otherLink(l.member, l); o != nil {
		// Only one process can have the directory: the other one is gone, and nothing was sent to it since that would have told.
		o.fail(fmt.Sprintf("its directory is served at %s now", l.addr))
		return fmt.Errorf("replica %s was served at %s until now: try again", l.member, o.addr)
	}
	if l.probing {
		l.told(&r)
		return nil
	}
	l.e.byName[l.member] = l
	l.hello = r
	l.phase = linkReady
	l.confirmed(l.helloAt)
	l.e.changed = true
	if l.joining != nil {
		l.keep()
		l.joining.ready()
		return nil
	}
	l.e.lastPromise = l.e.now
	l.e.quorum.Answered(l.answer(&r))
	return nil
}

// count returns how many links have mode m.
func (e *Engine) count(m Mode) int {
	n := 0
	for _, l := range e.links {
		if l != nil && l.mode == m {
			n++
		}
	}
	return n
}

// mask returns the links of mode m that take requests.
func (e *Engine) mask(m Mode) uint32 {
	var mask uint32
	for _, l := range e.links {
		if l != nil && l.mode == m && l.phase == linkReady {
			mask |= l.bit()
		}
	}
	return mask
}
