package proxy

import (
	"math"
	"testing"
	"time"
)

// TestCloneTimeout: whatever number a client sends, a clone has a deadline that lies ahead, and at
// most the longest.
func TestCloneTimeout(t *testing.T) {
	for seconds, want := range map[int64]time.Duration{
		math.MinInt64: longTimeout, -1: longTimeout, 0: longTimeout, 1: callTimeout + time.Second,
		3600:                             callTimeout + time.Hour,
		int64(longTimeout / time.Second): longTimeout, math.MaxInt64/int64(time.Second) + 1: longTimeout,
		math.MaxInt64: longTimeout,
	} {
		if got := cloneTimeout(seconds); got != want {
			t.Errorf("%d s: %v, want %v", seconds, got, want)
		}
	}
}
