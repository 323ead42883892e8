package replica_test

import (
	"bytes"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// Zeroes hash alike however a replica has them: never written, written, a hole in the head,
// a whiteout over a snapshot or over another whiteout, or a mixture; at the head, and at a
// snapshot.
func TestZeroesHashAlike(t *testing.T) {
	g := newRig(t)
	e := g.engine(1, "e")
	const piece = block.MaxTransfer
	write := func(at int64, fill byte) {
		e.mustAsk(wire.Header{Type: wire.Write, Off: at, Len: piece}, filled(fill, piece))
	}
	discard := func(at, n int64) { e.mustAsk(wire.Header{Type: wire.Discard, Off: at, Len: n}, nil) }
	snapshot := func(name string) {
		e.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: name, UserCreated: true}})
	}
	for i := range int64(5) {
		if i != 1 { // never written
			write(i*piece, 7)
		}
	}
	discard(2*piece, piece) // a hole
	snapshot("a")
	e.mustAsk(wire.Header{Type: wire.WriteZeroes, Len: piece}, nil)
	discard(3*piece, piece)
	discard(4*piece, piece/2)
	e.mustAsk(wire.Header{Type: wire.WriteZeroes, Off: 4*piece + piece/2, Len: piece / 2}, nil)
	check := func(when string, flags uint8) {
		t.Helper()
		for _, n := range []int64{block.Size, 64 << 10, piece} {
			var want []byte
			for i := range int64(5) {
				got := e.mustAsk(wire.Header{Type: wire.Hash, Off: i * piece, Len: n, Flags: flags}, nil)
				if want == nil {
					want = got
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s, %d bytes: piece %d hashes otherwise", when, n, i)
				}
			}
		}
	}
	check("head", 0)
	snapshot("b")
	discard(3*piece, piece) // hidden already
	write(4*piece, 8)
	discard(4*piece, piece) // in the head, and hidden
	check("head over another layer", 0)
	e.mustControl(wire.ControlRequest{OpenView: &wire.OpenView{Snapshot: "b"}})
	check("snapshot", wire.AtView)
	g.r.Kill()
	g.r.Start()
	e = g.engine(2, "e2")
	check("the next process", 0)
}
