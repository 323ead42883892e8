package replica_test

import (
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/wire"
)

// life asks a replica for one of each operation that leaves something durable, and for work that
// nobody waits for. It stops when the replica has ended.
func life(p *peer) {
	const whole = 1 << 20
	control := func(q wire.ControlRequest) func() *answer { return func() *answer { return p.controls(q) } }
	request := func(h wire.Header, payload []byte) func() *answer {
		return func() *answer { return p.request(h, payload) }
	}
	for _, begin := range []func() *answer{
		func() *answer { return p.record(1, true) },
		func() *answer { return p.record(2, false) },
		request(wire.Header{Type: wire.MarkDirty}, []byte{0, 0, 0, 0}),
		request(wire.Header{Type: wire.Write, Len: whole}, filled(1, whole)),
		request(wire.Header{Type: wire.Flush}, nil),
		control(wire.ControlRequest{ClearDirty: &wire.ClearDirty{}}),
		control(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "a", UserCreated: true}}),
		request(wire.Header{Type: wire.Discard, Len: 64 << 10}, nil),
		request(wire.Header{Type: wire.Write, Off: whole, Len: whole}, filled(2, whole)),
		control(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "b", UserCreated: true}}),
		control(wire.ControlRequest{HashSnapshot: &wire.HashSnapshot{Snapshot: "b"}}),
		control(wire.ControlRequest{RemoveSnapshot: &wire.RemoveSnapshot{Name: "a"}}),
		control(wire.ControlRequest{Purge: &wire.PurgeRequest{Begin: true}}),
		control(wire.ControlRequest{Purge: &wire.PurgeRequest{}}),
		control(wire.ControlRequest{Expand: &wire.ExpandRequest{Size: 2 * volumeSize}}),
		control(wire.ControlRequest{Revert: &wire.RevertRequest{Name: "b"}}),
	} {
		a := begin()
		p.g.w.Until(time.Minute, func() bool { return a.done || !p.g.r.Alive() })
		if !p.g.r.Alive() {
			return
		}
		p.g.w.Until(time.Second, func() bool { return !p.g.r.Alive() }) // what follows it, as a copy of the metadata
	}
}

// TestAnySyncThatFailsEndsTheReplica: each sync of a file or directory in the life of a replica
// fails in its turn. After it nobody knows what the disk holds, unless the file was new and nothing
// refers to it: the replica ends, whoever waits for that sync, somebody or nobody. It does not wait
// for the next change to be refused.
func TestAnySyncThatFailsEndsTheReplica(t *testing.T) {
	for _, op := range []memdisk.Op{memdisk.OpSync, memdisk.OpSyncDir} {
		t.Run(string(op), func(t *testing.T) {
			ended := 0
			for skip := 0; ; skip++ {
				g := newRig(t)
				p := g.engine(1, "e")
				g.disk().Inject(memdisk.Rule{Op: op, Skip: skip, Times: 1, Err: disk.ErrIO})
				life(p)
				if g.disk().Injected() == 0 {
					if !g.r.Alive() {
						t.Fatal("the replica ends although no sync fails")
					}
					if a := p.ask(wire.Header{Type: wire.Read, Len: block.Size}, nil); a.h.Code != block.OK {
						t.Fatal(a.h.Code)
					}
					break
				}
				if !g.r.Alive() {
					ended++
				} else if op == memdisk.OpSyncDir || g.r.Chain().Broken() {
					t.Errorf("%s %d fails and the replica goes on\n%s", op, skip, g.v.History())
				}
				g.v.Close()
			}
			t.Logf("%d ended the replica", ended)
			if ended < 8 {
				t.Errorf("%d only: the history has no syncs to speak of", ended)
			}
		})
	}
}
