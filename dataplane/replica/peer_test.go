package replica_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
	"ankole.storage/test/sim"
)

// The identity of the simulator's volume.
const volumeUUID = "6f2c9a56-93d3-4b7c-9a5e-2d1f0c6b7a88"

var secret = make([]byte, wire.SecretSize)

// patience is simulated time: what takes longer does not happen.
const patience = time.Minute

// rig is one replica in a simulated world.
type rig struct {
	t *testing.T
	w *sim.World
	v *sim.Volume
	r *sim.Replica
}

const volumeSize = 16 << 20

func newRig(t *testing.T) *rig { return newSeededRig(t, 1) }

func newSeededRig(t *testing.T, seed uint64) *rig {
	w := sim.NewWorld(seed)
	v := sim.NewVolume(w, 1, volumeSize)
	t.Cleanup(v.Close)
	return &rig{t, w, v, v.Replicas[0]}
}

func (g *rig) until(what string, cond func() bool) {
	g.t.Helper()
	if !g.w.Until(patience, cond) {
		g.t.Fatalf("%s: did not happen; the replica says:\n%s", what, g.v.History())
	}
}

// peer speaks the wire protocol by hand.
type peer struct {
	g     *rig
	proc  *sim.Process
	arena *loop.Arena
	conn  *wire.Conn
	// addr is where the connection was made to; initiate begins the handshake, nil: nothing is sent.
	addr      string
	initiate  func() []byte
	handshake *wire.Handshake
	// initiation is what it says first; greeting is what the replica has answered, with its code.
	initiation wire.InitiationMessage
	greeting   wire.GreetingMessage
	greeted    bool
	code       block.Code
	// heard counts bytes.
	heard int
	// key is what it proves to know; tamper changes its hello after the proof was made.
	key    []byte
	tamper func(b *wire.Proved)
	epoch  uint64
	nextID uint64
	open   map[uint64]*answer
	hello  *answer
	notice wire.NoticeMessage
	gone   bool
}

// answer is what came back for a request.
type answer struct {
	done    bool
	h       wire.Header
	payload []byte
}

const (
	tagConnect = 1 + iota
	tagRecv
	tagSend
)

// connect connects as an engine, which begins the handshake when the connection is there.
func (g *rig) connect() *peer {
	p := g.dial()
	p.initiate = func() (payload []byte) {
		p.handshake, payload = wire.Initiate(&p.initiation, p.key, wire.NewDigester(p.key))
		return payload
	}
	return p
}

// stranger connects and says nothing.
func (g *rig) stranger() *peer {
	g.t.Helper()
	p := g.dial()
	g.until("connection", func() bool { return p.conn != nil || p.gone })
	return p
}

func (g *rig) dial() *peer {
	host, port := "", 0
	i := strings.LastIndexByte(g.r.Addr(), ':')
	host = g.r.Addr()[:i]
	if _, err := fmt.Sscanf(g.r.Addr()[i+1:], "%d", &port); err != nil {
		g.t.Fatal(err)
	}
	p := &peer{g: g, arena: loop.NewArena(64 << 20), open: map[uint64]*answer{}, key: secret,
		addr: fmt.Sprintf("%s:%d", host, port+1)}
	p.initiation = wire.InitiationMessage{MinVersion: wire.MinVersion, Version: wire.Version,
		Nonce: []byte("0123456789abcdef"), Address: p.addr}
	p.arena.SetAside(loop.Connections, wire.ConnMemory)
	g.t.Cleanup(func() { _ = p.arena.Close() })
	p.proc = g.w.Spawn("peer", p.arena, nil)
	p.proc.Run(p)
	p.proc.Post(func(out *[]loop.Op) {
		*out = append(*out, loop.Op{Kind: loop.Connect, Addr: "tcp:" + p.addr, Tag: tagConnect})
	})
	return p
}

// Step implements loop.Core.
func (p *peer) Step(_ clock.Ticks, in []loop.Done, out *[]loop.Op) clock.Ticks {
	for i := range in {
		d := &in[i]
		switch {
		case d.Kind == loop.Posted:
			d.Value.(func(*[]loop.Op))(out)
		case d.Tag == tagConnect:
			if d.Errno != 0 {
				p.gone = true
				continue
			}
			var err error
			if p.conn, err = wire.NewConn(d.New, 0, p.arena, tagRecv, tagSend); err != nil {
				p.g.t.Fatal(err)
			}
			p.conn.Start(out)
			if p.initiate != nil {
				p.conn.SendMessage(&wire.Header{Type: wire.Initiation}, p.initiate())
			}
		case d.Tag == tagRecv:
			p.heard += d.N
			p.conn.Received(d, p, out)
		case d.Tag == tagSend:
			p.conn.Sent(d, out)
		}
	}
	if p.conn != nil {
		p.gone = p.gone || p.conn.Err() != nil
		p.conn.Flush(out)
	}
	return clock.Never
}

// PlacePayload implements wire.Handler.
func (p *peer) PlacePayload(*wire.Conn, *wire.Header) (loop.Seg, bool) {
	return loop.Seg{}, true
}

// Frame implements wire.Handler.
func (p *peer) Frame(_ *wire.Conn, h *wire.Header, _ loop.Seg, data []byte) {
	switch {
	case h.Type == wire.Greeting:
		if err := wire.Unmarshal(data, &p.greeting); err != nil {
			p.g.t.Error(err)
		}
		p.greeted, p.code = true, h.Code
		if p.handshake != nil {
			p.handshake.Greet(data)
		}
	case h.Type == wire.Hello:
		*p.hello = answer{true, *h, data}
	case h.Type == wire.Notice:
		p.notice = wire.NoticeMessage{}
		if err := wire.Unmarshal(data, &p.notice); err != nil {
			p.g.t.Error(err)
		}
	default:
		if a := p.open[h.ID]; a == nil || a.done {
			p.g.t.Errorf("answer %+v to nothing that was asked", *h)
		} else {
			*a = answer{true, *h, data}
		}
	}
}

// send queues a frame; it goes with the next step.
func (p *peer) send(h wire.Header, payload []byte) {
	p.proc.Post(func(*[]loop.Op) {
		if p.conn == nil || p.conn.Err() != nil {
			return
		}
		p.conn.SendMessage(&h, payload)
	})
}

// sendRaw sends bytes as they are, as far as the replica takes them.
func (p *peer) sendRaw(data []byte) {
	p.proc.Post(func(out *[]loop.Op) {
		if p.conn == nil || p.conn.Err() != nil || len(data) == 0 {
			return
		}
		b, _ := p.arena.Get(len(data))
		copy(p.arena.Bytes(b), data)
		op := loop.Op{Kind: loop.Send, Handle: p.conn.Handle, Tag: 99}
		op.Add(loop.Seg{Buf: b, Len: int32(len(data))})
		*out = append(*out, op)
	})
}

// request sends a request of the session and returns where its answer will be.
func (p *peer) request(h wire.Header, payload []byte) *answer {
	p.nextID++
	h.ID, h.Epoch = p.nextID, p.epoch
	a := &answer{}
	p.open[h.ID] = a
	p.send(h, payload)
	return a
}

// ask sends a request and waits for its answer.
func (p *peer) ask(h wire.Header, payload []byte) *answer {
	p.g.t.Helper()
	a := p.request(h, payload)
	p.g.until("answer to "+h.Type.String(), func() bool { return a.done || p.gone })
	if !a.done {
		p.g.t.Fatalf("connection ended instead of an answer to %s: %v", h.Type, p.conn.Err())
	}
	return a
}

// sayHello does the handshake as change wants it. ok is false when the replica hung up instead of
// answering.
func (p *peer) sayHello(epoch uint64, engine string, change func(*wire.HelloMessage)) (code block.Code,
	r wire.HelloReply, ok bool) {
	p.g.t.Helper()
	p.beginHello(epoch, engine, change)
	p.g.until("answer to hello", func() bool { return p.hello.done || p.gone })
	if !p.hello.done {
		return 0, r, false
	}
	if err := wire.Unmarshal(p.hello.payload, &r); err != nil {
		p.g.t.Fatal(err)
	}
	return p.hello.h.Code, r, true
}

// beginHello sends the hello as soon as the replica has said its greeting.
func (p *peer) beginHello(epoch uint64, engine string, change func(*wire.HelloMessage)) {
	p.g.t.Helper()
	p.g.until("greeting", func() bool { return p.greeted || p.gone })
	p.epoch, p.hello = epoch, &answer{}
	if p.gone {
		return
	}
	m := wire.HelloMessage{VolumeName: "sim", VolumeUUID: volumeUUID, Engine: engine, Epoch: epoch, Member: p.g.r.Name}
	if change != nil {
		change(&m)
	}
	h := wire.Header{Type: wire.Hello, Epoch: epoch}
	payload, keys := p.handshake.Hello(&m)
	if p.tamper != nil {
		var b wire.Proved
		if err := wire.Unmarshal(payload, &b); err != nil {
			p.g.t.Fatal(err)
		}
		p.tamper(&b)
		payload = wire.Marshal(b)
	}
	p.send(h, payload)
	p.proc.Post(func(*[]loop.Op) {
		if p.conn != nil && !p.conn.Secured() {
			p.conn.Secure(keys)
		}
	})
}

// engine connects and is answered.
func (g *rig) engine(epoch uint64, name string) *peer {
	g.t.Helper()
	p := g.connect()
	code, r, ok := p.sayHello(epoch, name, nil)
	if !ok || code != block.OK {
		g.t.Fatalf("epoch %d of %s: %s %s", epoch, name, code, r.Error)
	}
	return p
}

// control asks a control request.
func (p *peer) control(q wire.ControlRequest) (block.Code, wire.ControlReply) {
	p.g.t.Helper()
	a := p.ask(wire.Header{Type: wire.Control}, wire.Marshal(q))
	var r wire.ControlReply
	if err := wire.Unmarshal(a.payload, &r); err != nil {
		p.g.t.Fatal(err)
	}
	return a.h.Code, r
}

// alive checks that the replica still serves a new engine.
func (g *rig) alive(epoch uint64) {
	g.t.Helper()
	if !g.r.Alive() {
		g.t.Fatalf("the replica died:\n%s", g.v.History())
	}
	p := g.engine(epoch, "probe")
	if a := p.ask(wire.Header{Type: wire.Read, Len: 4096}, nil); a.h.Code != block.OK {
		g.t.Fatalf("read: %s", a.h.Code)
	}
}
