package chain_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/memdisk"
)

// absentSize is 16 regions.
const absentSize = 64 * mib

func members(names ...string) []chain.Member {
	var out []chain.Member
	for _, n := range names {
		out = append(out, chain.Member{Name: n})
	}
	return out
}

// record writes a record of the given generation in epoch 1.
func (w *world) record(generation uint64, names ...string) error {
	return w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Generation: generation, State: chain.MemberRW,
		Self: "v-1", Members: members(names...)})
}

// absentWorld is a member of {v-1 v-2 v-3} with generation 3.
func absentWorld(t *testing.T) *world {
	w, _ := newWorld(t, absentSize)
	w.must(w.record(3, "v-1", "v-2", "v-3"))
	w.must(w.c.WriteDirty([]chain.Region{1, 2, 3}))
	return w
}

// say is an entry in short.
func say(c *chain.Chain, member string) string {
	a, ok := c.Absent(member)
	if !ok {
		return "none"
	}
	var regions []string
	a.Regions.Ranges(absentSize, func(off, n int64) {
		regions = append(regions, fmt.Sprintf("%d+%d", off/chain.RegionSize, n/chain.RegionSize))
	})
	s := fmt.Sprintf("since e%d g%d %v", a.Since.Epoch, a.Since.Generation, regions)
	if a.First != "" {
		s += " first " + a.First
	}
	if a.Gone {
		s += " gone"
	}
	if len(a.Changed) > 0 {
		s += fmt.Sprint(" changed ", a.Changed)
	}
	if a.AllChanged {
		s += " all"
	}
	return s
}

// An entry begins with the record that drops the member, collects what leaves the log, follows the
// head of that time, and ends when a record names the member again. Every step is durable.
func TestAbsentMemberIsRemembered(t *testing.T) {
	w := absentWorld(t)
	steps := []struct {
		do   func() error
		want string
	}{
		{func() error { return w.record(4, "v-1", "v-2", "v-3") }, "none"},
		{func() error { return w.c.WriteDirty([]chain.Region{2, 3}) }, "none"},
		{func() error { return w.record(5, "v-1", "v-3") }, "since e1 g4 []"},
		{func() error { return w.c.WriteDirty([]chain.Region{3, 5}) }, "since e1 g4 [2+1]"},
		{func() error { return w.c.WriteDirty([]chain.Region{}) }, "since e1 g4 [2+2 5+1]"},
		{func() error { return w.c.Snapshot("a", true, "", nil) }, "since e1 g4 [2+2 5+1] first a"},
		{func() error { return w.c.Snapshot("b", true, "", nil) }, "since e1 g4 [2+2 5+1] first a changed [b]"},
		{func() error { return w.record(6, "v-1") }, "since e1 g4 [2+2 5+1] first a changed [b]"},
		{func() error { return w.c.WriteDirty(nil) }, "since e1 g4 [2+2 5+1] first a changed [b]"},
		{func() error { return w.c.WriteDirty([]chain.Region{}) }, "since e1 g4 [0+16] first a changed [b]"},
		{func() error { return w.c.MarkRemoved("a") }, "since e1 g4 [0+16] first a changed [b]"},
		{func() error { return w.c.Purge(nil) }, "since e1 g4 [0+16] first a gone changed [b a]"},
		{func() error { return w.record(7, "v-1", "v-2") }, "none"},
		{func() error { return w.record(8, "v-1") }, "since e1 g7 []"},
		{func() error { return w.c.Revert("b", "") }, "since e1 g7 [] gone"},
	}
	for i, s := range steps {
		w.must(s.do())
		for range 2 {
			if got := say(w.c, "v-2"); got != s.want {
				t.Fatalf("step %d: %s, want %s", i, got, s.want)
			}
			w.reopen()
		}
	}
	if got := say(w.c, "v-3"); got != "since e1 g5 [0+16] gone changed [a b]" {
		t.Errorf("the other member: %s", got)
	}
}

func TestAbsentListIsBounded(t *testing.T) {
	w, _ := newWorld(t, mib)
	all := []string{"v-1"}
	for i := range chain.MaxAbsent + 2 {
		all = append(all, fmt.Sprintf("x-%d", i))
	}
	w.must(w.record(1, all...))
	for i := range chain.MaxAbsent + 2 {
		w.must(w.record(uint64(2+i), append([]string{"v-1"}, all[2+i:]...)...))
	}
	w.reopen()
	for i := range chain.MaxAbsent + 2 {
		if _, ok := w.c.Absent(fmt.Sprintf("x-%d", i)); ok != (i >= 2) {
			t.Errorf("x-%d: %v", i, ok)
		}
	}
	for i := range 200 {
		w.must(w.c.Snapshot(fmt.Sprintf("snapshot-with-a-long-name-%d", i), true, "", nil))
	}
	if a, _ := w.c.Absent("x-9"); !a.AllChanged || !a.HasChanged("anything") {
		t.Error("200 new snapshots fit into the list")
	}
	w.reopen()
	if a, _ := w.c.Absent("x-9"); !a.AllChanged {
		t.Error("the overflow was forgotten")
	}
}

// everyCrash runs op at every crash point and calls check with what is found after each outcome.
func everyCrash(t *testing.T, prepare, op func(w *world) error, check func(w *world)) {
	for step, done := int64(0), false; !done; step++ {
		w := absentWorld(t)
		w.must(prepare(w))
		w.must(w.c.Sync())
		w.mem().CrashAfter(step)
		err := op(w)
		if done = err == nil; !done && !errors.Is(err, memdisk.ErrCrashed) {
			t.Fatalf("step %d: %v", step, err)
		}
		for seed := range crashSeeds {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			x.open()
			check(&x)
			x.must(x.c.Close())
		}
	}
}

func drop(w *world) error { return w.record(4, "v-1", "v-3") }

// Whenever the record without the member is there, so is the entry; as long as it is not, none
// counts.
func TestCrashWhileAMemberIsDropped(t *testing.T) {
	seen := map[string]int{}
	everyCrash(t, func(*world) error { return nil }, drop, func(w *world) {
		r, _ := w.c.Record()
		seen[fmt.Sprintf("g%d %s", r.Generation, say(w.c, "v-2"))]++
	})
	want := []string{"g3 none", "g4 since e1 g3 []"}
	for k := range seen {
		if !slices.Contains(want, k) {
			t.Errorf("impossible state %s", k)
		}
	}
	if len(seen) != len(want) {
		t.Errorf("saw %v", seen)
	}
}

// A region is in the log or in the entry, whenever power fails.
func TestCrashWhileRegionsLeaveTheLog(t *testing.T) {
	left := 0
	everyCrash(t, drop, func(w *world) error {
		if err := w.c.WriteDirty([]chain.Region{3}); err != nil {
			return err
		}
		return w.c.WriteDirty([]chain.Region{3, 4})
	}, func(w *world) {
		log, known := w.c.Dirty()
		a, ok := w.c.Absent("v-2")
		if !known || !ok {
			t.Fatalf("log known %v, entry %v", known, ok)
		}
		for r := chain.Region(1); r <= 3; r++ {
			if !slices.Contains(log, r) && !a.Regions.Has(r) {
				t.Fatalf("region %d is lost: log %v, %s", r, log, say(w.c, "v-2"))
			}
		}
		if a.Regions.Has(1) {
			left++
		}
	})
	if left == 0 {
		t.Error("no region ever left: the test shows nothing")
	}
}

// The entry says that the head has become a snapshot exactly when it has.
func TestCrashWhileTheHeadBecomesASnapshot(t *testing.T) {
	seen := map[bool]int{}
	everyCrash(t, drop, func(w *world) error { return w.c.Snapshot("a", true, "", nil) }, func(w *world) {
		list, err := w.c.Snapshots()
		w.must(err)
		there := slices.ContainsFunc(list, func(s chain.SnapshotInfo) bool { return s.Name == "a" })
		if a, _ := w.c.Absent("v-2"); (a.First == "a") != there {
			t.Fatalf("snapshot %v, %s", there, say(w.c, "v-2"))
		}
		seen[there]++
	})
	if len(seen) != 2 {
		t.Errorf("saw %v", seen)
	}
}

// A snapshot's entry is written before its file changes.
func TestCrashWhileSnapshotsAreMerged(t *testing.T) {
	everyCrash(t, func(w *world) error {
		w.fill(0, 8192, 1)
		w.snapshot("a")
		w.fill(4096, 8192, 2)
		w.snapshot("b")
		w.must(drop(w))
		return w.c.MarkRemoved("a")
	}, func(w *world) error { return w.c.Purge(nil) }, func(w *world) {
		list, err := w.c.Snapshots()
		w.must(err)
		merged := !slices.ContainsFunc(list, func(s chain.SnapshotInfo) bool { return s.Name == "a" })
		if a, _ := w.c.Absent("v-2"); merged && (!a.HasChanged("a") || !a.HasChanged("b")) {
			t.Fatalf("merged, and %s", say(w.c, "v-2"))
		}
	})
}

func voidRecord(w *world) chain.Record {
	r, _ := w.c.Record()
	return chain.Record{VolumeUUID: testUUID, Self: "v-1", Promised: r.Promised, Engine: r.Engine}
}

// The record is void only when the base and everything the replica wrote on its own are remembered.
func TestCrashWhileTheRecordIsMadeVoid(t *testing.T) {
	seen := map[string]int{}
	everyCrash(t, drop, func(w *world) error {
		return w.c.VoidForRebuild(voidRecord(w), "s", []string{"t", chain.HeadName})
	}, func(w *world) {
		r, _ := w.c.Record()
		log, _ := w.c.Dirty()
		own, ok := w.c.Absent("v-1")
		switch {
		case r.Generation == 4 && !ok && len(log) == 3:
			seen["before"]++
		case r.Generation == 0 && ok && own.Since == chain.RecordID{Epoch: 1, Generation: 4} && own.HasChanged("t"):
			for n := chain.Region(1); n <= 3; n++ {
				if !slices.Contains(log, n) && !own.Regions.Has(n) {
					t.Fatalf("region %d is lost: log %v, %s", n, log, say(w.c, "v-1"))
				}
			}
			if _, other := w.c.Absent("v-2"); other {
				t.Fatal("a rebuild target remembers another member")
			}
			seen["after"]++
		default:
			t.Fatalf("generation %d, log %v, %s", r.Generation, log, say(w.c, "v-1"))
		}
	})
	if len(seen) != 2 {
		t.Errorf("saw %v", seen)
	}
}

// The base outlives any number of interrupted rebuilds and ends with the record that names the
// replica.
func TestBaseOutlivesInterruptedRebuilds(t *testing.T) {
	w := absentWorld(t)
	for range 3 {
		w.must(w.c.VoidForRebuild(voidRecord(w), "", nil))
		w.must(w.c.WriteRecord(func() chain.Record { r := voidRecord(w); r.Promised++; return r }()))
		w.reopen()
		if got := say(w.c, "v-1"); got != "since e1 g3 [1+3]" {
			t.Fatal(got)
		}
	}
	w.must(w.record(9, "v-1", "v-2"))
	w.reopen()
	if got := say(w.c, "v-1"); got != "none" {
		t.Fatal(got)
	}
}

// A replica that stores a record which replaces it remembers what its content was: a rebuild looks
// at what has changed since, as if it had stored nothing.
func TestBaseOutlivesARecordThatReplacesTheReplica(t *testing.T) {
	w := absentWorld(t)
	w.must(w.record(4, "v-2", "v-3"))
	w.must(w.record(5, "v-2"))
	w.must(w.c.WriteDirty([]chain.Region{1, 2}))
	w.reopen()
	if got := say(w.c, "v-1"); got != "since e1 g3 [3+1]" {
		t.Fatal(got)
	}
	w.must(w.c.VoidForRebuild(voidRecord(w), "", nil))
	w.reopen()
	if got := say(w.c, "v-1"); got != "since e1 g3 [1+3]" {
		t.Fatalf("when a rebuild has begun: %s", got)
	}
}

// A sidecar that is missing is made again when it is needed; with a full disk the entry is lost and
// nothing else.
func TestAbsentSidecarIsMadeWhenNeeded(t *testing.T) {
	w := absentWorld(t)
	w.must(w.c.Close())
	fs := w.mem()
	w.must(fs.Remove("/r/ankole.absent"))
	w.open()
	fs.SetCapacity(fs.Used())
	w.must(w.record(4, "v-1", "v-3"))
	if got := say(w.c, "v-2"); got != "none" {
		t.Fatalf("without room: %s", got)
	}
	w.must(w.c.WriteDirty([]chain.Region{}))
	fs.SetCapacity(0)
	w.must(w.record(5, "v-1"))
	w.reopen()
	if got := say(w.c, "v-3"); got != "since e1 g4 []" {
		t.Fatal(got)
	}
}

// A set never forgets, and says no more than was put in unless its bound makes it.
func TestRegionSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{1, 2, 64, 1 << 15}).Draw(t, "limit")
		most := rapid.SampledFrom([]uint32{7, 500, 1 << 24}).Draw(t, "most")
		in := rapid.SliceOfN(rapid.Uint32Range(0, most), 0, 40).Draw(t, "regions")
		var s chain.RegionSet
		size := (int64(most) + 1) * chain.RegionSize
		for _, n := range in {
			s.Add(chain.Region(n), limit)
		}
		if len(s.Bits) > limit {
			t.Fatalf("%d bytes, limit %d", len(s.Bits), limit)
		}
		covered := map[uint32]bool{}
		s.Ranges(size, func(off, n int64) {
			for r := off / chain.RegionSize; most < 1000 && r*chain.RegionSize < off+n; r++ {
				covered[uint32(r)] = true
			}
		})
		for n := uint32(0); n <= min(most, 1000); n++ {
			if most < 1000 && s.Has(chain.Region(n)) != covered[n] {
				t.Fatalf("region %d: Has %v, in a range %v", n, s.Has(chain.Region(n)), covered[n])
			}
			if s.Shift == 0 && s.Has(chain.Region(n)) != slices.Contains(in, n) {
				t.Fatalf("region %d: %v", n, s.Has(chain.Region(n)))
			}
		}
		for _, n := range in {
			if !s.Has(chain.Region(n)) {
				t.Fatalf("region %d was forgotten", n)
			}
		}
	})
}
