package chain_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

func TestCreateRefusesBadInput(t *testing.T) {
	long := strings.Repeat("n", chain.MaxNameLength+1)
	for name, spec := range map[string]chain.Spec{
		"zero size":      {},
		"negative size":  {Size: -4096},
		"odd size":       {Size: 4097},
		"absurd size":    {Size: 1 << 62},
		"long name":      {Size: mib, Self: long},
		"not a snapshot": {Size: mib, Layers: []chain.LayerSpec{{File: "volume-head-001.img"}}},
		"path as layer":  {Size: mib, Layers: []chain.LayerSpec{{File: "volume-snap-../x.img"}}},
		"layer twice":    {Size: mib, Layers: []chain.LayerSpec{{File: "volume-snap-a.img"}, {File: "volume-snap-a.img"}}},
		"layer too long": {Size: mib, Layers: []chain.LayerSpec{{File: "volume-snap-a.img", Size: 2 * mib}}},
		"unknown parent": {Size: mib, HeadParent: "volume-snap-a.img"},
		"parent comes last": {Size: mib, Layers: []chain.LayerSpec{
			{File: "volume-snap-b.img", Meta: chain.DiskMeta{Parent: "volume-snap-a.img"}}, {File: "volume-snap-a.img"}}},
	} {
		t.Run(name, func(t *testing.T) {
			fs := memdisk.New()
			err := chain.Create(fs, "/r", spec, chain.Options{})
			if err == nil {
				t.Fatal("accepted")
			}
			if _, err := fs.Stat("/r"); err == nil {
				t.Fatal("something was made")
			}
		})
	}
	fs := memdisk.New()
	wantErr(t, chain.Create(fs, "/none/r", testSpec(mib), chain.Options{}), chain.ErrNotFound)
	wantErr(t, chain.Create(fs, "/r", testSpec(mib), chain.Options{SnapshotMaxCount: 1}), chain.ErrInvalid)
	wantErr(t, chain.Create(fs, "/r", testSpec(mib), chain.Options{SnapshotMaxCount: 251}), chain.ErrInvalid)
}

func TestCreateOnExistingReplicaIsNoChange(t *testing.T) {
	w, fs := newWorld(t, 4*mib)
	w.fill(0, 4096, 7)
	w.must(w.c.Close())
	w.must(chain.Create(fs, w.dir, testSpec(8*mib), w.opts))
	w.open()
	if w.c.Size() != 4*mib {
		t.Fatalf("size %d", w.c.Size())
	}
	w.wantByte(0, 4096, 7)
}

func TestFreshVolumeReadsZero(t *testing.T) {
	w, _ := newWorld(t, 8*mib)
	w.wantByte(0, 8*mib, 0)
	if plan := w.c.ReadPlan(512, 1024, nil); !reflect.DeepEqual(plan,
		[]chain.Extent{{Handle: chain.NoHandle, Off: 512, Len: 1024}}) {
		t.Fatalf("plan %+v", plan)
	}
	if !w.c.Empty() {
		t.Fatal("a fresh volume is not empty")
	}
	r, valid := w.c.Record()
	if !valid || r.VolumeUUID != testUUID || r.State != chain.MemberUnknown || r.Self != "v-1" || r.Epoch != 0 {
		t.Fatalf("first record %+v, %v", r, valid)
	}
	if set, known := w.c.Dirty(); !known || len(set) != 0 {
		t.Fatalf("first dirty log %v, %v", set, known)
	}
}

func TestEmpty(t *testing.T) {
	w, _ := newWorld(t, 64*mib)
	w.fill(40*mib, 4096, 0)
	for range 2 {
		if w.c.Empty() {
			t.Fatal("a written block of zeroes is nothing")
		}
		w.reopen()
	}
	w.zero(40*mib, 4096)
	w.reopen()
	if !w.c.Empty() {
		t.Fatal("after a hole was punched where the only block was, something is left")
	}
	w.snapshot("a")
	if w.c.Empty() {
		t.Fatal("a volume with a snapshot is empty")
	}
}

func TestReadPlanMergesNeighbours(t *testing.T) {
	w, _ := newWorld(t, 8*mib)
	w.fill(0, 16384, 1)
	low := w.c.HeadHandle()
	w.snapshot("a")
	w.fill(4096, 4096, 2)
	high := w.c.HeadHandle()
	got := w.c.ReadPlan(1024, 20480, []chain.Extent{{Handle: 99}})
	want := []chain.Extent{{Handle: 99}, {Handle: low, Off: 1024, Len: 3072}, {Handle: high, Off: 4096, Len: 4096},
		{Handle: low, Off: 8192, Len: 8192}, {Handle: chain.NoHandle, Off: 16384, Len: 5120}}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("plan %+v\nwant %+v", got, want)
	}
	if got := w.c.ReadPlan(8*mib, 0, nil); len(got) != 0 {
		t.Fatalf("plan of nothing %+v", got)
	}
}

func TestOutOfRangeIsABug(t *testing.T) {
	w, _ := newWorld(t, mib)
	for _, r := range [][2]int64{{-1, 1}, {0, mib + 1}, {mib, 1}, {1 << 62, 1 << 62}, {0, -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("range %v was accepted", r)
				}
			}()
			w.c.ReadPlan(r[0], r[1], nil)
		}()
	}
}

func TestSmallWriteKeepsTheRestOfItsBlock(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.fill(0, 4096, 1)
	w.snapshot("a")
	w.fill(512, 512, 2)
	w.reopen()
	w.wantByte(0, 512, 1)
	w.wantByte(512, 512, 2)
	w.wantByte(1024, 3072, 1)
}

func TestZeroPlan(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.fill(0, 16384, 1)
	check := func(off, n int64, want ...chain.ZeroRange) {
		t.Helper()
		if got := w.c.ZeroPlan(off, n, nil); !reflect.DeepEqual(got, want) {
			t.Fatalf("plan %+v, want %+v", got, want)
		}
	}
	check(0, mib, chain.ZeroRange{Off: 0, Len: 16384, Punch: true})
	check(512, 8192, chain.ZeroRange{Off: 512, Len: 3584}, chain.ZeroRange{Off: 4096, Len: 4096, Punch: true},
		chain.ZeroRange{Off: 8192, Len: 512})
	check(32768, 4096)
	w.snapshot("a")
	w.fill(4096, 4096, 2)
	w.fill(32768, 4096, 2)
	// Below the head's block 1 lies the snapshot's, below block 8 nothing.
	check(0, mib, chain.ZeroRange{Off: 0, Len: 16384}, chain.ZeroRange{Off: 32768, Len: 4096, Punch: true})
	w.zero(0, mib)
	w.wantByte(0, mib, 0)
	w.reopen()
	w.wantByte(0, mib, 0)
	if got, err := w.c.HashAt("a"); err != nil {
		t.Fatal(err)
	} else if want, _ := w.c.HashAt(chain.HeadName); got == want {
		t.Fatal("zeroing the head changed the snapshot")
	}
}

func TestDiscardTakesWholeBlocks(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.fill(0, 16384, 1)
	used := fs.Used()
	for _, n := range []int64{0, 512, 4095, 4096} {
		if got := w.c.DiscardPlan(512, n, nil); len(got) != 0 {
			t.Fatalf("discard of [512,+%d): %+v", n, got)
		}
	}
	for _, z := range w.c.DiscardPlan(512, 12000, nil) {
		w.applyZero(z)
	}
	w.wantByte(0, 4096, 1)
	w.wantByte(4096, 8192, 0)
	w.wantByte(12288, 4096, 1)
	if fs.Used() != used-8192 {
		t.Fatalf("discard gave %d bytes back", used-fs.Used())
	}
}

func TestSnapshotsKeepContent(t *testing.T) {
	w, fs := newWorld(t, mib)
	var sums [][32]byte
	for i := range 12 {
		w.fill(int64(i)*mib/16, mib/8, byte(i+1))
		sum, err := w.c.HashAt(chain.HeadName)
		w.must(err)
		sums = append(sums, sum)
		w.snapshot(fmt.Sprint("s", i))
	}
	for range 2 {
		for i, want := range sums {
			if got, err := w.c.HashAt(fmt.Sprint("s", i)); err != nil || got != want {
				t.Fatalf("s%d: %v", i, err)
			}
		}
		w.reopen()
	}
	w.must(w.c.Close())
	if n := fs.OpenFiles(); n != 0 {
		t.Fatalf("%d files left open", n)
	}
}

func TestSnapshotRefuses(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.snapshot("a")
	for _, name := range []string{"", ".", "..", "a/b", "-x", "volume-head", "x y", strings.Repeat("x", 226), "é"} {
		wantErr(t, w.c.Snapshot(name, true, "", nil), chain.ErrInvalid)
	}
	wantErr(t, w.c.Snapshot("a", true, "", nil), chain.ErrExists)
	w.must(w.c.Snapshot(strings.Repeat("x", 225), true, "", nil))
}

func TestSnapshotLimits(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.must(w.c.Close())
	w.opts.SnapshotMaxCount, w.opts.SnapshotMaxSize = 3, 3*4096
	w.open()
	w.fill(0, 8192, 1)
	w.snapshot("a")
	w.fill(0, 8192, 1)
	wantErr(t, w.c.Snapshot("b", true, "", nil), chain.ErrLimit) // 8192 + 8192 > 12288
	w.must(w.c.MarkRemoved("a"))                                 // does not count any more
	w.snapshot("b")
	w.snapshot("c")
	w.snapshot("d")
	wantErr(t, w.c.Snapshot("e", true, "", nil), chain.ErrLimit)
	u, err := w.c.Usage()
	if want := (chain.Usage{Count: 3, Total: 5, SizeBytes: 8192}); err != nil || u != want {
		t.Fatalf("usage %+v, %v", u, err)
	}
}

// The chain holds 250 files, head included, and every one of them can be told apart in the map.
func TestLongestChain(t *testing.T) {
	w, _ := newWorld(t, 2*mib)
	for i := range 249 {
		w.fill(int64(i)*4096, 4096, byte(i+1))
		w.snapshot(fmt.Sprint("s", i))
	}
	wantErr(t, w.c.Snapshot("more", true, "", nil), chain.ErrLimit)
	wantErr(t, w.c.Expand(4*mib, ""), chain.ErrLimit)
	w.fill(249*4096, 4096, 250)
	for range 2 {
		for i := range 250 {
			w.wantByte(int64(i)*4096, 4096, byte(i+1))
		}
		w.reopen()
	}
}

func TestExpand(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.fill(0, mib, 1)
	w.must(w.c.Expand(mib, ""))
	for _, size := range []int64{0, -4096, mib / 2, mib + 512, 1 << 62} {
		wantErr(t, w.c.Expand(size, ""), chain.ErrInvalid)
	}
	w.must(w.c.Expand(20*mib, "2026-11-21T09:00:00Z"))
	for range 2 {
		if w.c.Size() != 20*mib {
			t.Fatalf("size %d", w.c.Size())
		}
		w.wantByte(0, mib, 1)
		w.wantByte(mib, 19*mib, 0)
		w.reopen()
	}
	w.fill(19*mib, mib, 2)
	w.wantByte(19*mib, mib, 2)
	list, err := w.c.Snapshots()
	w.must(err)
	if s := list[0]; s.Name != "expand-20971520" || s.UserCreated || s.Labels["replica-expansion"] != "20971520" {
		t.Fatalf("expansion's snapshot is %+v", s)
	}
	wantErr(t, w.c.Expand(mib, ""), chain.ErrInvalid)
}

func TestSnapshotListing(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.fill(0, 4096, 1)
	w.must(w.c.Snapshot("b", true, "2026-11-21T09:00:00Z", map[string]string{"k": "v"}))
	w.must(w.c.Snapshot("a", false, "2026-11-21T09:00:01Z", nil))
	w.fill(0, 8192, 1)
	w.must(w.c.MarkRemoved("a"))
	w.must(w.c.MarkRemoved("a"))
	wantErr(t, w.c.MarkRemoved("c"), chain.ErrNotFound)
	wantErr(t, w.c.MarkRemoved(chain.HeadName), chain.ErrNotFound)
	want := []chain.SnapshotInfo{
		{Name: "a", Parent: "b", Children: []string{"volume-head"}, Removed: true, Created: "2026-11-21T09:00:01Z"},
		{Name: "b", Children: []string{"a"}, UserCreated: true, Created: "2026-11-21T09:00:00Z", SizeBytes: 4096,
			Labels: map[string]string{"k": "v"}},
		{Name: "volume-head", Parent: "a", Created: "2026-11-21T09:00:01Z", SizeBytes: 8192},
	}
	for range 2 {
		got, err := w.c.Snapshots()
		w.must(err)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("listed %+v\nwant   %+v", got, want)
		}
		w.reopen()
	}
}

func TestOneOpenerAtATime(t *testing.T) {
	w, _ := newWorld(t, mib)
	_, err := chain.Open(w.fs, w.dir, w.opts)
	wantErr(t, err, chain.ErrInUse)
	wantErr(t, chain.Create(w.fs, w.dir, testSpec(mib), w.opts), chain.ErrInUse)
	w.reopen()
}

func TestForeignVolumeIsRefused(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.must(w.c.Close())
	_, err := chain.Open(fs, w.dir, chain.Options{VolumeUUID: chain.UUID{9}})
	wantErr(t, err, chain.ErrForeign)
	if n := fs.OpenFiles(); n != 0 {
		t.Fatalf("%d files left open", n)
	}
	w.open()
}

func TestDirtyFlagAndStates(t *testing.T) {
	fs := memdisk.New()
	state := func(want chain.State) chain.Info {
		t.Helper()
		info, err := chain.Inspect(fs, "/r")
		if err != nil || info.State != want {
			t.Fatalf("state %s, %v; want %s", info.State, err, want)
		}
		return info
	}
	state(chain.StateInitial)
	w := &world{t: t, fs: fs, dir: "/r", opts: testOptions()}
	w.must(chain.Create(fs, "/r", testSpec(mib), w.opts))
	if info := state(chain.StateClosed); info.Dirty || info.SizeBytes != mib || !info.RecordValid {
		t.Fatalf("created: %+v", info)
	}
	w.open()
	if info := state(chain.StateClosed); !info.Dirty || w.c.State() != chain.StateDirty {
		t.Fatalf("opened: %+v, %s", info, w.c.State())
	}
	w.must(w.c.SetRebuilding())
	if w.c.State() != chain.StateRebuilding {
		t.Fatal(w.c.State())
	}
	w.must(w.c.FinishRebuild())
	wantErr(t, w.c.FinishRebuild(), chain.ErrInvalid)
	w.must(w.c.Close())
	w.must(w.c.Close()) // again is nothing
	if info := state(chain.StateClosed); info.Dirty || w.c.State() != chain.StateClosed {
		t.Fatalf("closed: %+v", info)
	}
	wantErr(t, w.c.Snapshot("x", true, "", nil), chain.ErrInvalid)
	w.must(fs.WriteFileAtomic("/r/volume.meta", nil))
	state(chain.StateInitial)
	w.must(fs.WriteFileAtomic("/r/volume.meta", []byte("{")))
	if info, err := chain.Inspect(fs, "/r"); info.State != chain.StateError {
		t.Fatalf("%+v, %v", info, err)
	}
}

func TestFailedSyncBreaksTheChain(t *testing.T) {
	w, fs := newWorld(t, mib)
	fs.Inject(memdisk.Rule{Op: memdisk.OpSync, Name: "volume-head-*.img", Times: 1, Err: disk.ErrIO})
	wantErr(t, w.c.Sync(), disk.ErrIO)
	if w.c.WriteAllowed() || w.c.State() != chain.StateError {
		t.Fatalf("still writable, state %s", w.c.State())
	}
	for _, err := range []error{w.c.Sync(), w.c.Snapshot("a", true, "", nil), w.c.WriteRecord(chain.Record{}),
		w.c.MarkRemoved("a")} {
		wantErr(t, err, chain.ErrBroken)
	}
	w.must(w.c.Close())
	if info, err := chain.Inspect(fs, w.dir); err != nil || !info.Dirty {
		t.Fatalf("a broken chain was recorded as cleanly closed: %+v, %v", info, err)
	}
}

// After a failed write the map follows what the file system did.
func TestRemapFollowsTheFile(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.fill(0, 65536, 1)
	w.snapshot("a")
	f, _ := fs.File(w.c.HeadHandle())
	_, err := f.WriteAt(bytes.Repeat([]byte{2}, 4096), 8192) // the part of a failed write that arrived
	w.must(err)
	w.wantByte(8192, 4096, 1)
	w.must(w.c.Remap(4096, 16384))
	w.wantByte(4096, 4096, 1)
	w.wantByte(8192, 4096, 2)
	w.wantByte(12288, 4096, 1)
}

// A discard that fails after a hole was punched leaves a map that says so.
func TestRemapSeesHoles(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.fill(0, 8192, 1)
	w.snapshot("a")
	w.fill(0, 16384, 2)
	f, _ := fs.File(w.c.HeadHandle())
	w.must(f.Punch(8192, 4096))
	w.must(w.c.Remap(0, 16384))
	w.must(w.c.CheckMap())
	w.wantByte(0, 8192, 2)
	w.wantByte(8192, 4096, 0)
	w.wantByte(12288, 4096, 2)
}

// A failed write may leave space without content, as a file system does that fills up in the
// middle: what is below must show through, at once and after a clean stop.
func TestRemapLeavesNoUnwrittenExtent(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.fill(0, 65536, 1)
	w.snapshot("a")
	w.fill(32768, 4096, 3)
	f, _ := fs.File(w.c.HeadHandle())
	w.must(f.Preallocate(8192, 8192))
	_, err := f.WriteAt(bytes.Repeat([]byte{2}, 4096), 8192)
	w.must(err)
	w.must(w.c.Remap(4096, 40960))
	for range 2 {
		w.wantByte(4096, 4096, 1)
		w.wantByte(8192, 4096, 2)
		w.wantByte(12288, 4096, 1)
		w.wantByte(32768, 4096, 3)
		w.must(w.c.Close())
		w.open()
	}
}
