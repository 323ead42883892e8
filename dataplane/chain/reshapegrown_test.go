package chain_test

import (
	"errors"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/memdisk"
)

// TestCrashDuringReshapeOfAGrownVolume: the volume has grown while the replica was away. Whenever
// its process is killed or power fails while it gets its shape, whichever that is, the directory
// opens again, and can be given another source's shape, every file with the size it has there.
//
// A snapshot that the target's head becomes is as long as the volume was before, or as it is now:
// the snapshot of the expansion was merged into a later one. Where the head stays, the volume was
// expanded and then reverted to a snapshot of before.
func TestCrashDuringReshapeOfAGrownVolume(t *testing.T) {
	for name, r := range reshapes() {
		for _, snapshot := range []int64{mib, 2 * mib} {
			r := r
			r.shape = grown(r.shape, snapshot)
			if snapshot > mib && r.shape.HeadBecomes == "" {
				continue // there is no such snapshot
			}
			t.Run(name, func(t *testing.T) { testCrashDuringReshape(t, r) })
		}
	}
}

// grown is a shape of a volume of 2 MiB. What the target's head becomes has the given size, and
// what is above that the volume's.
func grown(s chain.Shape, becomes int64) chain.Shape {
	s.Size = 2 * mib
	above := false
	for i := range s.Layers {
		switch l := &s.Layers[i]; {
		case l.File == s.HeadBecomes:
			l.Size, above = becomes, true
		case above:
			l.Size = 2 * mib
		}
	}
	return s
}

func testCrashDuringReshape(t *testing.T, r reshaping) {
	for step, done := int64(0), false; !done; step++ {
		w := reshapeBase(t)
		w.must(errors.Join(w.c.Sync(), w.c.VoidForRebuild(voidRecord(w), "", nil)))
		w.mem().CrashAfter(step)
		var err error
		w.c, err = chain.Reshape(w.c.Files, w.c.Sidecars, r.shape)
		if done = err == nil; !done && !errors.Is(err, memdisk.ErrCrashed) {
			t.Fatalf("step %d: %v", step, err)
		}
		for seed := range uint64(2) {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			if info, err := chain.Inspect(x.fs, x.dir); err == nil && info.State == chain.StateInitial && r.anew {
				continue
			}
			if x.c, err = chain.Open(x.fs, x.dir, x.opts); err != nil {
				t.Fatalf("step %d, seed %d: %v", step, seed, err)
			}
			x.must(x.c.VoidForRebuild(voidRecord(&x), "", nil))
			next := r.shape
			if seed > 0 {
				next = grown(reshapes()["two more"].shape, mib)
			}
			if x.c, err = chain.Reshape(x.c.Files, x.c.Sidecars, next); err != nil {
				t.Fatalf("step %d, seed %d, the next shape: %v", step, seed, err)
			}
			hasSizes(t, &x, next)
			x.must(errors.Join(x.c.FinishRebuild(), x.c.Close()))
		}
	}
}

// hasSizes wants every file as long as a shape says.
func hasSizes(t *testing.T, w *world, s chain.Shape) {
	t.Helper()
	list := w.c.LayerList()
	want := map[string]int64{list[len(list)-1].File: s.Size}
	for _, l := range s.Layers {
		want[l.File] = l.Size
	}
	for file, size := range want {
		info, err := w.fs.Stat(w.dir + "/" + file)
		w.must(err)
		if info.Size != size {
			t.Fatalf("%s has %d bytes, at the source %d", file, info.Size, size)
		}
	}
}
