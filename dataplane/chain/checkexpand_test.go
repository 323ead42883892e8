package chain_test

import (
	"testing"

	"ankole.storage/dataplane/chain"
)

// A check refuses an expansion whose snapshot cannot be taken: an engine asks before it lets any
// replica begin.
func TestCheckExpandKnowsTheSnapshot(t *testing.T) {
	w, _ := newWorld(t, mib)
	w.snapshot("expand-2097152")
	wantErr(t, w.c.CheckExpand(2*mib), chain.ErrExists)
	wantErr(t, w.c.Expand(2*mib, ""), chain.ErrExists)
	w.must(w.c.CheckExpand(mib))
	w.must(w.c.Expand(4*mib, ""))
}
