package engine

import (
	"time"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/clock"
)

// What users of the volume do is counted twice: since the start, for who computes rates himself,
// and second by second, for who asks once and wants to know about now.

// Counters count what the frontend asked for since the engine started. Nanos add up how long
// requests took, from the moment they were taken from the frontend to the answer.
type Counters struct {
	Reads, Writes, ReadBytes, WriteBytes, Flushes, Discards uint64
	ReadNanos, WriteNanos                                   uint64
}

// Rates are of the last whole second. Zeroing counts as writing.
type Rates struct {
	// Reads and Writes are requests, ReadBytes and WriteBytes bytes, in that second.
	Reads, Writes, ReadBytes, WriteBytes uint64
	// ReadLatency and WriteLatency are averages of the requests that were answered in it, 0 without
	// one.
	ReadLatency, WriteLatency time.Duration
}

// Measure asks for both; Reply is called at once.
type Measure struct{ Reply func(Counters, Rates) }

// second is what was counted at its end; number 0 is the beginning.
type second struct {
	number clock.Ticks
	at     Counters
}

// seconds remembers the counters at the ends of the last two seconds in which anything was counted
// or asked for, which is all that rates need: no timer runs and nothing is allocated for them.
type seconds struct{ last, before second }

// turn notes the end of the second that was the present one, if it is over. c are the counters
// before now.
func (s *seconds) turn(now clock.Ticks, c *Counters) {
	n := now / clock.Ticks(time.Second)
	if n == s.last.number {
		return
	}
	s.before = s.last
	if n > s.last.number+1 {
		s.before = second{number: n - 1, at: *c} // nothing happened in the second before this one
	}
	s.last = second{number: n, at: *c}
}

// rates are of the second before the present one; turn was called.
func (s *seconds) rates() Rates {
	from, to := &s.before.at, &s.last.at
	r := Rates{Reads: to.Reads - from.Reads, Writes: to.Writes - from.Writes,
		ReadBytes: to.ReadBytes - from.ReadBytes, WriteBytes: to.WriteBytes - from.WriteBytes}
	if r.Reads > 0 {
		r.ReadLatency = time.Duration((to.ReadNanos - from.ReadNanos) / r.Reads)
	}
	if r.Writes > 0 {
		r.WriteLatency = time.Duration((to.WriteNanos - from.WriteNanos) / r.Writes)
	}
	return r
}

// countRequest counts a request that is answered now.
func (q *requests) countRequest(r *request) {
	c := &q.counters
	q.seconds.turn(q.e.now, c)
	took := uint64(q.e.now.Sub(r.arrived))
	switch r.Kind {
	case block.Read:
		c.Reads++
		c.ReadBytes += uint64(r.Len)
		c.ReadNanos += took
	case block.Write, block.WriteZeroes:
		c.Writes++
		c.WriteBytes += uint64(r.Len)
		c.WriteNanos += took
	case block.Flush:
		c.Flushes++
	case block.Discard:
		c.Discards++
	}
}

func (q *requests) measure(m Measure) {
	q.seconds.turn(q.e.now, &q.counters)
	m.Reply(q.counters, q.seconds.rates())
}
