package chain_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// On a full disk a replica can be made into a rebuild target of another shape: this gives space
// back. A crash at any step leaves the whole replica, or nothing that could be taken for one.
func TestFullDiskCanBeEmptied(t *testing.T) {
	spec := chain.Spec{Size: mib, VolumeUUID: testUUID, Self: "v-1"}
	for _, reserve := range []bool{true, false} {
		t.Run(fmt.Sprintf("reserve %v", reserve), func(t *testing.T) {
			base, _ := newWorld(t, mib)
			base.fill(0, 65536, 1)
			base.must(base.c.Snapshot("a", true, "", map[string]string{"long": strings.Repeat("x", 700)}))
			base.fill(0, 65536, 2)
			base.must(base.c.Close())
			if !reserve {
				base.must(base.fs.Remove("/r/ankole.reserve"))
			}
			for step, done := int64(0), false; !done; step++ {
				w := base.copyOf()
				w.mem().SetCapacity(w.mem().Used())
				w.mem().CrashAfter(step)
				err := chain.CreateSkeleton(w.fs, "/r", spec, testOptions())
				if done = err == nil; !done && !errors.Is(err, memdisk.ErrCrashed) {
					t.Fatalf("step %d: %v", step, err)
				}
				for seed := range crashSeeds {
					left := w.mem().Crash(outcome(step, seed))
					left.SetCapacity(0)
					info, err := chain.Inspect(left, "/r")
					base.must(err)
					if info.State == chain.StateInitial || info.Rebuilding {
						continue
					}
					x := *base
					x.fs, x.opts = left, testOptions()
					x.open()
					x.wantByte(0, 65536, 2)
					x.must(x.c.Close())
				}
			}
		})
	}
}

// A reserve file that was lost, or has lost its space, is there again after the next open with
// room for it; without room the directory can be used.
func TestLostReserveIsMadeAgain(t *testing.T) {
	for name, lose := range map[string]func(w *world) error{
		"missing": func(w *world) error { return w.fs.Remove("/r/ankole.reserve") },
		"a hole": func(w *world) error {
			f, err := w.fs.Open("/r/ankole.reserve", 0)
			w.must(err)
			w.must(f.Punch(0, 4096))
			return f.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, fs := newWorld(t, mib)
			w.fill(0, 65536, 1)
			w.snapshot("a")
			w.must(w.c.Close())
			w.must(lose(w))
			// Room for the metadata that an open writes, which takes no space in the end.
			stop := fs.Inject(noRoomFor("ankole.reserve"))
			w.open()
			w.must(w.c.Close())
			stop()
			w.open()
			fs.SetCapacity(fs.Used())
			w.must(w.c.MarkRemoved("a"))
			w.must(w.c.Close())
			if info, err := fs.Stat("/r/ankole.reserve"); err != nil || info.Allocated < 4096 {
				t.Fatalf("%+v %v", info, err)
			}
		})
	}
}

// noRoomFor makes writes to a file fail for lack of space.
func noRoomFor(name string) memdisk.Rule {
	return memdisk.Rule{Op: memdisk.OpWrite, Name: name, Err: disk.ErrNoSpace}
}
