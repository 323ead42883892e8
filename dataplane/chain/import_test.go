package chain_test

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/disk"
	"ankole.storage/disk/memdisk"
)

// importWorld has the snapshots of crashBase and an empty head.
func importWorld(t *testing.T) *world {
	base := crashBase(t)
	base.open()
	base.snapshot("three")
	base.must(base.c.Close())
	return base
}

func importAll(w *world) error {
	m, err := w.c.NewImport()
	if err != nil {
		return err
	}
	err = m.WriteAt(bytes.Repeat([]byte{9}, 8192), 4096)
	if err == nil {
		err = m.WriteAt(make([]byte, 4096), 16384) // zeroes hide what is below
	}
	if err == nil {
		err = m.Finish("restored", true, "2026-11-21T10:00:00Z", map[string]string{"a": "b"})
	}
	if cerr := m.Close(); err == nil {
		err = cerr
	}
	return err
}

func TestImport(t *testing.T) {
	w := importWorld(t)
	w.open()
	before := w.read(0, crashSize)
	copy(before[4096:], bytes.Repeat([]byte{9}, 8192))
	clear(before[16384:20480])
	w.must(importAll(w))
	for range 2 {
		if got := w.read(0, crashSize); !bytes.Equal(got, before) {
			t.Fatal("the head reads otherwise than what was imported")
		}
		if got := w.at("restored"); !bytes.Equal(got, before) {
			t.Fatal("the snapshot reads otherwise than what was imported")
		}
		if _, err := readRaw(w.fs, w.dir, false); err != nil {
			t.Fatal(err)
		}
		w.reopen()
	}
	w.fill(0, 4096, 7)
	w.snapshot("later")
	w.must(w.c.MarkRemoved("three"))
	w.must(w.c.Purge(nil))
	copy(before, bytes.Repeat([]byte{7}, 4096))
	if got := w.read(0, crashSize); !bytes.Equal(got, before) {
		t.Fatal("what was imported is lost later on")
	}
}

func TestImportRefuses(t *testing.T) {
	w := importWorld(t)
	w.open()
	m, err := w.c.NewImport()
	w.must(err)
	for _, r := range [][2]int64{{-4096, 4096}, {512, 4096}, {0, 512}, {crashSize, 4096}} {
		wantErr(t, m.WriteAt(make([]byte, r[1]), r[0]), chain.ErrInvalid)
	}
	wantErr(t, m.Finish("one", true, "", nil), chain.ErrExists)
	wantErr(t, m.Finish("../x", true, "", nil), chain.ErrInvalid)
	w.fill(0, 4096, 1)
	wantErr(t, m.Finish("x", true, "", nil), chain.ErrInvalid) // the head has data now
	w.must(m.Close())
	_, err = w.c.NewImport()
	wantErr(t, err, chain.ErrInvalid)
	w.reopen()
	if _, err := readRaw(w.fs, w.dir, false); err != nil {
		t.Fatal(err)
	}
}

func TestCrashDuringImport(t *testing.T) {
	base := importWorld(t)
	reference := base.copyOf()
	reference.open()
	before := viewOf(t, reference.fs, reference.c)
	reference.must(importAll(reference))
	after := viewOf(t, reference.fs, reference.c)
	reference.must(reference.c.Close())
	seen := map[string]int{}
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.open()
		w.mem().CrashAfter(step)
		done = importAll(w) == nil
		for seed := range uint64(2 * crashSeeds) {
			switch got := crashAndOpen(t, w, seed, step); {
			case reflect.DeepEqual(got, after):
				seen["after"]++
			case reflect.DeepEqual(got, before) && !done:
				seen["before"]++
			default:
				t.Fatalf("step %d (done %v), seed %d:\n%+v\nis neither before\n%+v\nnor after\n%+v", step, done, seed, got, before, after)
			}
		}
	}
	if seen["before"] == 0 || seen["after"] == 0 {
		t.Fatalf("%v: the test shows nothing", seen)
	}
}

func TestEveryStepOfImportFails(t *testing.T) {
	base := importWorld(t)
	reference := base.copyOf()
	reference.open()
	before := fmt.Sprint(viewOf(t, reference.fs, reference.c))
	reference.must(importAll(reference))
	after := fmt.Sprint(viewOf(t, reference.fs, reference.c))
	for _, fault := range []error{disk.ErrIO, disk.ErrNoSpace} {
		for step, done := 0, false; !done; step++ {
			w := base.copyOf()
			w.open()
			w.mem().Inject(memdisk.Rule{Skip: step, Times: 1, Err: fault})
			err := importAll(w)
			_, unused := w.fs.Stat("/")
			done = err == nil && unused != nil
			w.mem().ClearRules()
			// Whatever is left is settled by the next open.
			if w.c.State() == chain.StateError {
				w.must(w.c.Abandon())
			} else {
				w.must(w.c.Close())
			}
			w.open()
			if got := fmt.Sprint(viewOf(t, w.fs, w.c)); got != before && got != after {
				t.Fatalf("%v at step %d (%v):\n%s", fault, step, err, got)
			}
			if _, err := readRaw(w.fs, w.dir, false); err != nil {
				t.Fatalf("%v at step %d: %v", fault, step, err)
			}
			w.must(w.c.Close())
			if n := w.mem().OpenFiles(); n != 0 {
				t.Fatalf("%v at step %d: %d files left open", fault, step, n)
			}
		}
	}
}
