package replica_test

import (
	"bytes"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// A write below 4 KiB becomes one of whole blocks: what is around it is read and written again. If
// that fails midway, or the process ends meanwhile, each sector asked for is the old or the new
// one, and every other one is what it was: whether the block was in the head, below it, or nowhere.
func TestUnalignedWriteFailsMidway(t *testing.T) {
	const at, n, span = 4096 + 512, 8192 + 1024, 4 * 4096 // three blocks, of the first and the last only a part
	for name, prepare := range map[string]func(e *peer) byte{
		"in the head": func(e *peer) byte {
			e.ask(wire.Header{Type: wire.Write, Len: span}, bytes.Repeat([]byte{1}, span))
			return 1
		},
		"below the head": func(e *peer) byte {
			e.ask(wire.Header{Type: wire.Write, Len: span}, bytes.Repeat([]byte{1}, span))
			e.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "a", UserCreated: true}})
			return 1
		},
		"nowhere": func(*peer) byte { return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			seen := map[int]bool{}
			for seed := range uint64(20) {
				g := newSeededRig(t, seed)
				e := g.engine(1, "e")
				old := prepare(e)
				for range seed {
					e.ask(wire.Header{Type: wire.Write, Off: 1 << 20, Len: 512}, make([]byte, 512)) // another history fails elsewhere
				}
				stop, err := g.r.Disk.FS.InjectText("write volume-head-* partial times 1")
				if err != nil {
					t.Fatal(err)
				}
				before := g.r.Disk.FS.Changes()
				a := e.request(wire.Header{Type: wire.Write, Off: at, Len: n}, bytes.Repeat([]byte{2}, n))
				if killed := seed%2 == 0; killed {
					g.until("the write is under way", func() bool { return g.r.Disk.FS.Changes() > before })
					g.r.Kill()
					g.r.Start()
					e = g.engine(2, "e2")
				} else {
					g.until("answer", func() bool { return a.done })
					if a.h.Code != block.IOError {
						t.Fatal(a.h.Code)
					}
				}
				stop()
				got := e.ask(wire.Header{Type: wire.Read, Len: span}, nil).payload
				written := 0
				for i := 0; i < span; i += 512 {
					sector := got[i : i+512]
					inside := i >= at && i < at+n
					switch {
					case inside && bytes.Equal(sector, bytes.Repeat([]byte{2}, 512)):
						written++
					case !bytes.Equal(sector, bytes.Repeat([]byte{old}, 512)):
						t.Fatalf("seed %d: sector at %d (asked for: %v) holds %d…%d, before %d", seed, i, inside,
							sector[0], sector[511], old)
					}
				}
				seen[written] = true
			}
			if len(seen) < 3 {
				t.Errorf("of the write there were %v sectors only", seen)
			}
		})
	}
}
