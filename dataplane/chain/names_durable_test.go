package chain_test

import (
	"errors"
	"reflect"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/memdisk"
)

// A process that is killed leaves names that only the system's memory has, and the next one sees
// them. These tests kill a process before each change of an operation, and cut the power before
// each change of what the next process does first.

// killSeeds is how many outcomes of each loss of power are looked at: there are two moments to
// choose.
var killSeeds = crashSeeds / 4

// What the next process concluded from names that were not on the disk must not have taken away
// what the disk still needs.
func TestPowerLossWhileOpeningAfterAKill(t *testing.T) {
	for name, o := range operations {
		t.Run(name, func(t *testing.T) {
			base := crashBase(t)
			reference := base.copyOf()
			reference.open()
			if o.prepare != nil {
				o.prepare(reference)
			}
			possible := map[string]bool{unmarked(reference): true}
			reference.must(o.op(reference))
			possible[unmarked(reference)] = true
			reference.must(reference.c.Close())
			for step, done := int64(0), false; !done; step++ {
				for at, opened := int64(0), false; !opened; at++ {
					w := base.copyOf()
					w.open()
					if o.prepare != nil {
						o.prepare(w)
					}
					w.must(w.c.Sync())
					w.mem().CrashAfter(step)
					done = o.op(w) == nil
					w.mem().CrashAfter(-1)
					w.must(w.c.Abandon())
					opened = openUntil(w, at)
					for seed := range killSeeds {
						if got := found(w, outcome(step, uint64(at)<<16|seed)); !possible[got] {
							t.Fatalf("killed before change %d, power lost before change %d of the next open (%d): "+
								"what is found is neither old nor new: %s",
								step, at, seed, got)
						}
					}
				}
			}
		})
	}
}

// unmarked is the content of the head and of every snapshot that is not marked.
func unmarked(w *world) string {
	w.t.Helper()
	var names []string
	list, err := w.c.Snapshots()
	w.must(err)
	for _, s := range list {
		if !s.Removed {
			names = append(names, s.Name)
		}
	}
	return hashes(w.t, w.c, names...)
}

// openUntil opens the directory and kills the process before a change, and reports whether it came
// to the end.
func openUntil(w *world, change int64) bool {
	w.t.Helper()
	w.mem().CrashAfter(change)
	c, err := chain.Open(w.fs, w.dir, w.opts)
	w.mem().CrashAfter(-1)
	if err == nil {
		w.must(c.Abandon())
	} else if !errors.Is(err, memdisk.ErrCrashed) {
		w.t.Fatal(err)
	}
	return err == nil
}

// found opens what a loss of power has left, and returns its content or why it is refused.
func found(w *world, seed uint64) string {
	w.t.Helper()
	x := *w
	x.fs, x.opts = w.mem().Crash(seed), testOptions()
	c, err := chain.Open(x.fs, x.dir, x.opts)
	if err != nil {
		return err.Error()
	}
	x.c = c
	got := unmarked(&x)
	x.must(x.c.Close())
	return got
}

// A directory that was being made into a rebuild target is created anew: nothing of it may look
// like the replica that it was.
func TestPowerLossWhileCreatingAfterAKill(t *testing.T) {
	base := crashBase(t)
	reference := base.copyOf()
	reference.open()
	old, spec := viewOf(t, reference.fs, reference.c), reference.c.Spec()
	reference.must(reference.c.Close())
	looked := 0
	for step, done := int64(0), false; !done; step++ {
		for at, created := int64(0), false; !created; at++ {
			w := base.copyOf()
			w.mem().CrashAfter(step)
			done = chain.CreateSkeleton(w.fs, w.dir, spec, testOptions()) == nil
			w.mem().CrashAfter(at)
			created = chain.Create(w.fs, w.dir, testSpec(crashSize), testOptions()) == nil
			for seed := range killSeeds {
				x := *w
				x.fs, x.opts = w.mem().Crash(outcome(step, uint64(at)<<16|seed)), testOptions()
				info, err := chain.Inspect(x.fs, x.dir)
				x.must(err)
				if info.State != chain.StateClosed || info.Rebuilding || info.Record.Generation == 0 {
					continue
				}
				looked++
				x.open()
				if got := viewOf(t, x.fs, x.c); !reflect.DeepEqual(got, old) {
					t.Fatalf("killed before change %d, power lost before change %d of the next creation (%d): a "+
						"replica in good standing with other content", step, at, seed)
				}
				x.must(x.c.Close())
			}
		}
	}
	if looked == 0 {
		t.Fatal("the test shows nothing")
	}
}
