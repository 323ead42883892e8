package chain_test

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// What another engine rewrites without our key makes every sidecar void.
func TestRewrittenVolumeMetaVoidsSidecars(t *testing.T) {
	w, fs := newWorld(t, mib)
	r := chain.Record{VolumeUUID: testUUID, Epoch: 1, State: chain.MemberRW, Self: "v-1"}
	w.must(w.c.WriteRecord(r))
	w.must(w.c.WriteDirty([]chain.Region{}))
	w.must(w.c.Close())
	stripStamp(t, fs, "/r/volume.meta")
	w.open()
	if _, valid := w.c.Record(); valid {
		t.Fatal("record is still valid")
	}
	if _, known := w.c.Dirty(); known {
		t.Fatal("dirty log is still valid")
	}
	wantErr(t, w.c.WriteDirty(nil), chain.ErrInvalid)
	r.Generation = 8
	w.must(w.c.WriteRecord(r))
	if _, known := w.c.Dirty(); known {
		t.Fatal("adopting a directory made its dirty log known")
	}
	w.reopen()
	if got, valid := w.c.Record(); !valid || !reflect.DeepEqual(got, r) {
		t.Fatalf("record %+v, %v", got, valid)
	}
	w.must(w.c.WriteDirty([]chain.Region{3, 1}))
	w.reopen()
	if set, known := w.c.Dirty(); !known || !slices.Equal(set, []chain.Region{1, 3}) {
		t.Fatalf("dirty %v, %v", set, known)
	}
}

func stripStamp(t *testing.T, fs *memdisk.FS, name string) {
	t.Helper()
	data, err := fs.ReadFile(name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(data, []byte(`,"AnkoleStamp"`))
	if i < 0 {
		t.Fatalf("no stamp in %s", data)
	}
	if err := fs.WriteFileAtomic(name, append(data[:i], "}\n"...)); err != nil {
		t.Fatal(err)
	}
}

func TestRecordBounds(t *testing.T) {
	w, _ := newWorld(t, mib)
	name := strings.Repeat("n", chain.MaxNameLength)
	r := chain.Record{VolumeUUID: testUUID, Promised: 1<<64 - 1, Epoch: 1<<64 - 1, Generation: 1<<64 - 1,
		State: chain.MemberWO, Self: name, Engine: name}
	for i := range 8 {
		r.Replaces = append(r.Replaces, name[1:]+string(rune('A'+i)))
	}
	for i := range chain.MaxMembers {
		r.Members = append(r.Members, chain.Member{Name: name[:chain.MaxNameLength-1] + string(rune('a'+i)), Flags: byte(i)})
	}
	w.must(w.c.WriteRecord(r))
	w.reopen()
	if got, valid := w.c.Record(); !valid || !reflect.DeepEqual(got, r) {
		t.Fatal("the largest record does not come back")
	}
	for _, bad := range []chain.Record{
		{Self: name + "n"}, {Engine: name + "n"}, {State: 3}, {Members: []chain.Member{{}}},
		{Members: append(slices.Clone(r.Members), chain.Member{Name: "x"})}, {Members: []chain.Member{{Name: name + "n"}}},
		{Agreed: true, Replaces: []string{"a"}}, {Replaces: []string{""}}, {Replaces: []string{name + "n"}},
		{Replaces: make([]string, 256)},
		{Self: name, Engine: name, Members: r.Members, Replaces: append(slices.Clone(r.Replaces), name, name)},
	} {
		if err := w.c.WriteRecord(bad); err == nil {
			t.Errorf("record of %q with %d members and %d replaced was accepted", bad.Self, len(bad.Members), len(bad.Replaces))
		}
	}
	regions := make([]chain.Region, chain.MaxDirtyRegions)
	for i := range regions {
		regions[i] = chain.Region(1<<32 - len(regions) + i) // the log is kept in order
	}
	w.must(w.c.WriteDirty(regions))
	wantErr(t, w.c.WriteDirty(append(regions, 0)), chain.ErrLimit)
	w.reopen()
	if set, known := w.c.Dirty(); !known || !slices.Equal(set, regions) {
		t.Fatal("the largest dirty log does not come back")
	}
}

// A damaged slot leaves the record; two damaged ones leave nothing.
func TestDamagedSlots(t *testing.T) {
	w, fs := newWorld(t, mib)
	for i := range uint64(3) {
		w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: i + 1, Self: "v-1"}))
	}
	w.must(w.c.Close())
	f, err := fs.Open("/r/ankole.member", 0)
	w.must(err)
	for _, c := range []struct {
		slots []int64
		epoch uint64
	}{{[]int64{0}, 3}, {[]int64{8192}, 3}, {[]int64{0, 8192}, 0}} {
		for _, slot := range c.slots {
			_, err = f.WriteAt([]byte("rot"), slot+8000)
			w.must(err)
		}
		w.open()
		if r, valid := w.c.Record(); r.Epoch != c.epoch || valid != (c.epoch != 0) {
			t.Fatalf("epoch %d, valid %v; want %d", r.Epoch, valid, c.epoch)
		}
		w.must(w.c.Close())
	}
	w.must(f.Close())
}

func TestRevisionCounterIsRaisedOncePerGeneration(t *testing.T) {
	w, fs := newWorld(t, mib)
	if _, exists, err := w.c.RevisionCounter(); exists || err != nil {
		t.Fatalf("%v, %v", exists, err)
	}
	w.must(w.c.SetRevisionCounter(5)) // nowhere to write it: no change
	counter := append([]byte("41"), make([]byte, 4094)...)
	w.must(fs.WriteFileAtomic("/r/revision.counter", counter))
	for i, generation := range []uint64{1, 1, 2, 3} {
		w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Generation: generation, Epoch: uint64(i), Self: "v-1"}))
	}
	if v, exists, err := w.c.RevisionCounter(); v != 44 || !exists || err != nil {
		t.Fatalf("%d, %v, %v", v, exists, err)
	}
	data, err := fs.ReadFile("/r/revision.counter", 4096)
	w.must(err)
	if copy(counter, "44"); !bytes.Equal(data, counter) {
		t.Fatalf("file holds %q", data)
	}
	wantErr(t, w.c.SetRevisionCounter(-1), chain.ErrInvalid)
}

// A revision counter that is damaged, or lies where the disk cannot read or write, keeps nobody
// from writing a record. Where it was not raised it is no number: an engine that knows only the
// counter does not take it for one from before.
func TestALostRevisionCounterCostsNoCopy(t *testing.T) {
	counter := append([]byte("41"), make([]byte, 4094)...)
	for name, lost := range map[string]struct {
		damage func(w *world, fs *memdisk.FS)
		want   int64 // 0: no number
	}{
		"damaged": {damage: func(w *world, fs *memdisk.FS) {
			w.must(fs.Rot("/r/revision.counter", 0, 1))
		}},
		"unreadable": {damage: func(w *world, fs *memdisk.FS) {
			w.must(fs.Unreadable("/r/revision.counter", 0, 4096))
		}},
		"unwritable": {want: 42, damage: func(w *world, fs *memdisk.FS) {
			fs.Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: "revision.counter", Err: disk.ErrIO})
		}},
		"half written": {want: 42, damage: func(w *world, fs *memdisk.FS) {
			fs.Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: "revision.counter", Err: disk.ErrIO, Partial: true})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w, fs := newWorld(t, mib)
			w.must(fs.WriteFileAtomic("/r/revision.counter", counter))
			lost.damage(w, fs)
			r := chain.Record{VolumeUUID: testUUID, Generation: 9, Self: "v-1"}
			w.must(w.c.WriteRecord(r))
			fs.Readable()
			v, _, err := w.c.RevisionCounter()
			if lost.want == 0 {
				wantErr(t, err, chain.ErrCorrupt)
			} else if v != lost.want || err != nil {
				t.Fatalf("%d, %v", v, err)
			}
			w.reopen()
			if got, ok := w.c.Record(); !ok || got.Generation != 9 {
				t.Fatalf("%+v, %v", got, ok)
			}
			w.must(w.c.Close())
		})
	}
}

// A counter that cannot be read, on a disk without room for another one: the record is written, and
// the counter stays what it is.
func TestALostRevisionCounterOnAFullDisk(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.must(fs.WriteFileAtomic("/r/revision.counter", append([]byte("41"), make([]byte, 4094)...)))
	w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Generation: 8, Self: "v-1"}))
	w.must(fs.Unreadable("/r/revision.counter", 0, 4096))
	fs.SetCapacity(fs.Used())
	w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Generation: 9, Self: "v-1"}))
	w.must(w.c.Close())
}

// On a full disk metadata still changes, through the reserve file, as often as needed.
func TestFullDiskKeepsMetadataWritable(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.fill(0, 4096, 1)
	fs.SetCapacity(fs.Used())
	for range 3 {
		w.reopen()
		w.must(w.c.SetRebuilding())
		w.must(w.c.FinishRebuild())
		w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 7, Self: "v-1"}))
		w.must(w.c.WriteDirty([]chain.Region{1}))
	}
	wantErr(t, w.c.Snapshot("a", true, "", nil), chain.ErrNoSpace)
	wantErr(t, w.write(8192, make([]byte, 4096)), chain.ErrNoSpace)
	w.must(w.c.Remap(8192, 4096))
	w.wantByte(0, 4096, 1)
	w.fill(0, 4096, 2)
	fs.SetCapacity(0)
	w.snapshot("a")
	w.reopen()
	w.wantByte(0, 4096, 2)
	if list, err := w.c.Snapshots(); err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
}

// A log that is asked to name more regions than it has room for says that every region is dirty,
// and where marks of such a log are taken away an absent member may differ anywhere.
func TestMoreMarksThanTheLogHolds(t *testing.T) {
	w, _ := newWorld(t, (chain.MaxDirtyRegions+16)*chain.RegionSize)
	w.must(w.record(3, "v-1", "v-2"))
	w.must(w.record(4, "v-1"))
	var half, rest []chain.Region
	for n := range chain.Region(chain.MaxDirtyRegions) {
		half, rest = append(half, n), append(rest, n+8)
	}
	w.must(w.c.AddDirty(half))
	if set, known := w.c.Dirty(); len(set) != chain.MaxDirtyRegions || !known {
		t.Fatalf("%d regions, known %t", len(set), known)
	}
	w.must(w.c.AddDirty(rest))
	for range 2 {
		if set, known := w.c.Dirty(); known {
			t.Fatalf("%d regions are all that is dirty", len(set))
		}
		w.reopen()
	}
	w.must(w.c.WriteDirty([]chain.Region{}))
	if a, ok := w.c.Absent("v-2"); !ok || !a.Regions.Has(chain.MaxDirtyRegions+15) {
		t.Errorf("what may differ from the absent member: %+v, %t", a.Regions, ok)
	}
	w.must(w.c.Close())
}
