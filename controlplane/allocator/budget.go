package allocator

import (
	"context"
	"sync"
	"time"
)

// Budgets releases the disruption budgets of nodes one after the other. Use NewBudgets. It is safe
// for concurrent use.
type Budgets struct {
	now func() time.Time
	// turn is held from the look at the live objects until the deletion has ended.
	turn chan struct{}

	mu sync.Mutex
	// uncertain are the nodes whose budget may be gone although it is shown, and until when that is
	// assumed.
	uncertain map[string]time.Time
}

// NewBudgets returns one that has released nothing. now is the clock; nil means time.Now.
func NewBudgets(now func() time.Time) *Budgets {
	if now == nil {
		now = time.Now
	}
	return &Budgets{now: now, turn: make(chan struct{}, 1), uncertain: map[string]time.Time{}}
}

// Release lets the budget of a node be deleted if allowed says so, with no other release until done
// was told how that ended; nil: it may not be deleted. allowed reads live, and counts the nodes in
// released as without a budget.
func (b *Budgets) Release(ctx context.Context, node string,
	allowed func(ctx context.Context, released map[string]bool) (bool, error)) (done func(error), err error) {
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if ok, err := allowed(ctx, b.released()); !ok || err != nil {
		<-b.turn
		return nil, err
	}
	return func(err error) {
		b.done(node, err)
		<-b.turn
	}, nil
}

// done notes a deletion that ended without a clear answer. One that was done is seen by everybody
// who reads live.
func (b *Budgets) done(node string, err error) {
	if err == nil || refused(err) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uncertain[node] = b.now().Add(uncertainFor)
}

func (b *Budgets) released() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]bool{}
	for node, until := range b.uncertain {
		if !b.now().Before(until) {
			delete(b.uncertain, node)
			continue
		}
		out[node] = true
	}
	return out
}
