package offline_test

import (
	"bytes"
	"errors"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/disk"
	"ankole.storage/disk/memdisk"
)

// reverted is small after a revert to its first snapshot: b is a branch, and the head has a block
// of its own.
func reverted(t *testing.T) *memdisk.FS {
	t.Helper()
	fs := small(t)
	c, err := chain.Open(fs, "/r", chain.Options{})
	must(t, err)
	must(t, c.Revert("a", "2026-11-21T11:00:00Z"))
	must(t, c.WriteHead(bytes.Repeat([]byte{4}, 4096), 4096))
	must(t, c.Close())
	return fs
}

// Snapshots off the live chain are repaired before the head, which counts as being rebuilt from
// then on; whenever a repair is cut off, another one ends it.
func TestRepairWithABranch(t *testing.T) {
	source := reverted(t)
	want := sums(t, source)
	for step, done := int64(0), false; !done; step++ {
		damaged := reverted(t)
		info, err := chain.Inspect(damaged, "/r")
		must(t, err)
		for _, name := range []string{bFile, "/r/" + info.Head} {
			change(t, damaged, name, func(f disk.File) error {
				_, err := f.WriteAt([]byte{0xee}, 8192)
				return errors.Join(err, f.Sync())
			})
		}
		p := plan(t, damaged, source)
		if n := len(p.Items); n != 2 || p.Items[n-1].Snapshot != chain.HeadName {
			t.Fatalf("the head is not the last: %+v", p.Items)
		}
		damaged.CrashAfter(step)
		err = p.Run(t.Context(), nil)
		if done = err == nil; !done && !errors.Is(err, memdisk.ErrCrashed) {
			t.Fatalf("step %d: %v", step, err)
		}
		left := damaged.Crash(uint64(step))
		must(t, plan(t, left, source).Run(t.Context(), nil))
		if got := sums(t, left); got != want {
			t.Fatalf("step %d: content\n%s\nwant\n%s", step, got, want)
		}
		if info, err := chain.Inspect(left, "/r"); err != nil || info.Rebuilding {
			t.Fatalf("step %d: %+v, %v", step, info, err)
		}
	}
}
