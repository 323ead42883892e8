package chain_test

import (
	"testing"

	"ankole.storage/dataplane/disk"
)

// The disk was full in the middle of a page of whiteouts that was given its space. It is none that
// has space to the next process: a discard is refused, and flushes go on.
func TestHalfAPageOfWhiteouts(t *testing.T) {
	w, fs := newWorld(t, 256*mib)
	w.fill(0, 65536, 1)
	w.fill(128*mib, 65536, 1)
	w.snapshot("a")
	w.must(w.c.Discard(0, 4096))
	w.must(w.c.Sync())
	w.must(w.c.Abandon())
	f, err := fs.Open(w.whiteoutFiles()[0], 0)
	w.must(err)
	_, err = f.WriteAt(make([]byte, 4096), 2*8192) // the first half of page 2
	w.must(err)
	w.must(f.Close())
	w.open()
	fs.SetCapacity(fs.Used())
	for range 2 {
		wantErr(t, w.c.Discard(128*mib, 4096), disk.ErrNoSpace)
		w.wantByte(128*mib, 4096, 1)
		w.must(w.c.Sync())
		w.must(w.c.CheckMap())
		w.reopen()
	}
	fs.SetCapacity(0)
	w.must(w.c.Discard(128*mib, 4096))
	w.reopen()
	w.wantByte(128*mib, 4096, 0)
	w.must(w.c.Close())
}
