package chain_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// whiteoutFiles lists the whiteout files of a directory.
func (w *world) whiteoutFiles() (out []string) {
	w.t.Helper()
	names, err := w.fs.List(w.dir)
	w.must(err)
	for _, name := range names {
		if strings.HasPrefix(name, "ankole.whiteouts-") {
			out = append(out, w.dir+"/"+name)
		}
	}
	return out
}

// A discard over a snapshot takes the space of a page of whiteouts and no more, and gives back what
// the head holds. Removing the snapshot gives back what it holds under them.
func TestDiscardOverASnapshotTakesNoSpace(t *testing.T) {
	w, fs := newWorld(t, 64*mib)
	w.fill(0, 4*mib, 1)
	w.snapshot("a")
	w.fill(2*mib, 3*mib, 2)
	const page = 8192
	before := fs.Used()
	w.must(w.c.Discard(100, 5*mib)) // but for the first block
	w.must(w.c.Sync())
	if used := fs.Used(); used > before-3*mib+page {
		t.Fatalf("a discard of blocks of which the head held 3 MiB has changed the space from %d to %d", before, used)
	}
	again := fs.Used()
	w.must(w.c.Discard(4096, 5*mib))
	if used := fs.Used(); used != again {
		t.Fatalf("the same discard again: from %d to %d", again, used)
	}
	look := func() {
		t.Helper()
		w.wantByte(0, 4096, 1)
		w.wantByte(4096, 5*mib-4096, 0)
		at, err := w.c.At("a")
		w.must(err)
		p := make([]byte, 4*mib)
		_, err = at.ReadAt(p, 0)
		w.must(err)
		if !bytes.Equal(p, bytes.Repeat([]byte{1}, 4*mib)) {
			t.Fatal("the snapshot reads otherwise")
		}
		w.must(at.Close())
		w.must(w.c.CheckMap())
	}
	look()
	w.reopen()
	look()
	w.must(w.c.MarkRemoved("a"))
	w.must(w.c.Purge(nil))
	if used := fs.Used(); used > again-4*mib+8192 {
		t.Fatalf("the removed snapshot holds blocks that nobody can read: %d bytes used, %d before", used, again)
	}
	w.wantByte(0, 4096, 1)
	w.wantByte(4096, 5*mib-4096, 0)
	w.must(w.c.CheckMap())
}

// A merge gives up what the child hid of the source, and the merged layer hides what both hid.
func TestMergeOfWhiteouts(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second bool // whether these have whiteouts
	}{{"none", false, false}, {"the source", true, false}, {"the child", false, true}, {"both", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			w, fs := newWorld(t, mib)
			w.fill(0, 262144, 1)
			w.snapshot("base")
			w.fill(0, 65536, 2)
			if c.first {
				w.must(w.c.Discard(131072, 32768))
			}
			w.snapshot("gone")
			if c.second {
				w.must(w.c.Discard(32768, 65536))
			}
			w.fill(40960, 4096, 3) // in the child, and discarded before
			w.snapshot("kept")
			want := hashes(t, w.c, "base", "kept", chain.HeadName)
			w.hashAll("gone")
			w.hashAll("kept")
			before := fs.Used()
			w.must(w.c.MarkRemoved("gone"))
			w.must(w.c.Purge(nil))
			w.must(w.c.CheckMap())
			w.reopen()
			if got := hashes(t, w.c, "base", "kept", chain.HeadName); got != want {
				t.Fatalf("%s\nwant %s", got, want)
			}
			v := w.view("kept")
			if verdict, rot, err := v.Verify(0, mib); err != nil || verdict == chain.VerdictRotten {
				t.Fatalf("%v %+v %v", verdict, rot, err)
			}
			w.must(v.Close())
			files := 0
			if c.first || c.second {
				files = 1
			}
			if got := w.whiteoutFiles(); len(got) != files {
				t.Fatalf("whiteouts of one layer are in %v", got)
			}
			if c.second && fs.Used() > before-28672 {
				t.Errorf("%d bytes used, %d before: what was hidden is still there", fs.Used(), before)
			}
			_, err := readRaw(fs, w.dir, false)
			w.must(err)
		})
	}
}

// Whenever the process or the machine ends during discards, a block reads what it held before or
// zeroes: never what it had held before that, which the snapshot has. What was flushed is zeroes.
func TestCrashDuringDiscard(t *testing.T) {
	const size = 256 << 10
	base, _ := newWorld(t, size)
	base.fill(0, size, 1)
	base.snapshot("a")
	base.fill(0, size/2, 2) // half of what is discarded is in the head too
	base.must(base.c.Close())
	seen := map[string]bool{}
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.open()
		w.mem().CrashAfter(step)
		flushed := int64(0)
		err := w.c.Discard(65536, 131072)
		if err == nil {
			if err = w.c.Sync(); err == nil {
				flushed = 196608
				err = w.c.Discard(32768, 32768)
			}
		}
		done = err == nil
		for seed := range crashSeeds {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			x.open()
			p := x.read(0, size)
			for at := int64(0); at < size; at += 4096 {
				was := byte(1)
				if at < size/2 {
					was = 2
				}
				b := p[at]
				switch {
				case b != p[at+4095] || b != was && b != 0, b == 0 && (at < 32768 || at >= 196608):
					t.Fatalf("step %d, seed %d: the block at %d reads %d, and held %d", step, seed, at, b, was)
				case b != 0 && at >= 65536 && at < flushed:
					t.Fatalf("step %d, seed %d: a discard at %d was flushed and is undone", step, seed, at)
				}
				seen[fmt.Sprint(was, b)] = true
			}
			x.must(x.c.CheckMap())
			_, err := readRaw(x.fs, x.dir, false)
			x.must(err)
			x.must(x.c.Close())
		}
	}
	if want := map[string]bool{"1 1": true, "1 0": true, "2 2": true, "2 0": true}; !reflect.DeepEqual(seen, want) {
		t.Fatalf("%v: the test shows nothing", seen)
	}
}

// What a discard was answered for outlives the process, flushed or not.
func TestDiscardOutlivesTheProcess(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.fill(0, 65536, 1)
	w.snapshot("a")
	w.fill(0, 16384, 2)
	w.must(w.c.Discard(0, 65536))
	w.must(w.c.Abandon())
	w.open()
	w.wantByte(0, 65536, 0)
	w.must(w.c.CheckMap())
	w.fill(4096, 4096, 3)
	w.must(w.c.Discard(0, 4096))
	w.snapshot("b")
	w.wantByte(4096, 4096, 3)
	w.zero(4096, 4096) // something is below: written zeroes
	w.reopen()
	w.wantByte(0, 65536, 0)
}

// What a process that was killed has written may not be durable: the next one must not write over
// the slot that is.
func TestCrashAfterAKillDuringDiscards(t *testing.T) {
	for seed := range uint64(200) {
		w, fs := newWorld(t, mib)
		w.fill(0, 65536, 1)
		w.snapshot("a")
		w.must(w.c.Discard(0, 4096))
		w.must(w.c.Sync())
		w.must(w.c.Discard(4096, 4096))
		w.must(w.c.Abandon())
		w.open()
		w.must(w.c.Discard(8192, 4096))
		x := *w
		x.fs, x.opts = fs.Crash(seed), testOptions()
		x.open()
		x.wantByte(0, 4096, 0)
		x.wantByte(12288, 4096, 1)
		x.must(x.c.Close())
	}
}

// Another engine knows nothing of whiteouts: it shows what is below, and so does everybody after
// it. A new discard begins anew.
func TestWhiteoutsAreVoidAfterAnotherEngine(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.fill(0, 65536, 1)
	w.snapshot("a")
	w.must(w.c.Discard(0, 32768))
	w.snapshot("b")
	w.must(w.c.Discard(32768, 4096))
	w.must(w.c.Close())
	stripStamp(t, fs, "/r/volume.meta")
	for range 2 {
		w.open()
		w.wantByte(0, 65536, 1)
		if files := w.whiteoutFiles(); len(files) != 0 {
			t.Fatalf("void whiteouts remain: %v", files)
		}
		w.must(w.c.CheckMap())
		w.must(w.c.Close())
	}
	w.open()
	w.must(w.c.Discard(4096, 8192))
	w.reopen()
	w.wantByte(0, 4096, 1)
	w.wantByte(4096, 8192, 0)
	w.wantByte(12288, 53248, 1)
}

// Damage that hides from nobody: a replica whose whiteouts are damaged is in good standing no more,
// and a view of the snapshot says that it is rotten; a repair makes it read what it should.
func TestDamagedWhiteoutsMakeTheRecordVoid(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(w *world, fs *memdisk.FS, file string) error
	}{
		{"both slots", func(_ *world, fs *memdisk.FS, file string) error {
			if err := fs.Rot(file, 64, 8); err != nil {
				return err
			}
			return fs.Rot(file, 4096+64, 8)
		}},
		{"missing", func(w *world, fs *memdisk.FS, file string) error { return fs.Remove(file) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, fs := newWorld(t, mib)
			w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Generation: 1, State: chain.MemberRW,
				Self: "v-1"}))
			w.fill(0, 65536, 1)
			w.snapshot("a")
			w.must(w.c.Discard(0, 8192))
			w.must(w.c.Sync())
			w.must(w.c.Discard(8192, 24576))
			w.snapshot("b")
			w.hashAll("b")
			file := w.whiteoutFiles()[0]
			if c.name != "missing" { // which an open file does not notice
				w.must(c.spoil(w, fs, file))
				v := w.view("b")
				if verdict, rot, err := v.Verify(0, mib); err != nil || verdict != chain.VerdictRotten || rot[0].Snapshot != "b" {
					t.Fatalf("%v %+v %v", verdict, rot, err)
				}
				_, err := v.Repair(0, make([]byte, 32768))
				w.must(err)
				w.must(v.Close())
			}
			w.must(w.c.Close())
			if c.name == "missing" {
				w.must(c.spoil(w, fs, file))
			}
			if s, err := chain.ReadSurvey(fs, w.dir); err != nil || len(s.WhiteoutsWhy) != 1 ||
				s.WhiteoutsWhy["volume-snap-b.img"] == "" {
				t.Fatalf("a survey says %v, %v", s.WhiteoutsWhy, err)
			}
			w.open()
			if _, valid := w.c.Record(); valid {
				t.Fatal("the record is valid")
			}
			if c.name != "missing" {
				w.wantByte(0, 32768, 0) // it was repaired
			} else {
				w.wantByte(0, 32768, 1)
			}
			w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 2, Generation: 2, State: chain.MemberRW,
				Self: "v-1"}))
			w.reopen()
			if _, valid := w.c.Record(); !valid {
				t.Fatal("a record that was written since is void too")
			}
			w.must(w.c.CheckMap())
		})
	}
}

// Whiteouts that cannot be read refuse the directory and cost nothing: when the disk reads them
// again, the record is there and what was discarded is gone. A person gives them up by removing the
// file.
func TestUnreadableWhiteoutsRefuseTheDirectory(t *testing.T) {
	for _, where := range []string{"head", "snapshot"} {
		t.Run(where, func(t *testing.T) {
			w, fs := newWorld(t, mib)
			r := chain.Record{VolumeUUID: testUUID, Epoch: 1, Generation: 1, State: chain.MemberRW, Self: "v-1"}
			w.must(w.c.WriteRecord(r))
			w.fill(0, 65536, 1)
			w.snapshot("a")
			w.must(w.c.Discard(0, 8192))
			if where == "snapshot" {
				w.snapshot("b")
			}
			w.must(w.c.Sync())
			w.must(w.c.Close())
			file := w.whiteoutFiles()[0]
			before := dump(t, fs)
			w.must(fs.Unreadable(file, 0, 8192))
			_, err := chain.Open(w.fs, w.dir, w.opts)
			if !errors.Is(err, disk.ErrIO) || !strings.Contains(err.Error(), file) {
				t.Fatal(err)
			}
			fs.Readable()
			if after := dump(t, fs); after != before {
				t.Errorf("an open that was refused has changed something:\n%s\nwas\n%s", after, before)
			}
			w.open()
			if got, valid := w.c.Record(); !valid || got.Epoch != r.Epoch {
				t.Errorf("the record is %+v, %v", got, valid)
			}
			w.wantByte(0, 8192, 0)
			w.wantByte(8192, 57344, 1)
			w.must(w.c.Close())

			w.must(fs.Unreadable(file, 0, 8192))
			w.must(fs.Remove(file))
			w.open()
			if _, valid := w.c.Record(); valid {
				t.Error("the record is valid without the whiteouts")
			}
			w.wantByte(0, 65536, 1)
		})
	}
}

// Where a snapshot has data is what a reader of it may find data, and no more.
func TestRangesLeaveOutWhatIsHidden(t *testing.T) {
	w, _ := newWorld(t, 256*mib)
	w.fill(0, 131072, 1)
	w.fill(100*mib, 65536, 1)
	w.snapshot("a")
	w.must(w.c.Discard(4096, 8192))
	w.must(w.c.Discard(65536, 131072))
	w.must(w.c.Discard(100*mib+8192, 4096))
	w.fill(8192, 4096, 2)
	w.snapshot("b")
	v := w.view("b")
	got, _ := v.Ranges(0, 100)
	want := [][2]int64{{0, 4096}, {8192, 65536}, {100 * mib, 100*mib + 8192}, {100*mib + 12288, 100*mib + 65536}}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	w.must(v.Close())
}

// Without room for a page of whiteouts a discard is refused and changes nothing; with it, flushing
// needs none.
func TestDiscardOnAFullDisk(t *testing.T) {
	w, fs := newWorld(t, 256*mib)
	w.fill(0, 65536, 1)
	w.fill(128*mib, 65536, 1)
	w.snapshot("a")
	fs.SetCapacity(fs.Used())
	wantErr(t, w.c.Discard(0, 65536), chain.ErrNoSpace)
	w.wantByte(0, 65536, 1)
	fs.SetCapacity(fs.Used() + 65536)
	w.must(w.c.Discard(0, 65536))
	fs.SetCapacity(fs.Used())
	wantErr(t, w.c.Discard(128*mib, 65536), chain.ErrNoSpace)
	for off := int64(0); off < 65536; off += 4096 {
		w.must(w.c.Discard(off, 4096))
		w.must(w.c.Sync())
	}
	w.reopen()
	w.wantByte(0, 65536, 0)
	w.wantByte(128*mib, 65536, 1)
}

// A rebuild writes whiteouts into layers below the head; finished, they are there whatever happens,
// and until then the target counts as unfinished.
func TestCrashDuringPunchLayer(t *testing.T) {
	base, _ := newWorld(t, mib)
	base.fill(0, 65536, 1)
	base.snapshot("a")
	base.fill(65536, 4096, 2)
	base.snapshot("b")
	base.must(base.c.Close())
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.open()
		shape := chain.Shape{Spec: w.c.Spec()}
		shape.Layers[1].Whiteouts = true
		w.must(w.c.VoidForRebuild(voidRecord(w), "", nil))
		var err error
		w.c, err = chain.Reshape(w.c.Files, w.c.Sidecars, shape)
		w.must(err)
		w.mem().CrashAfter(step)
		err = w.c.PunchLayer(1, 0, 32768, true)
		if err == nil {
			err = w.c.PunchLayer(1, 4096, 4096, false)
		}
		if err == nil {
			err = w.c.FinishRebuild()
		}
		done = err == nil
		for seed := range crashSeeds {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			x.open()
			if !x.c.Rebuilding() {
				x.wantByte(0, 4096, 0)
				x.wantByte(4096, 4096, 1)
				x.wantByte(8192, 24576, 0)
				x.wantByte(32768, 32768, 1)
				x.wantByte(65536, 4096, 2)
			} else if done {
				t.Fatalf("seed %d: finished, and still being rebuilt", seed)
			}
			x.must(x.c.Close())
		}
	}
}
