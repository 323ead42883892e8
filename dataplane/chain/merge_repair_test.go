package chain_test

import (
	"bytes"
	"fmt"
	"testing"

	"ankole.storage/dataplane/chain"
)

// A repair of a file that a purge is merging into the one below stays, wherever the merge has got
// to: what was repaired is neither taken back nor made zeroes, at the snapshot, at the head and
// after opening again.
func TestRepairDuringMerge(t *testing.T) {
	const blocks = 6 * purgePiece / 4096 // several pieces of a merge
	for _, where := range []string{"in the child", "in the source", "below both", "nowhere"} {
		for _, works := range []int{0, 1, 2, 100} {
			t.Run(fmt.Sprintf("%s after %d pieces", where, works), func(t *testing.T) {
				w, fs := newWorld(t, blocks*4096)
				w.must(w.c.WriteRecord(chain.Record{VolumeUUID: testUUID, Epoch: 1, Self: "v-1"}))
				const at = 16384 // what rots
				w.fill(0, 4096, 1)
				rots := map[string]string{"below both": "base", "in the source": "a", "in the child": "b", "nowhere": ""}[where]
				for _, name := range []string{"base", "a", "b"} {
					if name == rots {
						w.fill(at, 4096, 7)
					}
					for off := int64(0); name == "b" && off < w.c.Size(); off += chain.SumPiece {
						w.fill(off+65536, 4096, 3)
					}
					w.snapshot(name)
				}
				want := w.at("b")
				w.hashAll("base", "a", "b")
				if rots != "" {
					w.must(fs.Rot(image(rots), at, 1))
				} else {
					copy(want[at:], bytes.Repeat([]byte{9}, 4096))
				}
				w.must(w.c.MarkRemoved("a"))
				p, err := w.c.NewPurge()
				w.must(err)
				step, _ := p.Next()
				if step.Action != chain.PurgeCoalesce || step.Target != "volume-snap-b.img" {
					t.Fatalf("%+v", step)
				}
				done := false
				for i := 0; i < works && !done; i++ {
					done, err = workStep(w.c, p, &step)
					w.must(err)
				}
				if works > 0 && done != (works == 100) {
					t.Fatalf("the merge is done: %v", done)
				}
				v := w.view("b")
				_, err = v.Repair(0, want[:chain.SumPiece])
				w.must(err)
				w.must(w.c.CheckMap())
				w.must(v.Close())
				for tries := 0; ; tries++ {
					for !done {
						done, err = workStep(w.c, p, &step)
						w.must(err)
					}
					if err := finishStep(w.c, p, &step); err == nil {
						break
					} else if wantErr(t, err, chain.ErrInvalid); tries > 0 {
						t.Fatal("a merge that was begun again is refused")
					}
					step, _ = p.Next()
					done = false
				}
				for _, when := range []string{"then", "after opening again"} {
					w.must(w.c.CheckMap())
					if !bytes.Equal(w.at("b"), want) || !bytes.Equal(w.read(0, w.c.Size()), want) {
						t.Fatalf("%s the repair is gone", when)
					}
					v := w.view("b")
					if _, rot, err := v.Verify(0, chain.SumPiece); err != nil ||
						len(rot) > 0 && (where != "below both" || rot[0].Snapshot != "base") {
						t.Fatalf("%s: %v %v", when, rot, err)
					}
					w.must(v.Close())
					w.reopen()
				}
			})
		}
	}
}

// purgePiece is how much one piece of a merge copies.
const purgePiece = 8 << 20
