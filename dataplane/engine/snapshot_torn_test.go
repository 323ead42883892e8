package engine_test

import (
	"bytes"
	"errors"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// A snapshot for which there is no space stops no write: every torn region is compared once, beside
// writes, and it is refused.
func TestRefusedSnapshotStopsNoWrite(t *testing.T) {
	const regions = 32
	g := newRig(t, 2, (regions+1)*4*mib).start()
	a, b := g.fakes[0], g.fakes[1]
	last := int64(regions * 4 * mib)
	full := func(h *wire.Header) (block.Code, bool) {
		if h.Type == wire.Write && h.Off < last {
			return block.NoSpace, false
		}
		return block.OK, false
	}
	a.script, b.script, a.keepsFailed = full, full, true
	for i := range int64(regions) {
		if code := g.finish(g.write(i*4*mib, 2, 4096)); code != block.NoSpace {
			t.Fatal(code)
		}
	}
	hashes, most := map[int64]int{}, 0
	b.script = func(h *wire.Header) (block.Code, bool) {
		if h.Type == wire.Hash && h.Len == mib { // its parts follow
			hashes[h.Off]++
			most = max(most, hashes[h.Off])
		}
		return full(h)
	}
	if err := g.takeSnapshot(); !errors.Is(err, block.NoSpace) {
		t.Errorf("snapshot: %v", err)
	}
	if len(hashes) != regions || most != 1 {
		t.Errorf("%d regions of %d were compared, up to %d times", len(hashes), regions, most)
	}
	if code := g.finish(g.write(last, 3, 4096)); code != block.OK {
		t.Errorf("a write after it: %s", code)
	}
	// While one is compared a write goes on.
	b.script = func(h *wire.Header) (block.Code, bool) {
		code, _ := full(h)
		return code, h.Type == wire.Hash
	}
	refused := false
	g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(error) { refused = true }})
	for n := 0; !refused; n++ {
		g.until("a region is compared", func() bool { return refused || len(b.held) > 0 })
		if refused {
			break
		}
		if c := g.write(last, 4, 4096); n%8 == 0 && g.finish(c) != block.OK {
			t.Fatal("a write beside a comparison failed")
		}
		b.let(0)
	}
	g.expectModes("a=RW b=RW")
}

// What is torn while other regions are compared for a snapshot is made the same too: there is space
// for it, and nothing would ask again.
func TestSnapshotOfARegionTornMeanwhile(t *testing.T) {
	g := newRig(t, 2, 16*mib).start()
	a, b := g.fakes[0], g.fakes[1]
	a.keepsFailed = true
	tear := func(off int64) {
		t.Helper()
		a.script, b.script = answerWith(wire.Write, block.NoSpace), answerWith(wire.Write, block.NoSpace)
		if code := g.finish(g.write(off, 2, 4096)); code != block.NoSpace {
			t.Fatal(code)
		}
		a.script, b.script = nil, nil
	}
	tear(0)
	tear(4 * mib)
	b.script = func(h *wire.Header) (block.Code, bool) {
		return block.OK, h.Type == wire.Hash && h.Off >= 4*mib && len(b.held) == 0
	}
	var err error
	done := false
	g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(e error) {
		done, err = true, e
	}})
	g.until("the second region is compared", func() bool { return len(b.held) > 0 })
	if g.state.Torn != 1 {
		t.Fatalf("%d regions are torn, want the second one", g.state.Torn)
	}
	tear(8192)
	b.release()
	g.until("snapshot answered", func() bool { return done })
	if err != nil || g.state.Torn != 0 {
		t.Errorf("%v; %d regions are torn", err, g.state.Torn)
	}
	if !bytes.Equal(a.read(0, 16*mib), b.read(0, 16*mib)) {
		t.Error("replicas differ")
	}
	g.expectModes("a=RW b=RW")
}

// A snapshot freezes what replicas hold. Where a write has failed they are made the same first, or
// it is refused.
func TestSnapshotOfATornRegion(t *testing.T) {
	const at = 5 * mib
	g := newRig(t, 2, 16*mib).start()
	tear := func() {
		for _, f := range g.fakes {
			f.script = answerWith(wire.Write, block.NoSpace)
		}
		if code := g.finish(g.write(at, 2, 4096)); code != block.NoSpace {
			t.Fatal(code)
		}
		g.fakes[1].write(at, bytes.Repeat([]byte{2}, 2048)) // a part of it arrived there
	}
	differs := false // when the request for a snapshot arrives
	watch := func(h *wire.Header) (block.Code, bool) {
		if h.Type == wire.Control {
			differs = differs || !bytes.Equal(g.fakes[0].read(at, 4096), g.fakes[1].read(at, 4096))
		}
		return block.OK, false
	}
	take := func() (err error) {
		done := false
		g.proc.Post(engine.TakeSnapshot{Request: wire.SnapshotRequest{Name: "s"}, Reply: func(e error) {
			done, err = true, e
		}})
		g.until("snapshot answered", func() bool { return done })
		return err
	}
	tear()
	g.until("the state tells", func() bool { return g.state.Torn == 1 })
	if err := take(); !errors.Is(err, block.NoSpace) {
		t.Errorf("snapshot while there is no space to make replicas the same: %v", err)
	}
	if code := g.finish(g.begin(block.Flush, 0, 0, nil)); code != block.OK {
		t.Errorf("flush after a refused snapshot: %s", code)
	}
	g.fakes[0].script, g.fakes[1].script = watch, watch
	if err := take(); err != nil {
		t.Error(err)
	}
	if differs || g.state.Torn != 0 {
		t.Error("the snapshot was taken while replicas differed")
	}
	// Beside writes that go on failing, or succeed again, it is one or the other.
	for range 3 {
		tear()
		g.fakes[0].script, g.fakes[1].script = watch, watch
		var calls []*call
		for i := range int64(8) {
			calls = append(calls, g.write(at+i*4096, 7, 4096))
		}
		if err := take(); err != nil || differs {
			t.Errorf("snapshot beside writes: %v; replicas differed: %v", err, differs)
		}
		for _, c := range calls {
			if code := g.finish(c); code != block.OK {
				t.Error(code)
			}
		}
	}
	g.expectModes("a=RW b=RW")
}
