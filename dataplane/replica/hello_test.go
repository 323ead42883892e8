package replica_test

import (
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// A hello that is not proved, or is meant for another replica, is refused with the reason, and
// disturbs nobody.
func TestHandshakeRefused(t *testing.T) {
	old := func(m *wire.HelloMessage) { m.Version = wire.BoundVersion - 1 }
	said := func(change func(m *wire.HelloMessage)) func(*wire.BoundHello) {
		return func(b *wire.BoundHello) {
			var m wire.HelloMessage
			must(t, wire.Unmarshal(b.Said, &m))
			change(&m)
			b.Said = wire.Marshal(m)
		}
	}
	for name, c := range map[string]struct {
		change func(*wire.HelloMessage)
		tamper func(*wire.BoundHello)
		key    []byte
		code   block.Code
		says   string
	}{
		"wrong secret":              {nil, nil, []byte("x"), block.Refused, "secret"},
		"wrong secret, version 4":   {old, nil, []byte("x"), block.Refused, "secret"},
		"no proof":                  {nil, func(b *wire.BoundHello) { b.Proof = nil }, nil, block.Refused, "secret"},
		"a changed proof":           {nil, func(b *wire.BoundHello) { b.Proof[0] ^= 1 }, nil, block.Refused, "secret"},
		"another epoch than proved": {nil, said(func(m *wire.HelloMessage) { m.Epoch++ }), nil, block.Refused, "secret"},
		"prepared": {nil, said(func(m *wire.HelloMessage) { m.Prepared = true }), nil, block.Refused,
			"secret"},
		"another engine": {nil, said(func(m *wire.HelloMessage) { m.Engine = "me" }), nil, block.Refused,
			"secret"},
		"another manager": {nil, said(func(m *wire.HelloMessage) { m.InstanceManager = "me" }), nil, block.Refused,
			"secret"},
		"another address":  {nil, said(func(m *wire.HelloMessage) { m.Address = "x:1" }), nil, block.Refused, "secret"},
		"another spelling": {nil, func(b *wire.BoundHello) { b.Said = append(b.Said, ' ') }, nil, block.Refused, "secret"},
		"for another address": {func(m *wire.HelloMessage) { m.Address = "elsewhere:11" }, nil, nil, block.Refused,
			`for a replica at "elsewhere:11"`},
		"for no address":      {func(m *wire.HelloMessage) { m.Address = "" }, nil, nil, block.Refused, `for a replica at ""`},
		"for another replica": {func(m *wire.HelloMessage) { m.Member = "b" }, nil, nil, block.Refused, `for replica "b"`},
		"wrong volume": {func(m *wire.HelloMessage) {
			m.VolumeUUID = "00000000-93d3-4b7c-9a5e-2d1f0c6b7a88"
		}, nil, nil, block.Refused, "replica of volume"},
		"too new": {func(m *wire.HelloMessage) { m.Version = wire.Version + 1 }, nil, nil, block.Invalid, "version"},
		"an old version in the new form": {nil, said(func(m *wire.HelloMessage) { m.Version = wire.BoundVersion - 1 }), nil,
			block.Invalid, "form of another version"},
		"short nonce": {func(m *wire.HelloMessage) { m.Nonce = m.Nonce[:3] }, nil, nil, block.Invalid, "nonce"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			// The engine that is there must not notice.
			e := g.engine(1, "e1")
			p := g.connect()
			if p.tamper = c.tamper; c.key != nil {
				p.key = c.key
			}
			code, r, ok := p.sayHello(5, "intruder", c.change)
			if !ok || code != c.code || !strings.Contains(r.Error, c.says) || r.Proof != nil || r.Record != nil {
				t.Errorf("%v %s: %+v", ok, code, r)
			}
			if a := e.ask(wire.Header{Type: wire.Read, Len: 4096}, nil); a.h.Code != block.OK || e.gone {
				t.Errorf("the engine was disturbed: %s", a.h.Code)
			}
		})
	}
}

// A hello of the present version has to be bound to the peer, and one that is not is nothing on a
// connection whose frames have tags, whatever version it says.
func TestHelloInTheFormOfAnotherVersion(t *testing.T) {
	g := newRig(t)
	p := g.connect()
	if code, _, ok := p.sayHello(0, "e", func(m *wire.HelloMessage) { m.Prepared = true }); !ok || code != block.OK {
		t.Fatalf("%v %s", ok, code)
	}
	plain := g.connect()
	g.until("greeting", func() bool { return plain.theirs != nil })
	for _, c := range []struct {
		p       *peer
		version int
	}{{plain, wire.Version}, {p, wire.Version}, {p, wire.BoundVersion - 1}} {
		c.p.hello = &answer{}
		c.p.send(wire.Header{Type: wire.Hello, Epoch: 1}, wire.Marshal(wire.HelloMessage{Version: c.version,
			VolumeUUID: volumeUUID, Epoch: 1, Engine: "e", Nonce: c.p.nonce,
			Proof: wire.EngineProof(secret, volumeUUID, 1, c.p.theirs, c.p.nonce)}))
		g.until("answer", func() bool { return c.p.hello.done || c.p.gone })
		if h := c.p.hello.h; !c.p.hello.done || h.Code != block.Invalid {
			t.Errorf("version %d: answered %v, %s", c.version, c.p.hello.done, h.Code)
		}
	}
	g.alive(2)
}

// TestEarlierEngineIsServed: with checksums, as before.
func TestEarlierEngineIsServed(t *testing.T) {
	g := newRig(t)
	for version := wire.MinVersion; version < wire.BoundVersion; version++ {
		p := g.connect()
		code, r, ok := p.sayHello(uint64(version), "e", func(m *wire.HelloMessage) { m.Version = version })
		if !ok || code != block.OK || p.conn.Secured() || !p.known(&r) {
			t.Fatalf("version %d: %v %s %+v", version, ok, code, r)
		}
		p.mustAsk(wire.Header{Type: wire.Write, Len: block.Size}, filled(byte(version), block.Size))
	}
}
