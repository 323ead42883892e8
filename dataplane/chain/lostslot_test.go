package chain_test

import (
	"fmt"
	"reflect"
	"testing"

	"ankole.storage/dataplane/chain"
)

// One slot of a sidecar that is damaged costs nothing, whichever it is: a replica does not go back
// to a promise, a set of members or marks from before.
func TestALostSlotOfASidecarCostsNothing(t *testing.T) {
	record := chain.Record{VolumeUUID: testUUID, Promised: 7, Epoch: 7, Generation: 2, State: chain.MemberRW,
		Self: "v-1", Engine: "e-2", Members: []chain.Member{{Name: "v-1"}}, Agreed: true}
	for name, end := range map[string]func(w *world){
		"closed": func(w *world) {
			w.must(w.c.CopyLog())
			w.must(w.c.Close())
		},
		"killed": func(w *world) {
			w.must(w.c.CopyLog())
			w.must(w.c.Abandon())
		},
		"killed before the log was copied, and opened": func(w *world) {
			w.must(w.c.Abandon())
			w.reopen()
			w.must(w.c.Abandon())
		},
	} {
		for _, file := range []string{"ankole.member", "ankole.dirty", "ankole.absent"} {
			for slot := range int64(2) {
				t.Run(fmt.Sprint(name, ", ", file, " ", slot), func(t *testing.T) {
					w, fs := sidecarWorld(t)
					w.open()
					w.must(w.c.WriteRecord(record))
					w.must(w.c.WriteDirty([]chain.Region{2}))
					w.must(w.c.AddDirty([]chain.Region{9}))
					end(w)
					info, err := fs.Stat("/r/" + file)
					w.must(err)
					w.must(fs.Rot("/r/"+file, slot*info.Size/2, 512))
					w.open()
					if r, valid := w.c.Record(); !valid || !reflect.DeepEqual(r, record) {
						t.Errorf("record %+v, %v", r, valid)
					}
					if set, known := w.c.Dirty(); !known || !reflect.DeepEqual(set, []chain.Region{2, 9}) {
						t.Errorf("marks %v, %v", set, known)
					}
					if a, ok := w.c.Absent("v-2"); !ok || !a.Regions.Has(5) {
						t.Errorf("account %+v, %v", a, ok)
					}
					w.must(w.c.Close())
				})
			}
		}
	}
}

// While the log is written and copied, a loss of power leaves what was durable or what came after,
// whichever of the two was under way.
func TestCrashWhileTheLogIsCopied(t *testing.T) {
	w, fs := sidecarWorld(t)
	w.open()
	for n := range chain.Region(12) {
		set := []chain.Region{n, 100 + n}
		var last []chain.Region
		if n > 0 {
			last = []chain.Region{n - 1, 99 + n}
		}
		for step := int64(0); ; step++ {
			fs.CrashAfter(step)
			err := w.c.WriteDirty(set)
			written := err == nil
			if written {
				err = w.c.CopyLog()
			}
			fs.CrashAfter(-1)
			for seed := range crashSeeds {
				x := *w
				x.fs, x.opts = fs.Crash(outcome(step, seed)), testOptions()
				x.open()
				got, known := x.c.Dirty()
				if !known || !reflect.DeepEqual(got, set) && (written || n > 0 && !reflect.DeepEqual(got, last)) {
					t.Fatalf("set %d, step %d, seed %d: %v, %v", n, step, seed, got, known)
				}
				x.must(x.c.Close())
			}
			if err == nil {
				break
			}
			w.must(w.c.Abandon()) // a failed sync has broken it
			w.open()
		}
	}
	w.must(w.c.Close())
}
