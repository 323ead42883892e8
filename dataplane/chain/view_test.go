package chain_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

func (w *world) view(name string) *chain.View {
	w.t.Helper()
	v, err := w.c.OpenView(name)
	w.must(err)
	return v
}

// at returns what is read at a snapshot.
func (w *world) at(name string) []byte {
	w.t.Helper()
	v := w.view(name)
	defer v.Close()
	p := make([]byte, v.Size())
	_, err := v.ReadAt(p, 0)
	w.must(err)
	return p
}

func (w *world) wantVerdict(v *chain.View, off, n int64, want chain.Verdict, rot ...chain.LayerRot) {
	w.t.Helper()
	got, found, err := v.Verify(off, n)
	if err != nil || got != want || !slices.Equal(found, rot) {
		w.t.Fatalf("[%d,+%d) is %s %+v, %v, want %s %+v", off, n, got, found, err, want, rot)
	}
}

// hashAll computes all checksums.
func (w *world) hashAll(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if r := w.hash(name, true); r.Corrupted {
			w.t.Fatalf("%s: %+v", name, r)
		}
	}
}

// A verdict is about everything that is read in a range, whatever file it comes from, and about
// nothing else.
func TestVerify(t *testing.T) {
	w, fs := hashWorld(t)
	w.hashAll("a")
	b := w.view("b")
	w.wantVerdict(b, 0, chain.SumPiece, chain.VerdictUnknown) // b itself has no sums yet
	w.wantVerdict(b, 9*chain.SumPiece, chain.SumPiece, chain.VerdictGood)
	w.wantVerdict(b, chain.SumPiece, mib, chain.VerdictGood) // nothing there
	w.hashAll("b")
	w.must(b.Close())
	b = w.view("b")
	w.wantVerdict(b, 0, chain.SumPiece, chain.VerdictGood)

	w.must(fs.Rot(image("a"), 0, 1))
	bad := chain.LayerRot{Snapshot: "a", Rot: chain.Rot{Off: 0, Len: chain.SumPiece}}
	w.wantVerdict(b, 0, 4*mib, chain.VerdictRotten, bad)
	w.wantVerdict(b, chain.SumPiece, 3*mib, chain.VerdictGood)
	w.must(fs.Rot(image("a"), 0, 1))
	w.must(fs.Unreadable(image("b"), 65536, 1))
	w.wantVerdict(b, 0, 1, chain.VerdictRotten,
		chain.LayerRot{Snapshot: "b", Rot: chain.Rot{Len: chain.SumPiece, Unreadable: true}})
	w.must(b.Close())
}

// What was voided since a view was opened is unknown to it as well.
func TestVerifyAfterPurge(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Self: "v-1"}))
	for i := range byte(4) {
		w.fill(int64(i)*4096, 8192, i+1)
		w.snapshot(fmt.Sprint("s", i))
		w.hashAll(fmt.Sprint("s", i))
	}
	want := w.at("s3")
	v := w.view("s3")
	w.wantVerdict(v, 0, mib, chain.VerdictGood)
	w.must(w.c.MarkRemoved("s1"))
	w.must(w.c.Purge(nil))
	w.wantVerdict(v, 0, mib, chain.VerdictUnknown)
	got := make([]byte, mib)
	_, err := v.ReadAt(got, 0)
	w.must(err)
	if !bytes.Equal(got, want) || !bytes.Equal(w.at("s3"), want) {
		t.Fatal("a purge changed what a view reads")
	}
	w.must(v.Close())
	if n := w.c.Layers(); n != 4 {
		t.Fatalf("%d layers", n)
	}
}

func TestViewRefuses(t *testing.T) {
	w, _ := hashWorld(t)
	for _, name := range []string{"x", chain.HeadName} {
		_, err := w.c.OpenView(name)
		wantErr(t, err, chain.ErrNotFound)
	}
	v := w.view("a")
	for _, r := range [][2]int64{{-4096, 4096}, {0, 0}, {0, 512}, {512, 4096}, {4*mib - 4096, 8192}, {5 * mib, 4096}} {
		_, err := v.Repair(r[0], make([]byte, r[1]))
		wantErr(t, err, chain.ErrInvalid)
	}
	w.must(w.c.MarkRemoved("a"))
	_, err := v.Repair(0, make([]byte, 4096))
	wantErr(t, err, chain.ErrInvalid)
	_, err = w.c.OpenView("a")
	wantErr(t, err, chain.ErrInvalid)
	b := w.view("b")
	w.must(w.c.Purge(nil))
	_, err = v.Repair(0, make([]byte, 4096))
	wantErr(t, err, chain.ErrNotFound)
	_, err = b.Repair(0, make([]byte, 4096)) // a's file has b's name now
	wantErr(t, err, chain.ErrInvalid)
	w.must(b.Close())
	w.must(v.Close())
	w.must(w.c.SetRebuilding())
	_, err = w.c.OpenView("b")
	wantErr(t, err, chain.ErrInvalid)
	w.must(w.c.Close())
	if n := w.mem().OpenFiles(); n != 0 {
		t.Fatalf("%d files left open", n)
	}
}

// Whatever rotted in whatever file, repairing with the right content brings every snapshot from
// that one on back, and leaves older ones alone.
func TestRepair(t *testing.T) {
	for name, c := range map[string]struct {
		damage  func(w *world, fs *memdisk.FS) error
		written []chain.Rot
	}{
		"own file": {func(w *world, fs *memdisk.FS) error {
			return fs.Rot(image("b"), 65600, 10)
		}, []chain.Rot{{Off: 65536, Len: 4096}}},
		"unreadable": {func(w *world, fs *memdisk.FS) error { return fs.Unreadable(image("b"), 65536, 1) },
			[]chain.Rot{{Off: 65536, Len: 4096, Unreadable: true}}},
		"older file": {func(w *world, fs *memdisk.FS) error { return fs.Rot(image("a"), 9*chain.SumPiece+8192, 8192) },
			[]chain.Rot{{Off: 9*chain.SumPiece + 8192, Len: 8192}}},
		"lost block": {func(w *world, fs *memdisk.FS) error {
			f, err := fs.Open(image("b"), 0)
			w.must(err)
			defer f.Close()
			return f.Punch(4096, 4096)
		}, []chain.Rot{{Off: 4096, Len: 4096}}},
		"nothing": {func(w *world, fs *memdisk.FS) error { return nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w, fs := hashWorld(t)
			w.hashAll("a", "b", "c")
			want := map[string][]byte{"b": w.at("b"), "c": w.at("c")}
			head := w.read(0, 4*mib)
			w.must(c.damage(w, fs))
			w.reopen() // a lost block is noticed by opening
			older := hashes(t, w.c, "a")
			v := w.view("b")
			var written []chain.Rot
			for off := int64(0); off < 4*mib; off += mib {
				out, err := v.Repair(off, want["b"][off:off+mib])
				w.must(err)
				written = append(written, out.Written...)
			}
			if !slices.Equal(written, c.written) {
				t.Errorf("written %+v, want %+v", written, c.written)
			}
			for name, data := range want {
				if !bytes.Equal(w.at(name), data) {
					t.Errorf("%s is not what it was", name)
				}
			}
			if !bytes.Equal(w.read(0, 4*mib), head) {
				t.Error("the head is not what it was")
			}
			if hashes(t, w.c, "a") != older {
				t.Error("a repair of b has changed a")
			}
			w.must(v.Close())
			w.reopen()
			if !bytes.Equal(w.at("b"), want["b"]) || !bytes.Equal(w.read(0, 4*mib), head) {
				t.Error("what was repaired is not there after opening again")
			}
			if r := w.hash("b", true); r.Corrupted {
				t.Errorf("after the repair b is %+v", r)
			}
			v = w.view("b")
			defer v.Close()
			if name != "older file" {
				w.wantVerdict(v, 0, 4*mib, chain.VerdictGood)
			}
		})
	}
}

// The head's map follows: a block that the snapshot has since the repair must not be punched out of
// the head.
func TestRepairBelowTheHead(t *testing.T) {
	w, _ := hashWorld(t)
	w.fill(mib, 4096, 9) // in the head only
	data := w.at("c")
	copy(data[mib:], bytes.Repeat([]byte{7}, 8192))
	v := w.view("c")
	_, err := v.Repair(mib, data[mib:2*mib])
	w.must(err)
	w.must(v.Close())
	w.wantByte(mib, 4096, 9)
	w.wantByte(mib+4096, 4096, 7)
	w.zero(mib, 8192)
	w.wantByte(mib, 8192, 0)
	w.reopen()
	w.wantByte(mib, 8192, 0)
}

// A repair that a crash cuts short leaves the snapshot right, or what is wrong is seen to be, and
// repairing again works.
func TestCrashDuringRepair(t *testing.T) {
	base, _ := hashWorld(t)
	base.hashAll("a", "b", "c")
	want := base.at("b")
	older := hashes(t, base.c, "a")
	base.must(base.c.Close())
	base.must(base.mem().Rot(image("b"), 65536, 4096))
	seen := map[string]int{}
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.open()
		v := w.view("b")
		w.mem().CrashAfter(step)
		_, err := v.Repair(0, want[:mib])
		done = err == nil
		for seed := range crashSeeds {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			x.open()
			v := x.view("b")
			verdict, _, err := v.Verify(0, mib)
			x.must(err)
			equal := bytes.Equal(x.at("b"), want)
			seen[fmt.Sprint(verdict, equal)]++
			if equal != (verdict == chain.VerdictGood) || done && !equal {
				// Equal content may still be seen as rotten: the checksum of before, with the data of after.
				if !equal || done {
					t.Fatalf("step %d, seed %d: %s, equal %v, done %v", step, seed, verdict, equal, done)
				}
			}
			if r := x.hash("b", true); r.Corrupted == equal && verdict == chain.VerdictGood {
				t.Fatalf("step %d, seed %d: %+v", step, seed, r)
			}
			_, err = v.Repair(0, want[:mib])
			x.must(err)
			x.must(v.Close())
			if !bytes.Equal(x.at("b"), want) || hashes(t, x.c, "a") != older {
				t.Fatalf("step %d, seed %d: repairing again does not help", step, seed)
			}
			x.must(x.c.Close())
		}
	}
	if seen["rotten false"] == 0 || seen["good true"] == 0 {
		t.Fatalf("%v: the test shows nothing", seen)
	}
}

// A disk that fails or is full in the middle of a repair leaves the chain usable or broken, and
// never another content.
func TestEveryStepOfRepairFails(t *testing.T) {
	base, _ := hashWorld(t)
	base.hashAll("a", "b", "c")
	want := base.at("b")
	older := hashes(t, base.c, "a")
	base.must(base.c.Close())
	base.must(base.mem().Rot(image("b"), 65536, 4096))
	for _, fault := range []error{disk.ErrIO, disk.ErrNoSpace} {
		for step, done := 0, false; !done; step++ {
			w := base.copyOf()
			w.open()
			v := w.view("b")
			w.mem().Inject(memdisk.Rule{Skip: step, Times: 1, Err: fault})
			_, err := v.Repair(0, want[:mib])
			_, unused := w.fs.Stat("/")
			done = err == nil && unused != nil
			w.mem().ClearRules()
			w.must(v.Close())
			if w.c.State() == chain.StateError {
				w.must(w.c.Abandon())
				w.open()
			}
			v = w.view("b")
			verdict, _, verr := v.Verify(0, mib)
			w.must(verr)
			if verdict == chain.VerdictGood && !bytes.Equal(w.at("b"), want) {
				t.Fatalf("%v at step %d: rot is taken for good", fault, step)
			}
			_, err = v.Repair(0, want[:mib])
			w.must(err)
			w.must(v.Close())
			if !bytes.Equal(w.at("b"), want) || hashes(t, w.c, "a") != older {
				t.Fatalf("%v at step %d: repairing again does not help", fault, step)
			}
			w.must(w.c.Close())
			if n := w.mem().OpenFiles(); n != 0 {
				t.Fatalf("%v at step %d: %d files left open", fault, step, n)
			}
		}
	}
}

// Two replicas with chains of other shapes and the same content: whatever rots in one is repaired
// from the other, from the oldest snapshot to the newest, and afterwards both read the same
// everywhere.
func TestRepairFromAnotherShape(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const size = 1 << 19
		var ws [2]*world
		for i := range ws {
			fs := memdisk.New()
			ws[i] = &world{t: t, fs: fs, dir: "/r", opts: testOptions()}
			ws[i].must(chain.Create(fs, "/r", testSpec(size), ws[i].opts))
			ws[i].open()
			ws[i].must(ws[i].c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Self: "v-1"}))
		}
		var names []string
		for i := range rapid.IntRange(2, 5).Draw(rt, "snapshots") {
			for range rapid.IntRange(0, 4).Draw(rt, "writes") {
				off := rapid.Int64Range(0, size/4096-8).Draw(rt, "block") * 4096
				n := rapid.Int64Range(1, 8).Draw(rt, "blocks") * 4096
				for _, w := range ws {
					w.fill(off, n, byte(i+1))
				}
			}
			name := fmt.Sprint("s", i)
			names = append(names, name)
			for _, w := range ws {
				w.snapshot(name)
			}
		}
		// One of them purges a snapshot that the other still has.
		gone := rapid.SampledFrom(names).Draw(rt, "removed")
		for _, w := range ws {
			w.must(w.c.MarkRemoved(gone))
		}
		ws[1].must(ws[1].c.Purge(nil))
		names = slices.DeleteFunc(names, func(n string) bool { return n == gone })
		want := map[string][]byte{}
		for _, n := range names {
			want[n] = ws[1].at(n)
			ws[0].hashAll(n)
		}
		head := ws[1].read(0, size)
		for range rapid.IntRange(1, 4).Draw(rt, "rotten") {
			n := rapid.SampledFrom(names).Draw(rt, "in")
			ws[0].must(ws[0].mem().Rot(image(n), rapid.Int64Range(0, size-1).Draw(rt, "at"), 1))
		}
		for _, n := range names {
			v := ws[0].view(n)
			before := ws[0].at(n)
			verdict, _, err := v.Verify(0, size)
			ws[0].must(err)
			if verdict == chain.VerdictGood && !bytes.Equal(before, want[n]) {
				rt.Fatalf("rot at %s is taken for good", n)
			}
			_, err = v.Repair(0, want[n])
			ws[0].must(err)
			ws[0].must(v.Close())
		}
		for _, n := range names {
			if !bytes.Equal(ws[0].at(n), want[n]) {
				rt.Fatalf("%s is not what it was", n)
			}
			ws[0].hashAll(n)
		}
		if !bytes.Equal(ws[0].read(0, size), head) {
			rt.Fatal("the head is not what it was")
		}
		for _, w := range ws {
			w.must(w.c.Close())
		}
	})
}
