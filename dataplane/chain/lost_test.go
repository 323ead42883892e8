package chain_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// usedNames are the names of the files in a directory that hold content of the live chain.
func (w *world) usedNames() (out []string) {
	w.t.Helper()
	names, err := w.fs.List(w.dir)
	w.must(err)
	for _, name := range names {
		if strings.HasSuffix(name, ".img") || strings.HasPrefix(name, "ankole.whiteouts-") {
			out = append(out, name)
		}
	}
	return out
}

// lose takes a name away, or gives it to another file, durably.
func (w *world) lose(name string, replaced bool) {
	w.t.Helper()
	w.must(w.fs.Remove(w.dir + "/" + name))
	if replaced {
		f, err := w.fs.Create(w.dir+"/"+name, 0)
		w.must(err)
		_, err = f.WriteAt([]byte("another"), 0)
		w.must(errors.Join(err, f.Sync(), f.Close()))
	}
	w.must(w.fs.SyncDir(w.dir))
}

// restoreAll writes all lost files anew.
func (w *world) restoreAll() error {
	lost, err := w.c.Lost()
	if err = errors.Join(err, w.c.Mend()); err != nil {
		return err
	}
	for _, name := range lost {
		ch, err := w.c.Restore(name, nil, nil)
		if err != nil {
			return err
		}
		w.c.Apply(ch)
	}
	return nil
}

// Every file of a directory that is open can be removed or replaced: it is noticed, and written
// anew with what it held. Nothing else has changed then, for whoever goes on and for whoever opens
// the directory later.
func TestLostFilesAreWrittenAnew(t *testing.T) {
	base := crashBase(t)
	names, err := base.fs.List(base.dir)
	base.must(err)
	for _, replaced := range []bool{false, true} {
		for _, name := range names {
			if name == "ankole.reserve" || name == "ankole.meta" || name == "revision.counter" {
				continue // not in use while the directory is open
			}
			metadata := strings.HasSuffix(name, ".meta")
			if replaced && metadata {
				continue // each change replaces it
			}
			w := base.copyOf()
			w.open()
			w.fill(20480, 4096, 9)
			want := viewOf(t, w.fs, w.c)
			w.must(w.c.CopyMeta())
			w.lose(name, replaced)
			lost, err := w.c.Lost()
			w.must(err)
			content := strings.HasSuffix(name, ".img") || strings.HasPrefix(name, "ankole.whiteouts-")
			if content != (len(lost) == 1 && lost[0] == name) {
				t.Errorf("%s, replaced %v: lost are %q", name, replaced, lost)
			}
			w.must(w.restoreAll())
			if lost, err := w.c.Lost(); len(lost) != 0 || err != nil {
				t.Errorf("%s: %q, %v", name, lost, err)
			}
			if got := viewOf(t, w.fs, w.c); !reflect.DeepEqual(got, want) {
				t.Errorf("%s:\n%+v\nwas\n%+v", name, got, want)
			}
			w.must(w.c.Sync())
			for seed := range uint64(2) {
				if got := crashAndOpen(t, w, seed, 0); !reflect.DeepEqual(got, want) {
					t.Errorf("%s, opened again:\n%+v\nwas\n%+v", name, got, want)
				}
			}
			w.fill(24576, 4096, 10)
			w.must(w.c.Discard(16384, 4096))
			w.must(w.c.Snapshot("three", true, "2026-11-21T10:00:00Z", nil))
			want = viewOf(t, w.fs, w.c)
			w.must(w.c.Close())
			w.open()
			if got := viewOf(t, w.fs, w.c); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, used afterwards:\n%+v\nwas\n%+v", name, got, want)
			}
			w.must(w.c.Close())
		}
	}
}

// What is written while a file is copied is in the copy too if it is copied again, and a copy is
// made of many pieces.
func TestLostHeadIsCopiedBesideWrites(t *testing.T) {
	w, _ := newWorld(t, 32*mib)
	w.fill(0, 8*mib, 1)
	w.snapshot("a")
	w.fill(mib, 28*mib, 2)
	head, _, _ := w.c.Layer(1)
	w.lose(head, false)
	r, err := w.c.BeginRestore(head)
	w.must(err)
	pieces := 0
	for more := true; more; pieces++ {
		more, err = r.Copy()
		w.must(err)
		p := bytes.Repeat([]byte{byte(10 + pieces)}, 4096)
		w.must(w.c.WriteHead(p, int64(pieces+1)*4*mib+4096)) // behind the piece, and before it
	}
	if pieces < 3 {
		t.Fatalf("%d pieces", pieces)
	}
	w.must(w.c.Discard(5*mib, mib))
	again := []chain.Range{{Off: 5 * mib, Len: mib}}
	for i := range int64(pieces) {
		again = append(again, chain.Range{Off: (i + 1) * 4 * mib, Len: mib})
	}
	want := w.read(0, 32*mib)
	ch, err := r.Finish(again)
	w.must(err)
	w.c.Apply(ch)
	if !bytes.Equal(w.read(0, 32*mib), want) {
		t.Fatal("the copy reads otherwise")
	}
	w.reopen()
	if !bytes.Equal(w.read(0, 32*mib), want) {
		t.Fatal("opened again it reads otherwise")
	}
}

// testLostCrash crashes op at every step after a file was lost. Whoever opens the directory then
// either is refused, or has the content, or a directory that is no member of anything.
func testLostCrash(t *testing.T, op func(w *world) error) (whole int) {
	base := crashBase(t)
	refused, opened, whole := 0, 0, 0
	for _, name := range base.usedNames() {
		for step, done := int64(0), false; !done; step++ {
			w := base.copyOf()
			w.open()
			w.must(w.c.CopyMeta())
			want := viewOf(t, w.fs, w.c)
			w.lose(name, step%2 == 1)
			w.mem().CrashAfter(step)
			err := op(w)
			if done = err == nil; !done && !errors.Is(err, memdisk.ErrCrashed) {
				t.Fatalf("%s, step %d: %v", name, step, err)
			}
			for seed := range crashSeeds {
				x := *w
				x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
				c, err := chain.Open(x.fs, x.dir, x.opts)
				if err != nil {
					if refused++; done {
						t.Fatalf("%s, seed %d: refused after the end: %v", name, seed, err)
					}
					continue
				}
				if _, valid := c.Record(); valid {
					whole++
					if got := viewOf(t, x.fs, c); !reflect.DeepEqual(got, want) {
						t.Fatalf("%s, step %d, seed %d:\n%+v\nis not\n%+v", name, step, seed, got, want)
					}
				}
				opened++
				w.must(c.Abandon())
			}
		}
	}
	if refused == 0 || opened == 0 {
		t.Fatalf("%d times refused, %d times opened: the test shows nothing", refused, opened)
	}
	return whole
}

func TestCrashWhileLostFilesAreWrittenAnew(t *testing.T) {
	if testLostCrash(t, (*world).restoreAll) == 0 {
		t.Fatal("nothing was ever written anew")
	}
}

// A directory that has lost files is made a rebuild target: it opens, and is nobody's copy.
func TestCrashWhileALostFileIsMadeEmpty(t *testing.T) {
	blank := func(w *world) error {
		lost, err := w.c.Lost()
		if err != nil {
			return err
		}
		if err := w.c.Blank(w.c.Sidecars, lost); err != nil {
			return err
		}
		return w.c.Close()
	}
	testLostCrash(t, blank)
	base := crashBase(t)
	for _, name := range base.usedNames() {
		w := base.copyOf()
		w.open()
		w.lose(name, false)
		w.must(blank(w))
		w.open()
		if _, valid := w.c.Record(); valid || !w.c.Rebuilding() {
			t.Errorf("%s: record %v, rebuilding %v", name, valid, w.c.Rebuilding())
		}
		w.must(w.c.Close())
	}
}

// A full disk has no room for the copy: what is open stays as it is, and the next try succeeds.
func TestLostFileOnAFullDisk(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.fill(0, mib, 3)
	w.lose("volume-head-000.img", false)
	fs.SetCapacity(fs.Used() + 64<<10)
	_, err := w.c.Restore("volume-head-000.img", nil, nil)
	wantErr(t, err, disk.ErrNoSpace)
	w.wantByte(0, mib, 3)
	fs.SetCapacity(1 << 40)
	w.must(w.restoreAll())
	w.reopen()
	w.wantByte(0, mib, 3)
}

// TestMergeLosesNoFile: a merge removes and renames files that are in use. The look for lost ones,
// which comes between any two pieces, finds none, also where there is no room for the last step.
func TestMergeLosesNoFile(t *testing.T) {
	for _, full := range []bool{false, true} {
		w, fs := newWorld(t, mib)
		w.fill(0, mib, 1)
		w.snapshot("base")
		w.must(w.c.Discard(131072, 32768))
		w.snapshot("gone")
		w.must(w.c.Discard(32768, 65536))
		w.snapshot("kept")
		want := hashes(t, w.c, "base", "kept", chain.HeadName)
		w.must(w.c.MarkRemoved("gone"))
		p, err := w.c.NewPurge()
		w.must(err)
		wantNoneLost := func(after string) {
			t.Helper()
			if lost, err := w.c.Lost(); len(lost) > 0 || err != nil {
				t.Fatalf("full %v, %s: lost are %q, %v", full, after, lost, err)
			}
		}
		step, _ := p.Next()
		if step.Action != chain.PurgeCoalesce {
			t.Fatalf("%+v", step)
		}
		for done := false; !done; wantNoneLost("a piece") {
			done, err = workStep(w.c, p, &step)
			w.must(err)
		}
		if full {
			stop := fs.Inject(memdisk.Rule{Op: memdisk.OpRename, Name: chain.SnapshotFile("kept"), Err: disk.ErrNoSpace})
			wantErr(t, finishStep(w.c, p, &step), disk.ErrNoSpace)
			stop()
			wantNoneLost("a step without room")
			w.must(w.c.Purge(nil))
		} else {
			w.must(finishStep(w.c, p, &step))
		}
		wantNoneLost("the end")
		w.reopen()
		if got := hashes(t, w.c, "base", "kept", chain.HeadName); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		if files := w.whiteoutFiles(); len(files) != 1 {
			t.Errorf("whiteouts of one layer are in %v", files)
		}
		w.must(w.c.Close())
	}
}
