package chain_test

import (
	"testing"

	"ankole.storage/dataplane/chain"
)

// A checksum that is computed between two pieces of a purge is of a file that the next piece
// changes: a scrub must not take that for rot.
func TestChecksumBetweenPiecesOfAPurge(t *testing.T) {
	for _, action := range []chain.PurgeAction{chain.PurgePrune, chain.PurgeCoalesce} {
		t.Run(string(action), func(t *testing.T) {
			w, _ := newWorld(t, pieceSlots*slotSize)
			for i := range int64(pieceSlots) {
				w.fill(i*slotSize, 4096, 1)
			}
			w.snapshot("a")
			for off := int64(0); off < pieceSlots*slotSize; off += 8192 {
				w.fill(off, 4096, 2) // each an extent, of which a piece looks at a thousand
			}
			if action == chain.PurgeCoalesce {
				w.snapshot("b")
			}
			w.must(w.c.MarkRemoved("a"))
			p, err := w.c.NewPurge()
			w.must(err)
			step, _ := p.Next()
			if step.Action != action {
				t.Fatalf("%+v", step)
			}
			for pieces := 1; ; pieces++ {
				w.must(p.Note(w.c.Sidecars, &step))
				done, err := p.Work(&step, w.c.DurableWhiteouts(step.Whiteouts()))
				w.must(err)
				if action == chain.PurgeCoalesce {
					wantNoRot(w, "b")
				}
				if done && pieces < 3 {
					t.Fatalf("%d pieces show nothing", pieces)
				}
				if done {
					break
				}
				if pieces == 1 {
					_, err = w.c.Hash("a", true, "2026-11-21T09:00:00Z")
					w.must(err)
				}
			}
			w.must(finishStep(w.c, p, &step))
			if action == chain.PurgePrune {
				w.snapshot("b")
			}
			wantNoRot(w, "b")
			w.must(w.c.Close())
		})
	}
}

// wantNoRot verifies a snapshot that nothing has happened to.
func wantNoRot(w *world, snapshot string) {
	w.t.Helper()
	v := w.view(snapshot)
	defer v.Close() // only read
	for off := int64(0); off < v.Size(); off += slotSize {
		if verdict, rot, err := v.Verify(off, slotSize); err != nil || verdict == chain.VerdictRotten {
			w.t.Fatalf("%s: %s %+v, %v", snapshot, verdict, rot, err)
		}
	}
}
