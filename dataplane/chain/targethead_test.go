package chain_test

import (
	"testing"

	"ankole.storage/dataplane/chain"
)

// TestHeadOfATargetBecomesALayer: the head of a rebuild target that becomes a snapshot takes
// whiteouts as every layer does: the source's head may have discarded what the target did not have
// yet. They stay through further snapshots, a new opening and the rebuild's end.
func TestHeadOfATargetBecomesALayer(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.fill(0, mib, 1)
	w.snapshot("a")
	w.fill(65536, 4096, 2)
	w.must(w.c.SetRebuilding())
	w.snapshot("b")
	w.fill(131072, 4096, 3)
	w.snapshot("c")
	layers := w.c.LayerList()
	b := len(layers) - 3
	w.must(w.c.PunchLayer(b, 0, 32768, true))
	w.must(w.c.FinishRebuild())
	for range 2 {
		w.reopen() // whoever brings the layers tells the block map
		w.wantByte(0, 32768, 0)
		w.wantByte(32768, 32768, 1)
		w.wantByte(65536, 4096, 2)
		w.wantByte(131072, 4096, 3)
	}
	if list, err := w.c.Snapshots(); err != nil || len(list) != 4 || layers[b].File != "volume-snap-b.img" {
		t.Errorf("%v, %v; %v", list, err, layers)
	}
	if w.c.State() == chain.StateRebuilding {
		t.Error("it is still being rebuilt")
	}
}
