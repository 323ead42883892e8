package offline_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/offline"
	"ankole.storage/dataplane/quorum"
	"ankole.storage/disk"
	"ankole.storage/disk/memdisk"
)

// rotten is a directory like small, with other bytes in a snapshot and in the head.
func rotten(t *testing.T) *memdisk.FS {
	fs := small(t)
	spoil := func(name string, off int64) {
		change(t, fs, name, func(f disk.File) error {
			_, err := f.WriteAt([]byte{0xee}, off)
			return errors.Join(err, f.Sync())
		})
	}
	spoil(aFile, 100)
	spoil(bFile, 9000)
	spoil(head, 5000)
	return fs
}

func sums(t *testing.T, fs disk.Meta) string {
	t.Helper()
	d := offline.On(fs, "/r", offline.Options{})
	names, err := d.Snapshots()
	must(t, err)
	var out []string
	for _, name := range names {
		s, err := d.Hash(t.Context(), name, nil)
		must(t, err)
		out = append(out, fmt.Sprint(s))
	}
	return strings.Join(out, "\n")
}

func plan(t *testing.T, damaged, source disk.Meta) *offline.RepairPlan {
	t.Helper()
	p, err := offline.PlanRepair(t.Context(), offline.On(damaged, "/r", offline.Options{}),
		offline.On(source, "/r", offline.Options{}), false, nil)
	must(t, err)
	return p
}

// A repair makes every snapshot and the head what the source has, and writes to nothing but what
// differs.
func TestRepair(t *testing.T) {
	damaged, source := rotten(t), small(t)
	before, want := source.Changes(), sums(t, source)
	p := plan(t, damaged, source)
	if fmt.Sprint(p.Items) != "[{a 4096} {b 8192} {volume-head 12288}]" || len(p.Warnings) != 0 {
		t.Errorf("plan %+v", p)
	}
	var done int64
	must(t, p.Run(t.Context(), func(n, _ int64) { done = n }))
	if got := sums(t, damaged); got != want {
		t.Errorf("content\n%s\nwant\n%s", got, want)
	}
	// The head and the second snapshot read their rot from below: repairing that repairs them.
	if done != 3*4096 {
		t.Errorf("%d bytes written, want three blocks", done)
	}
	if source.Changes() != before {
		t.Error("the source was changed")
	}
	info, err := chain.Inspect(damaged, "/r")
	must(t, err)
	if info.Rebuilding || info.Dirty || !info.RecordValid || info.Record.Generation != 3 {
		t.Errorf("afterwards the directory is %+v", info)
	}
	if p := plan(t, damaged, source); len(p.Items) != 0 {
		t.Errorf("still to do: %+v", p.Items)
	}
}

// A block that the disk no longer gives back is repaired like one with other content.
func TestRepairOfUnreadableBlocks(t *testing.T) {
	damaged, source := small(t), small(t)
	damaged.Unreadable(aFile, 0, 512)
	p := plan(t, damaged, source)
	if len(p.Items) != 3 {
		t.Errorf("plan %+v", p)
	}
	must(t, p.Run(t.Context(), nil))
	if got, want := sums(t, damaged), sums(t, source); got != want {
		t.Errorf("content\n%s\nwant\n%s", got, want)
	}
}

// A crash at any step leaves a directory that either counts as being rebuilt or whose snapshots can
// be repaired again; a second run then ends what the first began.
func TestCrashDuringRepair(t *testing.T) {
	source := small(t)
	want := sums(t, source)
	crashed := 0
	for step, done := int64(0), false; !done; step++ {
		damaged := rotten(t)
		p := plan(t, damaged, source)
		damaged.CrashAfter(step)
		err := p.Run(t.Context(), nil)
		done = err == nil
		if !done && !errors.Is(err, memdisk.ErrCrashed) {
			t.Fatalf("step %d: %v", step, err)
		}
		for seed := range uint64(4) {
			left := damaged.Crash(seed)
			info, err := chain.Inspect(left, "/r")
			must(t, err)
			if !info.Rebuilding && headIsMixed(t, left) {
				t.Fatalf("step %d, seed %d: a half repaired head counts as a replica", step, seed)
			}
			if info.Rebuilding {
				crashed++
			}
			must(t, plan(t, left, source).Run(t.Context(), nil))
			if got := sums(t, left); got != want {
				t.Fatalf("step %d, seed %d: content\n%s\nwant\n%s", step, seed, got, want)
			}
		}
	}
	if crashed == 0 {
		t.Error("no crash came while the head was being repaired: nothing was shown")
	}
}

// headIsMixed tells whether the head's own block is neither the rotten nor the right one.
func headIsMixed(t *testing.T, fs disk.Meta) bool {
	t.Helper()
	c, err := chain.Open(fs, "/r", chain.Options{ReadOnly: true, AsItIs: true})
	must(t, err)
	defer c.Close()
	p := make([]byte, 4096)
	_, err = c.ReadAt(p, 4096)
	must(t, err)
	other := 0
	for i, b := range p {
		if b != 3 && !(i == 5000-4096 && b == 0xee) {
			other++
		}
	}
	return other > 0
}

func TestRepairRefuses(t *testing.T) {
	for _, c := range []struct {
		name            string
		damaged, source func(fs *memdisk.FS) error
		says            string
	}{
		{"source is being rebuilt", nil, func(fs *memdisk.FS) error {
			edit(t, fs, "/r/volume.meta", `"Rebuilding":false`, `"Rebuilding":true`)
			return nil
		}, "cannot be a source"},
		{"source is damaged", nil, func(fs *memdisk.FS) error { return fs.Remove(aFile) }, "damaged"},
		{"source is older", func(fs *memdisk.FS) error {
			return record(fs, member(2, 9, "v-1"))
		}, nil, "--force"},
		{"source was cut off: the same generation of an older epoch", func(fs *memdisk.FS) error {
			return record(fs, member(3, 3, "v-1"))
		}, nil, "--force"},
		{"source was cut off: a higher generation of an older epoch", func(fs *memdisk.FS) error {
			return record(fs, member(3, 2, "v-1"))
		}, nil, "--force"},
		{"source was replaced", nil, func(fs *memdisk.FS) error {
			return record(fs, member(2, 3, "v-2"))
		}, "is no member of generation 3"},
		{"source was replaced in a newer generation", nil, func(fs *memdisk.FS) error {
			return record(fs, member(2, 4, "v-2"))
		}, "is no member of generation 4"},
		{"source was never a member", nil, func(fs *memdisk.FS) error {
			return record(fs, chain.Record{VolumeUUID: ownUUID, Self: "v-1"})
		}, "--force"},
		{"source begins with a decision that may not have been agreed", nil, func(fs *memdisk.FS) error {
			return record(fs, decided(9, 9, "v-1"))
		}, "person's decision"},
		{"another volume", nil, func(fs *memdisk.FS) error {
			return record(fs, chain.Record{VolumeUUID: chain.UUID{9}, Generation: 3})
		}, "of volume 09000000"},
		{"another size", func(fs *memdisk.FS) error {
			c, err := chain.Open(fs, "/r", chain.Options{AsItIs: true})
			if err != nil {
				return err
			}
			return errors.Join(c.Expand(1<<20, ""), c.Close())
		}, nil, "rebuild"},
	} {
		t.Run(c.name, func(t *testing.T) {
			damaged, source := rotten(t), small(t)
			if c.damaged != nil {
				must(t, c.damaged(damaged))
			}
			if c.source != nil {
				must(t, c.source(source))
			}
			before := damaged.Changes()
			_, err := offline.PlanRepair(t.Context(), offline.On(damaged, "/r", offline.Options{}),
				offline.On(source, "/r", offline.Options{}), false, nil)
			if !errors.Is(err, offline.ErrRefused) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q", err, c.says)
			}
			if damaged.Changes() != before {
				t.Error("the directory was changed")
			}
		})
	}
}

// A repair from what may lack acknowledged writes leaves a directory that no engine takes for one
// of the set it was in, from before the first write on.
func TestRepairFromAnOlderSource(t *testing.T) {
	for name, c := range map[string]struct {
		source func(fs *memdisk.FS) error
		force  bool
		void   bool
	}{
		"older":    {func(fs *memdisk.FS) error { return record(fs, member(1, 9, "v-1")) }, true, true},
		"replaced": {func(fs *memdisk.FS) error { return record(fs, member(2, 3, "v-2")) }, true, true},
		"unknown": {func(fs *memdisk.FS) error {
			edit(t, fs, "/r/volume.meta", "AnkoleStamp", "Other")
			return nil
		}, false, true},
		"the same": {func(fs *memdisk.FS) error { return nil }, true, false},
		"newer":    {func(fs *memdisk.FS) error { return record(fs, member(3, 1, "v-1")) }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			source := small(t)
			must(t, c.source(source))
			want := sums(t, source)
			for step, done := int64(0), false; !done; step++ {
				damaged := rotten(t)
				before := sums(t, damaged)
				p, err := offline.PlanRepair(t.Context(), offline.On(damaged, "/r", offline.Options{}),
					offline.On(source, "/r", offline.Options{}), c.force, nil)
				must(t, err)
				if told := strings.Contains(fmt.Sprint(p.Warnings), "belongs to no set"); told != c.void {
					t.Fatalf("warnings %q", p.Warnings)
				}
				damaged.CrashAfter(step)
				done = p.Run(t.Context(), nil) == nil
				for seed := range uint64(3) {
					left := damaged.Crash(seed)
					info, err := chain.Inspect(left, "/r")
					must(t, err)
					got := sums(t, left)
					named := info.RecordValid && info.Record.Generation > 0
					if named && c.void && got != before || !named && !c.void || done && got != want {
						t.Fatalf("step %d, seed %d: %+v, %s", step, seed, info, got)
					}
				}
			}
		})
	}
}

// member is the record of v-1 in a set.
func member(epoch, generation uint64, members ...string) chain.Record {
	r := chain.Record{VolumeUUID: ownUUID, Epoch: epoch, Generation: generation, Self: "v-1"}
	for _, name := range members {
		r.Members = append(r.Members, chain.Member{Name: name})
	}
	return r
}

// decided is member for a record that begins with a person's decision and is not agreed.
func decided(epoch, generation uint64, members ...string) chain.Record {
	r := member(epoch, generation, members...)
	for i := range r.Members {
		r.Members[i].Flags = quorum.AcceptedFlag
	}
	return r
}

// A record that begins with a person's decision and was never agreed counts for nothing: it makes
// its directory no newer than a source, which it may be all the same, and after a repair from an
// older one no engine takes it for what it says.
func TestUndecidedRecordIsNotNewer(t *testing.T) {
	for _, c := range []struct {
		name            string
		damaged, source chain.Record
		warns, void     bool
	}{
		{"damaged", decided(9, 9, "v-1"), member(2, 3, "v-1"), true, true},
		{"damaged, of an older epoch", decided(2, 2, "v-1"), member(2, 3, "v-1"), false, false},
		{"both of one decision", decided(9, 9, "v-1"), decided(9, 9, "v-1"), false, false},
	} {
		damaged, source := rotten(t), small(t)
		must(t, record(damaged, c.damaged))
		must(t, record(source, c.source))
		r, err := offline.On(damaged, "/r", offline.Options{}).Inspect()
		must(t, err)
		if !r.Membership.Undecided || !strings.Contains(fmt.Sprint(r.Explanation), "person's decision") {
			t.Errorf("%s: %+v, %q", c.name, r.Membership, r.Explanation)
		}
		p := plan(t, damaged, source)
		told := fmt.Sprint(p.Warnings)
		if strings.Contains(told, "person's decision") != c.warns || strings.Contains(told, "belongs to no set") != c.void {
			t.Errorf("%s: warnings %q", c.name, p.Warnings)
		}
		must(t, p.Run(t.Context(), nil))
		info, err := chain.Inspect(damaged, "/r")
		must(t, err)
		if void := info.Record.Generation == 0; void != c.void {
			t.Errorf("%s: afterwards the record is %+v", c.name, info.Record)
		}
	}
}

// record replaces the membership record.
func record(fs *memdisk.FS, r chain.Record) error {
	c, err := chain.Open(fs, "/r", chain.Options{AsItIs: true})
	if err != nil {
		return err
	}
	r.State = chain.MemberRW
	return errors.Join(c.WriteRecord(r), c.Close())
}

// discarded is a directory whose user wrote a block, took snapshot a, discarded the block, and took
// snapshot b. If lost is set, the file of a had lost the block before the discard, which then had
// nothing to write.
func discarded(t *testing.T, lost bool) *memdisk.FS {
	t.Helper()
	fs := memdisk.New()
	must(t, chain.Create(fs, "/r", chain.Spec{Size: 65536, VolumeUUID: ownUUID, Self: "v-1"}, chain.Options{}))
	c, err := chain.Open(fs, "/r", chain.Options{})
	must(t, err)
	must(t, c.WriteHead(bytes.Repeat([]byte{1}, 8192), 0))
	must(t, c.Snapshot("a", true, "2026-11-21T10:00:00Z", nil))
	must(t, c.Close())
	if lost {
		change(t, fs, aFile, func(f disk.File) error { return errors.Join(f.Punch(0, 4096), f.Sync()) })
	}
	c, err = chain.Open(fs, "/r", chain.Options{AsItIs: true})
	must(t, err)
	must(t, c.Discard(0, 4096))
	must(t, c.Snapshot("b", true, "2026-11-21T10:01:00Z", nil))
	must(t, c.WriteRecord(member(2, 3, "v-1")))
	must(t, c.WriteDirty([]chain.Region{}))
	must(t, c.Close())
	return fs
}

// A block that comes back in a snapshot is read by newer ones, and by the head, that were equal
// before: they stay as they were.
func TestRepairKeepsWhatWasEqual(t *testing.T) {
	source := discarded(t, false)
	want := sums(t, source)
	for step, done := int64(0), false; !done; step++ {
		damaged := discarded(t, true)
		p := plan(t, damaged, source)
		if fmt.Sprint(p.Items) != "[{a 4096}]" {
			t.Fatalf("plan %+v", p.Items)
		}
		damaged.CrashAfter(step)
		done = p.Run(t.Context(), nil) == nil
		for seed := range uint64(3) {
			left := damaged.Crash(seed)
			must(t, plan(t, left, source).Run(t.Context(), nil))
			if got := sums(t, left); got != want {
				t.Fatalf("step %d, seed %d: content\n%s\nwant\n%s", step, seed, got, want)
			}
			if again := plan(t, left, source); len(again.Items) != 0 {
				t.Fatalf("step %d, seed %d: still to do %+v", step, seed, again.Items)
			}
		}
	}
}

// A repair that was stopped after its last write has something to do the next time: to say that the
// directory is whole.
func TestRepairEndsWhatIsEqualAlready(t *testing.T) {
	source, damaged := small(t), small(t)
	edit(t, damaged, "/r/volume.meta", `"Rebuilding":false`, `"Rebuilding":true`)
	p := plan(t, damaged, source)
	if len(p.Items) == 0 {
		t.Fatal("nothing to do for a directory that counts as being rebuilt")
	}
	must(t, p.Run(t.Context(), nil))
	if info, err := chain.Inspect(damaged, "/r"); err != nil || info.Rebuilding {
		t.Errorf("afterwards: %+v, %v", info, err)
	}
}
