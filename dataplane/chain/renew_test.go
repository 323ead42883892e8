package chain_test

import (
	"reflect"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// renewalSteps is more changes of the disk than any of the renewals takes.
const renewalSteps = 100

// unwritable are the ways in which the disk refuses a sector of a sidecar for good.
var unwritable = map[string]memdisk.Rule{
	"nothing of it is written": {Op: memdisk.OpWrite, Err: disk.ErrIO},
	"a part of it is written":  {Op: memdisk.OpWrite, Err: disk.ErrIO, Partial: true},
}

// renewed is the record that TestSidecarThatCannotBeWritten writes.
var renewed = chain.Record{VolumeUUID: testUUID, Promised: 7, Epoch: 7, Generation: 3, State: chain.MemberRW,
	Self: "v-1", Members: []chain.Member{{Name: "v-1"}}, Agreed: true}

// renewals are changes of one sidecar each, and what is there before and after them.
var renewals = map[string]struct {
	do   func(c *chain.Chain) error
	look func(c *chain.Chain) any
}{
	"ankole.member": {
		func(c *chain.Chain) error { return c.WriteRecord(renewed) },
		func(c *chain.Chain) any { r, _ := c.Record(); return r },
	},
	"ankole.dirty": {
		func(c *chain.Chain) error { return c.AddDirty([]chain.Region{9}) },
		func(c *chain.Chain) any { set, _ := c.Dirty(); return set },
	},
	"ankole.absent": {
		func(c *chain.Chain) error { return c.WriteDirty([]chain.Region{2}) },
		func(c *chain.Chain) any { a, _ := c.Absent("v-2"); return a.Regions.Has(5) },
	},
}

// A sidecar lies where the disk cannot write: another file takes its place, and a replica goes on,
// as often as it is opened and written to.
func TestSidecarThatCannotBeWritten(t *testing.T) {
	for how, rule := range unwritable {
		for file, change := range renewals {
			t.Run(file+", "+how, func(t *testing.T) {
				w, fs := sidecarWorld(t)
				rule.Name = file
				fs.Inject(rule)
				w.open()
				w.must(change.do(w.c))
				want := change.look(w.c)
				w.must(w.c.Abandon())
				w.open()
				if got := change.look(w.c); !reflect.DeepEqual(got, want) {
					t.Errorf("%+v, not %+v", got, want)
				}
				w.must(w.c.WriteDirty([]chain.Region{1}))
				w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Generation: 4, Epoch: 8, Self: "v-1"}))
				w.must(w.c.Close())
			})
		}
	}
}

// While another file takes the place of one that cannot be written, a loss of power leaves what was
// there before or what was written.
func TestCrashWhileASidecarIsRenewed(t *testing.T) {
	for how, rule := range unwritable {
		for file, change := range renewals {
			t.Run(file+", "+how, func(t *testing.T) {
				w, _ := sidecarWorld(t)
				w.open()
				before := change.look(w.c)
				w.must(change.do(w.c))
				after := change.look(w.c)
				rule.Name = file
				for step, done := int64(0), false; !done; step++ {
					if step > renewalSteps {
						t.Fatal("it fails without a loss of power")
					}
					w, fs := sidecarWorld(t)
					w.open()
					fs.Inject(rule)
					fs.CrashAfter(step)
					done = change.do(w.c) == nil
					fs.CrashAfter(-1)
					for seed := range crashSeeds {
						x := *w
						x.fs, x.opts = fs.Crash(outcome(step, seed)), testOptions()
						x.open()
						got := change.look(x.c)
						if !reflect.DeepEqual(got, after) && (done || !reflect.DeepEqual(got, before)) {
							t.Fatalf("step %d, seed %d: %+v", step, seed, got)
						}
						x.must(x.c.Close())
					}
				}
			})
		}
	}
}
