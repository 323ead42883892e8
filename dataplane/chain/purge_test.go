package chain_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// purgeWorld has a chain s0 … s4 and head, each layer with blocks of its own and blocks over those
// below.
func purgeWorld(t *testing.T) *world {
	w, _ := newWorld(t, crashSize)
	for i := range int64(6) {
		w.fill(i*4096, 12288, byte(i+1))
		w.fill(65536, 4096, byte(i+1))
		if i > 0 {
			w.must(w.c.Discard((i-1)*4096, 8192)) // a block that is only below, and one that is in the head too
		}
		if i < 5 {
			w.snapshot(fmt.Sprint("s", i))
		}
	}
	return w
}

func listNames(t *testing.T, c *chain.Chain) string {
	t.Helper()
	list, err := c.Snapshots()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range list {
		out = append(out, s.Name)
	}
	return strings.Join(out, " ")
}

func hashes(t *testing.T, c *chain.Chain, names ...string) string {
	t.Helper()
	var out string
	for _, name := range names {
		sum, err := c.HashAt(name)
		if err != nil {
			t.Fatal(err)
		}
		out += fmt.Sprintf("%s %x\n", name, sum)
	}
	return out
}

func TestPurge(t *testing.T) {
	for _, c := range []struct {
		name, removed, left string
	}{
		{"nothing", "", "s0 s1 s2 s3 s4 volume-head"},
		{"bottom", "s0", "s1 s2 s3 s4 volume-head"},
		{"middle", "s2", "s0 s1 s3 s4 volume-head"},
		{"neighbours", "s1 s2 s3", "s0 s4 volume-head"},
		{"behind the head stays", "s4", "s0 s1 s2 s3 s4 volume-head"},
		{"all but that one", "s0 s1 s2 s3 s4", "s4 volume-head"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := purgeWorld(t)
			keep := []string{chain.HeadName}
			for i := range 5 {
				name := fmt.Sprint("s", i)
				if strings.Contains(c.removed, name) {
					w.must(w.c.MarkRemoved(name))
				} else {
					keep = append(keep, name)
				}
			}
			want := hashes(t, w.c, keep...)
			var progress []int
			w.must(w.c.Purge(func(percent int) { progress = append(progress, percent) }))
			for range 2 {
				if got := listNames(t, w.c); got != c.left {
					t.Fatalf("left are %s, want %s", got, c.left)
				}
				if got := hashes(t, w.c, keep...); got != want {
					t.Fatalf("content changed:\n%s\n%s", got, want)
				}
				w.reopen()
			}
			if !slices.IsSorted(progress) || c.removed != "" && progress[len(progress)-1] != 100 {
				t.Errorf("progress %v", progress)
			}
			w.fill(0, crashSize, 77)
			w.wantByte(0, crashSize, 77)
		})
	}
}

// The space of what the head hides comes back although the snapshot behind it stays.
func TestPruneGivesSpaceBack(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.fill(0, 65536, 1)
	w.snapshot("a")
	w.fill(0, 32768, 2)
	w.must(w.c.MarkRemoved("a"))
	used := fs.Used()
	w.must(w.c.Purge(nil))
	if freed := used - fs.Used(); freed != 32768 {
		t.Fatalf("%d bytes came back", freed)
	}
	for range 2 {
		w.wantByte(0, 32768, 2)
		w.wantByte(32768, 32768, 1)
		w.reopen()
	}
	w.must(w.c.Purge(nil))
	if list, err := w.c.Snapshots(); err != nil || list[0].SizeBytes != 32768 {
		t.Fatalf("%+v, %v", list, err)
	}
}

func TestPurgeOfBranches(t *testing.T) {
	w := purgeWorld(t)
	w.must(w.c.Revert("s1", ""))
	w.fill(0, 4096, 99)
	want := hashes(t, w.c, "s0", "s3", chain.HeadName)
	w.must(w.c.MarkRemoved("s4")) // a leaf of the other branch
	w.must(w.c.MarkRemoved("s2"))
	w.must(w.c.Purge(nil))
	if got := listNames(t, w.c); got != "s0 s1 s3 volume-head" {
		t.Fatalf("left are %s", got)
	}
	w.must(w.c.MarkRemoved("s1")) // has two children: s3 and the head
	p, err := w.c.NewPurge()
	w.must(err)
	if step, more := p.Next(); more || p.Progress() != 100 {
		t.Fatalf("a snapshot with two children is to be purged: %+v", step)
	}
	if got := hashes(t, w.c, "s0", "s3", chain.HeadName); got != want {
		t.Fatalf("content changed:\n%s\n%s", got, want)
	}
	w.must(w.c.MarkRemoved("s3"))
	w.must(w.c.Purge(nil)) // now s1 has one child, the head
	if got := listNames(t, w.c); got != "s0 s1 volume-head" {
		t.Fatalf("left are %s", got)
	}
	w.wantByte(0, 4096, 99)
}

// Checksums are gone before the first byte they cover changes, and others are left alone.
func TestPurgeVoidsChecksums(t *testing.T) {
	w := purgeWorld(t)
	for i := range 5 {
		w.put(fmt.Sprintf("volume-snap-s%d.img.checksum", i), "{}")
	}
	w.must(w.c.MarkRemoved("s1"))
	p, err := w.c.NewPurge()
	w.must(err)
	step, _ := p.Next()
	w.mem().Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: "volume-snap-s1.img", Err: disk.ErrIO})
	_, err = workStep(w.c, p, &step)
	wantErr(t, err, disk.ErrIO)
	w.mem().ClearRules()
	if _, err := w.mem().Crash(1).Stat("/r/volume-snap-s1.img.checksum"); err == nil {
		t.Fatal("the checksum was not durably gone before the write")
	}
	w.must(w.c.Purge(nil))
	names, err := w.fs.List("/r")
	w.must(err)
	var left []string
	for _, n := range names {
		if strings.HasSuffix(n, ".checksum") {
			left = append(left, n)
		}
	}
	if got := strings.Join(left,
		" "); got != "volume-snap-s0.img.checksum volume-snap-s3.img.checksum volume-snap-s4.img.checksum" {
		t.Fatalf("checksums left: %s", got)
	}
}

// A step planned for another shape of the chain is refused.
func TestPurgeNoticesChanges(t *testing.T) {
	w := purgeWorld(t)
	w.must(w.c.MarkRemoved("s4"))
	p, err := w.c.NewPurge()
	w.must(err)
	step, _ := p.Next()
	if step.Action != chain.PurgePrune {
		t.Fatalf("step %+v", step)
	}
	w.snapshot("s5")
	_, err = workStep(w.c, p, &step)
	wantErr(t, err, chain.ErrInvalid)
	wantErr(t, finishStep(w.c, p, &step), chain.ErrInvalid)
	w.must(w.c.SetRebuilding())
	_, err = w.c.NewPurge()
	wantErr(t, err, chain.ErrInvalid)
	wantErr(t, w.c.Revert("s0", ""), chain.ErrInvalid)
}

// Whenever a purge is interrupted, head and remaining snapshots read as before, and purging again
// finishes the work.
func TestCrashDuringPurge(t *testing.T) {
	base := purgeWorld(t)
	for _, name := range []string{"s0", "s2", "s3", "s4"} {
		base.must(base.c.MarkRemoved(name))
	}
	want := hashes(t, base.c, "s1", chain.HeadName)
	base.must(base.c.Close())
	states := map[string]bool{}
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.open()
		w.mem().CrashAfter(step)
		done = w.c.Purge(nil) == nil
		for seed := range uint64(2 * crashSeeds) {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			x.open()
			states[listNames(t, x.c)] = true
			if got := hashes(t, x.c, "s1", chain.HeadName); got != want {
				t.Fatalf("step %d, seed %d: content changed:\n%s\n%s", step, seed, got, want)
			}
			raw, err := readRaw(x.fs, x.dir, false)
			x.must(err)
			if theirs, err := raw.Content(raw.Head); err != nil || !bytes.Equal(theirs, x.read(0, crashSize)) {
				t.Fatalf("step %d, seed %d: the independent reader sees other content (%v)", step, seed, err)
			}
			x.must(x.c.Purge(nil))
			if got := listNames(t, x.c); got != "s1 s4 volume-head" {
				t.Fatalf("step %d, seed %d: after purging again left are %s", step, seed, got)
			}
			if got := hashes(t, x.c, "s1", chain.HeadName); got != want {
				t.Fatalf("step %d, seed %d: purging again changed content", step, seed)
			}
			if _, err := readRaw(x.fs, x.dir, false); err != nil {
				t.Fatalf("step %d, seed %d: purging again leaves %v", step, seed, err)
			}
			x.must(x.c.Close())
		}
	}
	if len(states) < 4 {
		t.Fatalf("only %v were seen: the test shows nothing", states)
	}
}

// What the head hides is given up only when the head's own block would survive a crash.
func TestCrashAfterPrune(t *testing.T) {
	for seed := range uint64(100) {
		w, _ := newWorld(t, crashSize)
		w.fill(0, 32768, 1)
		w.snapshot("a")
		w.must(w.c.MarkRemoved("a"))
		w.fill(0, 16384, 2)
		w.must(w.c.Purge(nil))
		x := *w
		x.fs, x.opts = w.mem().Crash(seed), testOptions()
		x.open()
		for off, b := range x.read(0, 32768) {
			if b != 1 && b != 2 {
				t.Fatalf("seed %d: byte %d is %d", seed, off, b)
			}
		}
		x.must(x.c.Close())
	}
}

// What was pruned does not come back through a hole that is punched into the head later.
func TestCrashAfterPruneAndZero(t *testing.T) {
	for seed := range uint64(100) {
		w, _ := newWorld(t, crashSize)
		w.fill(0, 32768, 1)
		w.snapshot("a")
		w.fill(0, 16384, 2)
		w.must(w.c.MarkRemoved("a"))
		w.must(w.c.Purge(nil))
		w.reopen()
		w.zero(0, 16384)
		w.must(w.c.Sync())
		x := *w
		x.fs, x.opts = w.mem().Crash(seed), testOptions()
		x.open()
		x.wantByte(0, 16384, 0)
		x.wantByte(16384, 16384, 1)
		x.must(x.c.Close())
	}
}

func TestRevert(t *testing.T) {
	w := purgeWorld(t)
	want := hashes(t, w.c, "s0", "s1", "s2", "s3", "s4")
	at := map[string]string{}
	for i := range 5 {
		name := fmt.Sprint("s", i)
		at[name] = strings.TrimPrefix(hashes(t, w.c, name), name)
	}
	wantErr(t, w.c.Revert("none", ""), chain.ErrNotFound)
	wantErr(t, w.c.Revert(chain.HeadName, ""), chain.ErrNotFound)
	for _, name := range []string{"s2", "s0", "s4"} {
		w.must(w.c.Revert(name, "2026-11-21T10:00:00Z"))
		for range 2 {
			if got := strings.TrimPrefix(hashes(t, w.c, chain.HeadName), chain.HeadName); got != at[name] {
				t.Fatalf("the head is not %s", name)
			}
			if got := hashes(t, w.c, "s0", "s1", "s2", "s3", "s4"); got != want {
				t.Fatalf("reverting to %s changed a snapshot", name)
			}
			w.reopen()
		}
		w.fill(8192, 4096, 200)
		w.wantByte(8192, 4096, 200)
	}
	w.must(w.c.MarkRemoved("s1"))
	wantErr(t, w.c.Revert("s1", ""), chain.ErrInvalid)
	w.must(w.c.Close())
	if n := w.mem().OpenFiles(); n != 0 {
		t.Fatalf("%d files left open", n)
	}
}

func TestRevertOnFullDiskChangesNothing(t *testing.T) {
	w := purgeWorld(t)
	want := hashes(t, w.c, chain.HeadName)
	w.mem().SetCapacity(w.mem().Used())
	wantErr(t, w.c.Revert("s1", ""), chain.ErrNoSpace)
	if got := hashes(t, w.c, chain.HeadName); got != want {
		t.Fatal("the head changed")
	}
	w.reopen()
	if got := hashes(t, w.c, chain.HeadName); got != want {
		t.Fatal("the head changed on disk")
	}
}

func TestCrashDuringRevert(t *testing.T) {
	testEveryCrash(t, nil, func(w *world) error { return w.c.Revert("one", "2026-11-21T10:00:00Z") })
}

// A snapshot on which nothing stands goes at once; one that others stand on, that is read, or that
// is not marked removed stays.
func TestDropLeaf(t *testing.T) {
	w := purgeWorld(t)
	w.must(w.c.Revert("s2", "2026-11-21T10:00:00Z"))
	drop := func(name string) {
		t.Helper()
		ch, err := w.c.DropLeaf(w.c.Sidecars, name)
		w.must(err)
		w.c.Apply(ch)
	}
	want := hashes(t, w.c, "s0", "s1", "s2", "s3", chain.HeadName)
	drop("s4")
	w.must(w.c.MarkRemoved("s3"))
	drop("s3")
	drop("s9")
	if got := listNames(t, w.c); got != "s0 s1 s2 s3 s4 volume-head" {
		t.Fatalf("left: %s", got)
	}
	w.must(w.c.MarkRemoved("s4"))
	drop("s4")
	if got := listNames(t, w.c); got != "s0 s1 s2 s3 volume-head" {
		t.Fatalf("left: %s", got)
	}
	if got := hashes(t, w.c, "s0", "s1", "s2", "s3", chain.HeadName); got != want {
		t.Fatalf("%s\nwas\n%s", got, want)
	}
	w.reopen()
	if got := listNames(t, w.c); got != "s0 s1 s2 s3 volume-head" {
		t.Fatalf("opened again: %s", got)
	}
}

func TestCrashDuringDropLeaf(t *testing.T) {
	testEveryCrash(t, func(w *world) error {
		return errors.Join(w.c.Revert("one", "2026-11-21T10:00:00Z"), w.c.MarkRemoved("two"))
	}, func(w *world) error {
		ch, err := w.c.DropLeaf(w.c.Sidecars, "two")
		w.c.Apply(ch)
		return err
	})
}
