package crash

import (
	"bytes"
	"strings"
	"testing"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/test/rig"
	"ankole.storage/test/seeded"
)

const mib = 1 << 20

// TestMirror writes at every kind of alignment and reads it back, then again after a clean restart.
func TestMirror(t *testing.T) {
	t.Parallel()
	v := rig.New(t, 3, 64*mib)
	v.StartEngine()
	c := v.Dial()
	model := make([]byte, v.Size)
	src := seeded.New(t, "a volume reads what was written, at any alignment, after a restart too")
	src.Seed(1)
	r := src.Rand(2)
	for range 300 {
		n := 512 * (1 + r.IntN(64))
		if r.IntN(10) == 0 {
			n = 512 * (1 + r.IntN(4000))
		}
		off := int64(r.IntN(int(v.Size)-n)) &^ 511
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(r.Uint32())
		}
		switch r.IntN(6) {
		case 0:
			clear(p)
			if err := c.WriteZeroes(off, int64(n)); err != nil {
				t.Fatal(err)
			}
		default:
			if _, err := c.WriteAt(p, off); err != nil {
				t.Fatal(err)
			}
		}
		copy(model[off:], p)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	check(t, v, model)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	v.StopEngine()
	v.StartEngine()
	check(t, v, model)
	s, err := v.State()
	if err != nil || rig.Modes(s)[enginev1.Mode_MODE_RW] != 3 {
		t.Fatalf("after a clean restart: %v %v", s, err)
	}
}

// check compares the whole volume with the model, through a connection of its own.
func check(t *testing.T, v *rig.Volume, model []byte) {
	t.Helper()
	c := v.Dial()
	p := make([]byte, mib)
	for off := int64(0); off < v.Size; off += mib {
		if _, err := c.ReadAt(p, off); err != nil {
			t.Fatalf("read at %d: %v", off, err)
		}
		if !bytes.Equal(p, model[off:off+mib]) {
			for i := range p {
				if p[i] != model[off+int64(i)] {
					t.Fatalf("content differs at %d", off+int64(i))
				}
			}
		}
	}
}

// TestOrderlyStop asks replicas and engine to end at once, replicas first: nobody is dropped, the
// copies are equal, and the next start finds all of them in the set, with what was written, and
// compares nothing.
func TestOrderlyStop(t *testing.T) {
	t.Parallel()
	v := rig.New(t, 3, 16*mib)
	v.StartEngine()
	c := v.Dial()
	model := make([]byte, v.Size)
	for i := range 3 * mib {
		model[i] = byte(i>>9 + i*7)
	}
	if _, err := c.WriteAt(model[:3*mib], 0); err != nil {
		t.Fatal(err)
	}
	before := v.Witness().Record().Generation
	v.StopEverything()
	if after := v.Witness().Record(); after.Generation != before || len(after.Members) != 3 {
		t.Fatalf("P2, an orderly stop: the set changed from generation %d to %v, want 3 members of the same", before, after)
	}
	identical(t, v.Replicas...)
	for _, r := range v.Replicas {
		r.Start()
	}
	v.StartEngine()
	check(t, v, model)
	s, err := v.State()
	if err != nil || rig.Modes(s)[enginev1.Mode_MODE_RW] != 3 {
		t.Fatalf("P2, started after an orderly stop: replicas %v, %v; want all 3 in sync", rig.Modes(s), err)
	}
	if said := v.Engine().Log(); strings.Contains(said, "comparing") {
		t.Errorf("P4, started after an orderly stop: regions were compared, none should be\n%s", said)
	}
}
