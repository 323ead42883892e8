package chain

import "testing"

// A call looks at so many blocks at most, however large a volume is and whatever it holds, and what
// is not used costs nothing.
func TestRangesLookAtABoundedPart(t *testing.T) {
	const data = 3*rangesLook + 5
	b := &Blocks{table: table{layers: make([]layer, 3)}}
	if err := b.m.resize(1 << 40); err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	const first = 7 * mapPage
	b.m.setLower(first, first+data, 1)
	calls, at := 0, int64(first*blockSize)
	for off := int64(0); off >= 0; calls++ {
		page, next := b.Ranges(off, 1)
		for _, r := range page {
			if r[0] != at {
				t.Fatalf("call %d: range at %d, want %d", calls, r[0], at)
			}
			at = r[1]
		}
		if next >= 0 && next <= off {
			t.Fatalf("call %d from %d goes on at %d", calls, off, next)
		}
		off = next
	}
	if at != (first+data)*blockSize || calls != 4 {
		t.Errorf("%d calls found data up to %d, want 4 and %d", calls, at, int64(first+data)*blockSize)
	}
}
