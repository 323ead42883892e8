package posix

import (
	"sync"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/loop"
)

// inbox is where other goroutines leave completions and messages for the loop's thread.
type inbox struct {
	mu     sync.Mutex
	items  []loop.Done
	asleep bool // the loop is about to block, or blocks, in epoll
	stop   bool
	efd    int
}

// put is for messages from anyone; it holds the lock while it wakes the loop, so that Close can
// take the eventfd away.
func (b *inbox) put(d loop.Done) {
	b.mu.Lock()
	b.items = append(b.items, d)
	b.wakeLocked()
	b.mu.Unlock()
}

// complete is put for workers, which Close waits for: the loop does not wake up into a held lock.
func (b *inbox) complete(d loop.Done) {
	b.mu.Lock()
	b.items = append(b.items, d)
	wake := b.asleep
	b.asleep = false
	b.mu.Unlock()
	if wake {
		unix.Write(b.efd, one[:])
	}
}

// resume takes interrupt back.
func (b *inbox) resume() {
	b.mu.Lock()
	b.stop = false
	b.mu.Unlock()
}

// interrupt makes Reap return until resume, even with nothing to report.
func (b *inbox) interrupt() {
	b.mu.Lock()
	b.stop = true
	b.wakeLocked()
	b.mu.Unlock()
}

var one = [8]byte{1}

// wakeLocked writes the eventfd if the loop sleeps; only the first of a burst does.
func (b *inbox) wakeLocked() {
	if b.asleep && b.efd >= 0 {
		b.asleep = false
		unix.Write(b.efd, one[:])
	}
}

// sleep announces that the loop is going to block; false means there is something to collect
// instead.
func (b *inbox) sleep() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.items) > 0 || b.stop {
		return false
	}
	b.asleep = true
	return true
}

func (b *inbox) interrupted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stop
}

// take returns what was put, and keeps the empty slice for what comes next.
func (b *inbox) take(empty []loop.Done) []loop.Done {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asleep = false
	got := b.items
	b.items = empty
	return got
}

// queue is a ring of completions that have not been reaped.
type queue struct {
	buf  []loop.Done
	head int
	n    int
}

func (q *queue) len() int { return q.n }

func (q *queue) push(d loop.Done) {
	if q.n == len(q.buf) {
		bigger := make([]loop.Done, max(64, 2*len(q.buf)))
		for i := range q.n {
			bigger[i] = q.buf[(q.head+i)%len(q.buf)]
		}
		q.buf, q.head = bigger, 0
	}
	q.buf[(q.head+q.n)%len(q.buf)] = d
	q.n++
}

func (q *queue) drain(dst []loop.Done) int {
	n := min(len(dst), q.n)
	for i := range n {
		dst[i] = q.buf[q.head]
		q.buf[q.head] = loop.Done{}
		q.head = (q.head + 1) % len(q.buf)
	}
	q.n -= n
	return n
}
