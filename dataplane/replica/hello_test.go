package replica_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// A hello that is not proved ends the connection, one that is meant for another replica is refused
// with the reason; neither disturbs anybody.
func TestHandshakeRefused(t *testing.T) {
	said := func(change func(m *wire.HelloMessage)) func(*wire.Proved) {
		return func(b *wire.Proved) {
			var m wire.HelloMessage
			must(t, wire.Unmarshal(b.Said, &m))
			change(&m)
			b.Said = wire.Marshal(m)
		}
	}
	for name, c := range map[string]struct {
		change func(*wire.HelloMessage)
		tamper func(*wire.Proved)
		says   string // nothing: it is not answered
	}{
		"no proof":                  {nil, func(b *wire.Proved) { b.Proof = nil }, ""},
		"a changed proof":           {nil, func(b *wire.Proved) { b.Proof[0] ^= 1 }, ""},
		"another epoch than proved": {nil, said(func(m *wire.HelloMessage) { m.Epoch++ }), ""},
		"prepared":                  {nil, said(func(m *wire.HelloMessage) { m.Prepared = true }), ""},
		"another engine":            {nil, said(func(m *wire.HelloMessage) { m.Engine = "me" }), ""},
		"another manager":           {nil, said(func(m *wire.HelloMessage) { m.InstanceManager = "me" }), ""},
		"another spelling":          {nil, func(b *wire.Proved) { b.Said = append(b.Said, ' ') }, ""},
		"for another replica":       {func(m *wire.HelloMessage) { m.Member = "b" }, nil, `for replica "b"`},
		"wrong volume": {func(m *wire.HelloMessage) {
			m.VolumeUUID = "00000000-93d3-4b7c-9a5e-2d1f0c6b7a88"
		}, nil, "replica of volume"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			// The engine that is there must not notice.
			e := g.engine(1, "e1")
			p := g.connect()
			p.tamper = c.tamper
			g.until("greeting", func() bool { return p.greeted })
			before := p.heard
			code, r, ok := p.sayHello(5, "intruder", c.change)
			if ok != (c.says != "") || ok && (code != block.Refused || !strings.Contains(r.Error, c.says) || r.Record != nil) {
				t.Errorf("%v %s: %+v", ok, code, r)
			}
			if !ok && (!p.gone || p.heard != before) {
				t.Errorf("disconnected %v, %d bytes were said", p.gone, p.heard-before)
			}
			if a := e.ask(wire.Header{Type: wire.Read, Len: 4096}, nil); a.h.Code != block.OK || e.gone {
				t.Errorf("the engine was disturbed: %s", a.h.Code)
			}
			g.alive(2) // nothing was promised to epoch 5
		})
	}
}

// Who knows the secret and speaks no version of this replica's is told to upgrade, and
// disconnected. Of those that both speak the highest is picked.
func TestVersionsAreNegotiated(t *testing.T) {
	for name, c := range map[string]struct {
		oldest, newest int
		ok             bool
	}{
		"the same":            {wire.MinVersion, wire.Version, true},
		"newer ones too":      {wire.Version, wire.Version + 4, true},
		"older ones too":      {1, wire.Version, true},
		"older and newer too": {1, wire.Version + 1, true},
		"newer ones alone":    {wire.Version + 1, wire.Version + 4, false},
		"older ones alone":    {1, wire.MinVersion - 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			p := g.connect()
			p.initiation.MinVersion, p.initiation.Version = c.oldest, c.newest
			g.until("greeting", func() bool { return p.greeted })
			if c.ok {
				if code, _, ok := p.sayHello(1, "e", nil); p.greeting.Version != wire.Version || !ok || code != block.OK {
					t.Errorf("version %d, %v, %s", p.greeting.Version, ok, code)
				}
				return
			}
			early := g.stranger()
			early.sendRaw(append(frameOf(wire.Header{Type: wire.Initiation}, p.initiate()),
				frameOf(wire.Header{Type: wire.Write, Len: 4096}, make([]byte, 4096))...))
			g.until("who does not wait for the refusal is disconnected", func() bool { return early.gone })
			says := fmt.Sprintf("peer speaks versions %d to %d, this binary %d to %d: upgrade the older one", c.oldest, c.newest,
				wire.MinVersion, wire.Version)
			if p.code != block.Invalid || !strings.Contains(p.greeting.Error, says) || p.greeting.Nonce != nil {
				t.Errorf("%s, %+v", p.code, p.greeting)
			}
			if !g.w.Until(time.Second, func() bool { return p.gone }) {
				t.Error("the connection does not end")
			}
		})
	}
}
