package chain_test

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/test/lack"
	"ankole.storage/test/powerdisk"
	"ankole.storage/test/wait"
)

const (
	roomSize  = 6 * mib
	roomBytes = 20 * 4096 // of b
)

// roomWorld has the marked snapshot a, of one block and one that its child b has too, and b with
// one block in each of 20 pieces. With a leaf, z is there too, as a revert leaves it, marked, with
// as much as b.
func roomWorld(t *testing.T, leaf bool) *world {
	w, _ := newWorld(t, roomSize)
	fillRoom(w, leaf)
	return w
}

func fillRoom(w *world, leaf bool) {
	w.fill(0, 8192, 1)
	w.snapshot("a")
	w.fill(0, 4096, 2)
	for i := range int64(19) {
		w.fill((i+1)*chain.SumPiece, 4096, 2)
	}
	w.snapshot("b")
	if leaf {
		for i := range int64(20) {
			w.fill(i*chain.SumPiece, 4096, 3)
		}
		w.snapshot("z")
		w.must(w.c.Revert("b", ""))
		w.must(w.c.MarkRemoved("z"))
	}
	w.fill(mib/2, 4096, 4)
	w.must(w.c.MarkRemoved("a"))
}

// What gives space and takes none is done first, so that there is room for the rest.
func TestPurgeRemovesBeforeItMerges(t *testing.T) {
	w := roomWorld(t, true)
	want := hashes(t, w.c, "b", chain.HeadName)
	w.mem().SetCapacity(w.mem().Used() + 4*4096)
	w.must(w.c.Purge(nil))
	if got := listNames(t, w.c); got != "b volume-head" {
		t.Fatalf("left are %s", got)
	}
	if hashes(t, w.c, "b", chain.HeadName) != want {
		t.Fatal("content changed")
	}
}

// A merge for which there is no room is not begun, and what the source has under the child's blocks
// is given back all the same. With room the next purge makes it.
func TestPurgeWithoutRoomForAMerge(t *testing.T) {
	w := roomWorld(t, false)
	want := hashes(t, w.c, "b", chain.HeadName)
	used := w.mem().Used()
	w.mem().SetCapacity(used + roomBytes/2)
	stop := w.mem().Inject(memdisk.Rule{Op: memdisk.OpWrite, Name: image("a")[len("/r/"):], Err: disk.ErrIO})
	wantErr(t, w.c.Purge(nil), chain.ErrNoSpace)
	if w.mem().Injected() > 0 {
		t.Fatal("a merge was begun for which there is no room")
	}
	stop()
	if now := w.mem().Used(); now != used-4096 {
		t.Fatalf("%d bytes are used, %d before", now, used)
	}
	w.fill(11*mib/2, roomBytes/2, 5) // the users' space is there
	w.wantByte(11*mib/2, roomBytes/2, 5)
	w.zero(11*mib/2, roomBytes/2)
	w.mem().SetCapacity(0)
	w.must(w.c.Purge(nil))
	if got := listNames(t, w.c); got != "b volume-head" || hashes(t, w.c, "b", chain.HeadName) != want {
		t.Fatalf("left are %s", got)
	}
}

// A merge that the source has room for already, since it has all of the child's blocks, needs none.
func TestPurgeThatNeedsNoRoom(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.fill(0, mib/2, 1)
	w.snapshot("a")
	w.fill(4096, mib/4, 2)
	w.snapshot("b")
	w.must(w.c.MarkRemoved("a"))
	w.mem().SetCapacity(w.mem().Used())
	w.must(w.c.Purge(nil))
	w.wantByte(4096, mib/4, 2)
}

// A step that fails, for lack of room or for a sector that cannot be read, gives back what it has
// taken and keeps no other one from being done.
func TestPurgeDoesWhatCanBeDone(t *testing.T) {
	for fault, want := range map[string]error{
		"write volume-snap-a.img enospc skip 7": chain.ErrNoSpace,
		"read volume-snap-b.img eio skip 7":     disk.ErrIO,
		"write volume-snap-a.img eio skip 7":    disk.ErrIO,
	} {
		t.Run(fault, func(t *testing.T) {
			w := roomWorld(t, true)
			w.snapshot("c")
			w.fill(2*mib, 8*4096, 6)
			w.must(w.c.MarkRemoved("c"))
			kept := hashes(t, w.c, "b", chain.HeadName)
			_, err := w.mem().InjectText(fault)
			w.must(err)
			err = w.c.Purge(nil)
			wantErr(t, err, want)
			w.mem().ClearRules()
			if got := listNames(t, w.c); got != "a b c volume-head" {
				t.Fatalf("left are %s", got)
			}
			for name, blocks := range map[string]int64{"a": 1, "b": 20, "c": 1} {
				if info, err := w.fs.Stat(image(name)); err != nil || info.Allocated != blocks*4096 {
					t.Fatalf("%s has %d bytes (%v), want %d blocks", name, info.Allocated, err, blocks)
				}
			}
			for range 2 {
				if hashes(t, w.c, "b", chain.HeadName) != kept {
					t.Fatal("content changed")
				}
				w.reopen()
			}
			w.must(w.c.Purge(nil))
			if got := listNames(t, w.c); got != "b c volume-head" || hashes(t, w.c, "b", chain.HeadName) != kept {
				t.Fatalf("then left are %s", got)
			}
		})
	}
}

// What a purge prunes gives room for a merge that had none, and what that merges is pruned again.
func TestPurgeTriesAgainWhenRoomHasCome(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.fill(0, 4096, 1)
	w.snapshot("a")
	w.fill(4096, 16*4096, 2)
	w.snapshot("b")
	w.fill(17*4096, 64*4096, 3)
	w.snapshot("c")
	w.fill(0, 96*4096, 4)
	for _, name := range []string{"a", "b", "c"} {
		w.must(w.c.MarkRemoved(name))
	}
	w.mem().SetCapacity(w.mem().Used() + 8*4096)
	w.must(w.c.Purge(nil))
	if got := listNames(t, w.c); got != "c volume-head" {
		t.Fatalf("left are %s", got)
	}
	if info, err := w.fs.Stat(image("c")); err != nil || info.Allocated != 0 {
		t.Fatalf("c has %d bytes (%v), all of which the head hides", info.Allocated, err)
	}
}

// Whenever power is lost while a merge gives back what it took, and before, nothing changes.
func TestCrashWhileAMergeIsGivenUp(t *testing.T) {
	base := roomWorld(t, true)
	want := hashes(t, base.c, "b", chain.HeadName)
	base.must(base.c.Close())
	for step, done := int64(0), false; !done; step++ {
		w := base.copyOf()
		w.open()
		_, err := w.mem().InjectText("write volume-snap-a.img enospc skip 12")
		w.must(err)
		w.mem().CrashAfter(step)
		err = w.c.Purge(nil)
		done = errors.Is(err, chain.ErrNoSpace)
		if !done && !errors.Is(err, memdisk.ErrCrashed) {
			t.Fatalf("step %d: %v", step, err)
		}
		for seed := range crashSeeds {
			x := *w
			x.fs, x.opts = w.mem().Crash(outcome(step, seed)), testOptions()
			x.open()
			if hashes(t, x.c, "b", chain.HeadName) != want {
				t.Fatalf("step %d, seed %d: content changed", step, seed)
			}
			x.must(x.c.Purge(nil))
			if got := listNames(t, x.c); got != "b volume-head" || hashes(t, x.c, "b", chain.HeadName) != want {
				t.Fatalf("step %d, seed %d: after purging again left are %s", step, seed, got)
			}
			x.must(x.c.Close())
		}
	}
}

// On a real disk: a purge that has no room leaves users what they had, and does the rest.
func TestPurgeOnASmallDisk(t *testing.T) {
	if err := powerdisk.Available(); err != nil {
		lack.Skip(t, err)
	}
	for fs, size := range map[string]int64{"ext4": 96 * mib, "xfs": 320 * mib} {
		t.Run(fs, func(t *testing.T) {
			if _, err := exec.LookPath("mkfs." + fs); err != nil {
				lack.Skip(t, err)
			}
			dir := smallDisk(t, fs, size)
			w := &world{t: t, fs: osdisk.New(nil), dir: dir + "/r", opts: testOptions()}
			w.must(chain.Create(w.fs, w.dir, testSpec(size), w.opts))
			w.open()
			t.Cleanup(func() { _ = w.c.Abandon() })
			purgeOnASmallDisk(w, dir)
		})
	}
}

// smallDisk mounts a new file system of so many bytes.
func smallDisk(t *testing.T, fs string, size int64) (dir string) {
	t.Helper()
	run, err := powerdisk.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := run.End(); err != nil {
			t.Error(err)
		}
	})
	d, err := run.Open("small", powerdisk.Options{Image: powerdisk.NewImage(size)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := d.Format(fs); err != nil {
		t.Fatal(err)
	}
	if dir, err = d.Mount(fs); err != nil {
		t.Fatal(err)
	}
	return dir
}

func purgeOnASmallDisk(w *world, mount string) {
	t := w.t
	free := func() int64 {
		info, err := w.fs.Statfs(mount)
		w.must(err)
		return info.FreeBytes
	}
	total := free()
	child := total * 4 / 10 / mib * mib
	w.fill(0, mib, 1)
	w.snapshot("a")
	w.fill(mib/2, child, 2)
	w.snapshot("b")
	leaf := total * 2 / 10 / mib * mib
	w.fill(0, leaf, 3)
	w.snapshot("z")
	w.must(w.c.Revert("b", ""))
	w.must(w.c.MarkRemoved("a"))
	w.must(w.c.MarkRemoved("z"))
	other, err := w.fs.Create(mount+"/other", 0) // so that there is no room for b once more, even without z
	w.must(err)
	defer other.Close() // of a test that ends
	w.must(other.Preallocate(0, free()-leaf/4))
	w.must(other.Sync())
	want := hashes(t, w.c, "b", chain.HeadName)
	before := free()
	wantErr(t, w.c.Purge(nil), chain.ErrNoSpace)
	if got := listNames(t, w.c); got != "a b volume-head" {
		t.Fatalf("left are %s", got)
	}
	// XFS frees what a removed file had in the background, on a busy machine a while later.
	wait.For(t, "room after the purge", func() error {
		if now := free(); now < before+leaf {
			return fmt.Errorf("%d bytes are free, %d before: z had %d", now, before, leaf)
		}
		return nil
	})
	w.fill(child+mib, leaf/2, 5) // users go on
	w.wantByte(child+mib, leaf/2, 5)
	w.zero(child+mib, leaf/2)
	w.must(other.Truncate(0))
	w.must(w.c.Purge(nil))
	if got := listNames(t, w.c); got != "b volume-head" {
		t.Fatalf("then left are %s", got)
	}
	if got := hashes(t, w.c, "b", chain.HeadName); got != want {
		t.Fatalf("content changed:\n%s%s", got, want)
	}
}
