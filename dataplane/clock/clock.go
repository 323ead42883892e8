// Package clock is the data path's notion of time: monotonic ticks handed to step cores by whoever
// drives them. A core never reads a clock. In production the loop converts the machine's monotonic
// clock; in the simulator ticks are the position of a seeded event heap.
package clock

import "time"

// Ticks is a point in monotonic time, in nanoseconds since an arbitrary origin of the driving loop.
type Ticks int64

// Never is later than every tick a loop will reach: the deadline of something that does not expire.
const Never Ticks = 1<<63 - 1

// Add returns t moved by d. Never stays Never.
func (t Ticks) Add(d time.Duration) Ticks {
	if t == Never {
		return Never
	}
	return t + Ticks(d)
}

// Sub returns the time from u to t.
func (t Ticks) Sub(u Ticks) time.Duration { return time.Duration(t - u) }

// Min returns the earlier of two ticks.
func Min(a, b Ticks) Ticks {
	if a < b {
		return a
	}
	return b
}
