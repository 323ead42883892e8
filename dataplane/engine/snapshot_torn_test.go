package engine_test

import (
	"bytes"
	"errors"
	"testing"

	"ankole.storage/block"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

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
