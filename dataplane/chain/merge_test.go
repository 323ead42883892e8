package chain_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// mergeWorld has snapshots a and b to be merged: pieces 0 (some blocks of both), 1 (b hides a), 5
// (b alone) and 9 (a alone).
func mergeWorld(t *testing.T) (*world, *memdisk.FS) {
	w, fs := newWorld(t, 4*mib)
	w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Self: "v-1"}))
	w.fill(0, 16384, 1)
	w.fill(chain.SumPiece, 16384, 2)
	w.fill(9*chain.SumPiece+8192, 40960, 3)
	w.snapshot("a")
	w.fill(4096, 4096, 4)
	w.fill(65536, 4096, 5)
	w.fill(chain.SumPiece, 16384, 6)
	w.fill(5*chain.SumPiece, 4096, 7)
	w.snapshot("b")
	w.fill(0, 4096, 8)
	return w, fs
}

func pieces(numbers ...int64) (out []chain.Rot) {
	for _, n := range numbers {
		out = append(out, chain.Rot{Off: n * chain.SumPiece, Len: chain.SumPiece})
	}
	return out
}

// What is merged is known afterwards as far as it was before, and what had rotted is seen to be
// rotten: a purge blesses nothing.
func TestMergeCarriesSums(t *testing.T) {
	for _, c := range []struct {
		name, file string
		rot        int64 // where in the file, -1: nowhere
		hashed     string
		found      []chain.Rot
		unknown    []int64
	}{
		{"nothing rots", "", -1, "a b", nil, nil},
		{"the child's own piece", "b", 5*chain.SumPiece + 10, "a b", pieces(5), nil},
		{"a piece the child hides", "b", chain.SumPiece, "a b", pieces(1), nil},
		{"the child's part of a piece", "b", 4096, "a b", pieces(0), nil},
		{"the source's part of a piece", "a", 8192, "a b", pieces(0), nil},
		{"the source's own piece", "a", 9*chain.SumPiece + 8192, "a b", pieces(9), nil},
		{"what nobody reads any more", "a", chain.SumPiece + 5, "a b", nil, nil},
		{"the source is unknown", "", -1, "b", nil, []int64{0, 9}},
		{"the child is unknown", "", -1, "a", nil, []int64{0, 1, 5}},
		{"the source rots where the child is unknown", "a", 0, "a", pieces(0), []int64{1, 5}},
		{"nothing is known", "b", 4096, "", nil, []int64{0, 1, 5, 9}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, fs := mergeWorld(t)
			w.hashAll(strings.Fields(c.hashed)...)
			files := fs.OpenFiles()
			if c.rot >= 0 {
				w.must(fs.Rot(image(c.file), c.rot, 1))
			}
			w.must(w.c.MarkRemoved("a"))
			w.must(w.c.Purge(nil))
			if got := listNames(t, w.c); got != "b volume-head" {
				t.Fatalf("left are %s", got)
			}
			if n := fs.OpenFiles(); n > files {
				t.Errorf("%d files open, there were %d", n, files)
			}
			v := w.view("b")
			for _, n := range []int64{0, 1, 5, 9} {
				want := chain.VerdictGood
				var rot []chain.LayerRot
				if slices.Contains(c.unknown, n) {
					want = chain.VerdictUnknown
				}
				if found := pieces(n)[0]; slices.Contains(c.found, found) {
					want, rot = chain.VerdictRotten, []chain.LayerRot{{Snapshot: "b", Rot: found}}
				}
				w.wantVerdict(v, n*chain.SumPiece, chain.SumPiece, want, rot...)
			}
			w.must(v.Close())
			if r := w.hash("b", false); !slices.Equal(r.Rot, c.found) {
				t.Fatalf("found %+v", r)
			}
		})
	}
}

// A repair ends what a merge has marked.
func TestMergedRotIsRepaired(t *testing.T) {
	w, fs := mergeWorld(t)
	good := w.at("b")
	w.hashAll("a", "b")
	w.must(fs.Rot(image("a"), 8192, 1))
	w.must(w.c.MarkRemoved("a"))
	w.must(w.c.Purge(nil))
	v := w.view("b")
	written, err := v.Repair(0, good[:chain.SumPiece])
	w.must(err)
	if len(written.Written) != 1 || written.Written[0].Off != 8192 {
		t.Fatalf("written %+v", written)
	}
	w.wantVerdict(v, 0, chain.SumPiece, chain.VerdictGood)
	w.must(v.Close())
	if r := w.hash("b", false); r.Corrupted || !bytes.Equal(w.at("b"), good) {
		t.Fatalf("%+v", r)
	}
}

// A source that cannot be read where nothing of it is copied does not stop a purge, and a full disk
// costs the sums only.
func TestMergeGoesOnWithoutSums(t *testing.T) {
	for name, break_ := range map[string]func(fs *memdisk.FS){
		"unreadable": func(fs *memdisk.FS) { _ = fs.Unreadable(image("a"), 8192, 1) },
		"full disk": func(fs *memdisk.FS) {
			fs.Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: "volume-snap-a.img.sums.new.tmp", Err: disk.ErrNoSpace})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, fs := mergeWorld(t)
			w.hashAll("a", "b")
			break_(fs)
			w.must(w.c.MarkRemoved("a"))
			w.must(w.c.Purge(nil))
			fs.ClearRules()
			names, err := fs.List("/r")
			w.must(err)
			if s := fmt.Sprint(names); strings.Contains(s, ".tmp") {
				t.Fatal(s)
			}
			v := w.view("b")
			verdict, _, err := v.Verify(0, chain.SumPiece)
			if err != nil || verdict == chain.VerdictGood {
				t.Fatalf("%s, %v", verdict, err)
			}
			fs.Readable() // what could not be read for a moment was not wrong
			w.wantVerdict(v, 0, chain.SumPiece, chain.VerdictUnknown)
			w.must(v.Close())
		})
	}
}

// Of a file with more sums than a page has the page is written while pieces are copied, in the
// middle of one of the child's or behind it. Where the disk is full then, the merge, which takes
// nothing here, goes on.
func TestMergeWithoutRoomForAPageOfSums(t *testing.T) {
	const perPage = 204
	for _, at := range []int64{perPage - 2, perPage - 1, perPage, perPage + 40} {
		t.Run(fmt.Sprintf("child's piece %d", at), func(t *testing.T) {
			w, fs := newWorld(t, 64*mib)
			w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Self: "v-1"}))
			for off := int64(0); off < 64*mib; off += chain.SumPiece {
				w.fill(off, 4096, byte(1+off/chain.SumPiece))
			}
			w.snapshot("a")
			w.fill(at*chain.SumPiece, 4096, 7)
			w.fill((perPage+45)*chain.SumPiece, 4096, 8)
			w.snapshot("b")
			w.hashAll("a", "b")
			good := w.at("b")
			w.must(w.c.MarkRemoved("a"))
			fs.Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: "volume-snap-a.img.sums.new.tmp", Err: disk.ErrNoSpace})
			w.must(w.c.Purge(nil))
			fs.ClearRules()
			if got := listNames(t, w.c); got != "b volume-head" || !bytes.Equal(w.at("b"), good) || len(w.names(".tmp")) > 0 {
				t.Fatalf("left are %s, temporary %v; content the same: %v", got, w.names(".tmp"), bytes.Equal(w.at("b"), good))
			}
			v := w.view("b")
			w.wantVerdict(v, at*chain.SumPiece, chain.SumPiece, chain.VerdictUnknown)
			w.must(v.Close())
		})
	}
}

// Whenever a merge is cut short, sums say what the files hold, or nothing.
func TestCrashDuringMergeWithSums(t *testing.T) {
	base, _ := mergeWorld(t)
	base.hashAll("a", "b")
	base.must(base.c.MarkRemoved("a"))
	good := base.at("b")
	base.must(base.c.Close())
	known, unknown := 0, 0
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.open()
		w.mem().CrashAfter(step)
		done = w.c.Purge(nil) == nil
		for seed := range uint64(3) {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			x.open()
			v := x.view("b")
			for off := int64(0); off < 4*mib; off += chain.SumPiece {
				verdict, rot, err := v.Verify(off, chain.SumPiece)
				if err != nil || verdict == chain.VerdictRotten {
					t.Fatalf("step %d, seed %d: %s %v %v", step, seed, verdict, rot, err)
				}
				if off == 0 && verdict == chain.VerdictGood {
					known++
				} else if off == 0 {
					unknown++
				}
			}
			x.must(v.Close())
			if !bytes.Equal(x.at("b"), good) {
				t.Fatalf("step %d, seed %d: the content is another one", step, seed)
			}
			if n := len(x.names(".tmp")); n > 0 {
				t.Fatalf("step %d, seed %d: %d temporary files", step, seed, n)
			}
			x.must(x.c.Close())
		}
	}
	if known == 0 || unknown == 0 {
		t.Fatalf("known %d times, unknown %d times: the test shows nothing", known, unknown)
	}
}

// names lists the directory's files with an ending.
func (w *world) names(suffix string) []string {
	w.t.Helper()
	all, err := w.fs.List(w.dir)
	w.must(err)
	return slices.DeleteFunc(all, func(n string) bool { return !strings.HasSuffix(n, suffix) })
}
