package engine_test

import (
	"bytes"
	"strings"
	"testing"

	"ankole.storage/dataplane/wire"
)

// Regions dirty at an unclean end are made identical before anything is served; others are not looked at.
func TestResync(t *testing.T) {
	g := newRig(t, 2, 64*mib)
	rec := &wire.RecordMessage{VolumeUUID: volumeUUID, Epoch: 1, Generation: 1, Members: []string{"a", "b"}}
	for i, f := range g.fakes {
		f.record, f.reply.Blank = rec, false
		f.write(4*mib, bytes.Repeat([]byte{byte(i + 1)}, 4096))
		f.write(40*mib, bytes.Repeat([]byte{9}, 4096))
	}
	g.fakes[1].reply.Dirty = []uint32{1}
	// The witness has granted epoch 1 before.
	w, _ := g.witness.Read()
	next := w
	next.Epoch = 1
	if _, ok, err := g.witness.Swap(w, next); !ok || err != nil {
		t.Fatal(ok, err)
	}
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
		w, _ := g.witness.Read()
		next := w
		next.Epoch = 1
		if _, ok, err := g.witness.Swap(w, next); !ok || err != nil {
			t.Fatal(ok, err)
		}
		g.start()
		for _, f := range g.fakes {
			if got := f.read(4*mib, 1)[0]; got != c.want {
				t.Errorf("power lost on %q: %s has content %d, want %d", c.lost, f.name, got, c.want)
			}
		}
	}
}
