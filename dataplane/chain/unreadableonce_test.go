package chain_test

import (
	"fmt"
	"path"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// A sidecar that could not be read counts as void. That another process can read it again later
// changes nothing: it knows nothing of what has happened meanwhile.
func TestSidecarThatWasVoidStaysVoid(t *testing.T) {
	for _, name := range []string{"ankole.dirty", "ankole.absent"} {
		for slot := range int64(2) {
			t.Run(fmt.Sprint(name, " ", slot), func(t *testing.T) {
				w, fs := sidecarWorld(t)
				info, err := fs.Stat("/r/" + name)
				w.must(err)
				w.must(fs.Unreadable("/r/"+name, slot*info.Size/2, 512))
				w.open()
				w.must(w.c.AddDirty([]chain.Region{9}))
				if name == "ankole.absent" {
					w.must(w.c.WriteDirty([]chain.Region{5})) // 9 has left the log
				}
				w.must(w.c.Abandon())
				fs.Readable()
				for seed := range crashSeeds {
					x := *w
					x.fs, x.opts = fs.Crash(seed), testOptions()
					x.open()
					if set, known := x.c.Dirty(); known && name == "ankole.dirty" {
						t.Fatalf("the log names %v only", set)
					}
					if a, ok := x.c.Absent("v-2"); ok && name == "ankole.absent" {
						t.Fatalf("an account that was forgotten is back: %+v", a)
					}
					x.must(x.c.Close())
				}
			})
		}
	}
}

// A log that is made anew and for which there is no room is not there: half of it would be a log
// that names too little.
func TestHalfALogIsNone(t *testing.T) {
	src := []memdisk.Rule{
		{Op: memdisk.OpWrite, Name: "ankole.dirty*", Err: disk.ErrNoSpace, Partial: true, Times: 1},
		{Op: memdisk.OpSync, Name: "ankole.dirty*", Err: disk.ErrIO, Times: 1},
	}
	for i, rule := range src {
		for skip := range 16 { // the part that is written follows from what was changed before
			w, fs := sidecarWorld(t)
			w.must(fs.Remove("/r/ankole.dirty"))
			w.must(fs.SyncDir("/r"))
			w.open()
			for n := range skip {
				w.must(w.c.SetImportMark(fmt.Sprint(n)))
			}
			stop := fs.Inject(rule)
			if err := w.c.WriteDirty([]chain.Region{}); err == nil {
				t.Fatal("the log is written")
			}
			stop()
			if w.c.State() == chain.StateError {
				t.Fatalf("%d: the directory can no longer be used", i)
			}
			w.must(w.c.AddDirty([]chain.Region{9}))
			w.must(w.c.Abandon())
			w.open()
			if set, known := w.c.Dirty(); known {
				t.Fatalf("%d: the log names %v only", i, set)
			}
			w.must(w.c.WriteDirty([]chain.Region{}))
			w.reopen()
			if set, known := w.c.Dirty(); !known || len(set) > 0 {
				t.Fatalf("%d: the log says %v %v", i, set, known)
			}
			w.must(w.c.Close())
		}
	}
}

// What stands in the way of another metadata file, and passes or is elsewhere, ends no replica: a
// process without a descriptor, a disk that cannot write the sectors of that file.
func TestMetadataFileThatCannotBeMade(t *testing.T) {
	record := chain.Record{VolumeUUID: testUUID, Epoch: 1, Generation: 3, State: chain.MemberRW, Self: "v-1",
		Members: []chain.Member{{Name: "v-1"}, {Name: "v-3"}}}
	alone := record
	alone.Generation, alone.Members = 4, record.Members[:1]
	changes := map[string]func(c *chain.Chain) error{
		"mark":     func(c *chain.Chain) error { return c.SetImportMark("x") },
		"remove":   func(c *chain.Chain) error { return c.MarkRemoved("s") },
		"snapshot": func(c *chain.Chain) error { return c.Snapshot("t", true, "", nil) },
		"expand":   func(c *chain.Chain) error { return c.Expand(128*mib, "") },
		"revert":   func(c *chain.Chain) error { return c.Revert("s", "") },
		"discard":  func(c *chain.Chain) error { return c.Discard(0, 65536) },
		"record":   func(c *chain.Chain) error { return c.WriteRecord(alone) },
		"log":      func(c *chain.Chain) error { return c.WriteDirty([]chain.Region{}) },
	}
	rules := map[string]memdisk.Rule{
		"no descriptor":                 {Op: memdisk.OpCreate, Err: unix.EMFILE},
		"bad sectors":                   {Op: memdisk.OpWrite, Name: "*.tmp", Err: disk.ErrIO},
		"bad sectors, told by the sync": {Op: memdisk.OpSync, Name: "*.tmp", Err: disk.ErrIO},
	}
	for cause, rule := range rules {
		for name, change := range changes {
			t.Run(path.Join(cause, name), func(t *testing.T) {
				w, fs := sidecarWorld(t)
				for _, lost := range []string{"absent", "dirty"} {
					w.must(fs.Remove("/r/ankole." + lost))
				}
				w.open()
				w.fill(0, 65536, 1)
				w.snapshot("s")
				w.must(w.c.WriteRecord(record))
				stop := fs.Inject(rule)
				if err := change(w.c); err != nil {
					t.Log(err)
				}
				if w.c.State() == chain.StateError || !w.c.WriteAllowed() {
					t.Error("the directory can no longer be used")
				}
				stop()
				w.must(change(w.c))
				w.must(w.c.Sync())
				w.reopen()
				w.must(w.c.CheckMap())
				w.must(w.c.Close())
			})
		}
	}
}

// The disk cannot write the sectors that the file system chooses for another volume.meta, as long
// as it is asked: the directory is opened all the same.
func TestOpenWithBadSectorsForMetadata(t *testing.T) {
	w, fs := sidecarWorld(t)
	fs.Inject(memdisk.Rule{Op: memdisk.OpSync, Name: "*.meta.tmp", Err: disk.ErrIO})
	for range 3 {
		w.open()
		w.must(w.c.Close())
	}
}
