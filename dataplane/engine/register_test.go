package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
	"ankole.storage/test/seeded"
)

// access is one write to a sector, or one read of it, with the times at which it began and was
// answered. A write has a value that no other write has; a write that has failed may have its
// effect at any later time, or never.
type access struct {
	write, failed bool
	value         byte
	begin, end    int
}

// linearizable reports whether some order of the accesses that keeps to their times lets each read
// return the value before it. The sector begins as zero.
func linearizable(all []access) bool {
	seen := map[[2]uint64]bool{}
	var try func(done uint64, value byte) bool
	try = func(done uint64, value byte) bool {
		key := [2]uint64{done, uint64(value)}
		if seen[key] {
			return false
		}
		seen[key] = true
		next, left := 1<<62, false // no access may come after one that ended before it began
		for i, a := range all {
			if done&(1<<i) == 0 && !a.failed {
				next, left = min(next, a.end), true
			}
		}
		if !left {
			return true
		}
		for i, a := range all {
			if done&(1<<i) != 0 || a.begin > next || (!a.write && a.value != value) {
				continue
			}
			if try(done|1<<i, a.value) {
				return true
			}
		}
		return false
	}
	return try(0, 0)
}

func TestLinearizable(t *testing.T) {
	for name, c := range map[string]struct {
		all  []access
		want bool
	}{
		"a lost write": {[]access{{write: true, value: 1, begin: 1, end: 2},
			{begin: 3, end: 4}}, false},
		"beside a write either is right": {[]access{{write: true, value: 1, begin: 1, end: 9}, {begin: 3, end: 4},
			{value: 1, begin: 5, end: 6}}, true},
		"and back is wrong": {[]access{{write: true, value: 1, begin: 1, end: 9},
			{value: 1, begin: 3, end: 4}, {begin: 5, end: 6}}, false},
		"a failed write may have its effect": {[]access{{write: true, failed: true, value: 1, begin: 1, end: 2},
			{value: 1, begin: 5, end: 6}}, true},
		"or none": {[]access{{write: true, failed: true, value: 1, begin: 1, end: 2},
			{begin: 5, end: 6}}, true},
		"but not one after the other and back": {[]access{{write: true, failed: true, value: 1, begin: 1, end: 2},
			{value: 1, begin: 3, end: 4}, {begin: 5, end: 6}}, false},
	} {
		if linearizable(c.all) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

// sectorsUsed is how many sectors a history touches: those of two blocks, so that nearly everything
// meets.
const sectorsUsed = 16

// history is a random history of small requests, changes of the chain and of the set of replicas;
// every answer of every replica may come at any time.
type history struct {
	*rig
	r     *rand.Rand
	clock int
	calls []*smallCall
	names int
	// failing: some writes fail on all replicas, each of which may have them all the same.
	// Then no member is dropped: with it goes what it alone had of such a write.
	failing bool
	fails   map[uint64]bool // by request
	// late answers are so many of six.
	late int
	busy int
	// hands: engines hand over to one another; handing is a hand-over under way, handed and stayed
	// count those that came about and those that did not. sick is the replica whose disk cannot
	// read now and then.
	hands          bool
	handing        *handing
	handed, stayed int
	sick           string
}

type smallCall struct {
	*call
	first, n   int // sectors
	value      byte
	begin, end int
}

func newHistory(t *testing.T, seed uint64, replicas int) *history {
	src := seeded.New(t, "P4: of writes to parts of one block none is lost; every sector is a register")
	src.Seed(seed)
	h := &history{rig: newRig(t, replicas, 8*mib), r: src.Rand(7), names: replicas,
		fails: map[uint64]bool{}, late: 4}
	h.start()
	for _, f := range h.fakes {
		f.script = h.script(f)
	}
	return h
}

// script keeps some answers until the history lets one go.
func (h *history) script(f *fake) func(*wire.Header) (block.Code, bool) {
	return func(hd *wire.Header) (block.Code, bool) {
		code := block.OK
		if h.failing && hd.Type == wire.Write && h.writeFails(hd.ID) {
			code, f.keepsFailed = block.NoSpace, h.r.IntN(2) == 0
		}
		if h.readFails(f, hd) {
			return block.IOError, false
		}
		return code, h.r.IntN(6) < h.late
	}
}

// writeFails decides for all replicas at once: who fails alone is dropped, and so is a target of a
// rebuild.
func (h *history) writeFails(id uint64) bool {
	fails, known := h.fails[id]
	if !known {
		fails = h.r.IntN(3) == 0 && !strings.Contains(h.modes(), "WO")
		h.fails[id] = fails
	}
	return fails
}

// pass lets a little time pass, and notes what was answered.
func (h *history) pass() {
	h.w.Until(time.Duration(h.r.IntN(300))*time.Microsecond, func() bool { return false })
	h.clock++
	for _, c := range h.calls {
		if c.done && c.end == 0 {
			c.end = h.clock
		}
	}
	h.clock++
}

func (h *history) small(kind block.Kind) {
	first := h.r.IntN(sectorsUsed)
	c := &smallCall{first: first, n: 1 + h.r.IntN(min(3, sectorsUsed-first)), begin: h.clock}
	off, n := int64(c.first)*block.SectorSize, int64(c.n)*block.SectorSize
	switch kind {
	case block.Write:
		c.value = byte(len(h.calls) + 1)
		c.call = h.write(off, c.value, int(n))
	default:
		c.call = h.begin(block.Read, off, n, make([]byte, n))
	}
	h.calls = append(h.calls, c)
}

// let answers one of the requests that were kept.
func (h *history) let() {
	f := h.fakes[h.r.IntN(len(h.fakes))]
	if n := len(f.held); n > 0 {
		f.let(h.r.IntN(n))
	}
}

// let answers one of the requests that were kept.
func (f *fake) let(i int) {
	answer := f.held[i]
	f.held = slices.Delete(f.held, i, i+1)
	f.proc.Post(answer)
}

func (h *history) one() {
	if h.busy > 0 && h.failing && len(h.calls) < 58 {
		h.busy-- // whoever is read from while a rebuild begins is no good source for it
		h.small(block.Read)
	}
	switch k := h.r.IntN(40); {
	case k < 8 && !(h.failing && k < 4) && len(h.calls) < 60:
		h.small(block.Write)
	case k < 11 && len(h.calls) < 60:
		h.small(block.Read)
	case k == 11:
		h.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: fmt.Sprint("s", h.clock)}, Reply: func(error) {}})
	case k == 12 && len(h.fakes) < 5:
		f := newFake(h.rig, string(rune('a'+h.names)))
		h.names++
		f.script = h.script(f)
		h.fakes = append(h.fakes, f)
		h.proc.Post(engine.AddReplica{Address: f.addr(), Reply: func(err error) {
			if err != nil {
				h.drop(f)
			}
		}})
		h.busy = 12
	case k == 13 && h.handing == nil:
		h.dropOne()
	case k == 14 && h.hands:
		h.handOver()
	default:
		h.let()
	}
}

// drop takes a replica away; its place among the engine's is free then.
func (h *history) drop(f *fake) {
	f.proc.Kill()
	h.fakes = slices.DeleteFunc(h.fakes, func(o *fake) bool { return o == f })
	h.proc.Post(engine.RemoveReplica{Address: f.addr(), Reply: func(error) {}})
}

// dropOne takes one away that is being rebuilt, or a member while others are left.
func (h *history) dropOne() {
	rw := strings.Count(h.modes(), "RW")
	for _, i := range h.r.Perm(len(h.fakes)) {
		f := h.fakes[i]
		for _, r := range h.state.Replicas {
			if r.Address == f.addr() && (r.Mode == engine.WO || (r.Mode == engine.RW && rw > 2 && !h.failing)) {
				h.drop(f)
				return
			}
		}
	}
}

// end lets everything be answered, reads all, and judges.
func (h *history) end() error {
	h.until("everything is answered", func() bool {
		for _, f := range h.fakes {
			f.script = nil
			for ; len(f.held) > 0; f.held = f.held[1:] {
				f.proc.Post(f.held[0])
			}
		}
		return !slices.ContainsFunc(h.calls, func(c *smallCall) bool { return !c.done })
	})
	h.pass()
	for range len(h.fakes) {
		c := &smallCall{n: sectorsUsed, begin: h.clock}
		c.call, _ = h.read(0, sectorsUsed*block.SectorSize)
		h.calls = append(h.calls, c)
		h.pass()
	}
	for s := range sectorsUsed {
		if all := h.accesses(s); !linearizable(all) {
			return fmt.Errorf("sector %d: no order explains %+v", s, all)
		}
	}
	return nil
}

// accesses are those of one sector.
func (h *history) accesses(s int) (all []access) {
	for _, c := range h.calls {
		if s < c.first || s >= c.first+c.n {
			continue
		}
		a := access{write: c.req.Kind == block.Write, failed: c.code != block.OK, value: c.value, begin: c.begin, end: c.end}
		if !a.write {
			if a.failed {
				continue
			}
			a.value = c.data[(s-c.first)*block.SectorSize]
		}
		all = append(all, a)
	}
	return all
}

// TestSmallWritesKeepTheirOrder plays random histories of requests below 4 KiB that meet in two
// blocks, while answers of replicas are late, replicas are rebuilt, join and leave, and snapshots
// stop writes: every sector must be a register whose reads and acknowledged writes have one order.
func TestSmallWritesKeepTheirOrder(t *testing.T) {
	for seed := range uint64(60) {
		h := newHistory(t, seed, 2)
		for range 400 {
			h.one()
			h.pass()
		}
		if err := h.end(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var first *fake
		for _, r := range h.state.Replicas {
			for _, f := range h.fakes {
				if r.Address != f.addr() || r.Mode != engine.RW {
					continue
				}
				if first == nil {
					first = f
				}
				if n := int64(sectorsUsed * block.SectorSize); !bytes.Equal(f.read(0, n), first.read(0, n)) {
					t.Fatalf("seed %d: %s differs from %s", seed, f.name, first.name)
				}
			}
		}
	}
}

// A small write that was interrupted between reading the blocks around it and writing them reads
// them again: another write to the same block may have gone first.
func TestInterruptedSmallWriteReadsAgain(t *testing.T) {
	g := newRig(t, 2, 8*mib).start()
	g.finish(g.write(0, 9, 4096))
	for _, f := range g.fakes {
		f.script = holding(wire.LayerRead)
	}
	x := g.add("x")
	g.until("x is WO", func() bool { return g.modes() == "a=RW b=RW x=WO" })
	for _, f := range g.fakes {
		f.script = func(h *wire.Header) (block.Code, bool) {
			return block.OK, h.Type == wire.LayerRead || h.Type == wire.Read || h.Type == wire.Control
		}
	}
	reads := func() int { return g.fakes[0].seen(wire.Read) + g.fakes[1].seen(wire.Read) }
	one := g.write(0, 1, 512)
	g.until("the first reads what is around it", func() bool { return reads() == 1 })
	two := g.write(512, 2, 512) // waits behind it
	if err := g.ask(func(reply func(error)) any {
		return engine.RemoveReplica{Address: x.addr(), Reply: reply}
	}); err != nil {
		t.Fatal(err)
	}
	g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(err error) {
		if err != nil {
			t.Error(err)
		}
	}})
	g.until("writes are acknowledged", func() bool {
		for _, f := range g.fakes {
			f.release()
		}
		return one.done && two.done
	})
	want := append(append(bytes.Repeat([]byte{1}, 512), bytes.Repeat([]byte{2}, 512)...), bytes.Repeat([]byte{9}, 3072)...)
	for _, f := range g.fakes {
		if got := f.read(0, 4096); !bytes.Equal(got, want) {
			t.Errorf("%s: the sectors begin with %d %d %d", f.name, got[0], got[512], got[1024])
		}
	}
}
