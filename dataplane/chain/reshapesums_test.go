package chain_test

import (
	"testing"

	"ankole.storage/dataplane/chain"
)

// hashedBase is reshapeBase with checksums of both snapshots.
func hashedBase(t *testing.T) *world {
	w := reshapeBase(t)
	w.hashAll("a", "b")
	if got := recorded(t, w.fs); got != "a.img.checksum a.img.sums b.img.checksum b.img.sums" {
		t.Fatal(got)
	}
	return w
}

// reshape makes the directory a rebuild target that leaves some snapshots alone.
func (w *world) reshape(s chain.Shape, untouched ...string) {
	w.t.Helper()
	for _, name := range untouched {
		s.Untouched = append(s.Untouched, "volume-snap-"+name+".img")
	}
	w.must(w.c.VoidForRebuild(voidRecord(w), "", nil))
	var err error
	w.c, err = chain.Reshape(w.c.Files, w.c.Sidecars, s)
	w.must(err)
}

// A rebuild voids the checksums of what it may write to, durably and before it writes, and of
// nothing else: rot in a snapshot that it leaves alone is seen afterwards as it was before.
func TestRebuildKeepsChecksums(t *testing.T) {
	const ofA = "a.img.checksum a.img.sums"
	for name, c := range map[string]struct {
		begin func(w *world)
		left  string
	}{
		"one is left alone": {func(w *world) { w.reshape(shapeOf("a", "b"), "a") }, ofA},
		"both are":          {func(w *world) { w.reshape(shapeOf("a", "b"), "a", "b") }, ofA + " b.img.checksum b.img.sums"},
		"one is removed":    {func(w *world) { w.reshape(shapeOf("a"), "a") }, ofA},
		"all are made anew": {func(w *world) { w.reshape(shapeOf("b", "a"), "a", "b") }, ""},
		"a branch": {func(w *world) {
			s := shapeOf("a")
			s.Branches = []chain.LayerSpec{layerSpec("b", "a")}
			w.reshape(s, "a")
		}, ofA},
		"another size": {func(w *world) {
			s := shapeOf("a", "b")
			s.Size, s.Layers[1].Size = 2*mib, 2*mib
			w.reshape(s, "a", "b")
		}, ofA},
		"interrupted": {func(w *world) {
			w.reshape(shapeOf("a", "b"), "a")
			w.reopen()
			w.reshape(shapeOf("a", "b"), "a")
		}, ofA},
		"a repair of the head": {func(w *world) { w.must(w.c.SetRebuilding()) }, ofA + " b.img.checksum b.img.sums"},
	} {
		t.Run(name, func(t *testing.T) {
			w := hashedBase(t)
			w.must(w.mem().Rot(image("a"), 100, 1))
			c.begin(w)
			for seed := range uint64(8) {
				if got := recorded(t, w.mem().Crash(seed)); got != c.left {
					t.Fatalf("left are %q, want %q", got, c.left)
				}
			}
			if c.left == "" {
				return
			}
			w.must(w.c.FinishRebuild())
			w.reopen()
			if r := w.hash("a", true); !r.Corrupted || len(r.Rot) != 1 {
				t.Fatalf("rot was given a checksum: %+v", r)
			}
			w.must(w.c.Close())
		})
	}
}

// What has checksums is not written to by a rebuild, also after it was interrupted.
func TestRebuildWritesWhereNothingIsRecorded(t *testing.T) {
	w := hashedBase(t)
	w.reshape(shapeOf("a", "b"), "a")
	for range 2 {
		if a, b, head := w.c.MayWriteLayer(0), w.c.MayWriteLayer(1), w.c.MayWriteLayer(2); a || !b || !head {
			t.Fatalf("a may be written to: %v, b: %v, the head: %v", a, b, head)
		}
		w.reopen()
	}
	w.must(w.c.Close())
}
