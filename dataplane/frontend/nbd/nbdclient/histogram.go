package nbdclient

import (
	"math/bits"
	"time"
)

// Histogram counts durations in buckets an eighth of a power of two wide: within 12 % of the truth,
// without allocating. The zero value is empty.
type Histogram struct {
	buckets [buckets]int64
	count   int64
	sum     time.Duration
	max     time.Duration
}

const (
	subBits = 3
	buckets = (64 - subBits + 1) << subBits
)

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - subBits
	return (shift+1)<<subBits + int(v>>shift)&(1<<subBits-1)
}

// lowest is the smallest duration of a bucket.
func lowest(b int) time.Duration {
	if b < 1<<subBits {
		return time.Duration(b)
	}
	shift := b>>subBits - 1
	return time.Duration((1<<subBits | b&(1<<subBits-1)) << shift)
}

// Add counts d.
func (h *Histogram) Add(d time.Duration) {
	h.buckets[bucketOf(d)]++
	h.count++
	h.sum += d
	h.max = max(h.max, d)
}

// Count returns how many durations were added.
func (h *Histogram) Count() int64 { return h.count }

// Max returns the longest.
func (h *Histogram) Max() time.Duration { return h.max }

// Mean returns the average; 0 when empty.
func (h *Histogram) Mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return h.sum / time.Duration(h.count)
}

// Quantile returns the duration that a share q (0 to 1) does not exceed, rounded down to its
// bucket; 0 when empty.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := int64(q * float64(h.count))
	for b, n := range h.buckets {
		if rank -= n; rank < 0 {
			return lowest(b)
		}
	}
	return h.max
}
