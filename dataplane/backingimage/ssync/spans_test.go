package ssync

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSpans: what has come is counted once, in whichever order and however often.
func TestSpans(t *testing.T) {
	t.Parallel()
	const size = 64
	rapid.Check(t, func(t *rapid.T) {
		var come spans
		var want [size]bool
		for range rapid.IntRange(0, 40).Draw(t, "ranges") {
			begin := rapid.Int64Range(0, size-1).Draw(t, "begin")
			end := rapid.Int64Range(begin+1, size).Draw(t, "end")
			if err := come.add(begin, end); err != nil {
				t.Fatal(err)
			}
			for i := begin; i < end; i++ {
				want[i] = true
			}
			var n int64
			for _, is := range want {
				if is {
					n++
				}
			}
			if come.bytes() != n {
				t.Fatalf("%d bytes of %v, want %d", come.bytes(), come, n)
			}
			for i := 1; i < len(come); i++ {
				if come[i-1].end >= come[i].begin {
					t.Fatalf("%v touch", come)
				}
			}
		}
	})
}

// TestSpansAreBounded: a sender that leaves holes everywhere does not fill the memory.
func TestSpansAreBounded(t *testing.T) {
	t.Parallel()
	var come spans
	for i := range int64(maxSpans) {
		if err := come.add(2*i, 2*i+1); err != nil {
			t.Fatal(err)
		}
	}
	if err := come.add(2*maxSpans, 2*maxSpans+1); err == nil {
		t.Error("one more is counted")
	}
}
