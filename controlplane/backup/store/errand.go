package store

import (
	"context"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// mostErrands are under way at a time in one controller: each runs a program on a node.
const mostErrands = 8

// Errand is a question to a store, or an order.
type Errand[R any] struct {
	// Order says what it is: another order is another errand.
	Order string
	// Over: Result or Err is the answer. Began is when the errand began.
	Over   bool
	Began  time.Time
	Ended  time.Time
	Result R
	Err    error
	// Failures counts those of the order in a row.
	Failures int
}

// Is says whether it is an errand of an order that is over.
func (e Errand[R]) Is(order string) bool { return e.Over && e.Order == order }

// Runs says whether it is under way.
func (e Errand[R]) Runs() bool { return e.Order != "" && !e.Over }

// Errands are the errands of a controller: one at a time for each object, by its name. Losing them
// costs that they are done again. Add them to the manager of the controller, which ends them.
type Errands[R any] struct {
	// Wake wakes an object; NewErrands sets it to what Wakeups yields.
	Wake    func(ctx context.Context, name string)
	wakeups chan event.GenericEvent
	slots   chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	latest map[string]Errand[R]
}

// NewErrands returns none.
func NewErrands[R any]() *Errands[R] {
	e := &Errands[R]{wakeups: make(chan event.GenericEvent, 64), slots: make(chan struct{}, mostErrands),
		latest: map[string]Errand[R]{}}
	e.ctx, e.cancel = context.WithCancel(context.Background()) // Start ends it
	e.Wake = func(ctx context.Context, name string) {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
		select {
		case e.wakeups <- event.GenericEvent{Object: o}:
		case <-ctx.Done():
		}
	}
	return e
}

// Start waits for the end of ctx and ends what is under way.
func (e *Errands[R]) Start(ctx context.Context) error {
	<-ctx.Done()
	e.cancel()
	e.running.Wait()
	return nil
}

// Wakeups names objects whose errands are over.
func (e *Errands[R]) Wakeups() <-chan event.GenericEvent { return e.wakeups }

// Of is the latest errand for an object; zero if there was none.
func (e *Errands[R]) Of(name string) Errand[R] {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.latest[name]
}

// Begin begins an errand for an object, unless one is under way.
func (e *Errands[R]) Begin(name, order string, do func(ctx context.Context) (R, error)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.latest[name]
	if before.Runs() || e.ctx.Err() != nil {
		return
	}
	mine := Errand[R]{Order: order, Began: time.Now()}
	if before.Order == order {
		mine.Failures = before.Failures
	}
	e.latest[name] = mine
	e.running.Go(func() {
		mine.Result, mine.Err = e.run(do)
		mine.Over, mine.Ended = true, time.Now()
		if mine.Failures++; mine.Err == nil {
			mine.Failures = 0
		} else {
			slog.Info("backup store", "object", name, "order", order, "error", mine.Err)
		}
		e.mu.Lock()
		if _, wanted := e.latest[name]; wanted {
			e.latest[name] = mine
		}
		e.mu.Unlock()
		e.Wake(e.ctx, name)
	})
}

func (e *Errands[R]) run(do func(ctx context.Context) (R, error)) (R, error) {
	select {
	case e.slots <- struct{}{}:
		defer func() { <-e.slots }()
		return do(e.ctx)
	case <-e.ctx.Done():
		var zero R
		return zero, e.ctx.Err()
	}
}

// Forget forgets the errand of an object that is gone.
func (e *Errands[R]) Forget(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.latest, name)
}
