package replica_test

import (
	"bytes"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/wire"
)

func filled(fill byte, n int) []byte { return bytes.Repeat([]byte{fill}, n) }

func (p *peer) mustControl(q wire.ControlRequest) wire.ControlReply {
	p.g.t.Helper()
	code, r := p.control(q)
	if code != block.OK {
		p.g.t.Fatalf("%+v: %s %s", q, code, r.Error)
	}
	return r
}

func (p *peer) mustAsk(h wire.Header, payload []byte) []byte {
	p.g.t.Helper()
	a := p.ask(h, payload)
	if a.h.Code != block.OK {
		p.g.t.Fatalf("%+v: %s", h, a.h.Code)
	}
	return a.payload
}

// snapshotted is a replica with twos over ones at a snapshot "a", threes in the head since.
func snapshotted(t *testing.T) (*rig, *peer) {
	g := newRig(t)
	p := g.engine(1, "e")
	for i, n := range []int{3, 2} {
		p.mustAsk(wire.Header{Type: wire.Write, Len: int64(n) * block.Size}, filled(byte(i+1), n*block.Size))
	}
	p.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "a"}})
	p.mustAsk(wire.Header{Type: wire.Write, Len: block.Size}, filled(3, block.Size))
	return g, p
}

// hash computes the checksums of a snapshot, piece by piece.
func (p *peer) hash(q wire.HashSnapshot) wire.HashReply {
	p.g.t.Helper()
	for range 100 {
		if r := p.mustControl(wire.ControlRequest{HashSnapshot: &q}); r.Hash.Done {
			return *r.Hash
		}
	}
	p.g.t.Fatal("hashing does not end")
	return wire.HashReply{}
}

func (p *peer) verify(off, n int64) wire.VerifyReply {
	p.g.t.Helper()
	return *p.mustControl(wire.ControlRequest{Verify: &wire.Verify{Off: off, Len: n}}).Verify
}

// disk is where the replica's directory is.
func (g *rig) disk() *memdisk.FS { return g.r.Disk.FS }

const snapshotImage = "/replicas/r0/volume-snap-a.img"

// A view reads the snapshot, not the head; requests that do not fit it are refused.
func TestView(t *testing.T) {
	_, p := snapshotted(t)
	at := wire.Header{Type: wire.Read, Flags: wire.AtView, Len: 2 * block.Size}
	if a := p.ask(at, nil); a.h.Code != block.Invalid {
		t.Fatalf("without a view: %s", a.h.Code)
	}
	if code, _ := p.control(wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: "b"}}); code != block.NotFound {
		t.Fatalf("view of a snapshot that is not there: %s", code)
	}
	if r := p.mustControl(wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: "a"}}); r.View.Size != volumeSize {
		t.Fatalf("%+v", r.View)
	}
	if got := p.mustAsk(at, nil); !bytes.Equal(got, filled(2, 2*block.Size)) {
		t.Fatalf("the view reads %x", got[0])
	}
	if got := p.mustAsk(wire.Header{Type: wire.Read, Len: block.Size}, nil); got[0] != 3 {
		t.Fatalf("the head reads %x", got[0])
	}
	sum := p.mustAsk(wire.Header{Type: wire.Hash, Flags: wire.AtView, Len: block.MaxTransfer}, nil)
	if head := p.mustAsk(wire.Header{Type: wire.Hash, Len: block.MaxTransfer}, nil); bytes.Equal(sum, head) {
		t.Fatal("view and head have the same hash")
	}
	for name, h := range map[string]wire.Header{
		"beyond the end":   {Type: wire.Read, Off: volumeSize - block.Size, Len: 2 * block.Size},
		"not aligned":      {Type: wire.Read, Off: 512, Len: block.Size},
		"nothing":          {Type: wire.Hash},
		"too long":         {Type: wire.Hash, Len: 2 * block.MaxTransfer},
		"zeroes":           {Type: wire.WriteZeroes, Len: block.Size},
		"write of no data": {Type: wire.Write, Len: block.Size},
	} {
		h.Flags = wire.AtView
		if a := p.ask(h, nil); a.h.Code != block.Invalid {
			t.Errorf("%s: %s", name, a.h.Code)
		}
	}
	if code, _ := p.control(wire.ControlRequest{Verify: &wire.Verify{Off: 0,
		Len: 2 * block.MaxTransfer}}); code != block.Invalid {
		t.Errorf("verifying too much: %s", code)
	}
	// What is read stays while the chain changes.
	p.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "b"}})
	p.mustAsk(wire.Header{Type: wire.Write, Len: block.Size}, filled(4, block.Size))
	if got := p.mustAsk(at, nil); got[0] != 2 {
		t.Fatalf("after another snapshot the view reads %x", got[0])
	}
	p.mustControl(wire.ControlRequest{CloseView: &wire.CloseView{}})
	p.mustControl(wire.ControlRequest{CloseView: &wire.CloseView{}})
	if a := p.ask(at, nil); a.h.Code != block.Invalid {
		t.Fatalf("after closing: %s", a.h.Code)
	}
}

// Rot is found by the replica that has it, and goes away when the right content is written.
func TestRotIsFoundAndRepaired(t *testing.T) {
	for name, damage := range map[string]func(g *rig) error{
		"other bytes": func(g *rig) error { return g.disk().Rot(snapshotImage, 100, 1) },
		"unreadable":  func(g *rig) error { return g.disk().Unreadable(snapshotImage, 100, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			g, p := snapshotted(t)
			p.mustControl(wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: "a"}})
			if v := p.verify(0, block.MaxTransfer); v.Verdict != wire.VerdictUnknown {
				t.Fatalf("before hashing: %+v", v)
			}
			if r := p.hash(wire.HashSnapshot{Snapshot: "a"}); r.Corrupted || len(r.Checksum) != 16 || r.Read != volumeSize {
				t.Fatalf("%+v", r)
			}
			if v := p.verify(0, block.MaxTransfer); v.Verdict != wire.VerdictGood {
				t.Fatalf("after hashing: %+v", v)
			}
			if err := damage(g); err != nil {
				t.Fatal(err)
			}
			v := p.verify(0, block.MaxTransfer)
			want := wire.Rot{Snapshot: "a", Len: 256 << 10, Unreadable: name == "unreadable"}
			if v.Verdict != wire.VerdictRotten || len(v.Rot) != 1 || v.Rot[0] != want {
				t.Fatalf("%+v", v)
			}
			if r := p.hash(wire.HashSnapshot{Snapshot: "a", Rehash: true}); !r.Corrupted || len(r.Rot) != 1 {
				t.Fatalf("%+v", r)
			}
			good := append(filled(2, 2*block.Size), append(filled(1, block.Size),
				make([]byte, block.MaxTransfer-3*block.Size)...)...)
			p.mustAsk(wire.Header{Type: wire.Write, Flags: wire.AtView, Len: block.MaxTransfer}, good)
			if got := p.mustAsk(wire.Header{Type: wire.Read, Flags: wire.AtView, Len: block.MaxTransfer},
				nil); !bytes.Equal(got, good) {
				t.Fatal("the repaired view reads otherwise")
			}
			if v := p.verify(0, block.MaxTransfer); v.Verdict != wire.VerdictGood {
				t.Fatalf("after the repair: %+v", v)
			}
			if r := p.hash(wire.HashSnapshot{Snapshot: "a"}); r.Corrupted || r.Reused {
				t.Fatalf("%+v", r)
			}
			if got := p.mustAsk(wire.Header{Type: wire.Read, Len: block.Size}, nil); got[0] != 3 {
				t.Fatal("the head was changed")
			}
			g.alive(2)
		})
	}
}

// A snapshot that is kept reads the same whatever is written to an older one; without a view, or of
// an older snapshot that is not there, nothing is done.
func TestViewIsKept(t *testing.T) {
	g, p := snapshotted(t)
	p.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "b"}})
	keep := func(below string) block.Code {
		code, _ := p.control(wire.ControlRequest{KeepView: &wire.KeepView{Len: block.MaxTransfer, Below: below}})
		return code
	}
	if code := keep("a"); code != block.Invalid {
		t.Errorf("without a view: %s", code)
	}
	read := wire.Header{Type: wire.Read, Flags: wire.AtView, Len: block.MaxTransfer}
	p.mustControl(wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: "b"}})
	want := p.mustAsk(read, nil)
	if code := keep("c"); code != block.NotFound {
		t.Errorf("over a snapshot that is not there: %s", code)
	}
	if code := keep("a"); code != block.OK {
		t.Fatal(code)
	}
	p.mustControl(wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: "a"}})
	p.mustAsk(wire.Header{Type: wire.Write, Flags: wire.AtView, Len: block.MaxTransfer}, filled(9, block.MaxTransfer))
	p.mustControl(wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: "b"}})
	if got := p.mustAsk(read, nil); !bytes.Equal(got, want) {
		t.Error("b reads otherwise since a was repaired")
	}
	g.alive(2)
}

// What a scrub holds open goes with its session, and a rebuild takes it away.
func TestViewEndsWithItsSession(t *testing.T) {
	g, p := snapshotted(t)
	p.mustControl(wire.ControlRequest{Describe: &wire.DescribeRequest{}}) // behind the copy of the metadata
	files := g.disk().OpenFiles()
	p.mustControl(wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: "a"}})
	if g.disk().OpenFiles() == files {
		t.Fatal("a view opens no file: the test shows nothing")
	}
	q := g.engine(2, "f")
	g.until("view closed", func() bool { return g.disk().OpenFiles() == files })
	if a := q.ask(wire.Header{Type: wire.Read, Flags: wire.AtView, Len: block.Size}, nil); a.h.Code != block.Invalid {
		t.Fatalf("the view of another session: %s", a.h.Code)
	}
	q.mustControl(wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: "a"}})
	d := q.mustControl(wire.ControlRequest{Describe: &wire.DescribeRequest{}})
	q.mustControl(wire.ControlRequest{BeginRebuild: &wire.BeginRebuild{ChainDescription: *d.Chain}})
	if a := q.ask(wire.Header{Type: wire.Read, Flags: wire.AtView, Len: block.Size}, nil); a.h.Code != block.Invalid {
		t.Fatalf("a view of a chain that is gone: %s", a.h.Code)
	}
	if code, _ := q.control(wire.ControlRequest{HashSnapshot: &wire.HashSnapshot{Snapshot: "a"}}); code != block.Invalid {
		t.Fatalf("checksums of a rebuild target: %s", code)
	}
	if n := g.disk().OpenFiles(); n != files {
		t.Fatalf("%d files open, not %d", n, files)
	}
}

// Requests go on while a snapshot is opened, and one that is read is not exchanged under its
// reader.
func TestOpeningASnapshotHoldsNothingBack(t *testing.T) {
	before := 0
	for seed := range uint64(30) {
		g := newSeededRig(t, seed)
		p := g.founded()
		p.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "a"}})
		open := p.controls(wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: "a"}})
		read := p.request(wire.Header{Type: wire.Read, Len: block.Size}, nil)
		g.until("one of them is answered", func() bool { return open.done || read.done })
		if !open.done {
			before++
		}
		g.until("both are answered", func() bool { return open.done && read.done })
		for range 3 {
			at := p.request(wire.Header{Type: wire.Read, Flags: wire.AtView, Len: block.Size}, nil)
			again := p.controls(wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: "a"}})
			g.until("answered", func() bool { return again.done && at.done })
			if again.h.Code != block.OK || at.h.Code != block.OK || !bytes.Equal(at.payload, filled(9, block.Size)) {
				t.Fatalf("seed %d: opened again: %s, read: %s", seed, again.h.Code, at.h.Code)
			}
		}
		g.v.Close()
	}
	if before == 0 {
		t.Error("no read was answered before the snapshot was open")
	}
}
