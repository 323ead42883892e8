package blockdev

import (
	"context"
	"sync"
)

// looks are the questions to loop devices that are under way. One to a device that does not answer
// keeps its thread, so there is one at most for each: whoever asks meanwhile waits for its answer.
type looks struct {
	mu    sync.Mutex
	under map[int]*answer
}

// answer is what a question gets; err is set when done is closed.
type answer struct {
	done chan struct{}
	err  error
}

// ask asks loop device n and returns its answer, or the context's error.
func (l *looks) ask(ctx context.Context, n int, question func() error) error {
	a := l.begin(n, question)
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *looks) begin(n int, question func() error) *answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.under[n]; a != nil {
		return a
	}
	a := &answer{done: make(chan struct{})}
	if l.under == nil {
		l.under = map[int]*answer{}
	}
	l.under[n] = a
	go func() {
		err := question()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.under, n)
		a.err = err
		close(a.done)
	}()
	return a
}
