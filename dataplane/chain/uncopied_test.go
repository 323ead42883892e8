package chain_test

import (
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// A page of whiteouts is durable in one slot, and the disk cannot write the other one. Flushes,
// snapshots and the next process go on, and no crash takes the discard back.
func TestASlotThatCannotBeWrittenEndsNothing(t *testing.T) {
	for name, rule := range map[string]memdisk.Rule{
		"nothing of it is written": {Err: disk.ErrIO},
		"a part of it is written":  {Err: disk.ErrIO, Partial: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, fs := newWorld(t, 128*mib)
			w.fill(0, 1*mib, 1)
			w.snapshot("a")
			w.must(w.c.Discard(0, 4096))
			w.must(w.c.Sync())
			rule.Op, rule.Name = memdisk.OpWrite, "ankole.whiteouts-*"
			stop := fs.Inject(rule)
			look := func(w *world) {
				t.Helper()
				w.wantByte(0, 4096, 0)
				w.wantByte(4096, 4096, 1)
				w.must(w.c.CheckMap())
			}
			for range 3 {
				w.must(w.c.Sync())
				look(w)
			}
			for seed := range crashSeeds {
				x := *w
				x.fs, x.opts = fs.Crash(seed), testOptions()
				x.open()
				look(&x)
				x.must(x.c.Close())
			}
			w.must(w.c.Abandon())
			w.open()
			w.must(w.c.Sync())
			w.snapshot("b")
			w.must(w.c.Close())
			stop()
			w.open()
			look(w)
			w.must(w.c.Discard(4096, 4096))
			w.must(w.c.Sync())
			w.reopen()
			w.wantByte(0, 8192, 0)
			w.must(w.c.Close())
		})
	}
}

// A page becomes durable, and cannot be copied where it has to be in both slots: it is durable all
// the same.
func TestALastWriteWithoutItsCopy(t *testing.T) {
	for _, partial := range []bool{false, true} {
		w, fs := newWorld(t, 64*mib)
		w.fill(0, 1*mib, 1)
		w.snapshot("a")
		w.must(w.c.Discard(0, 4096))
		// The page is written, and then copied.
		stop := fs.Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: "ankole.whiteouts-*", Skip: 1, Err: disk.ErrIO,
			Partial: partial})
		w.must(chain.Settle(w.c))
		w.wantByte(0, 4096, 0)
		stop()
		w.must(w.c.Discard(8192, 4096)) // goes to the slot that has no copy
		for seed := range crashSeeds {
			x := *w
			x.fs, x.opts = fs.Crash(seed), testOptions()
			x.open()
			x.wantByte(0, 4096, 0)
			x.must(x.c.CheckMap())
			x.must(x.c.Close())
		}
		w.must(w.c.Close())
	}
}
