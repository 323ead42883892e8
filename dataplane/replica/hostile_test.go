package replica_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/wire"
)

// A failed sync says that the disk's content is no longer known: the flush fails, the replica ends,
// and nothing is acknowledged by a sync that is tried again.
func TestFailedSyncEndsTheReplica(t *testing.T) {
	g := newRig(t)
	e := g.engine(1, "e")
	e.ask(wire.Header{Type: wire.Write, Len: 4096}, bytes.Repeat([]byte{1}, 4096))
	g.r.Disk.FS.Inject(memdisk.Rule{Op: memdisk.OpSync, Name: "volume-head-*", Times: 1, Err: disk.ErrIO})
	first, second := e.request(wire.Header{Type: wire.Flush}, nil), e.request(wire.Header{Type: wire.Flush}, nil)
	if !g.w.Until(5*time.Second, func() bool { return !g.r.Alive() }) {
		t.Fatal("the replica goes on after a failed sync")
	}
	for _, a := range []*answer{first, second} {
		if a.done && a.h.Code == block.OK {
			t.Error("a flush was acknowledged after a failed sync")
		}
	}
}

// A write that asks for it is on stable storage when it is answered, without a flush.
func TestFUAWritesSurvive(t *testing.T) {
	g := newRig(t)
	e := g.engine(1, "e")
	for _, n := range []int64{4096, 512} { // whole and widened
		if a := e.ask(wire.Header{Type: wire.Write, Flags: wire.FUA, Off: 8192 + n, Len: n},
			bytes.Repeat([]byte{7}, int(n))); a.h.Code != block.OK {
			t.Fatal(a.h.Code)
		}
	}
	g.r.Kill()
	g.r.Disk.Crash()
	g.r.Start()
	e = g.engine(2, "e2")
	for _, n := range []int64{4096, 512} {
		if a := e.ask(wire.Header{Type: wire.Read, Off: 8192 + n, Len: n}, nil); !bytes.Equal(a.payload,
			bytes.Repeat([]byte{7}, int(n))) {
			t.Errorf("FUA write of %d bytes is gone", n)
		}
	}
}

// A payload where none belongs ends the session: its buffers would be lost otherwise.
func TestPayloadWhereNoneBelongs(t *testing.T) {
	for _, typ := range []wire.Type{wire.Read, wire.WriteZeroes, wire.Discard, wire.Flush, wire.Hash, wire.LayerRead,
		wire.LayerHash, wire.LayerPunch} {
		g := newRig(t)
		e := g.engine(1, "e")
		e.request(wire.Header{Type: typ, Len: 4096}, make([]byte, 4096))
		g.until(typ.String()+" ends the session", func() bool { return e.gone })
		g.alive(2)
	}
}

// FuzzRequests sends one request with any fields and payload in a session that has said hello, and
// the same as a stranger. Whatever it is, the replica answers or ends the session, says nothing to
// the stranger, and goes on serving.
func FuzzRequests(f *testing.F) {
	for typ := wire.Read; typ <= wire.Initiation+1; typ++ {
		f.Add(uint8(typ), uint8(0), int64(4096), int64(4096), uint32(0), []byte{})
		f.Add(uint8(typ), uint8(wire.FUA), int64(512), int64(512), uint32(1), make([]byte, 512))
		f.Add(uint8(typ), uint8(wire.Shared), int64(512), int64(4096), uint32(63), []byte{})
	}
	for _, m := range []wire.ControlRequest{
		{}, {Describe: &wire.DescribeRequest{}}, {Extents: &wire.ExtentsRequest{Layer: 1 << 31, Off: -1}},
		{Snapshot: &wire.SnapshotRequest{Name: "../x", Labels: map[string]string{"": ""}}},
		{Snapshot: &wire.SnapshotRequest{Name: "s"}}, {FinishRebuild: &wire.FinishRebuild{}},
		{ClearDirty: &wire.ClearDirty{Keep: []uint32{1 << 31}}},
		{SetRecord: &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 1, Members: []string{""}}},
		{BeginRebuild: &wire.BeginRebuild{ChainDescription: wire.ChainDescription{Size: 4096,
			Layers: []wire.Layer{{Name: "a", Parent: "a", Size: -1}}}}},
		{BeginRebuild: &wire.BeginRebuild{ChainDescription: wire.ChainDescription{Size: 1 << 20,
			Layers: []wire.Layer{{Size: 1 << 20}}}, HeadBecomes: "../x"}},
		{Describe: &wire.DescribeRequest{Absent: "nobody", Branches: true}}, {ViewExtents: &wire.ViewExtents{Off: -1}},
		{ImportMark: &wire.ImportMark{What: "x\"\n"}},
		{BeginRebuild: &wire.BeginRebuild{ChainDescription: wire.ChainDescription{Size: 1 << 20,
			Layers:   []wire.Layer{{Size: 1 << 20}},
			Branches: []wire.Layer{{Name: "b", Parent: "b", Size: 4096}}}}}, release,
		{Regions: &wire.RegionsRequest{Member: ""}},
		{Window: &wire.WindowOffer{PID: 1, FD: 1 << 30, Token: []byte{1}}},
	} {
		f.Add(uint8(wire.Control), uint8(0), int64(0), int64(0), uint32(0), wire.Marshal(m))
	}
	f.Add(uint8(wire.MarkDirty), uint8(0), int64(0), int64(0), uint32(0), binary.LittleEndian.AppendUint32(nil, 1<<31))
	f.Fuzz(func(t *testing.T, typ, flags uint8, off, n int64, layer uint32, payload []byte) {
		if len(payload) > wire.MaxPayload || wire.Type(typ) == wire.Greeting || wire.Type(typ) == wire.Hello {
			return // the peer of these tests takes answers of the latter for its own handshake's
		}
		g := newRig(t)
		e := g.engine(1, "e")
		e.share()
		a := e.request(wire.Header{Type: wire.Type(typ), Flags: flags, Off: off, Len: n, Layer: layer, Slot: uint8(layer)},
			payload)
		g.until("answer", func() bool { return a.done || e.gone || !g.r.Alive() })
		s := g.stranger()
		s.send(wire.Header{Type: wire.Type(typ), Flags: flags, Off: off, Len: n, Layer: layer}, payload)
		g.until("the stranger is disconnected", func() bool { return s.gone || !g.r.Alive() })
		if s.heard > 0 {
			t.Errorf("the replica has said %d bytes to a stranger", s.heard)
		}
		g.alive(2)
	})
}

// A connection beyond the bound is closed, as often as somebody tries: nobody who is there is
// harmed, and there is room again when somebody has gone.
func TestConnectionsBeyondTheBound(t *testing.T) {
	const bound = 32
	g := newRig(t)
	var peers []*peer
	for len(peers) < bound {
		p := g.connect() // no stranger: it knows the secret, and only asks
		if code, _, ok := p.sayHello(0, "e", prepared); !ok || code != block.OK {
			t.Fatalf("%v %s", ok, code)
		}
		peers = append(peers, p)
	}
	for range 3 {
		late := g.connect()
		g.until("it is turned away", func() bool { return late.gone })
	}
	for _, p := range peers[1:] {
		if p.gone {
			t.Fatal("somebody who was there was disconnected")
		}
	}
	peers[0].proc.Kill()
	g.until("there is room", func() bool {
		p := g.connect()
		g.until("greeted or turned away", func() bool { return p.greeted || p.gone })
		return p.greeted
	})
}
