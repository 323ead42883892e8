package engine_test

import (
	"bytes"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// TestSameBlockSameOrderWhoeverIsFirst: a replica carries out and answers the writes that it has
// been sent newest first, as a disk with many requests under way may. Writes to one block must
// still have one outcome, that of the last one asked for, on every replica. (P4: writes to one
// 4 KiB block reach all replicas in one order.)
func TestSameBlockSameOrderWhoeverIsFirst(t *testing.T) {
	const blocks, rounds = 7, 40
	g := newRig(t, 3, 16*mib).start()
	backwards := g.fakes[1]
	backwards.script = func(h *wire.Header) (block.Code, bool) { return block.OK, h.Type == wire.Write }
	var calls []*call
	want := make([]byte, blocks*block.Size)
	for i := range blocks * rounds {
		fill, off := byte(i/blocks+1), int64(i%blocks)*block.Size
		n := 512 * (1 + i%8) // of one block, so that each write may have another size
		calls = append(calls, g.write(off, fill, n))
		copy(want[off:], bytes.Repeat([]byte{fill}, n))
	}
	turned := 0
	done := func() bool {
		for _, c := range calls {
			if !c.done {
				return false
			}
		}
		return true
	}
	for !done() {
		g.until("writes reach the replica that goes backwards", func() bool { return len(backwards.held) > 0 || done() })
		g.w.Until(time.Second, func() bool { return len(backwards.held) >= blocks || done() }) // simulated time
		turned += max(0, len(backwards.held)-1)
		for n := len(backwards.held); n > 0; n = len(backwards.held) {
			backwards.let(n - 1)
		}
	}
	for i, c := range calls {
		if c.code != block.OK {
			t.Errorf("write %d is answered with %v", i, c.code)
		}
	}
	for _, f := range g.fakes {
		if got := f.read(0, int64(len(want))); !bytes.Equal(got, want) {
			for b := range blocks {
				at := b * block.Size
				if !bytes.Equal(got[at:at+block.Size], want[at:at+block.Size]) {
					t.Errorf("P4: replica %s holds %d in block %d, want %d as the last write said", f.name, got[at], b, want[at])
				}
			}
		}
	}
	if turned < rounds {
		t.Errorf("%d writes were carried out before an older one; at least %d are wanted, or this shows nothing", turned,
			rounds)
	}
	g.expectModes("a=RW b=RW c=RW")
}
