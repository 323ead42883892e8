package replica_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// reverting is a replica with nines in the head over a snapshot without them.
func reverting(t *testing.T, seed uint64) (*rig, *peer) {
	g := newSeededRig(t, seed)
	p := g.engine(1, "e")
	p.mustControl(wire.ControlRequest{Snapshot: &wire.SnapshotRequest{Name: "a", UserCreated: true}})
	p.mustAsk(wire.Header{Type: wire.Write, Len: block.Size}, filled(9, block.Size))
	g.w.Until(time.Second, func() bool { return false }) // until the new metadata is copied
	return g, p
}

// While the chain below a snapshot is opened for a revert, requests are answered: it takes longer
// than an engine waits for a replica if there are many pieces.
func TestRevertHoldsRequestsBackBriefly(t *testing.T) {
	before := 0
	for seed := range uint64(30) {
		g, p := reverting(t, seed)
		revert := p.controls(wire.ControlRequest{Revert: &wire.RevertRequest{Name: "a"}})
		read := p.request(wire.Header{Type: wire.Read, Len: block.Size}, nil)
		g.until("one of them is answered", func() bool { return revert.done || read.done })
		if !revert.done {
			before++
			if read.payload[0] != 9 {
				t.Fatalf("seed %d: before the revert it reads %d", seed, read.payload[0])
			}
		}
		g.until("both are answered", func() bool { return revert.done && read.done })
		if revert.h.Code != block.OK {
			t.Fatalf("seed %d: %s", seed, revert.h.Code)
		}
		if got := p.mustAsk(wire.Header{Type: wire.Read, Len: block.Size}, nil); got[0] != 0 {
			t.Fatalf("seed %d: after the revert it reads %d", seed, got[0])
		}
		g.v.Close()
	}
	if before == 0 {
		t.Error("no read was answered before the revert was done")
	}
}

// A session that ends at any moment of a revert leaves the content of before or of after, and
// nothing else: no files of a revert that was given up, and a replica that goes on.
func TestSessionEndsDuringARevert(t *testing.T) {
	done, undone := 0, 0
	for steps := range 60 {
		g, p := reverting(t, uint64(steps))
		p.request(wire.Header{Type: wire.Write, Off: block.Size, Len: block.Size}, filled(8, block.Size))
		p.controls(wire.ControlRequest{Revert: &wire.RevertRequest{Name: "a"}})
		n := steps
		g.w.Until(patience, func() bool { n--; return n < 0 })
		e := g.engine(2, "e2")
		got := e.mustAsk(wire.Header{Type: wire.Read, Len: block.Size}, nil)
		switch {
		case bytes.Equal(got, filled(9, block.Size)):
			undone++
		case bytes.Equal(got, make([]byte, block.Size)):
			done++
		default:
			t.Fatalf("after %d steps it reads %d", steps, got[0])
		}
		names, err := g.disk().List("/replicas/r0")
		if err != nil {
			t.Fatal(err)
		}
		heads := 0
		for _, name := range names {
			if strings.HasPrefix(name, "volume-head-") && strings.HasSuffix(name, ".img") {
				heads++
			}
		}
		if heads != 1 {
			t.Fatalf("after %d steps: %v", steps, names)
		}
		e.mustControl(wire.ControlRequest{Revert: &wire.RevertRequest{Name: "a"}})
		g.v.Close()
	}
	if done == 0 || undone == 0 {
		t.Fatalf("done %d, undone %d: the test shows nothing", done, undone)
	}
}
