package replica_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"ankole.storage/dataplane/wire"
)

// After a flush no damage of one slot of the dirty log takes a mark away.
func TestMarksAreCopiedBesideAFlush(t *testing.T) {
	for slot := range int64(2) {
		t.Run(fmt.Sprint(slot), func(t *testing.T) {
			g := newSeededRig(t, 1)
			e := g.engine(1, "e")
			e.record(1, true)
			e.mustControl(wire.ControlRequest{ClearDirty: &wire.ClearDirty{}})
			for n := range uint32(3) {
				e.mustAsk(wire.Header{Type: wire.MarkDirty}, binary.LittleEndian.AppendUint32(nil, n))
			}
			e.mustAsk(wire.Header{Type: wire.Flush}, nil)
			regions := wire.ControlRequest{Regions: &wire.RegionsRequest{Member: "x"}}
			e.mustControl(regions) // the copy came before
			g.r.Kill()
			if err := g.disk().Rot("/replicas/"+g.r.Name+"/ankole.dirty", slot*8192, 512); err != nil {
				t.Fatal(err)
			}
			g.r.Start()
			got := g.engine(2, "e2").mustControl(regions).Regions.Dirty
			if !slices.Equal(got, []uint32{0, 1, 2}) {
				t.Errorf("marked are %v", got)
			}
		})
	}
}
