package replica_test

import (
	"net"
	"sync"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// client speaks to a replica over TCP; any number of goroutines may ask at once. What its
// connection wants done is done with blocking calls.
type client struct {
	t    *testing.T
	conn net.Conn
	mu   sync.Mutex // guards what follows, and writing
	wire *wire.Conn
	// arena has the connection's buffers, recv is where it receives.
	arena *loop.Arena
	recv  []loop.Op
	next  uint64
	open  map[uint64]chan answer
	// handshake is how far that has come; welcomed gets whether the replica lets it in.
	handshake *wire.Handshake
	welcomed  chan bool
}

// flush writes what is queued.
func (c *client) flush() error {
	var out []loop.Op
	for c.wire.Flush(&out); len(out) > 0; {
		op := out[0]
		out = out[:0]
		d := loop.Done{Kind: loop.Send}
		for _, s := range op.Vec[:op.Segs] {
			if _, err := c.conn.Write(c.arena.Seg(s)); err != nil {
				return err
			}
		}
		c.wire.Sent(&d, &out)
	}
	return nil
}

// PlacePayload implements wire.Handler.
func (c *client) PlacePayload(*wire.Conn, *wire.Header) (loop.Seg, bool) { return loop.Seg{}, true }

// Frame implements wire.Handler.
func (c *client) Frame(_ *wire.Conn, h *wire.Header, _ loop.Seg, payload []byte) {
	switch h.Type {
	case wire.Greeting:
		c.handshake.Greet(payload)
		p, keys := c.handshake.Hello(&wire.HelloMessage{VolumeName: "v", VolumeUUID: volumeUUID, Engine: "e", Epoch: 1,
			Member: "r"})
		c.wire.SendMessage(&wire.Header{Type: wire.Hello, Epoch: 1}, p)
		c.wire.Secure(keys)
	case wire.Hello:
		c.welcomed <- h.Code == block.OK
	default:
		c.open[h.ID] <- answer{true, *h, payload}
		delete(c.open, h.ID)
	}
}

// serve hands answers to those who wait for them until the connection is closed.
func (c *client) serve() {
	p := make([]byte, wire.ConnMemory)
	for {
		n, err := c.conn.Read(p)
		c.mu.Lock()
		for in := p[:n]; len(in) > 0 && len(c.recv) > 0; {
			op, d := c.recv[0], loop.Done{Kind: loop.Recv}
			c.recv = c.recv[:0]
			for _, s := range op.Vec[:op.Segs] {
				k := copy(c.arena.Seg(s), in)
				in, d.N = in[k:], d.N+k
			}
			c.wire.Received(&d, c, &c.recv)
		}
		if err == nil && c.wire.Err() == nil {
			err = c.flush()
		}
		if err != nil || c.wire.Err() != nil {
			for _, ch := range c.open {
				close(ch)
			}
			c.open = nil
			c.mu.Unlock()
			c.welcomed <- false
			return
		}
		c.mu.Unlock()
	}
}

func (c *client) ask(h wire.Header, payload []byte) answer {
	ch := make(chan answer, 1)
	c.mu.Lock()
	c.next++
	h.ID, h.Epoch = c.next, 1
	if c.open != nil {
		c.open[h.ID] = ch
	} else {
		close(ch)
	}
	c.wire.SendMessage(&h, payload)
	err := c.flush()
	c.mu.Unlock()
	a, ok := <-ch
	if err != nil || !ok {
		c.t.Errorf("no answer to %s: %v", h.Type, err)
	}
	return a
}

func (c *client) control(q wire.ControlRequest) (block.Code, wire.ControlReply) {
	a := c.ask(wire.Header{Type: wire.Control}, wire.Marshal(q))
	var r wire.ControlReply
	if a.done {
		if err := wire.Unmarshal(a.payload, &r); err != nil {
			c.t.Error(err)
		}
	}
	return a.h.Code, r
}

// begin does the handshake.
func begin(t *testing.T, conn net.Conn, addr string) *client {
	c := &client{t: t, conn: conn, open: map[uint64]chan answer{}, arena: loop.NewArena(1 << 20),
		welcomed: make(chan bool, 2)}
	c.arena.SetAside(loop.Connections, wire.ConnMemory)
	t.Cleanup(func() { must(t, c.arena.Close()) })
	var err error
	c.wire, err = wire.NewConn(1, 0, c.arena, 0, 0)
	must(t, err)
	c.wire.Start(&c.recv)
	var p []byte
	c.handshake, p = wire.Initiate(&wire.InitiationMessage{MinVersion: wire.MinVersion, Version: wire.Version,
		Nonce: make([]byte, wire.NonceSize), Address: addr}, secret, wire.NewDigester(secret))
	c.wire.SendMessage(&wire.Header{Type: wire.Initiation}, p)
	must(t, c.flush())
	go c.serve()
	if !<-c.welcomed {
		t.Fatal("the replica does not let its engine in")
	}
	return c
}
