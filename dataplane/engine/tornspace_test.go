package engine_test

import (
	"bytes"
	"testing"
	"time"

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

// On full disks a torn region that users overwrite is not compared again by each write, but it is
// repaired once there is space.
func TestTornRegionOfFullDisksIsTriedNowAndThen(t *testing.T) {
	g := tornRig(t)
	a, b := g.fakes[0], g.fakes[1]
	b.script = func(h *wire.Header) (block.Code, bool) {
		if h.Type == wire.Write && h.Off <= 5*mib && h.Off+h.Len > 5*mib {
			return block.NoSpace, false
		}
		return block.OK, false
	}
	overwrite := func() {
		t.Helper()
		if code := g.finish(g.write(6*mib, 4, 4096)); code != block.OK {
			t.Fatal(code)
		}
	}
	overwrite()
	g.pass(time.Second)
	once := b.seen(wire.Hash)
	if once == 0 {
		t.Fatal("nothing was compared")
	}
	for range 100 {
		overwrite()
		g.pass(100 * time.Millisecond)
	}
	if n := b.seen(wire.Hash); n != once {
		t.Errorf("%d pieces were compared beside 100 writes", n-once)
	}
	b.script = nil
	g.pass(time.Minute)
	overwrite()
	g.pass(time.Second)
	if g.state.Torn != 0 || !bytes.Equal(a.read(4*mib, 4*mib), b.read(4*mib, 4*mib)) {
		t.Errorf("%d regions are torn though there is space", g.state.Torn)
	}
}
