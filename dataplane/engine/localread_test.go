package engine_test

import (
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// readsOf counts the reads that each replica was asked for.
func readsOf(g *rig) map[string]int {
	n := map[string]int{}
	for _, f := range g.fakes {
		n[f.name] = f.seen(wire.Read)
	}
	return n
}

// readMany sends reads of different blocks at once.
func readMany(g *rig, n int) (calls []*call) {
	for i := range n {
		calls = append(calls, g.begin(block.Read, int64(i)*4096, 4096, make([]byte, 4096)))
	}
	pass(g, 10*time.Millisecond)
	return calls
}

// Reads go to the replica on the engine's node, so that no network is between, and so that they go
// on when the others are cut off (D9). While it has much more to do than the others they help, and
// when it fails they answer.
func TestReadsPreferTheLocalReplica(t *testing.T) {
	g := newRig(t, 3, 16*mib)
	g.local = "b"
	g.start()
	before := readsOf(g)
	for range 9 {
		if _, code := g.read(0, 4096); code != block.OK {
			t.Fatal(code)
		}
	}
	if now := readsOf(g); now["b"] != before["b"]+9 || now["a"] != before["a"] || now["c"] != before["c"] {
		t.Errorf("reads went to %v, and %v before", now, before)
	}

	before = readsOf(g)
	g.fakes[1].script = func(h *wire.Header) (block.Code, bool) { return block.OK, h.Type == wire.Read }
	calls := readMany(g, 50)
	now := readsOf(g)
	if local, others := now["b"]-before["b"], now["a"]-before["a"]+now["c"]-before["c"]; local < 32 || others < 10 ||
		local+others != 50 {
		t.Errorf("of 50 reads at once %d went to the local replica and %d to the others", local, others)
	}
	g.fakes[1].release()
	for _, c := range calls {
		if code := g.finish(c); code != block.OK {
			t.Fatal(code)
		}
	}

	g.fakes[1].script = func(h *wire.Header) (block.Code, bool) { return block.IOError, false }
	if _, code := g.read(0, 4096); code != block.OK {
		t.Errorf("a read that the local replica fails: %v", code)
	}
}
