package chain_test

import (
	"fmt"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// spoilt is how a slot can be lost.
var spoilt = map[string]func(fs *memdisk.FS, file string, off, n int64) error{
	"rotten":     (*memdisk.FS).Rot,
	"unreadable": (*memdisk.FS).Unreadable,
}

// One slot of a page that is lost costs nothing: neither is a discard undone, nor the record given
// up. The page may have come about in any way.
func TestALostSlotOfWhiteoutsCostsNothing(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, w *world){
		"closed": func(_ *testing.T, w *world) { w.must(w.c.Close()) },
		"flushed twice and killed": func(_ *testing.T, w *world) {
			w.must(w.c.Sync())
			w.must(w.c.Sync())
			w.must(w.c.Abandon())
		},
		"a snapshot's": func(_ *testing.T, w *world) {
			w.snapshot("b")
			w.must(w.c.Close())
		},
		"merged": func(_ *testing.T, w *world) {
			w.snapshot("b")
			w.must(w.c.Discard(32768, 4096))
			w.snapshot("c")
			w.must(w.c.MarkRemoved("b"))
			w.must(w.c.Purge(nil))
			w.must(w.c.Close())
		},
		"set by a rebuild": func(_ *testing.T, w *world) {
			w.snapshot("b")
			record, _ := w.c.Record()
			w.must(w.c.VoidForRebuild(voidRecord(w), "", nil))
			var err error
			w.c, err = chain.Reshape(w.c.Files, w.c.Sidecars, chain.Shape{Spec: w.c.Spec()})
			w.must(err)
			w.must(w.c.PunchLayer(1, 0, 65536, false))
			w.must(w.c.PunchLayer(1, 0, 16384, true))
			w.must(w.c.FinishRebuild())
			w.must(w.c.WriteRecord(record))
			w.must(w.c.Close())
		},
	} {
		for how, spoil := range spoilt {
			for slot := range int64(2) {
				t.Run(fmt.Sprintf("%s, slot %d %s", name, slot, how), func(t *testing.T) {
					w, fs := newWorld(t, mib)
					w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Generation: 1,
						State: chain.MemberRW, Self: "v-1"}))
					w.fill(0, 65536, 1)
					w.snapshot("a")
					for off := int64(0); off < 16384; off += 4096 { // slots by turns
						w.must(w.c.Discard(off, 4096))
						if off < 12288 {
							w.must(w.c.Sync())
						}
					}
					make(t, w)
					files := w.whiteoutFiles()
					if len(files) != 1 {
						t.Fatalf("%v", files)
					}
					w.must(spoil(fs, files[0], slot*4096, 4096))
					for range 2 {
						w.open()
						w.wantByte(0, 16384, 0)
						w.wantByte(36864, 28672, 1)
						if _, valid := w.c.Record(); !valid {
							t.Fatal("the record is void")
						}
						w.must(w.c.CheckMap())
						w.must(w.c.Close())
					}
				})
			}
		}
	}
}

// While a page cannot be read, nothing is concluded from it: whoever needs it fails, and succeeds
// when it can be read again.
func TestWhiteoutsThatCannotBeReadAreNotForgotten(t *testing.T) {
	begin := func(t *testing.T) (*world, *memdisk.FS) {
		w, fs := newWorld(t, mib)
		w.fill(0, 65536, 1)
		w.snapshot("base")
		w.must(w.c.Discard(0, 16384))
		w.snapshot("gone")
		w.must(w.c.Discard(16384, 16384))
		w.snapshot("kept")
		return w, fs
	}
	look := func(w *world) {
		w.t.Helper()
		w.wantByte(0, 32768, 0)
		w.wantByte(32768, 32768, 1)
		w.must(w.c.CheckMap())
	}
	rebuilding := func(w *world) {
		w.must(w.c.VoidForRebuild(voidRecord(w), "", nil))
		var err error
		w.c, err = chain.Reshape(w.c.Files, w.c.Sidecars, chain.Shape{Spec: w.c.Spec()})
		w.must(err)
	}
	for name, c := range map[string]struct {
		before func(w *world)
		op     func(w *world) error
	}{
		"merge": {op: func(w *world) error {
			w.must(w.c.MarkRemoved("gone"))
			return w.c.Purge(nil)
		}},
		"repair": {op: func(w *world) error {
			v := w.view("base")
			p := make([]byte, 65536)
			for i := range p {
				p[i] = 1
			}
			p[40000] = 2 // other content in one block, which is read through
			p[100], p[20000] = 2, 2
			_, err := v.Repair(0, p)
			w.must(v.Close())
			if err != nil {
				return err
			}
			p[100], p[20000], p[40000] = 1, 1, 1
			v = w.view("base")
			_, err = v.Repair(0, p)
			w.must(v.Close())
			return err
		}},
		"list of a layer": {op: func(w *world) error {
			_, _, err := w.c.Hides(1, mib, 0, mib, 10)
			if err == nil {
				_, _, err = w.c.Hides(2, mib, 0, mib, 10)
			}
			return err
		}},
		"hash of a layer": {op: func(w *world) error {
			_, err := w.c.Blocks.Whiteouts(1, 0, mib)()
			if err == nil {
				_, err = w.c.Blocks.Whiteouts(2, 0, mib)()
			}
			return err
		}},
		"punch of a layer": {before: rebuilding, op: func(w *world) error {
			err := w.c.PunchLayer(1, 8192, 4096, true)
			if err == nil {
				err = w.c.PunchLayer(2, 16384, 4096, true)
			}
			return err
		}},
		"what is below": {before: rebuilding, op: func(w *world) error {
			top, err := w.c.Below(0, 65536)()
			if err == nil {
				w.c.SetBelow(0, top, false)
			}
			return err
		}},
		"revert": {op: func(w *world) error { return w.c.Revert("kept", "") }},
		"reader": {op: func(w *world) error {
			v := w.view("kept")
			defer v.Close()
			return v.Sound()
		}},
		"export": {op: func(w *world) error {
			v, err := w.c.At("kept")
			w.must(err)
			defer v.Close()
			return v.Files.Sound()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for lost := range 2 {
				w, fs := begin(t)
				if c.before != nil {
					c.before(w)
				}
				w.must(fs.Unreadable(w.whiteoutFiles()[lost], 0, 8192))
				wantErr(t, c.op(w), disk.ErrIO)
				fs.Readable()
				look(w)
				w.must(c.op(w))
				look(w)
				w.reopen()
				look(w)
			}
		})
	}
}

// Opening looks for the whiteout file of every layer, those of other branches too.
func TestMissingWhiteoutsOfABranch(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Generation: 1, State: chain.MemberRW,
		Self: "v-1"}))
	w.fill(0, 65536, 1)
	w.snapshot("a")
	w.must(w.c.Discard(0, 16384))
	w.snapshot("b")
	w.must(w.c.Revert("a", ""))
	w.must(w.c.Close())
	w.must(fs.Remove(w.whiteoutFiles()[0]))
	w.open()
	if _, valid := w.c.Record(); valid {
		t.Fatal("a branch has lost what it hides, and the record is valid")
	}
	w.reopen()
}
