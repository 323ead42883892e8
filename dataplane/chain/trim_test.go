package chain_test

import (
	"slices"
	"testing"

	"ankole.storage/dataplane/chain"
)

// trimAll does a whole trim, as a replica does.
func trimAll(w *world) error {
	if err := w.c.Sync(); err != nil { // what is discarded
		return err
	}
	for from := int64(0); from >= 0; {
		layers := w.c.TrimLayers()
		if len(layers) == 0 {
			return nil
		}
		if err := w.c.NoteTrim(w.c.Sidecars, layers); err != nil {
			return err
		}
		pages, next := w.c.Untrimmed(from)
		if err := w.c.Trim(layers, pages); err != nil {
			w.c.Retrim(pages)
			return err
		}
		from = next
	}
	return nil
}

// allocated is what the file of a snapshot takes.
func (w *world) allocated(snapshot string) int64 {
	w.t.Helper()
	info, err := w.fs.Stat(w.dir + "/volume-snap-" + snapshot + ".img")
	w.must(err)
	return info.Allocated
}

// TestTrimOfTheChain: which snapshots a trim takes space from, how much, and that nobody reads
// anything else than before.
func TestTrimOfTheChain(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(w *world)
		want    []string // those that become smaller
	}{
		"none is marked":     {func(*world) {}, nil},
		"all are":            {func(w *world) { marks(w, "a", "b", "c") }, []string{"a", "b", "c"}},
		"one between is not": {func(w *world) { marks(w, "a", "c") }, []string{"c"}},
		"the newest is not":  {func(w *world) { marks(w, "a", "b") }, nil},
		"a branch": {func(w *world) {
			w.must(w.c.Revert("b", ""))
			w.must(w.c.Discard(0, mib))
			marks(w, "a", "b", "c")
		}, nil},
		"one is read": {func(w *world) {
			w.view("b").Pin()
			marks(w, "a", "b", "c")
		}, []string{"c"}},
		"a snapshot was taken since": {func(w *world) {
			marks(w, "a", "b", "c")
			w.snapshot("d")
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newWorld(t, 4*mib)
			const part = 256 << 10
			all := []string{"a", "b", "c"}
			for i, s := range all {
				w.fill(0, part, byte(i+1))
				w.fill(mib, part, byte(i+1))
				w.fill(2*mib, part, byte(i+1)) // stays
				w.snapshot(s)
				w.hashAll(s)
			}
			w.fill(0, 4096, 8) // in the head, and below
			w.must(w.c.Discard(0, part))
			w.must(w.c.Discard(mib, part))
			w.fill(mib, 4096, 7) // written again
			c.prepare(w)
			same := append(slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(c.want, s) }),
				chain.HeadName)
			want := hashes(t, w.c, same...)
			for range 2 { // the second one finds nothing to do
				w.must(trimAll(w))
				for _, s := range all {
					left := int64(3 * part)
					if slices.Contains(c.want, s) {
						left = part
					}
					if n := w.allocated(s); n != left {
						t.Errorf("%s takes %d bytes, want %d", s, n, left)
					}
				}
			}
			w.must(w.c.CheckMap())
			w.reopen()
			w.must(w.c.CheckMap())
			if got := hashes(t, w.c, same...); got != want {
				t.Errorf("something reads otherwise: %v", same)
			}
		})
	}
}

// TestTrimIsNoted: a member that is away is told which files a trim has changed.
func TestTrimIsNoted(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.fill(0, 65536, 1)
	w.snapshot("a")
	w.must(w.record(4, "v-1", "v-2"))
	w.must(w.record(5, "v-1"))
	marks(w, "a")
	w.must(w.c.Discard(0, 65536))
	w.must(trimAll(w))
	if a, ok := w.c.Absent("v-2"); !ok || !a.HasChanged("a") {
		t.Errorf("%+v, %v", a, ok)
	}
}

// TestTrimThatFails: what could not be given back is left for the next trim.
func TestTrimThatFails(t *testing.T) {
	w, _ := newWorld(t, 68*mib)
	w.fill(0, mib, 1)
	w.snapshot("a")
	w.must(w.c.Discard(0, mib))
	marks(w, "a")
	pages, _ := w.c.Untrimmed(0)
	if len(pages) != 0 {
		t.Errorf("%d pages that are not durable", len(pages))
	}
	w.must(w.c.Sync())
	pages, _ = w.c.Untrimmed(0)
	wantErr(t, w.c.Trim([]string{"volume-snap-b.img"}, pages), chain.ErrInvalid)
	w.c.Retrim(pages)
	w.must(trimAll(w))
	if n := w.allocated("a"); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// TestTrimAfterReopening: what was discarded before a directory is opened is not forgotten.
func TestTrimAfterReopening(t *testing.T) {
	w, _ := newWorld(t, 68*mib)
	w.fill(0, mib, 1)
	w.fill(66*mib, mib, 1)
	w.snapshot("a")
	w.must(w.c.Discard(0, mib))
	w.must(w.c.Discard(66*mib, mib))
	w.reopen()
	marks(w, "a")
	w.must(trimAll(w))
	if n := w.allocated("a"); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// TestCrashDuringTrim: marked snapshots lose what the head hides, and nobody reads anything else.
func TestCrashDuringTrim(t *testing.T) {
	base := crashBase(t)
	trimmed := 0
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.open()
		marks(w, "one", "two")
		w.must(w.c.Discard(4096, 4096))
		w.must(w.c.Discard(65536, 16384))
		w.must(w.c.Sync())
		want := hashes(t, w.c, chain.HeadName)
		w.mem().CrashAfter(step)
		if done = trimAll(w) == nil; done {
			trimmed++
		}
		for seed := range crashSeeds {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			x.open()
			if got := hashes(t, x.c, chain.HeadName); got != want {
				t.Fatalf("crash before change %d, seed %d: the head reads otherwise", step, seed)
			}
			x.must(x.c.Close())
		}
	}
	if trimmed == 0 {
		t.Error("no trim has come to its end")
	}
}

func marks(w *world, names ...string) {
	for _, n := range names {
		w.must(w.c.MarkRemoved(n))
	}
}
