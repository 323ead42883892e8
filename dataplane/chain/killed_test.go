package chain_test

import (
	"bytes"
	"errors"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/memdisk"
)

// A process that is killed leaves what it has not synced in the system's memory: the next one sees
// it, and a loss of power still takes it away. These tests kill the process before each change of
// an operation, go on with the directory as any user might, and then cut the power.

// killed kills the process before each change of op, and calls check with the directory opened
// again. step tells one moment from another. The volume has grown.
func killed(t *testing.T, prepare func(w *world), op func(w *world) error, check func(w *world, step int64)) {
	t.Helper()
	base := crashBaseFrom(t, grownFrom)
	steps := int64(0)
	for done := false; !done; steps++ {
		w := base.copyOf()
		w.open()
		if prepare != nil {
			prepare(w)
		}
		w.mem().CrashAfter(steps)
		err := op(w)
		if done = err == nil; !done && !errors.Is(err, memdisk.ErrCrashed) {
			t.Fatalf("step %d: %v", steps, err)
		}
		w.mem().CrashAfter(-1)
		w.must(w.c.Abandon())
		w.open()
		w.must(w.c.CheckMap())
		check(w, steps)
		w.must(w.c.Close())
	}
	if steps < 3 {
		t.Fatalf("%d steps: the test shows nothing", steps)
	}
}

// operations are those that may leave something unsynced behind.
var operations = map[string]struct {
	prepare func(w *world)
	op      func(w *world) error
}{
	"snapshot": {nil, func(w *world) error { return w.c.Snapshot("three", true, "", nil) }},
	"expand":   {nil, func(w *world) error { return w.c.Expand(2*crashSize, "") }},
	"revert":   {nil, func(w *world) error { return w.c.Revert("one", "") }},
	"merge":    {func(w *world) { w.must(w.c.MarkRemoved("one")) }, func(w *world) error { return w.c.Purge(nil) }},
	"prune":    {func(w *world) { w.must(w.c.MarkRemoved("two")) }, func(w *world) error { return w.c.Purge(nil) }},
	"both": {func(w *world) {
		w.must(w.c.MarkRemoved("one"))
		w.must(w.c.MarkRemoved("two"))
	}, func(w *world) error { return w.c.Purge(nil) }},
}

// What reads as zeroes and was flushed stays so, and no snapshot that is not marked changes.
func TestZeroesStayAfterKillAndPowerLoss(t *testing.T) {
	for name, o := range operations {
		t.Run(name, func(t *testing.T) {
			killed(t, o.prepare, o.op, func(w *world, step int64) {
				var kept []string
				list, err := w.c.Snapshots()
				w.must(err)
				for _, s := range list {
					if !s.Removed && s.Name != chain.HeadName {
						kept = append(kept, s.Name)
					}
				}
				want := hashes(t, w.c, kept...)
				w.zero(0, w.c.Size())
				w.must(w.c.CheckMap())
				w.must(w.c.Sync())
				for seed := range crashSeeds {
					x := *w
					x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
					x.open()
					if got := x.read(0, x.c.Size()); !bytes.Equal(got, make([]byte, len(got))) {
						t.Fatalf("killed before change %d, power lost (%d): what was zeroed and flushed is back", step, seed)
					}
					if hashes(t, x.c, kept...) != want {
						t.Fatalf("killed before change %d, power lost (%d): a snapshot is another one", step, seed)
					}
					x.must(x.c.Close())
				}
			})
		})
	}
}

// Two snapshots are never one file in an open directory, whenever a purge was killed or power was
// lost: a rebuild writes to one of them and must not change the other.
func TestNoTwoSnapshotsAreOneFile(t *testing.T) {
	for _, name := range []string{"merge", "both"} {
		o := operations[name]
		t.Run(name, func(t *testing.T) {
			killed(t, o.prepare, o.op, func(w *world, step int64) {
				for seed := range crashSeeds {
					x := *w
					x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
					x.open()
					oneNameEach(t, &x)
					x.must(x.c.Close())
				}
				oneNameEach(t, w)
				keepsBothFiles(t, w)
			})
		})
	}
}

func oneNameEach(t *testing.T, w *world) {
	t.Helper()
	list, err := w.c.Snapshots()
	w.must(err)
	seen := map[uint64]string{}
	for _, s := range list {
		name := chain.SnapshotFile(s.Name)
		if s.Name == chain.HeadName {
			continue
		}
		info, err := w.fs.Stat("/r/" + name)
		w.must(err)
		if other := seen[info.Inode]; other != "" {
			t.Fatalf("%s and %s are one file", s.Name, other)
		}
		seen[info.Inode] = s.Name
	}
}

// keepsBothFiles makes w a rebuild target of a chain that still has both snapshots, and writes to
// the lower one.
func keepsBothFiles(t *testing.T, w *world) {
	t.Helper()
	shape := chain.Shape{Spec: chain.Spec{Size: w.c.Size(), VolumeUUID: testUUID, Self: "v-1",
		Created: "2026-11-21T08:00:00Z", HeadParent: chain.SnapshotFile("two")}}
	parent := ""
	for _, name := range []string{"one", "two"} {
		shape.Layers = append(shape.Layers, chain.LayerSpec{File: chain.SnapshotFile(name), Size: w.c.Size(),
			Meta: chain.DiskMeta{Parent: parent}})
		parent = chain.SnapshotFile(name)
	}
	c, err := chain.Reshape(w.c.Files, w.c.Sidecars, shape)
	w.must(err)
	w.c.Blocks.Free()
	w.c = c
	want := w.wholeFile("two")
	handle, ok := w.c.LayerHandle(chain.SnapshotFile("one"))
	if !ok {
		t.Fatal("there is no lower snapshot")
	}
	_, err = w.byHandle(handle).WriteAt(bytes.Repeat([]byte{99}, 4096), 65536)
	w.must(err)
	if !bytes.Equal(w.wholeFile("two"), want) {
		t.Fatal("a write to one snapshot has changed the other")
	}
}

// Names of one file that no operation leaves are refused, and nothing is changed.
func TestUnknownSecondNameIsRefused(t *testing.T) {
	w, fs := newWorld(t, crashSize)
	w.fill(0, 4096, 1)
	w.snapshot("a")
	w.snapshot("b")
	w.must(w.c.Close())
	w.must(fs.Remove(image("b")))
	w.must(fs.Link(image("a"), image("b")))
	_, err := chain.Open(fs, w.dir, testOptions())
	wantErr(t, err, chain.ErrCorrupt)
}
