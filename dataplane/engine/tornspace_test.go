package engine_test

import (
	"bytes"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// A torn region is repaired where there is space for the blocks that differ and for nothing else.
func TestTornRegionTakesNoMoreSpaceThanItDiffers(t *testing.T) {
	g := tornRig(t)
	a, b := g.fakes[0], g.fakes[1]
	b.write(7*mib+4096, bytes.Repeat([]byte{2}, 4096))
	b.script = func(h *wire.Header) (block.Code, bool) {
		if h.Type == wire.Write && (h.Len != 4096 || h.Off != 5*mib && h.Off != 7*mib+4096) {
			return block.NoSpace, false
		}
		return block.OK, false
	}
	if err := g.takeSnapshot(); err != nil {
		t.Error(err)
	}
	if g.state.Torn != 0 || !bytes.Equal(a.read(4*mib, 4*mib), b.read(4*mib, 4*mib)) {
		t.Errorf("%d regions are torn", g.state.Torn)
	}
}
