package chain_test

import (
	"testing"

	"ankole.storage/dataplane/chain"
)

// A loss of power is told by the regions that were marked before it, until none is left.
func TestPowerLost(t *testing.T) {
	w, _ := newWorld(t, 16*mib)
	w.must(w.c.Close())
	first, second := chain.Boot{1}, chain.Boot{2}
	steps := []struct {
		boot chain.Boot
		mark []chain.Region
		want bool // after opening it in that boot
	}{
		{first, []chain.Region{}, false},
		{first, []chain.Region{1}, false},
		{first, []chain.Region{1, 2}, false}, // the process ended, the machine did not
		{second, []chain.Region{2, 3}, true}, // marks go on: what was lost is lost
		{second, []chain.Region{}, true},     // all replicas have been made the same
		{second, []chain.Region{4}, false},
		{second, []chain.Region{4}, false},
		{chain.Boot{}, []chain.Region{4}, false}, // nobody knows
		{first, []chain.Region{}, true},
		{second, []chain.Region{}, false},
	}
	for i, s := range steps {
		w.opts.Boot = s.boot
		w.open()
		if got := w.c.PowerLost(); got != s.want {
			t.Errorf("step %d: power lost: %v, want %v", i, got, s.want)
		}
		w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Generation: uint64(i + 1), Self: "v-1"}))
		w.must(w.c.WriteDirty(s.mark))
		w.must(w.c.Close())
	}
}
