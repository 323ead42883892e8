package replica_test

import (
	"bytes"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// strangerTime is how long a stranger may stay, and tick what the network may add.
const (
	strangerTime = 10 * time.Second
	tick         = time.Second
)

// frameOf is a frame with a checksum.
func frameOf(h wire.Header, payload []byte) []byte {
	h.Payload = uint32(len(payload))
	if len(payload) > 0 {
		h.Sum = wire.Sum(payload)
	}
	p := make([]byte, wire.HeaderSize, wire.HeaderSize+len(payload))
	h.Encode(p)
	return append(p, payload...)
}

// initiationOf is the beginning of a frame of an initiation without proof.
func initiationOf(payload, sent int) []byte {
	return frameOf(wire.Header{Type: wire.Initiation}, bytes.Repeat([]byte{' '}, payload))[:wire.HeaderSize+sent]
}

// Who has not proved that he knows the volume's secret, or has a grant of its engine, hears
// nothing, whatever he sends, and is disconnected: at once if that is no proof, else when his time
// is over. The engine that is there does not notice, and the next one is served.
func TestStrangersHearNothing(t *testing.T) {
	tagged := make([]byte, wire.HeaderSize)
	(&wire.Header{Type: wire.Read, Len: 4096}).EncodeTagged(tagged)
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(i * i >> 3)
	}
	for name, c := range map[string]struct {
		sends []byte
		waits bool
	}{
		"nothing":       {nil, true},
		"half a header": {initiationOf(100, 0)[:wire.HeaderSize/2], true},
		"a header":      {initiationOf(100, 0), true},
		"nearly all":    {initiationOf(4<<10, 4<<10-1), true},
		"http": {[]byte("GET / HTTP/1.1\r\nHost: replica\r\nUser-Agent: a long enough name to fill a header\r\n\r\n"),
			false},
		"zeroes":                   {make([]byte, 4096), false},
		"noise":                    {noise, false},
		"a read":                   {frameOf(wire.Header{Type: wire.Read, Len: 4096}, nil), false},
		"a write":                  {frameOf(wire.Header{Type: wire.Write, Len: 4096}, make([]byte, 4096)), false},
		"a tag":                    {tagged, false},
		"a hello":                  {frameOf(wire.Header{Type: wire.Hello, Epoch: 9}, []byte("{}")), false},
		"a greeting":               {frameOf(wire.Header{Type: wire.Greeting}, []byte("{}")), false},
		"an initiation, empty":     {initiationOf(0, 0), false},
		"an initiation of 4 KiB":   {initiationOf(4<<10, 4<<10), false},
		"an initiation of more":    {initiationOf(4<<10+1, 0), false},
		"an initiation of nothing": {frameOf(wire.Header{Type: wire.Initiation}, []byte("{}")), false},
		"a grant without proof": {frameOf(wire.Header{Type: wire.Initiation}, wire.Marshal(wire.Proved{
			Said: []byte(`{"reader":{}}`)})), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			e := g.engine(1, "e")
			s := g.stranger()
			s.sendRaw(c.sends)
			g.ends(s, c.waits)
			e.mustAsk(wire.Header{Type: wire.Read, Len: 4096}, nil)
			g.alive(2)
		})
	}
}

// ends checks that a stranger is disconnected, at once or when his time is over, and has heard
// nothing.
func (g *rig) ends(s *peer, waits bool) {
	g.t.Helper()
	began, least, most := g.w.Now(), time.Duration(0), tick
	if waits {
		least, most = strangerTime-tick, strangerTime+tick
	}
	g.until("the stranger is disconnected", func() bool { return s.gone })
	if took := time.Duration(g.w.Now() - began); took < least || took > most {
		g.t.Errorf("disconnected after %s", took)
	}
	if s.heard > 0 {
		g.t.Errorf("the replica has said %d bytes", s.heard)
	}
}

// A proof for something else is none.
func TestInitiationRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(g *rig, p *peer)
		tamper func(b *wire.Proved)
	}{
		"of another volume's secret": {func(_ *rig, p *peer) { p.key = bytes.Repeat([]byte{7}, wire.SecretSize) }, nil},
		"for another address":        {func(_ *rig, p *peer) { p.initiation.Address = "elsewhere:11" }, nil},
		"for another port":           {func(g *rig, p *peer) { p.initiation.Address = g.r.Addr() }, nil},
		"for no address":             {func(_ *rig, p *peer) { p.initiation.Address = "" }, nil},
		"with a short nonce":         {func(_ *rig, p *peer) { p.initiation.Nonce = p.initiation.Nonce[1:] }, nil},
		"of a grant, as an engine": {func(g *rig, p *peer) {
			grant := g.grant("a")
			p.key = grant.Key(secret, volumeUUID)
		}, nil},
		"of the secret, as a reader": {func(g *rig, p *peer) {
			grant := g.grant("a")
			p.initiation.Reader = &grant
		}, nil},
		"of another volume's grant": {func(g *rig, p *peer) {
			grant := g.grant("a")
			p.initiation.Reader, p.key = &grant, grant.Key(secret, "9d7a1c0e-5c1b-4a52-8d5e-0c8f4ec1a4b2")
		}, nil},
		"of a grant for another snapshot": {func(g *rig, p *peer) {
			grant, other := g.grant("a"), g.grant("b")
			p.initiation.Reader, p.key = &grant, other.Key(secret, volumeUUID)
		}, nil},
		"of a grant for a longer time": {func(g *rig, p *peer) {
			grant, longer := g.grant("a"), g.grant("a")
			longer.Expires++
			p.initiation.Reader, p.key = &longer, grant.Key(secret, volumeUUID)
		}, nil},
		"for another range": {nil, func(b *wire.Proved) {
			b.Said = bytes.Replace(b.Said, []byte(`"minVersion":6`), []byte(`"minVersion":5`), 1)
		}},
		"in another spelling": {nil, func(b *wire.Proved) { b.Said = append(b.Said, ' ') }},
		"cut off":             {nil, func(b *wire.Proved) { b.Proof = b.Proof[:31] }},
		"of nothing":          {nil, func(b *wire.Proved) { b.Proof = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			e := g.engine(1, "e")
			p := g.connect()
			if c.change != nil {
				c.change(g, p)
			}
			if begin := p.initiate; c.tamper != nil {
				p.initiate = func() []byte {
					var b wire.Proved
					must(t, wire.Unmarshal(begin(), &b))
					c.tamper(&b)
					return wire.Marshal(b)
				}
			}
			g.ends(p, false)
			e.mustAsk(wire.Header{Type: wire.Read, Len: 4096}, nil)
			g.alive(2)
		})
	}
}

// Somebody on the way has recorded what an engine has said, and says it again. He hears a greeting,
// with other random bytes, and nothing when he has said the hello too. Elsewhere he hears nothing.
func TestReplayedInitiation(t *testing.T) {
	g := newRig(t)
	e := g.connect()
	var initiation []byte
	begin := e.initiate
	e.initiate = func() []byte { initiation = begin(); return initiation }
	var hello []byte
	e.tamper = func(b *wire.Proved) { hello = wire.Marshal(b) }
	if code, _, ok := e.sayHello(1, "e", nil); !ok || code != block.OK {
		t.Fatal(ok, code)
	}
	again := g.stranger()
	again.sendRaw(frameOf(wire.Header{Type: wire.Initiation}, initiation))
	g.until("greeting", func() bool { return again.greeted })
	if bytes.Equal(again.greeting.Nonce, e.greeting.Nonce) || len(again.greeting.Nonce) != wire.NonceSize {
		t.Errorf("greeted with nonce %x, as the engine was with %x", again.greeting.Nonce, e.greeting.Nonce)
	}
	heard := again.heard
	again.sendRaw(frameOf(wire.Header{Type: wire.Hello, Epoch: 1}, hello))
	g.until("it is disconnected", func() bool { return again.gone })
	if again.heard != heard {
		t.Errorf("%d bytes were said to a replayed hello", again.heard-heard)
	}
	twice := g.stranger()
	twice.sendRaw(bytes.Repeat(frameOf(wire.Header{Type: wire.Initiation}, initiation), 2))
	silent := g.stranger()
	silent.sendRaw(frameOf(wire.Header{Type: wire.Initiation}, initiation))
	g.until("who says it twice is disconnected", func() bool { return twice.gone })
	g.until("who says nothing more is disconnected", func() bool { return silent.gone })
	if silent.heard != heard {
		t.Errorf("%d bytes were said, a greeting has %d", silent.heard, heard)
	}
	e.mustAsk(wire.Header{Type: wire.Read, Len: 4096}, nil)
}

// Who knows the secret is no stranger: a session that has asked and waits stays.
func TestWhoKnowsTheSecretStays(t *testing.T) {
	g := newRig(t)
	asked := g.connect()
	if code, _, ok := asked.sayHello(0, "next", prepared); !ok || code != block.OK {
		t.Fatal(ok, code)
	}
	e := g.engine(3, "e")
	later := false
	g.w.After(3*strangerTime, func() { later = true })
	g.until("a while has passed", func() bool { return later })
	if asked.gone || e.gone {
		t.Fatalf("disconnected: who has asked %v, the engine %v", asked.gone, e.gone)
	}
	e.mustAsk(wire.Header{Type: wire.Read, Len: 4096}, nil)
	if code, _, ok := asked.sayHello(4, "next", nil); !ok || code != block.OK {
		t.Errorf("%v %s", ok, code)
	}
}

// Strangers who hold connections open do not keep the engine out, whether they say nothing, a part
// of something, or what somebody has proved before them.
func TestStrangersDoNotKeepTheEngineOut(t *testing.T) {
	g := newRig(t)
	e := g.connect()
	var initiation []byte
	begin := e.initiate
	e.initiate = func() []byte { initiation = begin(); return initiation }
	if code, _, ok := e.sayHello(1, "e", nil); !ok || code != block.OK {
		t.Fatal(ok, code)
	}
	replay := frameOf(wire.Header{Type: wire.Initiation}, initiation)
	for name, sends := range map[string][]byte{"nothing": nil, "a part": initiationOf(4<<10, 4<<10-1),
		"a replay": replay} {
		var strangers []*peer
		for range 100 {
			s := g.stranger()
			s.sendRaw(sends)
			strangers = append(strangers, s)
		}
		g.w.Until(tick, func() bool { return false })
		there := 0
		for _, s := range strangers {
			if !s.gone {
				there++
			}
		}
		if there == 0 || there > 8 {
			t.Errorf("%s: %d strangers are connected", name, there)
		}
		e.mustAsk(wire.Header{Type: wire.Read, Len: 4096}, nil)
		next := g.connect()
		if code, _, ok := next.sayHello(0, "next", prepared); !ok || code != block.OK {
			t.Errorf("%s: %v %s", name, ok, code)
		}
	}
}
