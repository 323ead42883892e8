package chain_test

import (
	"testing"

	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// A snapshot whose image is gone and whose metadata could not be removed is none: the others are
// still listed, and its name can be given again.
func TestSnapshotThatIsRemovedHalf(t *testing.T) {
	w, fs := newWorld(t, mib)
	w.fill(0, 4096, 1)
	w.snapshot("a")
	w.fill(0, 4096, 2)
	w.snapshot("b")
	w.must(w.c.Revert("a", "2026-11-21T08:00:00Z"))
	w.must(w.c.MarkRemoved("b"))
	stop := fs.Inject(memdisk.Rule{Op: memdisk.OpRemove, Name: "volume-snap-b.img.meta", Times: 1, Err: disk.ErrIO})
	wantErr(t, w.c.Purge(nil), disk.ErrIO)
	stop()
	list, err := w.c.Snapshots()
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	w.fill(0, 4096, 3)
	w.snapshot("b")
	w.must(w.c.Purge(nil))
	for range 2 {
		if list, err = w.c.Snapshots(); err != nil || len(list) != 3 {
			t.Fatalf("%+v, %v", list, err)
		}
		at, err := w.c.At("b")
		w.must(err)
		p := make([]byte, 4096)
		_, err = at.ReadAt(p, 0)
		w.must(err)
		w.must(at.Close())
		if p[0] != 3 {
			t.Fatalf("b reads %d", p[0])
		}
		w.reopen()
	}
	w.must(w.c.Close())
}
