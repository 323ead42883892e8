package engine_test

import (
	"runtime"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/wire"
)

// byByte sends the bytes of a frame that never becomes whole, one every so often.
func (f *fake) byByte(every time.Duration) {
	n := 0
	var next func()
	next = func() {
		f.proc.Post(func(out *[]loop.Op) {
			if f.conn == nil || n == wire.HeaderSize-1 {
				return
			}
			n++
			b, ok := f.arena.Get(1)
			if !ok {
				f.t.Error("no memory")
			}
			op := loop.Op{Kind: loop.Send, Handle: f.conn.Handle, Tag: 5}
			op.Add(loop.Seg{Buf: b, Len: 1})
			*out = append(*out, op)
		})
		f.w.After(every, next)
	}
	next()
}

// A replica of another volume that owes an answer and sends a byte of it now and then is given up
// like one that sends nothing: the clone ends, or goes on elsewhere.
func TestSourceThatSendsByBytesIsGivenUp(t *testing.T) {
	g := newRig(t, 1, 16*mib)
	g.offline = true
	g.start()
	key := make([]byte, wire.SecretSize)
	s := newFake(g, "s")
	s.secret, s.reply.Size = key, 16*mib
	s.judge = func(q *wire.ControlRequest) (block.Code, bool) { return block.OK, q.ViewExtents != nil }
	if err := g.cloneFrom(s, key); err != nil {
		t.Fatal(err)
	}
	g.until("the source is asked", func() bool { return len(s.held) > 0 })
	s.byByte(20 * time.Second)
	if !g.w.Until(20*time.Minute, func() bool { return s.hellos > 1 || !g.state.Import.Running }) {
		t.Errorf("the clone still waits: %+v", g.state.Import)
	}
}

// A replica that is to be added and sends its greeting by bytes holds up nothing for ever: until it
// has said who it is it may be anybody.
func TestReplicaThatGreetsByBytesIsGivenUp(t *testing.T) {
	g := newRig(t, 1, 16*mib).start()
	x := newFake(g, "x")
	x.mute = true
	g.proc.Post(engine.AddReplica{Address: x.addr(), Reply: func(error) {}})
	g.until("it is connected", func() bool { return x.conn != nil })
	x.byByte(5 * time.Second)
	if !g.w.Until(4*time.Minute, func() bool { return g.modes() == "a=RW =ERR" }) {
		t.Errorf("the replica still counts as being rebuilt: %s", g.modes())
	}
}

// cloneFrom begins a clone of a snapshot that a fake has, a replica of a volume of another secret.
func (g *rig) cloneFrom(s *fake, secret []byte) error {
	return g.ask(func(reply func(error)) any {
		grant := wire.Grant{Snapshot: "x", For: volumeUUID, Expires: g.w.Unix() + 3600}
		from := engine.CloneSource{VolumeName: "o", VolumeUUID: cloneUUID, Key: grant.Key(secret, cloneUUID), Size: g.size,
			Grant: grant, Replicas: []string{s.addr()}}
		return engine.Clone{From: from, Name: "copy", Created: "2026-11-21T12:00:00Z", Reply: reply}
	})
}

// What a clone keeps of the list of a snapshot does not grow with the number of its pieces.
func TestCloneOfAScatteredSnapshotKeepsNoList(t *testing.T) {
	const size, perPage = 4 << 30, 4096
	g := newRig(t, 1, size)
	g.offline = true
	g.start()
	key := make([]byte, wire.SecretSize)
	s := newFake(g, "s")
	s.secret, s.reply.Size, s.script = key, size, holding(wire.Read)
	s.listed = func(off int64) *wire.ExtentsReply { // every second block
		x := &wire.ExtentsReply{Next: off + perPage*2*block.Size}
		for at := off; at < x.Next; at += 2 * block.Size {
			x.Ranges = append(x.Ranges, [2]int64{at, at + block.Size})
		}
		if x.Next >= size {
			x.Next = -1
		}
		return x
	}
	before := heap()
	if err := g.cloneFrom(s, key); err != nil {
		t.Fatal(err)
	}
	g.until("the copy begins", func() bool { return len(s.held) > 0 })
	s.log, g.fakes[0].log = nil, nil
	if got := heap() - before; got > 4*mib {
		t.Errorf("%d KiB are kept for %d pieces", got>>10, size/block.Size/2)
	}
	s.let(0)
	g.until("what there is to do is known", func() bool { return g.state.Import.Total == size/2 })
}

// heap is what is in use, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
