package chain

import (
	"bytes"
	"testing"

	"ankole.storage/test/seeded"
)

// A merge takes one from every layer above the merged one, whatever the values beside it, and
// leaves the special values alone.
func TestMergeOfTheMap(t *testing.T) {
	src := seeded.New(t, "a merge takes one from every layer above the merged one (docs/design/format-replica.md)")
	src.Seed(7)
	r := src.Rand(7)
	for index := 1; index < inVoid; index++ {
		blocks := int64(1 + r.IntN(3*mapPage))
		var m blockMap
		if err := m.resize(blocks * blockSize); err != nil {
			t.Fatal(err)
		}
		for i := range m.b {
			m.b[i] = byte(r.IntN(256))
			if r.IntN(2) == 0 { // near the border
				m.b[i] = byte(index + r.IntN(4) - 2)
			}
		}
		note(m.used, 0, blocks)
		want := bytes.Clone(m.b)
		for i, v := range want {
			if int(v) > index && v != inVoid && v != inHeadOnly {
				want[i] = v - 1
			}
		}
		m.merge(byte(index))
		if !bytes.Equal(m.b, want) {
			t.Fatalf("layer %d: merged otherwise", index)
		}
		m.free()
	}
}

// How long a loop stands still for a merge, per 64 GiB of a volume that is full.
func BenchmarkMergeOfTheMap(b *testing.B) {
	var m blockMap
	if err := m.resize(64 << 30); err != nil {
		b.Fatal(err)
	}
	defer m.free()
	for i := range m.b {
		m.b[i] = byte(1 + i/7%5)
	}
	note(m.used, 0, int64(len(m.b)))
	for b.Loop() {
		m.merge(200)
	}
}
