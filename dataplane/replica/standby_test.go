package replica_test

import (
	"bytes"
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// second starts another process on the directory, and returns a rig whose connections go to it.
func (g *rig) second() *rig {
	g.t.Helper()
	r := g.r.Other()
	r.Start()
	g.t.Cleanup(r.Kill)
	if r.Broken != nil {
		g.t.Fatal(r.Broken)
	}
	return &rig{g.t, g.w, g.v, r}
}

func (p *peer) must(q wire.ControlRequest) {
	p.g.t.Helper()
	if code, r := p.control(q); code != block.OK {
		p.g.t.Fatalf("%+v: %s %s", q, code, r.Error)
	}
}

func prepared(m *wire.HelloMessage) { m.Prepared = true }

var release = wire.ControlRequest{Release: &wire.ReleaseRequest{}}

// founded is an engine with a session, whose replica has a record and a block of nines.
func (g *rig) founded() *peer {
	g.t.Helper()
	e := g.engine(1, "e1#1@im")
	e.must(wire.ControlRequest{SetRecord: &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 1,
		Members: []string{g.r.Name}}})
	e.write(9)
	return e
}

func (p *peer) write(b byte) {
	p.g.t.Helper()
	if a := p.ask(wire.Header{Type: wire.Write, Flags: wire.FUA, Len: 4096},
		bytes.Repeat([]byte{b}, 4096)); a.h.Code != block.OK {
		p.g.t.Fatalf("write: %s", a.h.Code)
	}
}

func (p *peer) reads(b byte) {
	p.g.t.Helper()
	if a := p.ask(wire.Header{Type: wire.Read, Len: 4096}, nil); !bytes.Equal(a.payload, bytes.Repeat([]byte{b}, 4096)) {
		p.g.t.Fatalf("read: %s, not the %ds written before", a.h.Code, b)
	}
}

// A standby tells what the directory says, gets it when it is released, and has it until its
// process ends, or it is released again.
func TestDirectoryPassesOver(t *testing.T) {
	old := newRig(t)
	e1 := old.founded()
	next := old.second()
	e2 := next.connect()
	code, r, ok := e2.sayHello(0, "e2#1@im", prepared)
	if !ok || code != block.OK || !r.Standby || r.Promised != 1 || r.PromisedTo != "e1#1@im" || r.Record == nil ||
		r.Record.Generation != 1 || r.Size != volumeSize {
		t.Fatalf("prepared: %v %s %+v", ok, code, r)
	}
	if code, r, _ := e2.sayHello(2, "e2#1@im", nil); code == block.OK || !strings.Contains(r.Error, "in use") {
		t.Fatalf("activated while the directory is in use: %s %+v", code, r)
	}
	e1.reads(9)
	e1.must(release)
	if code, r, _ := e2.sayHello(2, "e2#1@im", nil); code != block.OK || r.Promised != 2 {
		t.Fatalf("activation after the release: %s %+v", code, r)
	}
	e2.reads(9)
	e2.write(7)

	// The old engine, on the connection it has: also when the other one's session is over.
	inUse := func(epoch uint64) {
		t.Helper()
		if code, r, _ := e1.sayHello(epoch, "e1#1@im", nil); code == block.OK || !strings.Contains(r.Error, "in use") {
			t.Fatalf("taken back from another process: %s %+v", code, r)
		}
	}
	inUse(3)
	e2.hangUp()
	inUse(4)
	e3 := next.connect()
	e3.untilAnswered(5, "e3#1@im")
	e3.must(release)
	e1.untilAnswered(6, "e1#1@im")
	e1.reads(7)
}

// An engine with an older epoch does not keep the directory from the one with the newer epoch.
func TestStandbyThatIsOutbidGivesTheDirectoryBack(t *testing.T) {
	old := newRig(t)
	e1 := old.founded()
	next := old.second()
	e1.must(release)
	if code, r, _ := next.connect().sayHello(1, "late#1@im", nil); code != block.Fenced || r.Promised != 1 {
		t.Fatalf("an epoch that is promised to another engine: %s %+v", code, r)
	}
	e1.untilAnswered(2, "e1#1@im")
	e1.reads(9)
}

// Two hellos to a standby, the first of them refused while the second one's promise is on its way:
// the directory stays with the session that came of the second.
func TestDirectoryIsForTheLastHello(t *testing.T) {
	for seed := uint64(1); seed <= 60; seed++ {
		old := newSeededRig(t, seed)
		e1 := old.founded()
		next := old.second()
		first, second := next.connect(), next.connect()
		old.until("greetings", func() bool { return first.greeted && second.greeted })
		e1.must(release)
		first.beginHello(1, "late#1@im", nil)
		second.beginHello(3, "e2#1@im", nil)
		old.until("the second is let in", func() bool { return second.gone || second.hello.done })
		if second.gone || second.hello.h.Code != block.OK {
			t.Fatalf("seed %d: the second hello is answered %+v", seed, second.hello.h)
		}
		second.must(wire.ControlRequest{SetRecord: &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 3, Generation: 2,
			Members: []string{next.r.Name}}})
		second.reads(9)
		if code, r, _ := e1.sayHello(4, "e1#1@im", nil); code == block.OK || !strings.Contains(r.Error, "in use") {
			t.Fatalf("seed %d: taken back although it is in use: %s %+v", seed, code, r)
		}
	}
}

// A connection that was released ends when another one gets the directory: its engine's node may be
// gone, and say nothing any more.
func TestReleasedConnectionEndsWithTheNextSession(t *testing.T) {
	g := newRig(t)
	e := g.founded()
	e.must(release)
	g.engine(2, "e2").reads(9)
	g.until("the connection is closed", func() bool { return e.gone })
}

// A released connection is good for a hello and nothing else.
func TestReleasedSessionIsOver(t *testing.T) {
	g := newRig(t)
	e := g.founded()
	e.must(release)
	e.request(wire.Header{Type: wire.Read, Len: 4096}, nil)
	g.until("the connection is closed", func() bool { return e.gone })
	g.engine(2, "e2").reads(9)
}

// What was asked behind a release is not carried out on a directory that is gone.
func TestRequestsBehindARelease(t *testing.T) {
	g := newRig(t)
	e := g.founded()
	answers := []*answer{e.request(wire.Header{Type: wire.Control}, wire.Marshal(release))}
	for range 3 {
		answers = append(answers, e.request(wire.Header{Type: wire.Control},
			wire.Marshal(wire.ControlRequest{Describe: &wire.DescribeRequest{}})),
			e.request(wire.Header{Type: wire.Read, Len: 4096}, nil))
	}
	g.until("the release is answered, or who asks for more is hung up on", func() bool {
		return answers[0].done || e.gone
	})
	for _, a := range answers[1:] {
		if a.done {
			t.Errorf("%s was answered with %s", a.h.Type, a.h.Code)
		}
	}
	e = g.connect()
	e.untilAnswered(2, "e1#1@im")
	e.reads(9)
}

// untilAnswered repeats a hello until the directory is there.
func (p *peer) untilAnswered(epoch uint64, engine string) {
	p.g.t.Helper()
	p.g.until("hello of "+engine, func() bool {
		code, _, ok := p.sayHello(epoch, engine, nil)
		return ok && code == block.OK
	})
}

func (p *peer) hangUp() { p.proc.Kill() }
