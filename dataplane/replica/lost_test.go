package replica_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/wire"
)

// lose removes files of the replica's directory, durably.
func (g *rig) lose(names ...string) {
	g.t.Helper()
	dir := "/replicas/" + g.r.Name
	for _, name := range names {
		if err := g.disk().Remove(dir + "/" + name); err != nil {
			g.t.Fatal(err)
		}
	}
	if err := g.disk().SyncDir(dir); err != nil {
		g.t.Fatal(err)
	}
}

// used are the names of the images and whiteouts in the replica's directory.
func (g *rig) used() (out []string) {
	g.t.Helper()
	names, err := g.disk().List("/replicas/" + g.r.Name)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".img") || strings.HasPrefix(name, "ankole.whiteouts-") {
			out = append(out, name)
		}
	}
	return out
}

// member makes the replica one of a set.
func (p *peer) member(others ...string) {
	p.mustControl(wire.ControlRequest{SetRecord: &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: p.epoch,
		Generation: 1, Members: append([]string{p.g.r.Name}, others...), Agreed: true}})
}

// written writes a snapshot, and a head over it, with a discard.
func (p *peer) written() {
	p.ask(wire.Header{Type: wire.Write, Len: 8 * block.Size}, bytes.Repeat([]byte{1}, 8*block.Size))
	p.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "a", UserCreated: true}})
	p.ask(wire.Header{Type: wire.Write, Len: block.Size}, bytes.Repeat([]byte{2}, block.Size))
	p.ask(wire.Header{Type: wire.Discard, Off: 2 * block.Size, Len: block.Size}, nil)
}

// reads compares what was written, and what is written beside the loss at 4 blocks.
func (p *peer) readsLost(beside byte) {
	p.g.t.Helper()
	a := p.ask(wire.Header{Type: wire.Read, Len: 8 * block.Size}, nil)
	for i, b := range []byte{2, 1, 0, 1, beside, 1, 1, 1} {
		if got := a.payload[i*block.Size]; got != b {
			p.g.t.Fatalf("block %d holds %d, not %d", i, got, b)
		}
	}
}

// Files are removed under the only replica while it is written to: it says so, serves on, changes
// nothing of the chain meanwhile, and has all of it in files with names again after some seconds.
func TestOnlyReplicaWritesLostFilesAnew(t *testing.T) {
	g := newRig(t)
	e := g.connect()
	if code, r, ok := e.sayHello(1, "e", func(m *wire.HelloMessage) { m.Notices = true }); !ok || code != block.OK {
		t.Fatalf("%s: %s", code, r.Error)
	}
	e.member()
	e.written()
	names := g.used()
	if len(names) != 3 {
		t.Fatalf("%q", names)
	}
	g.lose(append(names, "ankole.member", "ankole.dirty", "volume.meta")...)
	g.r.Disk.Slow(50 * time.Millisecond)
	g.until("told of the loss", func() bool { return e.notice.Lost != "" })
	if code, r := e.control(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "b"}}); code == block.OK ||
		!strings.Contains(r.Error, names[0]) {
		t.Fatalf("a snapshot meanwhile: %s %q", code, r.Error)
	}
	version := byte(10)
	g.until("written anew", func() bool {
		version++
		e.ask(wire.Header{Type: wire.Write, Off: 4 * block.Size, Len: block.Size},
			bytes.Repeat([]byte{version}, block.Size))
		return e.notice.Lost == ""
	})
	g.r.Disk.Slow(0)
	if now := g.used(); len(now) != 3 {
		t.Fatalf("%q are %q now", names, now)
	}
	e.ask(wire.Header{Type: wire.Flush}, nil)
	e.readsLost(version)
	g.r.Kill()
	g.r.Disk.Crash()
	g.r.Start()
	g.engine(2, "e2").readsLost(version)
}

// A replica that is asked to end right after it has lost files leaves a directory with the content
// if it is the only one, and a rebuild target if there are others, whenever the files were lost.
func TestEndAfterFilesWereLost(t *testing.T) {
	for _, others := range [][]string{nil, {"r1"}} {
		g := newRig(t)
		e := g.engine(1, "e")
		e.member(others...)
		e.written()
		g.lose(g.used()...)
		g.r.End(time.Minute)
		g.until("the end", func() bool { return !g.r.Alive() })
		c, err := chain.Open(g.disk(), "/replicas/"+g.r.Name, chain.Options{})
		if err != nil {
			t.Fatalf("with %q: %v", others, err)
		}
		_, valid := c.Record()
		if blank := c.Rebuilding() && !valid; blank != (others != nil) {
			t.Errorf("with %q: rebuilding %v, record %v", others, c.Rebuilding(), valid)
		}
		_ = c.Abandon()
		if others == nil {
			g.r.Start()
			g.engine(2, "e2").readsLost(1)
		}
	}
}
