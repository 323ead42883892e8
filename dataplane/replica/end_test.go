package replica_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// cleanly tells whether the directory says that it was cleanly stopped.
func (g *rig) cleanly() bool {
	g.t.Helper()
	data, err := g.disk().ReadFile("/replicas/"+g.r.Name+"/volume.meta", 1<<20)
	if err != nil {
		g.t.Fatal(err)
	}
	var m struct{ Dirty bool }
	if err := json.Unmarshal(data, &m); err != nil {
		g.t.Fatal(err)
	}
	return !m.Dirty
}

// A replica is asked to end while a request is at the disk, which is slow and then fails it. What
// was flushed before is there afterwards, or what the request asked for: never zeroes in place of
// it. The stop is recorded as clean only if the replica has heard how the request ended.
func TestEndWhileARequestFails(t *testing.T) {
	const span, slow = 4 * block.Size, 100 * time.Millisecond
	old, asked := bytes.Repeat([]byte{1}, block.SectorSize), bytes.Repeat([]byte{2}, block.SectorSize)
	for name, c := range map[string]struct {
		h     wire.Header
		fault string
		// exits: the disk has failed the replica.
		exits bool
	}{
		"write": {wire.Header{Type: wire.Write, Len: span}, "write volume-head-* partial times 1", false},
		"part of a block": {wire.Header{Type: wire.Write, Off: 512, Len: span - 1024},
			"write volume-head-* partial times 1", false},
		"zeroes": {wire.Header{Type: wire.WriteZeroes, Len: span}, "write volume-head-* partial times 1", false},
		"flush":  {wire.Header{Type: wire.Flush}, "sync volume-head-* forget times 1", true},
	} {
		for _, patient := range []bool{true, false} {
			for _, engineGone := range []bool{true, false} {
				t.Run(name, func(t *testing.T) {
					g := newRig(t)
					e := g.engine(1, "e")
					e.ask(wire.Header{Type: wire.Write, Len: span}, bytes.Repeat(old, span/block.SectorSize))
					e.ask(wire.Header{Type: wire.Flush}, nil)
					e.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "a", UserCreated: true}})
					if _, err := g.disk().InjectText(c.fault); err != nil {
						t.Fatal(err)
					}
					g.r.Disk.Slow(slow)
					var payload []byte
					if c.h.Type == wire.Write {
						payload = bytes.Repeat(asked, int(c.h.Len)/block.SectorSize)
					}
					e.request(c.h, payload)
					g.w.Until(slow/2, func() bool { return false })
					if engineGone {
						e.proc.Kill()
						g.w.Until(time.Millisecond, func() bool { return false })
					}
					patience := time.Minute
					if !patient {
						patience = 0
					}
					g.r.End(patience)
					g.until("the end", func() bool { return !g.r.Alive() })
					if g.disk().Injected() == 0 && patient {
						t.Fatal("nothing has failed")
					}
					if got := g.cleanly(); got != (patient && !c.exits) {
						t.Errorf("recorded as clean: %v; patient %v", got, patient)
					}
					g.disk().ClearRules()
					g.r.Disk.Slow(0)
					g.r.Start()
					e = g.engine(2, "e2")
					got := e.ask(wire.Header{Type: wire.Read, Len: span}, nil).payload
					zeroes := c.h.Type == wire.WriteZeroes
					for i := 0; i < span; i += block.SectorSize {
						s := got[i : i+block.SectorSize]
						if !bytes.Equal(s, old) && !bytes.Equal(s, asked) && !(zeroes && bytes.Equal(s, make([]byte, len(s)))) {
							t.Fatalf("sector at %d holds %d", i, s[0])
						}
					}
				})
			}
		}
	}
}

// A replica with nothing to do ends at once, whether it has its directory or is standby, and the
// directory counts as cleanly stopped. Engines that are connected are disconnected, and nobody
// new is let in.
func TestEndOfAnIdleReplica(t *testing.T) {
	g := newRig(t)
	e := g.founded()
	next := g.second()
	next.r.End(time.Second)
	g.until("the standby ends", func() bool { return !next.r.Alive() })
	e.reads(9)
	if g.cleanly() {
		t.Error("the directory is in use, and recorded as cleanly stopped")
	}
	g.r.End(time.Second)
	before := g.w.Now()
	g.until("the end", func() bool { return !g.r.Alive() })
	if took := time.Duration(g.w.Now() - before); took > 100*time.Millisecond {
		t.Errorf("it took %s", took)
	}
	g.until("the engine hears of it", func() bool { return e.gone })
	if !g.cleanly() {
		t.Error("not recorded as cleanly stopped")
	}
	g.r.Start()
	g.engine(2, "e2").reads(9)
}

// While a replica waits for its disk to end, nobody can begin anything.
func TestNobodyIsLetInWhileAReplicaEnds(t *testing.T) {
	g := newRig(t)
	e := g.founded()
	idle := g.connect()
	g.until("greeting", func() bool { return idle.greeted })
	g.r.Disk.Slow(time.Second)
	e.request(wire.Header{Type: wire.Write, Len: 4096}, make([]byte, 4096))
	g.w.Until(10*time.Millisecond, func() bool { return false })
	g.r.End(time.Minute)
	late := g.connect()
	g.until("everybody is disconnected", func() bool { return e.gone && idle.gone && late.gone })
	if !g.r.Alive() {
		t.Fatal("it has ended before its disk has answered")
	}
	g.until("the end", func() bool { return !g.r.Alive() })
	if !g.cleanly() {
		t.Error("not recorded as cleanly stopped")
	}
}
