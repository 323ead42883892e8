// Package sim runs the whole data path in one goroutine on simulated time, disks and network,
// decided by one seed.
//
// The cores are the real ones: engine, replica, quorum, wire and chain. Only the loop below them is
// different: a heap of events stands for time, memory disks that can lose what was not synced stand
// for disks, byte queues for connections. Clients write and read at random while faults of the
// Atlas come and go; checkers know what each read may return and what must be true in the end. The
// same seed gives the same history, so a violation is a command that anyone can repeat.
//
// To add to it: Actions are what clients ask for, Chores what operators do beside them, Atlas what
// goes wrong, Checks what must hold when all is healed. docs/design/simulation.md has them in
// tables.
package sim

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"ankole.storage/dataplane/clock"
)

// World is simulated time and everything in it.
type World struct {
	// Rand decides how long everything takes. What clients do and which faults come is drawn
	// elsewhere, so that leaving one out changes little else.
	Rand  *rand.Rand
	now   clock.Ticks
	queue events
	seq   uint64
	trace uint64
	// Steps counts core steps, for reports.
	Steps int
	// Midway counts blocking calls that the death of their process has cut short.
	Midway int

	windows   []*sharedMemory
	nodes     []*Node
	ways      map[[2]int]*way
	listeners map[string]*Process
	attacker  *attacker
	spawned   uint64
	fiber     *fiber // the one that runs
	chunks    [maxChunkClass][][]byte
}

// stream returns the generator for one purpose of a seed.
func stream(seed, purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 0x616e6b6f6c65^purpose<<48))
}

// NewWorld returns an empty world.
func NewWorld(seed uint64) *World {
	return &World{Rand: stream(seed, 0), listeners: map[string]*Process{}, ways: map[[2]int]*way{}}
}

type event struct {
	at  clock.Ticks
	seq uint64
	fn  func()
}

// before: equal times keep the order in which they were made.
func (e *event) before(o *event) bool { return e.at < o.at || (e.at == o.at && e.seq < o.seq) }

// events is a binary heap; container/heap would allocate for every event.
type events []event

func (q *events) push(e event) {
	h := append(*q, e)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
	*q = h
}

func (q *events) pop() event {
	h := *q
	top, e := h[0], h[len(h)-1]
	h[len(h)-1] = event{}
	h = h[:len(h)-1]
	*q = h
	if len(h) == 0 {
		return top
	}
	i := 0
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&e) {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = e
	return top
}

// After calls fn when d has passed.
func (w *World) After(d time.Duration, fn func()) {
	w.seq++
	w.queue.push(event{w.now.Add(d), w.seq, fn})
}

// Now is the simulated time.
func (w *World) Now() clock.Ticks { return w.now }

// Unix is the time of day in seconds since 1970: the world begins on 1 January 2026.
func (w *World) Unix() int64 { return 1767225600 + int64(time.Duration(w.now)/time.Second) }

// Hash identifies the history so far.
func (w *World) Hash() uint64 { return w.trace }

// note adds to the history's hash.
func (w *World) note(v uint64) {
	hi, lo := bits.Mul64(w.trace^v^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	w.trace = hi ^ lo ^ bits.RotateLeft64(w.trace, 23)
}

func (w *World) noteString(s string) {
	w.note(uint64(len(s)))
	for i := range len(s) {
		w.note(uint64(s[i]))
	}
}

// Between returns a random duration.
func (w *World) Between(a, b time.Duration) time.Duration { return between(w.Rand, a, b) }

func between(r *rand.Rand, a, b time.Duration) time.Duration {
	return a + time.Duration(r.Int64N(int64(b-a)+1))
}

// Until runs events until cond holds. It reports false when nothing is left to happen, or when
// limit has passed.
func (w *World) Until(limit time.Duration, cond func() bool) bool {
	end := w.now.Add(limit)
	for !cond() {
		if len(w.queue) == 0 || w.queue[0].at > end {
			return false
		}
		e := w.queue.pop()
		w.now = e.at
		e.fn()
	}
	return true
}

// maxChunkClass bounds the pool of bytes in flight: 2 MiB is more than any batch of frames.
const maxChunkClass = 22

// chunk returns an empty slice with room for n bytes.
func (w *World) chunk(n int) []byte {
	c := bits.Len(uint(max(n, 64) - 1))
	if c < maxChunkClass {
		if free := w.chunks[c]; len(free) > 0 {
			w.chunks[c] = free[:len(free)-1]
			return free[len(free)-1][:0]
		}
	}
	return make([]byte, 0, 1<<c)
}

// recycle takes a chunk back.
func (w *World) recycle(p []byte) {
	if c := bits.Len(uint(cap(p) - 1)); c < maxChunkClass && cap(p) == 1<<c {
		w.chunks[c] = append(w.chunks[c], p)
	}
}
