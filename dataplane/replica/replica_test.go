package replica_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/wire"
)

// A hello that only asks tells everything, promises nothing and disturbs nobody; another one on the
// same connection activates it.
func TestPreparedHelloPromisesNothing(t *testing.T) {
	g := newRig(t)
	e := g.engine(1, "e1#1@im")
	e.control(wire.ControlRequest{SetRecord: &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 1,
		Members: []string{g.r.Name}}})
	next := g.connect()
	code, r, ok := next.sayHello(0, "next", func(m *wire.HelloMessage) { m.Prepared = true })
	if !ok || code != block.OK || r.Promised != 1 || r.PromisedTo != "e1#1@im" || r.Record == nil ||
		r.Record.Generation != 1 {
		t.Fatalf("%v %s: %+v", ok, code, r)
	}
	if a := e.ask(wire.Header{Type: wire.Read, Len: 4096}, nil); a.h.Code != block.OK || e.gone {
		t.Errorf("the engine was disturbed: %s", a.h.Code)
	}
	if code, _, ok := next.sayHello(2, "next", nil); !ok || code != block.OK {
		t.Fatalf("activation: %v %s", ok, code)
	}
	g.until("the engine before is gone", func() bool { return e.gone })
	if a := next.ask(wire.Header{Type: wire.Read, Len: 4096}, nil); a.h.Code != block.OK {
		t.Errorf("read: %s", a.h.Code)
	}
	other := g.connect()
	if code, _, ok := other.sayHello(0, "other", func(m *wire.HelloMessage) {
		m.Prepared = true
	}); !ok || code != block.OK {
		t.Fatalf("%v %s", ok, code)
	}
	other.request(wire.Header{Type: wire.Read, Len: 4096}, nil)
	g.until("who is only prepared may not read", func() bool { return other.gone })
}

// An older epoch is refused, and so is another engine of the same one; the same engine may come
// again.
func TestOlderEpochIsFenced(t *testing.T) {
	g := newRig(t)
	e5 := g.engine(5, "e5")
	for _, c := range []struct {
		epoch  uint64
		engine string
	}{{4, "e4"}, {1, "e5"}, {5, "twin"}} {
		p := g.connect()
		code, r, ok := p.sayHello(c.epoch, c.engine, nil)
		if !ok || code != block.Fenced || r.Promised != 5 {
			t.Errorf("epoch %d of %s: %v %s, promised %d", c.epoch, c.engine, ok, code, r.Promised)
		}
	}
	if a := e5.ask(wire.Header{Type: wire.Read, Len: 4096}, nil); a.h.Code != block.OK {
		t.Errorf("the engine was disturbed: %s", a.h.Code)
	}
	again := g.engine(5, "e5")
	g.until("first connection ended", func() bool { return e5.gone })
	again.ask(wire.Header{Type: wire.Read, Len: 4096}, nil)

	// The promise is durable.
	g.r.Kill()
	g.r.Disk.Crash()
	g.r.Start()
	if code, _, _ := g.connect().sayHello(4, "e4", nil); code != block.Fenced {
		t.Errorf("after a loss of power epoch 4 is answered %s", code)
	}
	g.engine(6, "e6")
}

// A frame of another epoch than the session's changes nothing. Two engines say hello at the same
// moment. Whichever comes first, and wherever the first promise has got to when the other one asks:
// the newer engine is always let in, so a duel has a winner.
func TestTheNewerOfTwoIsLetIn(t *testing.T) {
	for seed := uint64(1); seed <= 40; seed++ {
		g := newSeededRig(t, seed)
		newer, older := g.connect(), g.connect()
		g.until("greetings", func() bool { return newer.greeted && older.greeted })
		first, second := func() { newer.beginHello(6, "e6", nil) }, func() { older.beginHello(5, "e5", nil) }
		if seed%2 == 0 {
			first, second = second, first
		}
		first()
		second()
		g.until("the newer engine's session", func() bool { return newer.hello.done || newer.gone })
		if newer.gone || newer.hello.h.Code != block.OK {
			t.Fatalf("seed %d: the newer engine is refused (connection gone: %v)\n%s", seed, newer.gone, g.v.History())
		}
		g.until("the older engine is refused or ended", func() bool {
			return older.gone || older.hello.done && older.hello.h.Code == block.Fenced
		})
		if a := newer.ask(wire.Header{Type: wire.Read, Len: 4096}, nil); a.h.Code != block.OK {
			t.Errorf("seed %d: the newer engine is answered %s", seed, a.h.Code)
		}
	}
}

func TestFrameOfAnotherEpoch(t *testing.T) {
	g := newRig(t)
	e := g.engine(3, "e")
	e.epoch = 2
	if a := e.ask(wire.Header{Type: wire.Write, Len: 4096}, bytes.Repeat([]byte{9}, 4096)); a.h.Code != block.Fenced {
		t.Errorf("answered %s", a.h.Code)
	}
	e.epoch = 3
	if a := e.ask(wire.Header{Type: wire.Read, Len: 4096}, nil); !bytes.Equal(a.payload, make([]byte, 4096)) {
		t.Error("the write was carried out")
	}
}

// When a new epoch is answered nothing of the old one can happen any more, however many writes were
// in flight.
func TestNothingLandsAfterTheNewEpochIsAnswered(t *testing.T) {
	for seed := range uint64(30) {
		g := newSeededRig(t, seed)
		old := g.engine(1, "old")
		for i := range 64 {
			old.request(wire.Header{Type: wire.Write, Off: int64(i) * 65536, Len: 65536},
				bytes.Repeat([]byte{byte(i + 1)}, 65536))
		}
		g.w.Until(g.w.Between(1, 2000*1000), func() bool { return false })
		e := g.engine(2, "new")
		first := content(e)
		// Whatever is still under way has all the time it wants.
		g.w.Until(patience, func() bool { return false })
		if second := content(e); !bytes.Equal(first, second) {
			t.Fatalf("seed %d: the content changed after the new engine was answered", seed)
		}
		if !old.gone {
			t.Error("the old engine is still connected")
		}
		g.v.Close()
	}
}

// The same where it can be told apart surely: writes that the disk keeps for long.
func TestNewEpochWaitsForSlowWrites(t *testing.T) {
	g := newRig(t)
	old := g.engine(1, "old")
	g.r.Disk.Slow(5 * time.Second)
	old.request(wire.Header{Type: wire.Write, Len: 4096}, bytes.Repeat([]byte{1}, 4096))
	old.ask(wire.Header{Type: wire.Read, Off: 4096, Len: 4096}, nil) // nothing to read: answered when the write has begun
	g.r.Disk.Slow(0)
	e := g.engine(2, "new")
	if a := e.ask(wire.Header{Type: wire.Read, Len: 4096}, nil); a.h.Code != block.OK || a.payload[0] != 1 {
		t.Errorf("the new engine was answered before an older write had ended: %s", a.h.Code)
	}
}

// TestDirtyLogOfANewSession: what an ended session had queued is not done, and so is not in the log
// that its successor is told, or a mark that was never made durable would be taken for one that is.
func TestDirtyLogOfANewSession(t *testing.T) {
	dropped := 0
	for seed := range uint64(30) {
		g := newSeededRig(t, seed)
		old := g.engine(1, "old")
		if code, r := old.control(wire.ControlRequest{SetRecord: &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1,
			Generation: 1, Members: []string{g.r.Name}}}); code != block.OK {
			t.Fatal(code, r.Error)
		}
		for n := range volumeSize / chain.RegionSize {
			old.request(wire.Header{Type: wire.MarkDirty}, binary.LittleEndian.AppendUint32(nil, uint32(n)))
		}
		g.w.Until(g.w.Between(1, 1000*1000), func() bool { return false })
		p := g.connect()
		code, told, ok := p.sayHello(2, "new", nil)
		if !ok || code != block.OK {
			t.Fatalf("seed %d: %s %s", seed, code, told.Error)
		}
		durable, known := g.r.Chain().Dirty()
		if !known || told.DirtyAll || len(durable) != len(told.Dirty) {
			t.Fatalf("seed %d: the new engine was told %v, all %v; on the disk are %v, known %v", seed, told.Dirty,
				told.DirtyAll, durable, known)
		}
		if len(durable) < volumeSize/chain.RegionSize {
			dropped++
		}
		g.v.Close()
	}
	if dropped == 0 {
		t.Error("no mark was ever dropped with its session: the test shows nothing")
	}
}

func content(e *peer) []byte {
	var all []byte
	for off := int64(0); off < 64*65536; off += block.MaxTransfer {
		all = append(all, e.ask(wire.Header{Type: wire.Read, Off: off, Len: block.MaxTransfer}, nil).payload...)
	}
	return all
}

// Requests that make no sense are refused one by one; the session goes on.
func TestInvalidRequests(t *testing.T) {
	g := newRig(t)
	e := g.engine(1, "e")
	page := make([]byte, 4096)
	for name, c := range map[string]struct {
		h       wire.Header
		payload []byte
	}{
		"read beyond the end":           {wire.Header{Type: wire.Read, Off: volumeSize, Len: 4096}, nil},
		"read across the end":           {wire.Header{Type: wire.Read, Off: volumeSize - 512, Len: 4096}, nil},
		"read of nothing":               {wire.Header{Type: wire.Read}, nil},
		"unaligned read":                {wire.Header{Type: wire.Read, Off: 100, Len: 512}, nil},
		"read of an odd length":         {wire.Header{Type: wire.Read, Len: 100}, nil},
		"read of too much":              {wire.Header{Type: wire.Read, Len: block.MaxTransfer + 512}, nil},
		"read that widens to too much":  {wire.Header{Type: wire.Read, Off: 512, Len: block.MaxTransfer}, nil},
		"write beyond the end":          {wire.Header{Type: wire.Write, Off: volumeSize, Len: 4096}, page},
		"write of another length":       {wire.Header{Type: wire.Write, Len: 8192}, page},
		"write without data":            {wire.Header{Type: wire.Write, Len: 4096}, nil},
		"unaligned zeroes":              {wire.Header{Type: wire.WriteZeroes, Off: 512, Len: 4096}, nil},
		"zeroes beyond a region":        {wire.Header{Type: wire.WriteZeroes, Len: 8 << 20}, nil},
		"unaligned discard":             {wire.Header{Type: wire.Discard, Off: 512, Len: 4096}, nil},
		"layer that is not there":       {wire.Header{Type: wire.LayerRead, Layer: 7, Len: 4096}, nil},
		"layer write outside a rebuild": {wire.Header{Type: wire.LayerWrite, Len: 4096}, page},
		"mark beyond the end":           {wire.Header{Type: wire.MarkDirty}, []byte{255, 255, 0, 0}},
		"mark of three bytes":           {wire.Header{Type: wire.MarkDirty}, []byte{0, 0, 0}},
		"empty control message":         {wire.Header{Type: wire.Control}, nil},
		"control message of nothing":    {wire.Header{Type: wire.Control}, []byte("{}")},
		"control message in Latin":      {wire.Header{Type: wire.Control}, []byte("quid agis")},
	} {
		if a := e.ask(c.h, c.payload); a.h.Code != block.Invalid {
			t.Errorf("%s: %s", name, a.h.Code)
		}
	}
	if e.gone {
		t.Fatal("the session ended")
	}
	g.alive(2)
}

// Frames that no correct peer sends end the connection.
func TestFramesThatEndTheSession(t *testing.T) {
	for name, h := range map[string]wire.Header{
		"an answer":       {Type: wire.Read, Flags: wire.Response},
		"oversized write": {Type: wire.Write, Off: 512, Len: block.MaxTransfer},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			e := g.engine(1, "e")
			var p []byte
			if h.Type == wire.Write {
				p = make([]byte, h.Len)
			}
			e.send(h, p)
			g.until("connection ended", func() bool { return e.gone })
			g.alive(2)
		})
	}
}

// Records: of this volume, of the session's epoch, naming this replica, and never backwards.
func TestRecords(t *testing.T) {
	g := newRig(t)
	e := g.engine(2, "e")
	set := func(uuid string, epoch, gen uint64, members ...string) block.Code {
		code, _ := e.control(wire.ControlRequest{SetRecord: &wire.RecordMessage{VolumeUUID: uuid, Epoch: epoch,
			Generation: gen, Members: members}})
		return code
	}
	for _, c := range []struct {
		name string
		got  block.Code
		want block.Code
	}{
		{"good", set(volumeUUID, 2, 5, "r0", "r1"), block.OK},
		{"the same again", set(volumeUUID, 2, 5, "r0", "r1"), block.OK},
		{"older", set(volumeUUID, 2, 4, "r0", "r1"), block.Stale},
		{"another epoch", set(volumeUUID, 3, 6, "r0"), block.Invalid},
		{"of others", set(volumeUUID, 2, 6, "r1"), block.Invalid},
		{"of nobody", set(volumeUUID, 2, 6), block.Invalid},
		{"another volume", set("00000000-93d3-4b7c-9a5e-2d1f0c6b7a88", 2, 6, "r0"), block.Refused},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.name, c.got, c.want)
		}
	}
	// It is durable when it is answered.
	g.r.Kill()
	g.r.Disk.Crash()
	g.r.Start()
	_, r, _ := g.connect().sayHello(3, "e3", nil)
	if r.Record == nil || r.Record.Generation != 5 || r.Record.Epoch != 2 || len(r.Record.Members) != 2 || r.Blank {
		t.Errorf("after a loss of power the replica tells %+v", r.Record)
	}
}

// Marks are durable when they are answered, and told to the next engine.
func TestDirtyMarks(t *testing.T) {
	g := newRig(t)
	e := g.engine(1, "e")
	e.control(wire.ControlRequest{SetRecord: &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 1,
		Members: []string{"r0"}}})
	e.control(wire.ControlRequest{ClearDirty: &wire.ClearDirty{Keep: []uint32{}}})
	if a := e.ask(wire.Header{Type: wire.MarkDirty}, []byte{3, 0, 0, 0, 1, 0, 0, 0}); a.h.Code != block.OK {
		t.Fatal(a.h.Code)
	}
	g.r.Kill()
	g.r.Disk.Crash()
	g.r.Start()
	_, r, _ := g.connect().sayHello(2, "e2", nil)
	if len(r.Dirty) != 2 || r.Dirty[0] != 1 || r.Dirty[1] != 3 || r.DirtyAll {
		t.Errorf("told %v, all %v", r.Dirty, r.DirtyAll)
	}
}

// What was flushed survives a loss of power; unaligned writes keep what is around them.
func TestFlushedWritesSurvive(t *testing.T) {
	g := newRig(t)
	e := g.engine(1, "e")
	e.ask(wire.Header{Type: wire.Write, Off: 4096, Len: 12288}, bytes.Repeat([]byte{1}, 12288))
	e.ask(wire.Header{Type: wire.Write, Off: 4096 + 512, Len: 8192}, bytes.Repeat([]byte{2}, 8192))
	if a := e.ask(wire.Header{Type: wire.Flush}, nil); a.h.Code != block.OK {
		t.Fatal(a.h.Code)
	}
	g.r.Kill()
	g.r.Disk.Crash()
	g.r.Start()
	e = g.engine(2, "e2")
	got := e.ask(wire.Header{Type: wire.Read, Off: 4096, Len: 12288}, nil).payload
	want := append(bytes.Repeat([]byte{1}, 512), bytes.Repeat([]byte{2}, 8192)...)
	want = append(want, bytes.Repeat([]byte{1}, 12288-512-8192)...)
	if !bytes.Equal(got, want) {
		t.Error("flushed data is gone or mixed up")
	}
}

// A full disk is told as such; nothing else of the replica fails.
func TestFullDisk(t *testing.T) {
	g := newRig(t)
	e := g.engine(1, "e")
	e.ask(wire.Header{Type: wire.Write, Len: 4096}, bytes.Repeat([]byte{1}, 4096))
	g.r.Disk.FS.SetCapacity(g.r.Disk.FS.Used())
	if a := e.ask(wire.Header{Type: wire.Write, Off: 1 << 20, Len: 65536},
		make([]byte, 65536)); a.h.Code != block.NoSpace {
		t.Errorf("write: %s", a.h.Code)
	}
	if a := e.ask(wire.Header{Type: wire.Write, Len: 4096}, bytes.Repeat([]byte{2}, 4096)); a.h.Code != block.OK {
		t.Errorf("overwrite: %s", a.h.Code)
	}
	if a := e.ask(wire.Header{Type: wire.Read, Len: 4096}, nil); a.h.Code != block.OK || a.payload[0] != 2 {
		t.Errorf("read: %s", a.h.Code)
	}
	if a := e.ask(wire.Header{Type: wire.MarkDirty}, []byte{2, 0, 0, 0}); a.h.Code != block.OK {
		t.Errorf("mark: %s", a.h.Code)
	}
}

// A directory may come with labels of any length. They are not told where they do not fit;
// everything else is.
func TestLongLabelsAreLeftOut(t *testing.T) {
	g := newRig(t)
	e := g.founded()
	for i := range 4 {
		name, long := string(rune('a'+i)), strings.Repeat("x", 400<<10)
		if err := g.r.Chain().Snapshot(name, true, "2026-11-21T09:00:00Z", map[string]string{"long": long}); err != nil {
			t.Fatal(err)
		}
	}
	e.must(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "e", UserCreated: true,
		Labels: map[string]string{"short": "x"}}})
	r := e.mustControl(wire.ControlRequest{Describe: &wire.DescribeRequest{Branches: true}})
	if n := len(r.Chain.Layers); n != 6 || r.Chain.Layers[4].Labels["short"] != "x" || r.Chain.Layers[0].Labels != nil {
		t.Errorf("%d layers: %+v", n, r.Chain.Layers)
	}
	if code, _ := e.control(wire.ControlRequest{Check: true,
		Snapshot: &wire.SnapshotRequest{Name: "f",
			Labels: map[string]string{"a": strings.Repeat("x", 2000)}}}); code != block.Invalid {
		t.Errorf("labels of 2000 bytes: %s", code)
	}
}

// An engine is told the counter that an engine of another kind has kept.
func TestHelloTellsTheCounter(t *testing.T) {
	g := newRig(t)
	for i, want := range []int64{0, 4711} {
		if want > 0 {
			g.r.Kill()
			digits := append([]byte("4711"), make([]byte, 4092)...)
			if err := g.r.Disk.FS.WriteFileAtomic("/replicas/"+g.r.Name+"/revision.counter", digits); err != nil {
				t.Fatal(err)
			}
			g.r.Start()
		}
		code, r, _ := g.connect().sayHello(uint64(i+1), "e", nil)
		if code != block.OK || r.Counter != want {
			t.Errorf("%s, counter %d, want %d", code, r.Counter, want)
		}
	}
}
