package chain_test

import (
	"errors"
	"reflect"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// Every single operation on the file system fails once, with each kind of error, in the middle of
// every metadata operation. The chain then either goes on, being as it was before or as it should
// be after, or it is broken and the next open finds one of the two.
func TestEveryStepFails(t *testing.T) {
	for name, op := range map[string]func(w *world) error{
		"snapshot": func(w *world) error { return w.c.Snapshot("three", true, "2026-11-21T10:00:00Z", nil) },
		"expand":   func(w *world) error { return w.c.Expand(2*crashSize, "") },
		"revert":   func(w *world) error { return w.c.Revert("one", "") },
		"mark":     func(w *world) error { return w.c.MarkRemoved("one") },
		"dirty":    func(w *world) error { return w.c.WriteDirty([]chain.Region{0}) },
		"record": func(w *world) error {
			return w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 9, Generation: 3, Self: "v-1"})
		},
		"rebuild": func(w *world) error { return w.c.SetRebuilding() },
	} {
		for _, fault := range []error{disk.ErrIO, disk.ErrNoSpace} {
			t.Run(name+", "+fault.Error(), func(t *testing.T) { testEveryFault(t, op, fault) })
		}
	}
}

func testEveryFault(t *testing.T, op func(w *world) error, fault error) {
	base := crashBase(t)
	reference := base.copyOf()
	reference.open()
	before := viewOf(t, reference.fs, reference.c)
	reference.must(op(reference))
	after := viewOf(t, reference.fs, reference.c)
	one := func(got view) bool { return reflect.DeepEqual(got, before) || reflect.DeepEqual(got, after) }
	broken, survived := 0, 0
	for step, done := 0, false; !done; step++ {
		w := base.copyOf()
		w.open()
		w.mem().Inject(memdisk.Rule{Skip: step, Times: 1, Err: fault})
		err := op(w)
		_, unused := w.fs.Stat("/") // takes the fault if the operation did not
		done = err == nil && unused != nil
		w.mem().ClearRules()
		if err != nil && !errors.Is(err, fault) {
			t.Fatalf("step %d: error %v hides its cause", step, err)
		}
		if w.c.State() == chain.StateError {
			broken++
			w.must(w.c.Abandon())
		} else {
			survived++
			got := viewOf(t, w.fs, w.c)
			if !one(got) || err == nil && !reflect.DeepEqual(got, after) {
				t.Fatalf("step %d: error %v leaves\n%+v", step, err, got)
			}
			w.fill(8192, 4096, 8)
			w.must(w.c.Close())
			w.open()
			w.wantByte(8192, 4096, 8)
			w.snapshot("works")
			w.must(w.c.Close())
			continue
		}
		if n := w.mem().OpenFiles(); n != 0 {
			t.Fatalf("step %d: %d files left open", step, n)
		}
		w.open()
		if got := viewOf(t, w.fs, w.c); !one(got) {
			t.Fatalf("step %d: broken by %v, then found\n%+v", step, err, got)
		}
		w.must(w.c.Close())
	}
	if survived == 0 || fault == disk.ErrIO && broken == 0 {
		t.Fatalf("survived %d, broken %d: the test shows nothing", survived, broken)
	}
}

// A purge that fails anywhere changes nothing a reader sees, and can be begun again.
func TestEveryStepOfPurgeFails(t *testing.T) {
	base := purgeWorld(t)
	for _, name := range []string{"s0", "s2", "s3", "s4"} {
		base.must(base.c.MarkRemoved(name))
	}
	want := hashes(t, base.c, "s1", chain.HeadName)
	base.must(base.c.Close())
	for _, fault := range []error{disk.ErrIO, disk.ErrNoSpace} {
		for step, done := 0, false; !done; step++ {
			w := base.copyOf()
			w.open()
			w.mem().Inject(memdisk.Rule{Skip: step, Times: 1, Err: fault})
			err := w.c.Purge(nil)
			_, unused := w.fs.Stat("/")
			done = err == nil && unused != nil
			w.mem().ClearRules()
			if w.c.State() == chain.StateError {
				w.must(w.c.Abandon())
				w.open()
			}
			if got := hashes(t, w.c, "s1", chain.HeadName); got != want {
				t.Fatalf("%v at step %d changes content", fault, step)
			}
			w.must(w.c.Purge(nil))
			w.reopen()
			if got := hashes(t, w.c, "s1", chain.HeadName); got != want || listNames(t, w.c) != "s1 s4 volume-head" {
				t.Fatalf("%v at step %d: after purging again %s, content equal: %v", fault, step, listNames(t, w.c), got == want)
			}
			w.must(w.c.Close())
			if n := w.mem().OpenFiles(); n != 0 {
				t.Fatalf("%v at step %d: %d files left open", fault, step, n)
			}
		}
	}
}
