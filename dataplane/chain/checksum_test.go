package chain_test

import (
	"encoding/json"
	"fmt"
	"hash/crc64"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

const hashedAt = "2026-11-21T11:00:00Z"

// hashWorld has snapshots a, b and c on a volume of 4 MiB: a with data in pieces 0 and 9, b with
// two blocks in piece 0, c with nothing, and a block in the head.
func hashWorld(t *testing.T) (*world, *memdisk.FS) {
	w, fs := newWorld(t, 4*mib)
	w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Self: "v-1"}))
	w.fill(0, 16384, 1)
	w.fill(9*chain.SumPiece+8192, 40960, 2)
	w.snapshot("a")
	w.fill(4096, 4096, 3)
	w.fill(65536, 4096, 4)
	w.snapshot("b")
	w.snapshot("c")
	w.fill(0, 4096, 5)
	return w, fs
}

func (w *world) hash(name string, rehash bool) chain.HashResult {
	w.t.Helper()
	r, err := w.c.Hash(name, rehash, hashedAt)
	w.must(err)
	return r
}

func image(name string) string { return "/r/volume-snap-" + name + ".img" }

// wholeFile reads an image as any program would.
func (w *world) wholeFile(name string) []byte {
	w.t.Helper()
	data, err := w.fs.ReadFile(image(name), 1<<30)
	w.must(err)
	return data
}

// The .checksum file is what other engines expect: keys, types and values.
func TestChecksumFile(t *testing.T) {
	w, fs := hashWorld(t)
	for _, name := range []string{"a", "b", "c"} {
		r := w.hash(name, false)
		want := fmt.Sprintf("%016x", crc64.Checksum(w.wholeFile(name), crc64.MakeTable(crc64.ISO)))
		if r.Checksum != want || r.Reused || r.Corrupted {
			t.Fatalf("%s: %+v, want checksum %s", name, r, want)
		}
		info, err := fs.Stat(image(name))
		w.must(err)
		data, err := fs.ReadFile(image(name)+".checksum", 4096)
		w.must(err)
		var got map[string]any
		w.must(json.Unmarshal(data, &got))
		for k, v := range map[string]any{"method": "crc64", "checksum": want, "silently_corrupted": false,
			"last_hashed_at": hashedAt, "change_time": info.CTime.In(time.UTC).String()} {
			if got[k] != v {
				t.Errorf("%s: %s is %v, want %v", name, k, got[k], v)
			}
			delete(got, k)
		}
		if len(got) != 0 {
			t.Errorf("%s: unknown keys %v", name, got)
		}
	}
	w.reopen()
	if s, valid, err := w.c.Checksum("a"); err != nil || !valid || s.LastHashedAt != hashedAt {
		t.Fatalf("%+v, %v, %v", s, valid, err)
	}
	if _, _, err := w.c.Checksum("x"); err == nil {
		t.Fatal("a checksum of a snapshot that is not there")
	}
}

// Checksums that hold are not computed again unless asked for; where they do not, the file is read.
func TestHashReuses(t *testing.T) {
	w, fs := hashWorld(t)
	first := w.hash("a", false)
	fs.Inject(memdisk.Rule{Op: memdisk.OpRead, Name: "volume-snap-a.img", Err: disk.ErrIO})
	if r := w.hash("a", false); !r.Reused || r.Checksum != first.Checksum {
		t.Fatalf("%+v", r)
	}
	if r := w.hash("a", true); !r.Corrupted || r.Reused || r.Checksum != "" || len(r.Rot) != 2 || !r.Rot[0].Unreadable {
		t.Fatalf("%+v", r)
	}
	fs.ClearRules()

	// Written by another engine, in another zone: the instant counts.
	s, _, err := w.c.Checksum("b")
	w.must(err)
	if s.Checksum != "" {
		t.Fatal("b has a checksum already")
	}
	w.hash("b", false)
	s, _, err = w.c.Checksum("b")
	w.must(err)
	at, err := time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", s.ChangeTime)
	w.must(err)
	s.ChangeTime = at.In(time.FixedZone("CET", 3600)).String()
	data, err := json.Marshal(s)
	w.must(err)
	w.put("volume-snap-b.img.checksum", string(data))
	if r := w.hash("b", false); !r.Reused {
		t.Fatalf("%+v", r)
	}
	for name, content := range map[string]string{
		"of another time": strings.Replace(string(data), "1970", "1971", 1), "no JSON": "{", "empty": "",
		"too long":     strings.Repeat(" ", 5000),
		"other method": strings.Replace(string(data), "crc64", "crc32", 1),
		"no checksum":  strings.Replace(string(data), s.Checksum, "zz", 1),
	} {
		w.put("volume-snap-b.img.checksum", content)
		if _, valid, err := w.c.Checksum("b"); valid || err != nil {
			t.Fatalf("%s: valid %v, %v", name, valid, err)
		}
		if r := w.hash("b", false); r.Reused || r.Corrupted {
			t.Fatalf("%s: %+v", name, r)
		}
	}
}

// Rot is found and located; the checksums from before it stay.
func TestHashFindsRot(t *testing.T) {
	w, fs := hashWorld(t)
	before := w.hash("a", false)
	w.must(fs.Rot(image("a"), 9*chain.SumPiece+12288, 1))
	for range 2 {
		r := w.hash("a", true)
		if !r.Corrupted || r.Checksum == before.Checksum ||
			!slices.Equal(r.Rot, []chain.Rot{{Off: 9 * chain.SumPiece, Len: chain.SumPiece}}) {
			t.Fatalf("%+v", r)
		}
		s, valid, err := w.c.Checksum("a")
		if err != nil || !valid || !s.SilentlyCorrupted || s.Checksum != before.Checksum {
			t.Fatalf("%+v, %v, %v", s, valid, err)
		}
	}
	// It is read again even for those who would take checksums that hold, so that they hear of it,
	// and of its end.
	if r := w.hash("a", false); r.Reused || !r.Corrupted || len(r.Rot) != 1 {
		t.Fatalf("%+v", r)
	}
	w.must(fs.Rot(image("a"), 9*chain.SumPiece+12288, 1)) // turns the same bits back
	if r := w.hash("a", false); r.Reused || r.Corrupted || r.Checksum != before.Checksum {
		t.Fatalf("%+v", r)
	}
	if s, valid, err := w.c.Checksum("a"); err != nil || !valid || s.SilentlyCorrupted {
		t.Fatalf("put right, and still %+v, %v, %v", s, valid, err)
	}
	w.must(fs.Rot(image("a"), 9*chain.SumPiece+12288, 1))
	// An error of the disk is not remembered: it may pass, and a write ends it.
	w.hash("b", false)
	w.must(fs.Unreadable(image("b"), 65536, 1))
	if r := w.hash("b", true); !r.Corrupted || len(r.Rot) != 1 || !r.Rot[0].Unreadable {
		t.Fatalf("%+v", r)
	}
	fs.Readable()
	if r := w.hash("b", false); r.Corrupted {
		t.Fatalf("the disk has got over it: %+v", r)
	}
	// Also where only the sums of pieces are left to tell.
	w.must(fs.Remove(image("a") + ".checksum"))
	if r := w.hash("a", false); !r.Corrupted || len(r.Rot) != 1 {
		t.Fatalf("%+v", r)
	}
	if _, valid, err := w.c.Checksum("a"); valid || err != nil {
		t.Fatalf("rot was given a checksum, %v", err)
	}
	w.must(fs.Rot(image("a"), 9*chain.SumPiece+12288, 1))
	if r := w.hash("a", false); r.Corrupted || r.Checksum != before.Checksum {
		t.Fatalf("%+v", r)
	}
	// A block that the file has lost is rot too.
	f, err := fs.Open(image("a"), 0)
	w.must(err)
	w.must(f.Punch(4096, 4096))
	w.must(f.Close())
	if r := w.hash("a", true); !r.Corrupted || len(r.Rot) != 1 || r.Rot[0].Off != 0 {
		t.Fatalf("%+v", r)
	}
}

// A checksum file that the disk cannot read is as good as none: another one takes its place.
func TestUnreadableChecksumFile(t *testing.T) {
	w, fs := newWorld(t, 1*mib)
	w.fill(0, 8192, 1)
	w.snapshot("a")
	before := w.hash("a", false)
	w.must(fs.Unreadable(image("a")+".checksum", 0, 1))
	if _, valid, err := w.c.Checksum("a"); valid || err != nil {
		t.Fatalf("%v, %v", valid, err)
	}
	if r := w.hash("a", false); r.Reused || r.Corrupted || r.Checksum != before.Checksum {
		t.Fatalf("%+v", r)
	}
	if s, valid, err := w.c.Checksum("a"); err != nil || !valid || s.Checksum != before.Checksum {
		t.Fatalf("%+v, %v, %v", s, valid, err)
	}
	w.must(w.c.Close())
}

// A file that changes while it is read gets no checksum.
func TestHashNoticesChanges(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"purged": func(w *world) {
			w.must(w.c.MarkRemoved("a"))
			w.must(w.c.Purge(nil))
		},
		"written": func(w *world) {
			f, err := w.fs.Open(image("a"), 0)
			w.must(err)
			_, err = f.WriteAt([]byte{1}, 0)
			w.must(err)
			w.must(f.Close())
		},
		"being rebuilt": func(w *world) { w.must(w.c.SetRebuilding()) },
	} {
		w, _ := hashWorld(t)
		h, err := w.c.NewHash("a", false)
		w.must(err)
		change(w)
		for done := false; !done && err == nil; {
			done, err = h.Work()
		}
		wantErr(t, err, chain.ErrInvalid)
		w.must(h.Close())
		names, err := w.fs.List("/r")
		w.must(err)
		for _, n := range names {
			if strings.HasSuffix(n, ".checksum") || strings.HasSuffix(n, ".sums") || strings.HasSuffix(n, ".tmp") {
				t.Errorf("%s: %s is left", name, n)
			}
		}
	}
}

func TestHashRefuses(t *testing.T) {
	w, _ := hashWorld(t)
	for _, name := range []string{"x", "", chain.HeadName} {
		_, err := w.c.NewHash(name, false)
		wantErr(t, err, chain.ErrNotFound)
	}
	w.must(w.c.SetRebuilding())
	_, err := w.c.NewHash("a", false)
	wantErr(t, err, chain.ErrInvalid)
}

// recorded lists the files of checksums in the directory.
func recorded(t *testing.T, fs disk.Meta) string {
	t.Helper()
	names, err := fs.List("/r")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range names {
		if strings.HasSuffix(n, ".checksum") || strings.HasSuffix(n, ".sums") {
			out = append(out, strings.TrimPrefix(n, "volume-snap-"))
		}
	}
	return strings.Join(out, " ")
}

// Whoever changes a file voids what is recorded about it first, durably; other files keep theirs.
func TestChangesVoidChecksums(t *testing.T) {
	all := "a.img.checksum a.img.sums b.img.checksum b.img.sums c.img.checksum c.img.sums"
	for name, c := range map[string]struct {
		change func(w *world) error
		left   string
	}{
		"snapshot": {func(w *world) error { return w.c.Snapshot("d", true, "", nil) }, all},
		"revert":   {func(w *world) error { return w.c.Revert("b", "") }, all},
		"expand":   {func(w *world) error { return w.c.Expand(8*mib, "") }, all},
		"coalesce": {func(w *world) error {
			if err := w.c.MarkRemoved("a"); err != nil {
				return err
			}
			return w.c.Purge(nil)
		}, "b.img.sums c.img.checksum c.img.sums"}, // the sums are those of the merged file
		"prune": {func(w *world) error {
			if err := w.c.MarkRemoved("c"); err != nil {
				return err
			}
			return w.c.Purge(nil)
		}, "a.img.checksum a.img.sums b.img.checksum b.img.sums"},
		"rebuild of the head": {func(w *world) error { return w.c.SetRebuilding() }, all}, // more: TestRebuildKeepsChecksums
		"snapshot of a name that was used": {func(w *world) error {
			for _, n := range []string{"checksum", "sums"} {
				w.put("volume-snap-d.img."+n, "rubbish")
			}
			return w.c.Snapshot("d", true, "", nil)
		}, all},
		"reopening": {func(w *world) error {
			w.put("volume-snap-gone.img.sums", "rubbish")
			w.reopen()
			return nil
		}, all},
	} {
		t.Run(name, func(t *testing.T) {
			w, fs := hashWorld(t)
			for _, s := range []string{"a", "b", "c"} {
				w.hash(s, false)
			}
			if got := recorded(t, fs); got != all {
				t.Fatalf("recorded: %s", got)
			}
			w.must(c.change(w))
			for seed := range uint64(8) {
				if got := recorded(t, fs.Crash(seed)); got != c.left {
					t.Fatalf("left are %q, want %q", got, c.left)
				}
			}
		})
	}
}

// An engine that does not know our files leaves them behind a volume.meta without the stamp: they
// say nothing then.
func TestForeignOpenVoidsSums(t *testing.T) {
	w, fs := hashWorld(t)
	w.hash("a", false)
	w.must(w.c.Close())
	stripStamp(t, fs, "/r/volume.meta")
	w.open()
	w.must(fs.Rot(image("a"), 0, 1))
	// Its checksum file is that engine's too, and still holds; the sums are not asked, so nobody
	// knows where.
	if r := w.hash("a", true); !r.Corrupted || len(r.Rot) != 0 {
		t.Fatalf("%+v", r)
	}
	w.must(fs.Remove(image("a") + ".checksum"))
	if r := w.hash("a", true); r.Corrupted {
		t.Fatalf("void sums were believed: %+v", r)
	}
	// Not bound to anything yet: only the file that others know is written, and it is enough to be
	// reused.
	if r := w.hash("a", false); !r.Reused {
		t.Fatalf("%+v", r)
	}
	w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 2, Self: "v-1"}))
	if r := w.hash("a", false); r.Reused || r.Corrupted {
		t.Fatalf("sums of the old stamp were believed: %+v", r)
	}
	w.must(fs.Rot(image("a"), 0, 1))
	if r := w.hash("a", true); !r.Corrupted || len(r.Rot) != 1 {
		t.Fatalf("%+v", r)
	}
}

// A crash while checksums are computed leaves none, or right ones.
func TestCrashDuringHash(t *testing.T) {
	base, _ := hashWorld(t)
	base.must(base.c.Close())
	seen := map[string]int{}
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.open()
		w.mem().CrashAfter(step)
		_, err := w.c.Hash("a", false, hashedAt)
		done = err == nil
		for seed := range crashSeeds {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			x.open()
			left := recorded(t, x.fs)
			seen[left]++
			if done && left != "a.img.checksum a.img.sums" {
				t.Fatalf("seed %d: only %q is there after the end", seed, left)
			}
			want := fmt.Sprintf("%016x", crc64.Checksum(x.wholeFile("a"), crc64.MakeTable(crc64.ISO)))
			if r := x.hash("a", false); r.Corrupted || r.Checksum != want {
				t.Fatalf("step %d, seed %d: %+v, want %s", step, seed, r, want)
			}
			if r := x.hash("a", true); r.Corrupted {
				t.Fatalf("step %d, seed %d: %+v", step, seed, r)
			}
			x.must(x.c.Close())
		}
	}
	if len(seen) < 3 || seen[""] == 0 {
		t.Fatalf("%v: the test shows nothing", slices.Sorted(maps.Keys(seen)))
	}
}

// A full or failing disk costs the computation and nothing else.
func TestEveryStepOfHashFails(t *testing.T) {
	base, _ := hashWorld(t)
	want := hashes(t, base.c, "a", "b", "c", chain.HeadName)
	base.must(base.c.Close())
	for _, fault := range []error{disk.ErrIO, disk.ErrNoSpace} {
		for step, done := 0, false; !done; step++ {
			w := base.copyOf()
			w.open()
			w.mem().Inject(memdisk.Rule{Skip: step, Times: 1, Err: fault})
			_, err := w.c.Hash("a", false, hashedAt)
			_, unused := w.fs.Stat("/")
			done = err == nil && unused != nil
			w.mem().ClearRules()
			if w.c.State() == chain.StateError {
				w.must(w.c.Abandon())
				w.open()
			}
			if r := w.hash("a", false); r.Corrupted {
				t.Fatalf("%v at step %d: %+v", fault, step, r)
			}
			if got := hashes(t, w.c, "a", "b", "c", chain.HeadName); got != want {
				t.Fatalf("%v at step %d changes content", fault, step)
			}
			w.must(w.c.Close())
			if n := w.mem().OpenFiles(); n != 0 {
				t.Fatalf("%v at step %d: %d files left open", fault, step, n)
			}
		}
	}
}
