package chain_test

import (
	"testing"

	"ankole.storage/dataplane/chain"
)

// A crash between the entry of a dropped member and the record that drops it leaves an entry on the
// disk that does not count, since the record names the member. Then a person goes on with this
// replica alone, and another history begins: what the entry says is about the one before. It counts
// no more, at no later start either.
func TestAcceptedLossForgetsWhatDidNotCount(t *testing.T) {
	seen := map[uint64]int{}
	everyCrash(t, func(*world) error { return nil }, drop, func(w *world) {
		r, _ := w.c.Record()
		seen[r.Generation]++
		w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 2, Generation: r.Generation + 1, Anew: true,
			State: chain.MemberRW, Self: "v-1", Members: members("v-1")}))
		for range 2 {
			for _, absent := range []string{"v-2", "v-3"} {
				if got := say(w.c, absent); got != "none" {
					t.Fatalf("entry of %s is %s, although another history has begun", absent, got)
				}
			}
			w.reopen()
		}
	})
	if seen[3] == 0 || seen[4] == 0 {
		t.Errorf("crashes left records %v", seen)
	}
}
