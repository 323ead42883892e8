package replica_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/wire"
	"ankole.storage/test/seeded"
)

// trimmed is a replica with a snapshot below blocks of its head, and a session.
func trimmed(t *testing.T, seed uint64) (*rig, *peer) {
	g := newSeededRig(t, seed)
	e := g.engine(1, "e")
	e.mustAsk(wire.Header{Type: wire.Write, Len: 1 << 20}, filled(1, 1<<20))
	e.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "a", UserCreated: true}})
	e.mustAsk(wire.Header{Type: wire.Write, Len: 512 << 10}, filled(2, 512<<10))
	e.mustAsk(wire.Header{Type: wire.Flush}, nil)
	return g, e
}

// Discards beside each other and beside flushes: what was answered outlives the process, what was
// flushed the power, and nobody ever sees what was in a block before its last content.
func TestDiscards(t *testing.T) {
	src := seeded.New(t, "P1: a discard that was flushed is there after a loss of power")
	for seed := range src.Seeds(40) {
		rnd := src.Rand(3)
		g, e := trimmed(t, seed)
		type discard struct {
			at      int64
			a       *answer
			flushed bool
		}
		var all []*discard
		var flush *answer
		var before int
		for _, at := range rnd.Perm(256)[:64] {
			off := int64(at) * block.Size
			all = append(all, &discard{at: off, a: e.request(wire.Header{Type: wire.Discard, Off: off, Len: block.Size}, nil)})
			if rnd.IntN(16) == 0 {
				for _, d := range all[:before] {
					d.flushed = d.flushed || flush.done
				}
				g.until("the answers before a flush", func() bool {
					for _, d := range all {
						if !d.a.done {
							return false
						}
					}
					return true
				})
				flush, before = e.request(wire.Header{Type: wire.Flush}, nil), len(all)
			}
		}
		steps := rnd.IntN(40)
		g.w.Until(patience, func() bool { steps--; return steps < 0 })
		g.r.Kill()
		answered := map[int64]bool{}
		for i, d := range all {
			if answered[d.at] = d.a.done && d.a.h.Code == block.OK; d.a.done && !answered[d.at] {
				t.Fatalf("seed %d: %s", seed, d.a.h.Code)
			}
			d.flushed = d.flushed || i < before && flush.done
		}
		power := seed%2 == 0
		if power {
			g.r.Disk.Crash()
		}
		g.r.Start()
		e = g.engine(2, "e2")
		for i := range int64(256) {
			off, was := i*block.Size, byte(2)
			if i >= 128 {
				was = 1
			}
			got := e.mustAsk(wire.Header{Type: wire.Read, Off: off, Len: block.Size}, nil)
			asked, mustBe := false, false
			for _, d := range all {
				if d.at == off {
					asked, mustBe = true, d.flushed || answered[off] && !power
				}
			}
			switch {
			case got[0] != got[block.Size-1] || got[0] != was && got[0] != 0, got[0] == 0 && !asked, got[0] != 0 && mustBe:
				t.Fatalf("seed %d, power lost %v: the block at %d reads %d; it held %d, discarded %v, to stay so %v",
					seed, power, off, got[0], was, asked, mustBe)
			}
		}
	}
}

// Whoever waits for room for whiteouts is answered when there is none, and everything else goes on.
func TestDiscardWithoutRoom(t *testing.T) {
	g, e := trimmed(t, 1)
	fs := g.r.Disk.FS
	fs.SetCapacity(fs.Used())
	for range 2 {
		first := e.request(wire.Header{Type: wire.Discard, Len: 1 << 20}, nil)
		second := e.request(wire.Header{Type: wire.Discard, Off: 4096, Len: 4096}, nil)
		read := e.request(wire.Header{Type: wire.Read, Len: 4096}, nil)
		g.until("answers", func() bool { return first.done && second.done && read.done })
		if first.h.Code != block.NoSpace || second.h.Code != block.NoSpace || read.h.Code != block.OK ||
			read.payload[0] != 2 {
			t.Fatal(first.h.Code, second.h.Code, read.h.Code)
		}
	}
	fs.SetCapacity(fs.Used() + 65536)
	e.mustAsk(wire.Header{Type: wire.Discard, Len: 1 << 20}, nil)
	if got := e.mustAsk(wire.Header{Type: wire.Read, Len: 1 << 20}, nil); !bytes.Equal(got, make([]byte, 1<<20)) {
		t.Fatal("a discarded range does not read zero")
	}
}

// A rebuild finds out what a layer hides, and gives it to a target: in the head, below it, and
// anew.
func TestRebuildSetsWhiteouts(t *testing.T) {
	g, e := trimmed(t, 1)
	e.mustAsk(wire.Header{Type: wire.Discard, Off: 65536, Len: 65536}, nil)
	e.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "b", UserCreated: true}})
	e.mustAsk(wire.Header{Type: wire.Discard, Off: 131072, Len: 65536}, nil)
	d := e.mustControl(wire.ControlRequest{Describe: &wire.DescribeRequest{}})
	for i, want := range []bool{false, true, true} {
		if d.Chain.Layers[i].Whiteouts != want {
			t.Fatalf("layer %d: %+v", i, d.Chain.Layers[i])
		}
		x := e.mustControl(wire.ControlRequest{Extents: &wire.ExtentsRequest{Layer: uint32(i)}}).Extents
		if got := len(x.Hides) == 1 && x.Hides[0] == [2]int64{0, 1 << 20}; got != want || x.Next != -1 {
			t.Fatalf("layer %d: %+v", i, x)
		}
	}
	if b, h := e.hidden(1), e.hidden(2); len(b) != 16 || b[0] != 16 || len(h) != 16 || h[0] != 32 {
		t.Fatal(b, h)
	}

	d.Chain.Layers[2].Size = volumeSize
	e.mustControl(wire.ControlRequest{BeginRebuild: &wire.BeginRebuild{ChainDescription: *d.Chain}})
	punch := func(layer uint32, at, blocks int64, flags uint8) {
		e.mustAsk(wire.Header{Type: wire.LayerPunch, Layer: layer, Off: at * block.Size, Len: blocks * block.Size,
			Flags: flags}, nil)
	}
	punch(1, 0, 8, wire.Whiteout)   // "b" held these
	punch(1, 16, 4, 0)              // and hid these
	punch(2, 32, 4, 0)              // the head hid these
	punch(2, 200, 8, wire.Whiteout) // and does not know of "a" there
	e.mustAsk(wire.Header{Type: wire.LayerWrite, Layer: 0, Off: 4 * block.Size, Len: block.Size}, filled(9, block.Size))
	e.mustAsk(wire.Header{Type: wire.LayerWrite, Layer: 1, Off: 24 * block.Size, Len: block.Size}, filled(8, block.Size))
	want := bytes.Repeat([]byte{1}, 256)
	for i := range 128 {
		want[i] = 2
	}
	for i := range 8 {
		want[i], want[200+i] = 0, 0
	}
	for i := range 12 {
		want[20+i], want[36+i] = 0, 0
	}
	copy(want[16:], []byte{1, 1, 1, 1})
	want[24] = 8
	look := func(when string) {
		t.Helper()
		got := make([]byte, 256)
		for i := range got {
			got[i] = e.mustAsk(wire.Header{Type: wire.Read, Off: int64(i) * block.Size, Len: block.Size}, nil)[0]
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%s:\n%v\nwant\n%v", when, got, want)
		}
	}
	look("while it is rebuilt")
	e.mustControl(wire.ControlRequest{FinishRebuild: &wire.FinishRebuild{}})
	g.r.Kill()
	g.r.Disk.Crash()
	g.r.Start()
	e = g.engine(2, "e2")
	look("finished")
}

// hidden lists which of the first 256 blocks a layer says to hide.
func (p *peer) hidden(layer uint32) (blocks []int) {
	p.g.t.Helper()
	sums := p.mustAsk(wire.Header{Type: wire.LayerHash, Layer: layer, Len: 1 << 20}, nil)
	if len(sums) != wire.LayerSumsSize {
		p.g.t.Fatalf("%d bytes", len(sums))
	}
	for i := range 256 {
		if sums[wire.WhiteoutsAt:][i/8]>>(i%8)&1 != 0 {
			blocks = append(blocks, i)
		}
	}
	return blocks
}

// A discard that failed leaves each block as it was or as zeroes, and it stays so: also when the
// page of its whiteouts is written for another one, when snapshots are purged by it, and in the
// next process.
func TestFailedDiscardStaysWhatItIs(t *testing.T) {
	for name, rule := range map[string]memdisk.Rule{
		"whiteouts are not written":    {Op: memdisk.OpWrite, Name: "ankole.whiteouts-*", Err: disk.ErrIO},
		"whiteouts are written midway": {Op: memdisk.OpWrite, Name: "ankole.whiteouts-*", Err: disk.ErrIO, Partial: true},
		"no hole is made":              {Op: memdisk.OpPunch, Name: "volume-head-*", Err: disk.ErrIO},
		"some holes are made":          {Op: memdisk.OpPunch, Name: "volume-head-*", Skip: 1, Err: disk.ErrIO},
	} {
		t.Run(name, func(t *testing.T) {
			g, e := trimmed(t, 1)
			e.mustAsk(wire.Header{Type: wire.Discard, Off: 1<<20 - block.Size, Len: block.Size}, nil)
			e.mustAsk(wire.Header{Type: wire.Write, Off: 600 << 10, Len: block.Size}, filled(2, block.Size))
			e.mustAsk(wire.Header{Type: wire.Flush}, nil)
			stop := g.disk().Inject(rule)
			failing := wire.Header{Type: wire.Discard, Off: 256 << 10, Len: 512 << 10}
			if rule.Op == memdisk.OpWrite { // only what the snapshot has: else they are synced, and that ends the replica
				failing.Off, failing.Len = 700<<10, 128<<10
			}
			if a := e.ask(failing, nil); a.h.Code == block.OK {
				t.Fatal("the discard did not fail")
			}
			stop()
			read := func() []byte { return e.mustAsk(wire.Header{Type: wire.Read, Len: 1 << 20}, nil) }
			before := read()
			look := func(when string) {
				t.Helper()
				if got := read(); !bytes.Equal(got, before) {
					t.Fatalf("%s it reads otherwise", when)
				}
			}
			for off := range int64(256) {
				p := before[off*block.Size:][:block.Size]
				if !bytes.Equal(p, filled(p[0], block.Size)) || p[0] > 2 {
					t.Fatalf("block %d reads %d to %d", off, p[0], p[block.Size-1])
				}
			}
			e.mustAsk(wire.Header{Type: wire.Discard, Off: 1<<20 - 2*block.Size, Len: block.Size}, nil)
			clear(before[1<<20-2*block.Size : 1<<20-block.Size])
			e.mustAsk(wire.Header{Type: wire.Flush}, nil)
			look("after another discard")
			e.mustControl(wire.ControlRequest{RemoveSnapshot: &wire.RemoveSnapshot{Name: "a"}})
			e.mustControl(wire.ControlRequest{Purge: &wire.PurgeRequest{Begin: true}})
			for range 100 {
				if e.mustControl(wire.ControlRequest{Purge: &wire.PurgeRequest{}}).Purge.Done {
					break
				}
			}
			look("after a purge")
			g.r.Kill()
			g.r.Start()
			e = g.engine(2, "e2")
			look("in the next process")
		})
	}
}

// whiteouts is the path of the only file of whiteouts.
func (g *rig) whiteouts() string {
	names, err := g.disk().List("/replicas/r0")
	if err != nil {
		g.t.Fatal(err)
	}
	i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, "ankole.whiteouts-") })
	return "/replicas/r0/" + names[i]
}

// A reader takes what it is given as it is, so a snapshot of which it is not known what it hides
// is not given to it.
func TestReaderOfDamagedWhiteouts(t *testing.T) {
	g, e := trimmed(t, 1)
	e.mustAsk(wire.Header{Type: wire.Discard, Len: 65536}, nil)
	e.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "b", UserCreated: true}})
	if err := g.disk().Unreadable(g.whiteouts(), 0, 8192); err != nil {
		t.Fatal(err)
	}
	if _, code, _, ok := g.readerHello(g.grant("b"), nil); !ok || code != block.IOError {
		t.Fatalf("%v %s", ok, code)
	}
	g.reader("a")
	g.disk().Readable()
	g.reader("b")
}

// A discard that needs room for whiteouts waits for whatever metadata operation is under way; no
// other request waits behind it.
func TestNobodyWaitsBehindADiscardWithoutRoom(t *testing.T) {
	before := 0
	for seed := range uint64(30) {
		g, e := trimmed(t, seed)
		open := e.controls(wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: "a"}})
		first := e.request(wire.Header{Type: wire.Discard, Len: 1 << 20}, nil)
		second := e.request(wire.Header{Type: wire.Discard, Off: 65536, Len: 4096}, nil)
		read := e.request(wire.Header{Type: wire.Read, Off: 2 << 20, Len: block.Size}, nil)
		g.until("one of them is answered", func() bool { return open.done || first.done || read.done })
		if !open.done && !first.done {
			before++
		}
		g.until("all are answered", func() bool { return open.done && first.done && second.done && read.done })
		if first.h.Code != block.OK || second.h.Code != block.OK || read.h.Code != block.OK {
			t.Fatalf("seed %d: %s, %s, %s", seed, first.h.Code, second.h.Code, read.h.Code)
		}
		if got := e.mustAsk(wire.Header{Type: wire.Read, Len: 1 << 20}, nil); !bytes.Equal(got, make([]byte, 1<<20)) {
			t.Fatalf("seed %d: a discarded range does not read zero", seed)
		}
		g.v.Close()
	}
	if before == 0 {
		t.Error("no read was answered before the snapshot was open")
	}
}

// A session that ends while its discards wait for room leaves nothing behind.
func TestSessionEndsBeforeThereIsRoom(t *testing.T) {
	for steps := range 40 {
		g, e := trimmed(t, uint64(steps))
		for i := range int64(4) {
			e.request(wire.Header{Type: wire.Discard, Off: i << 16, Len: 65536}, nil)
		}
		n := steps
		g.w.Until(patience, func() bool { n--; return n < 0 })
		e = g.engine(2, "e2")
		e.mustAsk(wire.Header{Type: wire.Discard, Len: 1 << 20}, nil)
		if got := e.mustAsk(wire.Header{Type: wire.Read, Len: 1 << 20}, nil); !bytes.Equal(got, make([]byte, 1<<20)) {
			t.Fatalf("after %d steps: a discarded range does not read zero", steps)
		}
		g.v.Close()
	}
}
