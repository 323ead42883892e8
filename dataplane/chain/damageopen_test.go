package chain_test

import (
	"errors"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// damagedWorld is a closed directory of a full member in which what a layer hides is not known.
func damagedWorld(t *testing.T, branch, missing bool) *world {
	w, fs := newWorld(t, mib)
	w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Generation: 1, State: chain.MemberRW,
		Self: "v-1"}))
	w.fill(0, 65536, 1)
	w.snapshot("a")
	w.must(w.c.Discard(0, 32768))
	w.snapshot("b")
	if branch {
		w.must(w.c.Revert("a", "2026-11-21T08:00:00Z"))
	}
	file := w.whiteoutFiles()[0]
	w.must(w.c.Close())
	if missing {
		w.must(fs.Remove(file))
		w.must(fs.SyncDir(w.dir))
	} else {
		w.must(fs.Rot(file, 0, 8192))
	}
	return w
}

// Damage of whiteouts is forgotten only when the record is void for good, whatever fails while the
// directory is opened.
func TestEveryStepOfAnOpenWithDamageFails(t *testing.T) {
	for name, base := range map[string]*world{
		"page": damagedWorld(t, false, false), "file": damagedWorld(t, false, true),
		"file of a branch": damagedWorld(t, true, true),
	} {
		for _, fault := range []error{disk.ErrIO, disk.ErrNoSpace} {
			for step, done := 0, false; !done; step++ {
				w := base.copyOf()
				w.mem().Inject(memdisk.Rule{Skip: step, Times: 1, Err: fault})
				c, err := chain.Open(w.fs, w.dir, w.opts)
				_, unused := w.fs.Stat("/")
				done = err == nil && unused != nil
				w.mem().ClearRules()
				if err == nil {
					w.must(c.Abandon())
				}
				w.open()
				if _, valid := w.c.Record(); valid {
					t.Fatalf("%s, %v at step %d: the record is valid", name, fault, step)
				}
				w.must(w.c.Close())
			}
		}
	}
}

// A disk that gives errors for a while, from whatever step of an open on, costs a directory nothing
// that it held: an open without errors finds the record, and all content.
func TestErrorsOfAnOpenCostNothing(t *testing.T) {
	base, _ := newWorld(t, mib)
	base.must(base.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Generation: 1, State: chain.MemberRW,
		Self: "v-1"}))
	base.fill(0, 65536, 1)
	base.snapshot("a")
	base.must(base.c.Discard(0, 32768))
	base.snapshot("b")
	base.must(base.c.Discard(32768, 16384))
	base.must(base.c.Sync())
	base.must(base.c.Close())
	const forGood = 1 << 30
	tried := 0
	for _, op := range []memdisk.Op{"", memdisk.OpRead} {
		// A page of whiteouts is read four times before its reader gives up.
		for _, times := range []int{1, 2, 4, forGood} {
			for step, done := 0, false; !done; step++ {
				w := base.copyOf()
				tried++
				w.mem().Inject(memdisk.Rule{Op: op, Skip: step, Times: times, Err: disk.ErrIO})
				c, err := chain.Open(w.fs, w.dir, w.opts)
				if err == nil {
					done = nothingFailed(w, times)
					w.must(c.Abandon())
				}
				w.mem().ClearRules()
				w.open()
				if r, valid := w.c.Record(); !valid || r.Epoch != 1 || r.State != chain.MemberRW {
					t.Fatalf("%d errors of %q from step %d on: the record is %+v, %v", times, op, step, r, valid)
				}
				w.wantByte(0, 49152, 0)
				w.wantByte(49152, 16384, 1)
				w.must(w.c.CheckMap())
				w.must(w.c.Close())
			}
		}
	}
	t.Logf("%d opens tried", tried)
}

// nothingFailed tells whether all faults of a rule that is to apply a number of times are left.
func nothingFailed(w *world, times int) bool {
	for range min(times, 4) {
		if _, err := w.fs.ReadFile(w.dir+"/volume.meta", 1<<20); err == nil {
			return false
		}
	}
	return true
}

// A page of a branch's whiteouts that is damaged does not keep the directory from being rebuilt for
// ever.
func TestDamagedBranchOfATarget(t *testing.T) {
	w := damagedWorld(t, true, false)
	w.open()
	w.must(w.c.VoidForRebuild(voidRecord(w), "", nil))
	spec := w.c.Spec()
	branches, err := w.c.OpenBranches()
	w.must(err)
	if _, _, err := w.c.Hides(2, block.MaxTransfer, 0, mib, 10); !errors.Is(err, disk.ErrIO) {
		t.Fatalf("who does not rebuild the branch is told that it hides what it says: %v", err)
	}
	w.c, err = chain.Reshape(w.c.Files, w.c.Sidecars, chain.Shape{Spec: spec, Branches: []chain.LayerSpec{
		{File: branches[0].File, Size: branches[0].Size, Meta: branches[0].Meta, Whiteouts: true}}})
	w.must(err)
	_, err = w.c.OpenBranches()
	w.must(err)
	hides, _, err := w.c.Hides(2, block.MaxTransfer, 0, mib, 10)
	if err != nil || len(hides) != 0 {
		t.Fatalf("%v, %v", hides, err)
	}
	w.must(w.c.PunchLayer(2, 0, 32768, true))
	w.must(w.c.FinishRebuild())
	w.must(w.c.Revert("b", "2026-11-21T08:00:00Z"))
	w.wantByte(0, 32768, 0)
	w.wantByte(32768, 32768, 1)
	w.must(w.c.Close())
}
