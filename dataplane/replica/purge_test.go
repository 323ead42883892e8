package replica_test

import (
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// purgeAll asks for piece after piece, as an engine does, and returns how it ends.
func (p *peer) purgeAll() (code block.Code, pieces int) {
	p.g.t.Helper()
	p.must(wire.ControlRequest{Purge: &wire.PurgeRequest{Begin: true}})
	for pieces = 1; ; pieces++ {
		code, r := p.control(wire.ControlRequest{Purge: &wire.PurgeRequest{}})
		if code != block.OK || r.Purge.Done {
			return code, pieces
		}
	}
}

// A purge goes on with the room that the removal of a snapshot gives, which comes later: the file
// is closed beside everything else. Without room the other steps are done, and it ends with an
// error, at once.
func TestPurgeWaitsForTheRoomThatItMakes(t *testing.T) {
	const size = 1 << 20
	for _, room := range []bool{true, false} {
		g := newRig(t)
		e := g.engine(1, "e")
		write := func(off, n int, b byte) {
			if a := e.ask(wire.Header{Type: wire.Write, Off: int64(off), Len: int64(n)}, filled(b, n)); a.h.Code != block.OK {
				t.Fatal(a.h.Code)
			}
		}
		snapshot := func(name string) {
			e.must(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: name, UserCreated: true}})
		}
		write(0, block.Size, 1)
		snapshot("a")
		write(block.Size, size, 2)
		snapshot("b")
		leaf := 2 * size
		if !room {
			leaf = block.Size
		}
		for off := 0; off < leaf; off += min(leaf, size) {
			write(off, min(leaf, size), 3)
		}
		snapshot("z")
		e.must(wire.ControlRequest{Revert: &wire.RevertRequest{Name: "b"}})
		for _, name := range []string{"a", "z"} {
			e.must(wire.ControlRequest{RemoveSnapshot: &wire.RemoveSnapshot{Name: name}})
		}
		g.disk().SetCapacity(g.disk().Used() + 64<<10)
		g.r.Disk.SlowClose(200 * time.Millisecond)
		code, pieces := e.purgeAll()
		if want := map[bool]block.Code{true: block.OK, false: block.NoSpace}[room]; code != want || pieces > 20 {
			t.Fatalf("room %v: %s after %d pieces", room, code, pieces)
		}
		_, err := g.disk().Stat("/replicas/" + g.r.Name + "/volume-snap-z.img")
		if err == nil {
			t.Error("z was not removed")
		}
		if a := e.ask(wire.Header{Type: wire.Read, Off: block.Size, Len: block.Size}, nil); a.payload[0] != 2 {
			t.Error("another content")
		}
	}
}

// An engine that has no answer for long takes a disk for one that hangs. A purge that waits for the
// room of a removed file, which takes the file system a minute, answers all the while; and one that
// cannot even begin says that there is no room.
func TestPurgeThatWaitsForRoomAnswers(t *testing.T) {
	const size = 1 << 20
	g := newRig(t)
	e := g.engine(1, "e")
	write := func(off, n int, b byte) {
		if a := e.ask(wire.Header{Type: wire.Write, Off: int64(off), Len: int64(n)}, filled(b, n)); a.h.Code != block.OK {
			t.Fatal(a.h.Code)
		}
	}
	snapshot := func(name string) {
		e.must(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: name, UserCreated: true}})
	}
	write(0, block.Size, 1)
	snapshot("a")
	write(block.Size, size, 2)
	snapshot("b")
	write(0, size, 3)
	write(size, size, 3)
	snapshot("z")
	e.must(wire.ControlRequest{Revert: &wire.RevertRequest{Name: "b"}})
	for _, name := range []string{"a", "z"} {
		e.must(wire.ControlRequest{RemoveSnapshot: &wire.RemoveSnapshot{Name: name}})
	}
	g.disk().SetCapacity(g.disk().Used() + 64<<10)
	g.r.Disk.SlowClose(time.Minute)
	e.must(wire.ControlRequest{Purge: &wire.PurgeRequest{Begin: true}})
	began := g.w.Now()
	for pieces := 0; ; pieces++ {
		asked := g.w.Now()
		code, r := e.control(wire.ControlRequest{Purge: &wire.PurgeRequest{}})
		if took := g.w.Now().Sub(asked); took > 4*time.Second {
			t.Fatalf("a piece is answered after %v", took)
		}
		if code != block.OK {
			t.Fatalf("%s after %d pieces", code, pieces)
		}
		if r.Purge.Done {
			break
		}
	}
	if took := g.w.Now().Sub(began); took < time.Minute {
		t.Errorf("the purge was over after %v: it has waited for nothing", took)
	}
}
