package chain_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/test/lack"
)

// Every metadata operation is crashed before each of its changes to the disk, with many choices of
// what of the unsynced changes survives, and the directory is opened again. It must then be in the
// state from before the operation or in the one from after it, whole: for our own reader, and for
// the independent one.

// outcome makes every step's outcomes other ones.
func outcome(step int64, seed uint64) uint64 { return uint64(step)<<32 | seed }

// crashSeeds is how many outcomes of each crash are looked at: the first few, and always the same,
// where tests decide about a change.
var crashSeeds = func() uint64 {
	if lack.Deciding() {
		return 4
	}
	return 12
}()

// crashSize is the volume: small, because every outcome is read several times.
const crashSize = 128 << 10

// grownFrom is the size of a volume of crashSize before it has grown.
const grownFrom = 96 << 10

// view is everything that can be told apart about a replica from outside.
type view struct {
	Size     int64
	Layers   map[string]string // snapshot name -> parent, flags and content
	Record   chain.Record
	Valid    bool
	Dirty    []chain.Region
	Known    bool
	Revision int64
	// Rebuilding is the flag, not the state.
	Rebuilding bool
}

func viewOf(t *testing.T, fs disk.Meta, c *chain.Chain) view {
	t.Helper()
	v := view{Size: c.Size(), Layers: map[string]string{}, Rebuilding: c.Rebuilding()}
	list, err := c.Snapshots()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		sum, err := c.HashAt(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		v.Layers[s.Name] = fmt.Sprintf("%s %v %v %v %v %x", s.Parent, s.Removed, s.UserCreated, s.Created, s.Labels, sum)
	}
	v.Record, v.Valid = c.Record()
	v.Dirty, v.Known = c.Dirty()
	if v.Revision, _, err = c.RevisionCounter(); err != nil {
		t.Fatal(err)
	}
	return v
}

// crashBase makes a closed directory with some history. Its flushed content must survive
// everything.
func crashBase(t *testing.T) *world { return crashBaseFrom(t, crashSize) }

// crashBaseFrom is crashBase of a volume that had another size when its first snapshot was taken.
func crashBaseFrom(t *testing.T, size int64) *world {
	w, fs := newWorld(t, size)
	w.fill(0, 8192, 1)
	w.fill(65536, 16384, 7)
	w.snapshot("one")
	w.must(w.c.Expand(crashSize, "2026-11-21T07:00:00Z"))
	w.fill(4096, 8192, 2)
	w.must(w.c.Discard(65536, 8192)) // only below
	w.snapshot("two")
	w.fill(512, 512, 3)
	w.fill(8192, 4096, 8)
	w.must(w.c.Discard(8192, 4096))  // in the head, and below
	w.must(w.c.Discard(73728, 4096)) // only below
	w.fill(16384, 4096, 4)
	w.must(fs.WriteFileAtomic("/r/revision.counter", append([]byte("10"), make([]byte, 4094)...)))
	w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 4, Generation: 3, State: chain.MemberRW, Self: "v-1",
		Members: []chain.Member{{Name: "v-1"}}}))
	w.must(w.c.Close())
	return w
}

// copyOf returns the same world on a file system of its own.
func (w *world) copyOf() *world {
	// Everything is synced after a clean close, so a crash changes nothing.
	x := *w
	x.fs, x.c, x.opts = w.mem().Crash(0), nil, testOptions()
	return &x
}

// testEveryCrash runs op at every crash point. prepare, unless nil, runs before op and is not
// crashed.
func testEveryCrash(t *testing.T, prepare, op func(w *world) error) {
	testEveryCrashOf(t, crashBase(t), crashSeeds, prepare, op)
	testEveryCrashOf(t, crashBaseFrom(t, grownFrom), 3, prepare, op)
}

func testEveryCrashOf(t *testing.T, base *world, seeds uint64, prepare, op func(w *world) error) {
	t.Helper()
	reference := base.copyOf()
	reference.open()
	if prepare != nil {
		reference.must(prepare(reference))
	}
	before := viewOf(t, reference.fs, reference.c)
	reference.must(op(reference))
	operation := op
	op = func(w *world) error {
		if err := operation(w); err != nil {
			return err
		}
		return w.c.CopyMeta()
	}
	after := viewOf(t, reference.fs, reference.c)
	reference.must(reference.c.Close())

	seenBefore, seenAfter, steps := 0, 0, int64(0)
	for done := false; !done; steps++ {
		w := base.copyOf()
		w.open()
		if prepare != nil {
			w.must(prepare(w))
		}
		w.must(errors.Join(w.c.Sync(), w.c.CopyMeta()))
		w.mem().CrashAfter(steps)
		err := op(w)
		if done = err == nil; !done && !errors.Is(err, memdisk.ErrCrashed) {
			t.Fatalf("step %d: %v", steps, err)
		}
		for seed := range seeds {
			got := crashAndOpen(t, w, seed, steps)
			switch {
			case reflect.DeepEqual(got, after):
				seenAfter++
			case reflect.DeepEqual(got, before) && !done:
				seenBefore++
			default:
				t.Fatalf("crash before change %d (done %v), seed %d:\n%+v\nis neither before\n%+v\nnor after\n%+v",
					steps, done, seed, got, before, after)
			}
		}
	}
	if steps < 3 || seenBefore == 0 || seenAfter == 0 {
		t.Fatalf("%d steps, %d times before, %d times after: the test shows nothing", steps, seenBefore, seenAfter)
	}
}

// crashAndOpen returns what is found after losing power, and checks that it stays that way.
func crashAndOpen(t *testing.T, w *world, seed uint64, step int64) view {
	t.Helper()
	x := *w
	x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
	x.open()
	got := viewOf(t, x.fs, x.c)
	raw, err := readRaw(x.fs, x.dir, false)
	if err != nil {
		t.Fatalf("step %d, seed %d: independent reader: %v", step, seed, err)
	}
	ours := x.read(0, x.c.Size())
	if theirs, err := raw.Content(raw.Head); err != nil || !bytes.Equal(ours, theirs) {
		t.Fatalf("step %d, seed %d: independent reader sees other content (%v)", step, seed, err)
	}
	if seed%2 == 0 {
		x.must(x.c.Close())
	} else { // by its copy
		x.must(x.c.Sync())
		x.fs, x.opts = x.mem().Crash(outcome(step, seed)), testOptions()
	}
	x.open()
	if again := viewOf(t, x.fs, x.c); !reflect.DeepEqual(again, got) {
		t.Fatalf("step %d, seed %d: opening again changes the state:\n%+v\n%+v", step, seed, got, again)
	}
	x.must(x.c.Close())
	return got
}

func TestCrashDuringSnapshot(t *testing.T) {
	testEveryCrash(t, func(w *world) error {
		w.fill(65536, 8192, 5)
		return nil
	}, func(w *world) error {
		return w.c.Snapshot("three", true, "2026-11-21T10:00:00Z", map[string]string{"a": "b"})
	})
}

func TestCrashDuringExpand(t *testing.T) {
	testEveryCrash(t, nil, func(w *world) error { return w.c.Expand(3*crashSize, "2026-11-21T10:00:00Z") })
}

func TestCrashDuringMarkRemoved(t *testing.T) {
	testEveryCrash(t, nil, func(w *world) error { return w.c.MarkRemoved("one") })
}

func TestCrashDuringRebuildFlags(t *testing.T) {
	testEveryCrash(t, nil, func(w *world) error { return w.c.SetRebuilding() })
	testEveryCrash(t, func(w *world) error {
		return w.c.SetRebuilding()
	}, func(w *world) error { return w.c.FinishRebuild() })
}

func TestCrashDuringWriteRecord(t *testing.T) {
	r := chain.Record{VolumeUUID: testUUID, Epoch: 5, Generation: 3, State: chain.MemberRW, Self: "v-1", Engine: "e-1",
		Members: []chain.Member{{Name: "v-1"}, {Name: "v-2"}}}
	testEveryCrash(t, nil, func(w *world) error {
		// Twice, so that both slots are written.
		if err := w.c.WriteRecord(r); err != nil {
			return err
		}
		return w.c.WriteRecord(r)
	})
}

// A change of generation raises the counter first: a crash between the two is the one state in the
// middle, and the record, which alone counts for us, is whole in it.
func TestCrashDuringChangeOfGeneration(t *testing.T) {
	base := crashBase(t)
	seen := map[string]int{}
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.open()
		w.mem().CrashAfter(step)
		done = w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 4, Generation: 4, Self: "v-1"}) == nil
		for seed := range crashSeeds {
			v := crashAndOpen(t, w, seed, step)
			seen[fmt.Sprint(v.Valid, v.Record.Generation, v.Revision)]++
		}
	}
	for _, want := range []string{"true 3 11", "true 3 12", "true 4 12"} {
		if seen[want] == 0 {
			t.Errorf("%q was never seen", want)
		}
		delete(seen, want)
	}
	if len(seen) != 0 {
		t.Errorf("impossible states %v", seen)
	}
}

func TestCrashDuringWriteDirty(t *testing.T) {
	testEveryCrash(t, func(w *world) error { return w.c.WriteDirty([]chain.Region{1}) },
		func(w *world) error { return w.c.WriteDirty([]chain.Region{0, 2}) })
}

func TestCrashDuringAddDirty(t *testing.T) {
	testEveryCrash(t, func(w *world) error { return w.c.WriteDirty([]chain.Region{1}) },
		func(w *world) error { return w.c.AddDirty([]chain.Region{2, 0, 1}) })
}

// Taking over a foreign directory is one step: no valid record, or the new one with everything
// unknown but that.
func TestCrashDuringAdoption(t *testing.T) {
	testEveryCrash(t, func(w *world) error {
		w.must(w.c.Close())
		stripStamp(t, w.mem(), "/r/volume.meta")
		w.must(w.mem().Remove("/r/revision.counter"))
		w.must(w.mem().SyncDir("/r"))
		w.open()
		return nil
	}, func(w *world) error {
		return w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 9, Self: "v-1"})
	})
}

// A crash during Open or Close loses nothing and costs nothing but the next open.
func TestCrashDuringOpenAndClose(t *testing.T) {
	t.Run("close", func(t *testing.T) { testCrashDuringOpenAndClose(t, (*chain.Chain).Close) })
	t.Run("close for another process", func(t *testing.T) {
		testCrashDuringOpenAndClose(t, func(c *chain.Chain) error {
			return c.CloseFor(func(m io.WriterTo) error { _, err := m.WriteTo(io.Discard); return err })
		})
	})
}

func testCrashDuringOpenAndClose(t *testing.T, end func(*chain.Chain) error) {
	base := crashBase(t)
	reference := base.copyOf()
	reference.open()
	want := viewOf(t, reference.fs, reference.c)
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.mem().CrashAfter(step)
		c, err := chain.Open(w.fs, w.dir, w.opts)
		if err == nil {
			done = end(c) == nil
		}
		if n := w.mem().OpenFiles(); n != 0 {
			t.Fatalf("step %d: %d files left open", step, n)
		}
		for seed := range crashSeeds {
			if got := crashAndOpen(t, w, seed, step); !reflect.DeepEqual(got, want) {
				t.Fatalf("step %d, seed %d: %+v\nwant %+v", step, seed, got, want)
			}
		}
	}
}

// A replica that is being created is there whole or not at all, and creating it again always works.
func TestCrashDuringCreate(t *testing.T) {
	seen := map[chain.State]int{}
	for step, done := int64(0), false; !done; step++ {
		fs := memdisk.New()
		fs.CrashAfter(step)
		done = chain.Create(fs, "/r", testSpec(crashSize), testOptions()) == nil
		for seed := range crashSeeds {
			after := fs.Crash(outcome(step, seed))
			info, err := chain.Inspect(after, "/r")
			if err != nil || info.State != chain.StateInitial && info.State != chain.StateClosed {
				t.Fatalf("step %d, seed %d: %+v, %v", step, seed, info, err)
			}
			if seen[info.State]++; done && info.State != chain.StateClosed {
				t.Fatalf("seed %d: state %s after Create returned", seed, info.State)
			}
			w := &world{t: t, fs: after, dir: "/r", opts: testOptions()}
			w.must(chain.Create(after, "/r", testSpec(crashSize), w.opts))
			w.open()
			w.wantByte(0, crashSize, 0)
			w.must(w.c.Close())
			if _, err := readRaw(after, "/r", false); err != nil {
				t.Fatal(err)
			}
		}
	}
	if seen[chain.StateInitial] == 0 || seen[chain.StateClosed] == 0 {
		t.Fatalf("states %v: the test shows nothing", seen)
	}
}

// A directory that is turned into a rebuild target is the old replica, nothing, or the target;
// never something that could be taken for a replica in good standing with other content.
func TestCrashDuringSkeleton(t *testing.T) {
	base := crashBase(t)
	reference := base.copyOf()
	reference.open()
	old := viewOf(t, reference.fs, reference.c)
	spec := reference.c.Spec()
	spec.Layers = spec.Layers[:1]
	spec.HeadParent, spec.Size = spec.Layers[0].File, 2*crashSize
	seen := map[string]int{}
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.mem().CrashAfter(step)
		done = chain.CreateSkeleton(w.fs, w.dir, spec, w.opts) == nil
		for seed := range crashSeeds {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			info, err := chain.Inspect(x.fs, x.dir)
			x.must(err)
			switch {
			case info.State == chain.StateInitial && !done:
				seen["nothing"]++
				_, err := chain.Open(x.fs, x.dir, x.opts)
				wantErr(t, err, chain.ErrCorrupt)
				if seed%2 == 0 { // a new replica can be made of it as well
					x.must(chain.Create(x.fs, x.dir, testSpec(crashSize), x.opts))
					x.open()
					x.wantByte(0, crashSize, 0)
					x.must(x.c.Close())
				}
			case !info.Rebuilding:
				if done {
					t.Fatalf("seed %d: not a rebuild target", seed)
				}
				seen["old"]++
				x.open()
				if got := viewOf(t, x.fs, x.c); !reflect.DeepEqual(got, old) {
					t.Fatalf("step %d, seed %d: %+v\nwant %+v", step, seed, got, old)
				}
				x.must(x.c.Close())
			}
			// Whatever is there, it can be made a target.
			x.must(chain.CreateSkeleton(x.fs, x.dir, spec, x.opts))
			x.open()
			if got := x.c.Spec(); x.c.State() != chain.StateRebuilding || !reflect.DeepEqual(got, spec) {
				t.Fatalf("step %d, seed %d: %s %+v\nwant %+v", step, seed, x.c.State(), got, spec)
			}
			x.must(x.c.Close())
			seen["target"]++
		}
	}
	if seen["old"] == 0 || seen["target"] == 0 || seen["nothing"] == 0 {
		t.Fatalf("%v: the test shows nothing", seen)
	}
}

// Flushed content survives a crash under writes, whatever becomes of the writes after it; in the
// head's interrupted writes the snapshot below shows through, never zeroes that nobody wrote.
func TestCrashUnderWrites(t *testing.T) {
	for seed := range uint64(300) {
		w, _ := newWorld(t, crashSize)
		w.fill(0, crashSize, 1)
		w.snapshot("a")
		w.fill(0, 65536, 2)
		w.must(w.c.Sync())
		w.fill(32768, 65536, 3)
		x := *w
		x.fs, x.opts = w.mem().Crash(seed), testOptions()
		x.open()
		for off, b := range x.read(0, crashSize) {
			ok := off < 32768 && b == 2 || off >= 32768 && off < 65536 && (b == 2 || b == 3) ||
				off >= 65536 && off < 98304 && (b == 1 || b == 3) || off >= 98304 && b == 1
			if !ok {
				t.Fatalf("seed %d: byte %d is %d", seed, off, b)
			}
		}
		x.must(x.c.Close())
	}
}

// A snapshot that was reported taken holds what was written before it, flushed or not, whatever
// power does next.
func TestSnapshotMakesWritesDurable(t *testing.T) {
	for seed := range crashSeeds {
		w, _ := newWorld(t, crashSize)
		w.fill(0, 65536, 1)
		w.snapshot("a")
		x := *w
		x.fs, x.opts = w.mem().Crash(seed), testOptions()
		x.open()
		x.wantByte(0, 65536, 1)
		x.must(x.c.Close())
	}
}
