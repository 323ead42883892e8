package chain_test

import (
	"bytes"
	"errors"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
)

// What a snapshot reads from an older one is its own once it is kept: nothing that is written to
// the older one's file changes it, and what newer files hold is not written twice.
func TestKeepView(t *testing.T) {
	const n = 65536
	w, _ := newWorld(t, mib)
	w.fill(4096, 4096, 1) // below it nothing else is read: zeroes
	w.snapshot("older")
	w.fill(8192, 4096, 2)
	w.fill(24576, 8192, 2)
	w.snapshot("base")
	w.fill(12288, 8192, 3)
	w.snapshot("between")
	w.fill(16384, 4096, 4)
	w.must(w.c.Discard(24576, 4096))
	w.snapshot("kept")
	w.hashAll("kept")
	w.fill(0, 4096, 5)
	want, head := w.at("kept"), w.read(0, mib)
	own := w.allocated("kept")
	v := w.view("kept")
	if _, err := v.Keep("kept twice", 0, n); err == nil {
		t.Fatal("kept over a snapshot that is not there")
	}
	_, err := v.Keep("base", mib-4096, 8192)
	wantErr(t, err, chain.ErrInvalid)
	r, err := v.Keep("base", 0, n)
	w.must(err)
	// All but what the snapshot itself and the one between have.
	if written := []chain.Rot{{Off: 0, Len: 12288}, {Off: 20480, Len: n - 20480}}; len(r.Written) != 2 ||
		r.Written[0] != written[0] || r.Written[1] != written[1] {
		t.Errorf("written %v, want %v", r.Written, written)
	}
	if got := w.allocated("kept") - own; got != n-8192 {
		t.Errorf("the file has grown by %d bytes", got)
	}
	r, err = v.Keep("base", 0, n)
	if err != nil || len(r.Written) != 0 {
		t.Errorf("kept again: %v, %v", r.Written, err)
	}
	w.must(v.Close())
	base := w.view("base")
	_, err = base.Repair(0, bytes.Repeat([]byte{9}, n))
	w.must(err)
	w.must(base.Close())
	for range 2 {
		w.must(w.c.CheckMap())
		if !bytes.Equal(w.at("kept"), want) || !bytes.Equal(w.read(0, mib), head) {
			t.Fatal("a repair of an older snapshot shows")
		}
		if r := w.hash("kept", true); r.Corrupted {
			t.Fatalf("%+v", r)
		}
		w.reopen()
	}
}

// A crash beside a keep changes no snapshot, not the one that is kept either: what was being
// written to its file is a hole again, or whole. It can be kept again.
func TestCrashDuringKeep(t *testing.T) {
	base, _ := hashWorld(t)
	base.hashAll("a", "b", "c")
	want := map[string][]byte{"a": base.at("a"), "b": base.at("b")}
	base.must(base.c.Close())
	cut := 0
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.open()
		v := w.view("b")
		w.mem().CrashAfter(step)
		_, err := v.Keep("a", 0, mib)
		done = err == nil
		for seed := range crashSeeds {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			unwritten := x.unwritten("b")
			x.open()
			for _, name := range []string{"a", "b"} {
				if !bytes.Equal(x.at(name), want[name]) {
					t.Fatalf("step %d, seed %d, %v unwritten: %s reads otherwise", step, seed, unwritten, name)
				}
			}
			if unwritten {
				cut++
			}
			v := x.view("b")
			_, err = v.Keep("a", 0, mib)
			x.must(err)
			x.must(v.Close())
			a := x.view("a")
			_, err = a.Repair(0, bytes.Repeat([]byte{9}, mib))
			x.must(err)
			x.must(a.Close())
			if !bytes.Equal(x.at("b"), want["b"]) {
				t.Fatalf("step %d, seed %d: what is kept has changed with what is below", step, seed)
			}
			if r := x.hash("b", true); r.Corrupted {
				t.Fatalf("step %d, seed %d: %+v", step, seed, r)
			}
			x.must(x.c.Close())
		}
	}
	if cut == 0 {
		t.Error("no crash has cut a write short: the test shows nothing")
	}
}

// A crash beside a repair leaves each sector as it was or as it was to be, also where there are no
// checksums; zeroes that another engine has allocated and never written stay zeroes. Who only reads
// the directory sees the same as who opens it for writing.
func TestCrashDuringRepairWithoutChecksums(t *testing.T) {
	base, fs := hashWorld(t)
	base.must(base.c.Close())
	f, err := fs.Open(image("b"), 0)
	base.must(err)
	base.must(errors.Join(f.Preallocate(8192, 4096), f.Sync(), f.Close(), fs.Remove("/r/ankole.meta")))
	base.open()
	before := base.at("b")
	after := bytes.Repeat([]byte{9}, len(before))
	if before[8192] != 0 || base.at("a")[8192] == 0 {
		t.Fatal("the snapshot has no zeroes of its own")
	}
	base.must(base.c.Close())
	cut := 0
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.open()
		v := w.view("b")
		w.mem().CrashAfter(step)
		_, err := v.Repair(0, after[:mib])
		done = err == nil
		for seed := range crashSeeds {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			x.opts.ReadOnly = true
			x.open()
			read := x.at("b")
			x.must(x.c.Close())
			x.opts = testOptions()
			x.open()
			got := x.at("b")
			if !bytes.Equal(got, read) {
				t.Fatalf("step %d, seed %d: a reader sees other content", step, seed)
			}
			for at := 0; at < mib; at += 512 {
				sector := got[at : at+512]
				if !bytes.Equal(sector, after[at:at+512]) && (done || !bytes.Equal(sector, before[at:at+512])) {
					t.Fatalf("step %d, seed %d: repaired %v, and the sector at %d is neither", step, seed, done, at)
				}
			}
			if !bytes.Equal(got[:mib], before[:mib]) && !bytes.Equal(got[:mib], after[:mib]) {
				cut++
			}
			x.must(x.c.Close())
		}
	}
	if cut == 0 {
		t.Error("no crash has cut a write short: the test shows nothing")
	}
}

// unwritten tells whether a snapshot's file has something that was not written.
func (w *world) unwritten(name string) bool {
	w.t.Helper()
	f, err := w.fs.Open(image(name), disk.ReadOnly)
	w.must(err)
	defer f.Close()
	for off, more := int64(0), true; more; {
		var found []disk.Extent
		found, more, err = f.Extents(off, nil)
		w.must(err)
		for _, e := range found {
			if off = e.Off + e.Len; e.Unwritten {
				return true
			}
		}
	}
	return false
}
