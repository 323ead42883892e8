package offline_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/offline"
	"ankole.storage/disk"
	"ankole.storage/disk/memdisk"
)

// hashed is small with checksums of its snapshots.
func hashed(t *testing.T) *memdisk.FS {
	t.Helper()
	fs := small(t)
	c, err := chain.Open(fs, "/r", chain.Options{})
	must(t, err)
	for _, name := range []string{"a", "b"} {
		_, err := c.Hash(name, false, "2026-11-21T12:00:00Z")
		must(t, err)
	}
	must(t, c.Close())
	return fs
}

// without removes sidecar files of snapshots.
func without(t *testing.T, fs *memdisk.FS, suffix string) {
	t.Helper()
	for _, name := range []string{aFile, bFile} {
		must(t, fs.Remove(name+suffix))
	}
}

// A repair does not replace what matches its checksum by what does not, nor by what nothing is
// known of unless it is forced, at whatever snapshot it is read.
func TestRepairAsksChecksums(t *testing.T) {
	rot := func(name string, off int64) func(*testing.T, *memdisk.FS) {
		return func(t *testing.T, fs *memdisk.FS) { must(t, fs.Rot(name, off, 1)) }
	}
	all := func(fs ...func(*testing.T, *memdisk.FS)) func(*testing.T, *memdisk.FS) {
		return func(t *testing.T, d *memdisk.FS) {
			for _, f := range fs {
				f(t, d)
			}
		}
	}
	noPieces := func(t *testing.T, fs *memdisk.FS) { without(t, fs, ".sums") }
	noSums := all(noPieces, func(t *testing.T, fs *memdisk.FS) { without(t, fs, ".checksum") })
	none := func(*testing.T, *memdisk.FS) {}
	const nothing = "[]"
	a, b := rot(aFile, 100), rot(bFile, 9000)
	aKept := "[{a 4096 %[1]s} {b 4096 %[1]s} {volume-head 4096 %[1]s}]"
	for _, c := range []struct {
		name            string
		damaged, source func(*testing.T, *memdisk.FS)
		force           bool
		items, kept     string
		// sound: the damaged directory holds what small does afterwards.
		sound bool
	}{
		{"the damaged one is damaged", all(a, b), none, false, "[{a 4096} {b 8192} {volume-head 8192}]", nothing, true},
		{"it is the source", none, a, false, nothing, aKept, true},
		{"it is the source, forced", none, a, true, nothing, aKept, true},
		{"both, in different files", b, a, false, "[{b 4096} {volume-head 4096}]", aKept, true},
		{"both, in one", a, rot(aFile, 8), false, nothing, aKept, false},
		{"the source has no checksums", none, all(noSums, a), false, nothing, strings.ReplaceAll(aKept, "[1]", "[2]"), true},
		{"the source has none, forced", none, all(noSums, a), true, "[{a 4096} {b 4096} {volume-head 4096}]", nothing, false},
		{"neither has checksums", all(noSums, a), noSums, false, "[{a 4096} {b 4096} {volume-head 4096}]", nothing, true},
		{"checksums of whole files, damaged", all(noPieces, a), noPieces, false,
			"[{a 4096} {b 4096} {volume-head 4096}]", nothing, true},
		{"checksums of whole files, source", noPieces, all(noPieces, a), false, nothing, aKept, true},
		{"the source has lost a block", none, func(t *testing.T, fs *memdisk.FS) {
			change(t, fs, aFile, func(f disk.File) error { return errors.Join(f.Punch(0, 4096), f.Sync()) })
		}, false, nothing, aKept, true},
		{"the source has lost a block and its checksums", none, func(t *testing.T, fs *memdisk.FS) {
			change(t, fs, aFile, func(f disk.File) error { return errors.Join(f.Punch(0, 4096), f.Sync()) })
			noSums(t, fs)
		}, false, nothing, strings.ReplaceAll(aKept, "[1]", "[2]"), true},
		{"a block of the head is lost", func(t *testing.T, fs *memdisk.FS) {
			change(t, fs, head, func(f disk.File) error { return errors.Join(f.Punch(4096, 4096), f.Sync()) })
		}, noSums, false, "[{volume-head 4096}]", nothing, true},
		{"a newer block is lost", func(t *testing.T, fs *memdisk.FS) {
			change(t, fs, bFile, func(f disk.File) error { return errors.Join(f.Punch(8192, 4096), f.Sync()) })
			must(t, fs.Remove(bFile+".sums"))
		}, noSums, false, "[{b 4096} {volume-head 4096}]", nothing, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			damaged, source := hashed(t), hashed(t)
			c.damaged(t, damaged)
			c.source(t, source)
			p, err := offline.PlanRepair(t.Context(), offline.On(damaged, "/r", offline.Options{}),
				offline.On(source, "/r", offline.Options{}), c.force, nil)
			must(t, err)
			kept := c.kept
			if strings.Contains(kept, "%") {
				kept = fmt.Sprintf(kept, offline.SourceRotten, offline.TargetRight)
				kept, _, _ = strings.Cut(kept, "%!(EXTRA")
			}
			if fmt.Sprint(p.Items) != c.items || fmt.Sprint(p.Kept) != kept {
				t.Errorf("plan %+v\nkept %+v\nwant %s\n     %s", p.Items, p.Kept, c.items, kept)
			}
			must(t, p.Run(t.Context(), nil))
			if got := sums(t, damaged); (got == sums(t, small(t))) != c.sound {
				t.Errorf("content afterwards:\n%s", got)
			}
			if again := plan(t, damaged, source); !c.force && len(again.Items) != 0 {
				t.Errorf("still to do: %+v", again.Items)
			}
		})
	}
}

// What a repair writes is in the dirty log before it is written, so that the next engine compares
// it with what the other replicas have.
func TestRepairMarksWhatItWrites(t *testing.T) {
	source := small(t)
	for name, spoil := range map[string]func(*memdisk.FS) error{
		"head":     func(fs *memdisk.FS) error { return fs.Rot(head, 5000, 1) },
		"snapshot": func(fs *memdisk.FS) error { return fs.Rot(bFile, 9000, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			wrote := 0
			for step, done := int64(0), false; !done; step++ {
				damaged := small(t)
				must(t, spoil(damaged))
				before := sums(t, damaged)
				p := plan(t, damaged, source)
				damaged.CrashAfter(step)
				done = p.Run(t.Context(), nil) == nil
				for seed := range uint64(3) {
					left := damaged.Crash(seed)
					c, err := chain.Open(left, "/r", chain.Options{ReadOnly: true})
					must(t, err)
					regions, known := c.Dirty()
					must(t, c.Close())
					if sums(t, left) == before {
						continue
					}
					wrote++
					if !known || fmt.Sprint(regions) != "[0]" {
						t.Fatalf("step %d, seed %d: it was written to, and the log has %v, %v", step, seed, regions, known)
					}
				}
			}
			if wrote == 0 {
				t.Error("nothing was ever written: nothing was shown")
			}
		})
	}
}

// TestRepairWithoutARecord: a directory whose record is void is repaired at the first try. Without
// a record nothing in its log counts.
func TestRepairWithoutARecord(t *testing.T) {
	damaged, source := small(t), small(t)
	must(t, damaged.Rot(bFile, 9000, 1))
	must(t, damaged.Remove("/r/ankole.member"))
	must(t, plan(t, damaged, source).Run(t.Context(), nil))
	if got, want := sums(t, damaged), sums(t, source); got != want {
		t.Errorf("it has %s, the source %s", got, want)
	}
	c, err := chain.Open(damaged, "/r", chain.Options{ReadOnly: true})
	must(t, err)
	defer c.Close()
	if set, known := c.Dirty(); known {
		t.Errorf("its log is believed: %v", set)
	}
}

// TestRepairAsksChecksumsOfOtherChains: the same where only the source has the snapshot that it
// reads from, and where the names of snapshots off the live chain are against their order.
func TestRepairAsksChecksumsOfOtherChains(t *testing.T) {
	build := func(names []string, rotten, revert string, hash ...string) *memdisk.FS {
		fs := memdisk.New()
		must(t, chain.Create(fs, "/r", chain.Spec{Size: 65536, VolumeUUID: ownUUID, Self: "v-1"}, chain.Options{}))
		c, err := chain.Open(fs, "/r", chain.Options{})
		must(t, err)
		for i, name := range names {
			content := byte(1)
			if name == rotten {
				content = 0xee
			}
			if i == 0 || name == rotten {
				must(t, c.WriteHead(bytes.Repeat([]byte{content}, 4096), 0))
			}
			must(t, c.WriteHead([]byte(strings.Repeat(name, 4096)), int64(i+1)*8192))
			must(t, c.Snapshot(name, true, "2026-11-21T10:00:00Z", nil))
		}
		if revert != "" {
			must(t, c.Revert(revert, "2026-11-21T11:00:00Z"))
		}
		for _, name := range hash {
			_, err := c.Hash(name, false, "2026-11-21T12:00:00Z")
			must(t, err)
		}
		must(t, c.WriteRecord(member(2, 3, "v-1")))
		must(t, c.WriteDirty([]chain.Region{}))
		must(t, c.Close())
		return fs
	}
	for _, c := range []struct {
		name            string
		damaged, source *memdisk.FS
	}{
		{"only the source has the snapshot", build([]string{"a", "b"}, "", "", "a", "b"), func() *memdisk.FS {
			fs := build([]string{"a", "b"}, "", "")
			d, err := chain.Open(fs, "/r", chain.Options{})
			must(t, err)
			must(t, d.WriteHead(bytes.Repeat([]byte{0xee}, 4096), 0))
			must(t, d.Snapshot("x", true, "2026-11-21T10:30:00Z", nil))
			must(t, d.Snapshot("c", true, "2026-11-21T10:40:00Z", nil))
			must(t, d.Close())
			return fs
		}()},
		{"branch with names against their order", build([]string{"m", "z", "y"}, "", "m", "m", "z", "y"),
			build([]string{"m", "z", "y"}, "z", "m")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "only the source has the snapshot" {
				d, err := chain.Open(c.damaged, "/r", chain.Options{})
				must(t, err)
				must(t, d.Snapshot("c", true, "2026-11-21T10:40:00Z", nil))
				_, err = d.Hash("c", false, "2026-11-21T12:00:00Z")
				must(t, err)
				must(t, d.Close())
			}
			want := sums(t, c.damaged)
			p := plan(t, c.damaged, c.source)
			if len(p.Items) != 0 || len(p.Kept) != 2 {
				t.Errorf("plan %+v, kept %+v", p.Items, p.Kept)
			}
			must(t, p.Run(t.Context(), nil))
			if got := sums(t, c.damaged); got != want {
				t.Errorf("content\n%s\nwant\n%s", got, want)
			}
		})
	}
}
