package replica_test

import (
	"bytes"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/wire"
)

// A discard that failed, and is asked for again, is answered when it outlives the process: the
// block is hidden in memory already, and not on the disk.
func TestDiscardAgainAfterAFailure(t *testing.T) {
	g, e := trimmed(t, 1)
	d := wire.Header{Type: wire.Discard, Off: 768 << 10, Len: 65536} // in the snapshot only
	e.mustAsk(wire.Header{Type: wire.Discard, Off: 640 << 10, Len: 4096}, nil)
	g.disk().Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: "ankole.whiteouts-*", Times: 2, Err: disk.ErrIO})
	if a := e.ask(d, nil); a.h.Code != block.IOError {
		t.Fatal(a.h.Code)
	}
	e.mustAsk(d, nil)
	g.r.Kill()
	g.r.Start()
	got := g.engine(2, "e2").mustAsk(wire.Header{Type: wire.Read, Off: d.Off, Len: d.Len}, nil)
	if !bytes.Equal(got, make([]byte, d.Len)) {
		t.Errorf("what was discarded reads %d", got[0])
	}
}

// Whiteouts are durable in one slot, and the disk cannot write the other one: the replica goes on,
// and so does the next engine's.
func TestASlotThatCannotBeWrittenEndsNoReplica(t *testing.T) {
	g, e := trimmed(t, 1)
	d := wire.Header{Type: wire.Discard, Off: 768 << 10, Len: 65536} // in the snapshot only
	e.mustAsk(d, nil)
	e.mustAsk(wire.Header{Type: wire.Flush}, nil)
	g.disk().Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: "ankole.whiteouts-*", Err: disk.ErrIO})
	for epoch := uint64(2); epoch < 5; epoch++ {
		e.mustAsk(wire.Header{Type: wire.Flush}, nil)
		g.r.Kill()
		g.r.Start()
		e = g.engine(epoch, "e2")
		got := e.mustAsk(wire.Header{Type: wire.Read, Off: d.Off, Len: d.Len}, nil)
		if !bytes.Equal(got, make([]byte, d.Len)) {
			t.Errorf("what was discarded reads %d", got[0])
		}
	}
	e.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "b", UserCreated: true}})
}

// The disk cannot write the slot of a page of whiteouts whose turn it is, and goes on saying so:
// the discard is carried out, and neither a flush nor a snapshot ends the replica.
func TestDiscardOverASectorThatCannotBeWritten(t *testing.T) {
	g, e := trimmed(t, 1)
	d := wire.Header{Type: wire.Discard, Off: 768 << 10, Len: 65536} // in the snapshot only
	e.mustAsk(wire.Header{Type: wire.Discard, Off: 640 << 10, Len: 4096}, nil)
	for range 3 { // everything is durable, and in both slots
		e.mustAsk(wire.Header{Type: wire.Flush}, nil)
	}
	for slot := range int64(2) {
		if err := g.disk().Unwritable(g.whiteouts(), slot*4096, 4096); err != nil {
			t.Fatal(err)
		}
	}
	for epoch := uint64(2); epoch < 4; epoch++ {
		e.mustAsk(d, nil)
		e.mustAsk(wire.Header{Type: wire.Flush}, nil)
		g.r.Kill()
		g.r.Start()
		e = g.engine(epoch, "e2")
		got := e.mustAsk(wire.Header{Type: wire.Read, Off: d.Off, Len: d.Len}, nil)
		if !bytes.Equal(got, make([]byte, d.Len)) {
			t.Errorf("what was discarded reads %d", got[0])
		}
		d.Off += d.Len
	}
	e.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "b", UserCreated: true}})
}

// The last replica of a volume has a bad sector in one of the files that say what it is: it serves
// all the same.
func TestReplicaWithDamagedMetadata(t *testing.T) {
	for _, name := range []string{"volume.meta", "volume-snap-a.img.meta", "volume-head-001.img.meta"} {
		t.Run(name, func(t *testing.T) {
			g, e := trimmed(t, 1)
			e.mustControl(wire.ControlRequest{Describe: &wire.DescribeRequest{}}) // behind the copy
			g.r.Kill()
			if err := g.disk().Unreadable("/replicas/r0/"+name, 0, 4096); err != nil {
				t.Fatal(err)
			}
			g.r.Start()
			got := g.engine(2, "e2").mustAsk(wire.Header{Type: wire.Read, Len: 1 << 20}, nil)
			if !bytes.Equal(got[:512<<10], filled(2, 512<<10)) || !bytes.Equal(got[512<<10:], filled(1, 512<<10)) {
				t.Error("it has something else")
			}
		})
	}
}
