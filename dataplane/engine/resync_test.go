package engine_test

import (
	"bytes"
	"strings"
	"testing"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/wire"
)

// Regions dirty at an unclean end are made identical before anything is served; others are not
// looked at.
func TestResync(t *testing.T) {
	g := newRig(t, 2, 64*mib)
	rec := &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 1, Members: []string{"a", "b"}}
	for i, f := range g.fakes {
		f.record, f.reply.Blank = rec, false
		f.write(4*mib, bytes.Repeat([]byte{byte(i + 1)}, 4096))
		f.write(40*mib, bytes.Repeat([]byte{9}, 4096))
	}
	g.fakes[1].reply.Dirty = []uint32{1}
	g.granted()
	g.start()
	if !bytes.Equal(g.fakes[0].read(4*mib, 4*mib), g.fakes[1].read(4*mib, 4*mib)) {
		t.Error("the dirty region differs")
	}
	if n := g.fakes[0].seen(wire.Hash); n != 4 {
		t.Errorf("%d pieces compared for one region of 4 MiB", n)
	}
}

// Where replicas differ, the content of one that has kept its power is taken.
func TestResyncTakesWhatKeptItsPower(t *testing.T) {
	for _, c := range []struct {
		lost string
		want byte
	}{{"", 1}, {"a", 2}, {"b", 1}, {"ab", 3}, {"abc", 1}} {
		g := newRig(t, 3, 64*mib)
		rec := &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 1, Members: []string{"a", "b", "c"}}
		for i, f := range g.fakes {
			f.record, f.reply.Blank, f.reply.Dirty = rec, false, []uint32{1}
			f.reply.PowerLost = strings.Contains(c.lost, f.name)
			f.write(4*mib, bytes.Repeat([]byte{byte(i + 1)}, 4096))
		}
		g.granted()
		g.start()
		for _, f := range g.fakes {
			if got := f.read(4*mib, 1)[0]; got != c.want {
				t.Errorf("power lost on %q: %s has content %d, want %d", c.lost, f.name, got, c.want)
			}
		}
	}
}

// Before anything is compared every replica has the marks of all: what is written to one that
// lacked a mark must be on its account of absent members when the marks are taken away, and is
// compared again if this start is interrupted.
func TestResyncMarksEverywhere(t *testing.T) {
	for name, c := range map[string]struct {
		dirty []uint32
		all   bool
		want  []uint32
	}{
		"some": {dirty: []uint32{1, 9}, want: []uint32{1, 3, 9}},
		"all":  {all: true, want: []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 3, 64*mib)
			rec := &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 1, Members: []string{"a", "b", "c"}}
			for i, f := range g.fakes {
				f.record, f.reply.Blank, f.reply.PowerLost = rec, false, f.name != "b"
				f.write(4*mib, bytes.Repeat([]byte{byte(i + 1)}, 4096))
				f.script = func(h *wire.Header) (block.Code, bool) {
					for _, n := range c.want {
						if h.Type == wire.Hash && !f.marked[n] {
							t.Errorf("%s is asked for hashes and has no mark of region %d", f.name, n)
						}
					}
					return block.OK, false
				}
			}
			g.fakes[1].reply.Dirty, g.fakes[1].reply.DirtyAll = c.dirty, c.all
			g.fakes[2].reply.Dirty = []uint32{3}
			g.granted()
			g.start()
			for _, f := range g.fakes {
				if got := f.read(4*mib, 1)[0]; got != 2 || len(f.marked) != 0 {
					t.Errorf("%s has content %d, want 2, and %d marks in the end", f.name, got, len(f.marked))
				}
			}
		})
	}
}

// All replicas are lost while their regions are marked or compared: the start comes to its end, and
// the engine to its own when the time without a replica is over.
func TestResyncWithoutReplicas(t *testing.T) {
	for _, during := range []wire.Type{wire.MarkDirty, wire.Hash, wire.Flush} {
		t.Run(during.String(), func(t *testing.T) {
			g := newRig(t, 2, 64*mib)
			rec := &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 1, Members: []string{"a", "b"}}
			asked := 0
			for _, f := range g.fakes {
				f.record, f.reply.Blank, f.reply.Dirty = rec, false, []uint32{1, 2, 3}
				f.script = func(h *wire.Header) (block.Code, bool) {
					if h.Type == during {
						asked++
					}
					return block.OK, h.Type == during
				}
			}
			g.granted()
			g.launch()
			g.until("asked", func() bool { return asked > 1 })
			for _, f := range g.fakes {
				f.proc.Kill()
			}
			g.until("the engine has given up", func() bool { return g.state.Fatal })
		})
	}
}

// granted has the witness say that it has granted epoch 1, to an engine before.
func (g *rig) granted() {
	g.t.Helper()
	w, _ := g.witness.Read()
	next := w
	next.Epoch = 1
	if _, ok, err := g.witness.Swap(w, next); !ok || err != nil {
		g.t.Fatal(ok, err)
	}
}
