package replica_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

func (g *rig) grant(snapshot string) wire.Grant {
	return wire.Grant{Snapshot: snapshot, For: "9d7a1c0e-5c1b-4a52-8d5e-0c8f4ec1a4b2", Expires: g.w.Unix() + 60}
}

// readerHello connects and asks to read, as change wants it.
func (g *rig) readerHello(grant wire.Grant, change func(*wire.HelloMessage)) (*peer, block.Code, wire.HelloReply,
	bool) {
	g.t.Helper()
	p := g.connect()
	p.key, p.initiation.Reader = grant.Key(secret, volumeUUID), &grant
	code, r, ok := p.sayHello(0, "", change)
	return p, code, r, ok
}

func (g *rig) reader(snapshot string) *peer {
	g.t.Helper()
	grant := g.grant(snapshot)
	p, code, r, ok := g.readerHello(grant, nil)
	if !ok || code != block.OK || r.Size != volumeSize {
		g.t.Fatalf("%v %s: %+v", ok, code, r)
	}
	return p
}

// A reader sees the snapshot it was granted, beside the engine, which does not notice; whatever
// else it asks is refused.
func TestReader(t *testing.T) {
	g, e := snapshotted(t)
	p := g.reader("a")
	at := wire.Header{Type: wire.Read, Flags: wire.AtView, Len: 3 * block.Size}
	want := append(filled(2, 2*block.Size), filled(1, block.Size)...)
	if got := p.mustAsk(at, nil); !bytes.Equal(got, want) {
		t.Fatalf("the reader reads %x", got[0])
	}
	if r := p.mustControl(wire.ControlRequest{ViewExtents: &wire.ViewExtents{}}); !slices.Equal(r.Extents.Ranges,
		[][2]int64{{0, 3 * block.Size}}) || r.Extents.Next != -1 {
		t.Fatalf("%+v", r.Extents)
	}
	if r := p.mustControl(wire.ControlRequest{ViewExtents: &wire.ViewExtents{Off: 3 * block.Size}}); len(
		r.Extents.Ranges) != 0 {
		t.Fatalf("%+v", r.Extents)
	}
	p.mustControl(wire.ControlRequest{Ping: &wire.PingRequest{}})
	for typ := wire.Read; typ <= wire.LayerPunch; typ++ {
		if typ == wire.Control {
			continue
		}
		if a := p.ask(wire.Header{Type: typ, Len: block.Size, Flags: wire.FUA}, nil); a.h.Code != block.Refused {
			t.Errorf("%s: %s", typ, a.h.Code)
		}
	}
	if a := p.ask(wire.Header{Type: wire.Write, Len: block.Size, Flags: wire.AtView},
		filled(9, block.Size)); a.h.Code != block.Refused {
		t.Errorf("a repair: %s", a.h.Code)
	}
	for name, q := range map[string]wire.ControlRequest{
		"snapshot":     {Snapshot: &wire.SnapshotRequest{Name: "x"}},
		"another view": {OpenView: &wire.OpenView{Snapshot: "a"}},
		"close view":   {CloseView: &wire.CloseView{}},
		"mark":         {ImportMark: &wire.ImportMark{What: "x"}},
		"purge":        {Purge: &wire.PurgeRequest{Begin: true}},
		"describe":     {Describe: &wire.DescribeRequest{}},
		"check":        {Check: true, Expand: &wire.ExpandRequest{Size: 1 << 30}},
	} {
		if code, _ := p.control(q); code != block.Refused {
			t.Errorf("%s: %s", name, code)
		}
	}
	e.mustAsk(wire.Header{Type: wire.Write, Len: block.Size}, filled(5, block.Size))
	if got := p.mustAsk(at, nil); !bytes.Equal(got, want) {
		t.Fatal("a write to the head reached the snapshot")
	}
	if code, _ := e.control(wire.ControlRequest{ViewExtents: &wire.ViewExtents{}}); code != block.Invalid {
		t.Errorf("an engine lists a reader's ranges: %s", code)
	}
}

// A reader lists what was changed since an older snapshot, discarded blocks among it.
func TestReaderListsChanges(t *testing.T) {
	g, e := snapshotted(t)
	e.mustAsk(wire.Header{Type: wire.Write, Off: 5 * block.Size, Len: block.Size}, filled(4, block.Size))
	e.mustAsk(wire.Header{Type: wire.Discard, Off: 2 * block.Size, Len: block.Size}, nil)
	e.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "b"}})
	p := g.reader("b")
	r := p.mustControl(wire.ControlRequest{ViewExtents: &wire.ViewExtents{Since: "a"}})
	want := [][2]int64{{0, block.Size}, {2 * block.Size, 3 * block.Size}, {5 * block.Size, 6 * block.Size}}
	if !slices.Equal(r.Extents.Ranges, want) || r.Extents.Next != -1 {
		t.Errorf("%+v, want %v", r.Extents, want)
	}
	if code, _ := p.control(wire.ControlRequest{ViewExtents: &wire.ViewExtents{Since: "z"}}); code != block.NotFound {
		t.Errorf("changes since a snapshot that is not there: %s", code)
	}
}

// A reader is let in by its grant and by nothing else, and learns nothing before.
func TestReaderIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		grant  func(*wire.Grant)
		change func(*wire.HelloMessage)
		code   block.Code
		says   string
	}{
		"expired":          {grant: func(g *wire.Grant) { g.Expires -= 120 }, code: block.Refused, says: "expired"},
		"no such snapshot": {grant: func(g *wire.Grant) { g.Snapshot = "b" }, code: block.NotFound, says: "no snapshot"},
		"the head": {grant: func(g *wire.Grant) {
			g.Snapshot = "volume-head"
		}, code: block.NotFound, says: "no snapshot"},
		"a replica elsewhere": {change: func(m *wire.HelloMessage) {
			m.VolumeUUID = "x"
		}, code: block.Refused, says: "replica of volume"},
	} {
		t.Run(name, func(t *testing.T) {
			g, e := snapshotted(t)
			grant := g.grant("a")
			if c.grant != nil {
				c.grant(&grant)
			}
			p, code, r, ok := g.readerHello(grant, c.change)
			if !ok || code != c.code || !strings.Contains(r.Error, c.says) {
				t.Errorf("%v %s: %+v", ok, code, r)
			}
			p.request(wire.Header{Type: wire.Read, Flags: wire.AtView, Len: block.Size}, nil)
			g.until("who was refused may not read", func() bool { return p.gone })
			if a := e.ask(wire.Header{Type: wire.Read, Len: 4096}, nil); a.h.Code != block.OK || e.gone {
				t.Errorf("the engine was disturbed: %s", a.h.Code)
			}
		})
	}
}

// The key of a grant is no secret of the volume: nobody becomes an engine with it, nor does a
// reader who says a hello as engines do.
func TestGrantMakesNoEngine(t *testing.T) {
	g, _ := snapshotted(t)
	grant := g.grant("a")
	p := g.connect()
	p.key = grant.Key(secret, volumeUUID)
	if _, _, ok := p.sayHello(7, "intruder", nil); ok || p.heard > 0 {
		t.Errorf("answered %v, %d bytes", ok, p.heard)
	}
	p = g.connect()
	p.key, p.initiation.Reader = grant.Key(secret, volumeUUID), &grant
	if code, r, ok := p.sayHello(7, "intruder", nil); !ok || code != block.OK || r.Promised != 0 {
		t.Fatalf("%v %s %+v", ok, code, r)
	}
	p.epoch = 0
	if a := p.ask(wire.Header{Type: wire.Write, Len: block.Size}, filled(9, block.Size)); a.h.Code != block.Refused {
		t.Errorf("a write of a reader: %s", a.h.Code)
	}
	g.alive(2) // nothing was promised to epoch 7
}

// A reader outlives a change of engine, a snapshot, a revert and a purge of what it reads; its
// session ends with a rebuild.
func TestReaderSeesItThrough(t *testing.T) {
	g, e := snapshotted(t)
	files := g.disk().OpenFiles()
	p := g.reader("a")
	want := append(filled(2, 2*block.Size), filled(1, block.Size)...)
	check := func(when string) {
		t.Helper()
		if got := p.mustAsk(wire.Header{Type: wire.Read, Flags: wire.AtView, Len: 3 * block.Size},
			nil); !bytes.Equal(got, want) {
			t.Fatalf("%s the reader reads %x", when, got[0])
		}
	}
	e.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "b", UserCreated: true}})
	e.mustAsk(wire.Header{Type: wire.Write, Len: 3 * block.Size}, filled(6, 3*block.Size))
	check("after a snapshot")
	e.mustControl(wire.ControlRequest{RemoveSnapshot: &wire.RemoveSnapshot{Name: "a"}})
	e.purge()
	check("after a purge")
	f := g.engine(2, "f")
	check("under another engine")
	f.mustControl(wire.ControlRequest{Revert: &wire.RevertRequest{Name: "b"}})
	check("after a revert")
	d := f.mustControl(wire.ControlRequest{Describe: &wire.DescribeRequest{}})
	f.mustControl(wire.ControlRequest{BeginRebuild: &wire.BeginRebuild{ChainDescription: *d.Chain}})
	g.until("the session ends with the chain", func() bool { return p.gone })
	g.until("everything is closed", func() bool { return g.disk().OpenFiles() <= files+1 })
}

// Only so many read at once, and who goes makes room.
func TestReadersAreBounded(t *testing.T) {
	g, e := snapshotted(t)
	files := g.disk().OpenFiles()
	var all []*peer
	for range 8 {
		all = append(all, g.reader("a"))
	}
	if _, code, r, ok := g.readerHello(g.grant("a"), nil); !ok || code != block.LimitReached {
		t.Fatalf("%v %s %+v", ok, code, r)
	}
	for _, p := range all {
		p.proc.Kill()
	}
	g.until("files are closed", func() bool { return g.disk().OpenFiles() == files })
	g.reader("a")
	if a := e.ask(wire.Header{Type: wire.Read, Len: 4096}, nil); a.h.Code != block.OK {
		t.Fatal(a.h.Code)
	}
}

// The space of what a purge removes comes back without a further request.
func TestPurgeGivesSpaceBack(t *testing.T) {
	g, e := snapshotted(t)
	e.mustAsk(wire.Header{Type: wire.Write, Len: 3 * block.Size}, filled(6, 3*block.Size))
	files, used := g.disk().OpenFiles(), g.disk().Used()
	e.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "b", UserCreated: true}})
	e.mustControl(wire.ControlRequest{RemoveSnapshot: &wire.RemoveSnapshot{Name: "a"}})
	e.purge()
	g.until("space comes back", func() bool { return g.disk().OpenFiles() <= files && g.disk().Used() < used })
}

func (p *peer) purge() {
	p.g.t.Helper()
	p.mustControl(wire.ControlRequest{Purge: &wire.PurgeRequest{Begin: true}})
	for i := 0; !p.mustControl(wire.ControlRequest{Purge: &wire.PurgeRequest{}}).Purge.Done; i++ {
		if i > 100 {
			p.g.t.Fatal("the purge does not end")
		}
	}
}
