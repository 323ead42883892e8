package chain_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// sidecarWorld has an agreed record, an account of an absent member and two dirty regions.
func sidecarWorld(t *testing.T) (*world, *memdisk.FS) {
	w, fs := newWorld(t, 64*mib)
	r := chain.Record{VolumeUUID: testUUID, Epoch: 1, Generation: 1, State: chain.MemberRW, Self: "v-1",
		Members: []chain.Member{{Name: "v-1"}, {Name: "v-2"}}}
	w.must(w.c.WriteRecord(r))
	r.Generation, r.Members = 2, r.Members[:1]
	w.must(w.c.WriteRecord(r))
	w.must(w.c.WriteDirty([]chain.Region{2, 5}))
	w.must(w.c.Close())
	return w, fs
}

// A dirty log that is lost means that every region may be dirty, and nothing else: a directory goes
// on with a new one.
func TestLostDirtyLog(t *testing.T) {
	for name, lose := range map[string]func(w *world, fs *memdisk.FS){
		"missing": func(w *world, fs *memdisk.FS) { w.must(fs.Remove("/r/ankole.dirty")) },
		"damaged": func(w *world, fs *memdisk.FS) { w.must(fs.Rot("/r/ankole.dirty", 0, 16384)) },
		"a sector that cannot be read": func(w *world, fs *memdisk.FS) {
			w.must(fs.Unreadable("/r/ankole.dirty", 8192, 512))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, fs := sidecarWorld(t)
			lose(w, fs)
			w.open()
			if _, known := w.c.Dirty(); known {
				t.Fatal("the log is known")
			}
			if r, ok := w.c.Record(); !ok || r.Generation != 2 {
				t.Fatalf("record %+v %v", r, ok)
			}
			w.must(w.c.AddDirty([]chain.Region{7}))
			w.must(w.c.WriteDirty([]chain.Region{7}))
			if a, ok := w.c.Absent("v-2"); !ok || !a.Regions.Has(2) || !a.Regions.Has(15) {
				t.Fatalf("what the absent member misses: %+v %v", a, ok)
			}
			w.must(w.c.AddDirty([]chain.Region{9}))
			for seed := range crashSeeds {
				x := *w
				x.fs, x.opts = fs.Crash(seed), testOptions()
				x.open()
				if set, known := x.c.Dirty(); !known || !reflect.DeepEqual(set, []chain.Region{7, 9}) {
					t.Fatalf("dirty %v %v", set, known)
				}
				x.must(x.c.Close())
			}
			w.must(w.c.VoidForRebuild(chain.Record{VolumeUUID: testUUID, Self: "v-1"}, "", nil))
			w.must(w.c.Close())
		})
	}
}

// A directory of which a sidecar cannot be read is still read by tools, and no account or log is
// taken for less than it said.
func TestUnreadableSidecars(t *testing.T) {
	for _, name := range []string{"ankole.member", "ankole.dirty", "ankole.absent"} {
		for slot := range int64(2) {
			t.Run(fmt.Sprint(name, " ", slot), func(t *testing.T) {
				w, fs := sidecarWorld(t)
				info, err := fs.Stat("/r/" + name)
				w.must(err)
				w.must(fs.Unreadable("/r/"+name, slot*info.Size/2, 512))
				opts := testOptions()
				opts.ReadOnly = true
				c, err := chain.Open(fs, w.dir, opts)
				w.must(err)
				w.must(c.Close())
				c, err = chain.Open(fs, w.dir, testOptions())
				if name == "ankole.member" {
					// It may pass: a membership is not given up for it.
					wantErr(t, err, disk.ErrIO)
					fs.Readable()
					w.open()
					if r, ok := w.c.Record(); !ok || r.Generation != 2 {
						t.Fatalf("record %+v %v", r, ok)
					}
					w.must(w.c.Close())
					return
				}
				w.must(err)
				if set, known := c.Dirty(); known && len(set) != 2 {
					t.Fatalf("dirty %v", set)
				}
				if a, ok := c.Absent("v-2"); ok && name == "ankole.absent" {
					t.Fatalf("an account that cannot be read: %+v", a)
				}
				w.must(c.WriteDirty([]chain.Region{1}))
				w.must(c.Close())
			})
		}
	}
}

// The reserve file has its space whenever there is a record, wherever an earlier attempt was cut
// off: metadata can be written on a full disk.
func TestReserveHasItsSpace(t *testing.T) {
	base := crashBase(t)
	base.open()
	base.must(base.c.Close())
	stripStamp(t, base.mem(), "/r/volume.meta")
	for _, name := range []string{"member", "dirty", "absent", "reserve"} {
		err := base.mem().Remove("/r/ankole." + name)
		if err != nil && !errors.Is(err, disk.ErrNotFound) {
			t.Fatal(err)
		}
	}
	base.must(base.mem().SyncDir("/r"))
	record := chain.Record{VolumeUUID: testUUID, Epoch: 9, Self: "v-1"}
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.open()
		w.mem().CrashAfter(step)
		done = w.c.WriteRecord(record) == nil
		for seed := range crashSeeds {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			x.open()
			x.must(x.c.WriteRecord(record))
			x.mem().SetCapacity(x.mem().Used())
			if err := x.c.MarkRemoved("one"); err != nil {
				t.Fatalf("adoption cut off before change %d (%d), then a full disk: %v", step, seed, err)
			}
			x.must(x.c.Close())
			if data, err := x.fs.ReadFile("/r/volume-snap-one.img.meta", mib); err != nil ||
				!bytes.Contains(data, []byte(`"Removed":true`)) {
				t.Fatalf("%s %v", data, err)
			}
		}
	}
}
