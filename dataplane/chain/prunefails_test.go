package chain_test

import (
	"bytes"
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk"
)

// A prune makes some of its holes and fails; then the directory is closed in order. What is zeroed
// after the next start and flushed stays so when power is lost: the holes that were made are
// durable before anybody takes them for such.
func TestZeroesStayAfterAPruneThatFailed(t *testing.T) {
	for _, fault := range []string{"punch volume-snap-a.img eio skip 1", "punch volume-snap-a.img enospc skip 1"} {
		for seed := range uint64(50) {
			w, _ := newWorld(t, crashSize)
			w.fill(0, 65536, 1)
			w.snapshot("a")
			for i := range int64(8) {
				w.fill(i*8192, 4096, 2) // holes that are apart
			}
			w.must(w.c.MarkRemoved("a"))
			_, err := w.mem().InjectText(fault)
			w.must(err)
			if err := w.c.Purge(nil); err == nil {
				t.Fatal("the prune does not fail")
			}
			w.mem().ClearRules()
			w.must(w.c.Close())
			w.open()
			w.zero(0, 65536)
			w.must(w.c.Sync())
			x := *w
			x.fs, x.opts = w.mem().Crash(seed), testOptions()
			x.open()
			if got := x.read(0, 65536); !bytes.Equal(got, make([]byte, len(got))) {
				t.Fatalf("%s, seed %d: what was zeroed and flushed is back", fault, seed)
			}
			x.must(x.c.Close())
		}
	}
}

// If what a prune has made cannot be synced either, the directory is not closed as cleanly stopped.
func TestPruneThatCannotBeSynced(t *testing.T) {
	w, _ := newWorld(t, crashSize)
	w.fill(0, 65536, 1)
	w.snapshot("a")
	w.fill(0, 4096, 2)
	w.fill(8192, 4096, 2)
	w.must(w.c.MarkRemoved("a"))
	_, err := w.mem().InjectText("punch volume-snap-a.img enospc skip 1\nsync volume-snap-a.img eio")
	w.must(err)
	wantErr(t, w.c.Purge(nil), disk.ErrIO)
	if w.c.State() != chain.StateError {
		t.Fatal(w.c.State())
	}
	w.must(w.c.Abandon())
}
