package metrics

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// figuresLife is how long figures are used before they are made anew, however many ask.
	figuresLife = 2 * time.Second
	// gatherTimeout bounds the wait for a kind that nobody has read yet.
	gatherTimeout = 2 * time.Second
)

// errNotLeading: this process has no objects to make figures of.
var errNotLeading = errors.New("this process does not lead, or its cache is not filled yet")

// Board makes the figures of all objects on the leader. It is safe for concurrent use.
type Board struct {
	// Namespace holds the objects; Node is the leader's.
	Namespace, Node string
	// Reader returns the cache of all objects while this process leads, else nil. It is a pointer, the
	// same as long as it is the same cache.
	Reader func() client.Reader
	// States returns what engines have told last; may be nil.
	States States
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mu      sync.Mutex
	from    client.Reader
	made    time.Time
	figures *Figures
	failed  bool
}

func (b *Board) now() time.Time {
	if b.Now == nil {
		return time.Now()
	}
	return b.Now()
}

// Figures returns the newest ones; nobody may change them. An error if this process does not lead.
func (b *Board) Figures(ctx context.Context) (*Figures, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	reader := b.Reader()
	if reader == nil {
		b.from, b.figures = nil, nil
		return nil, errNotLeading
	}
	if age := b.now().Sub(b.made); b.from == reader && b.figures != nil && age >= 0 && age < figuresLife {
		return b.figures, nil
	}
	// A kind that nobody has read yet is waited for: whoever reads it first fills the cache.
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	figures, err := gather(ctx, reader, b.Namespace, b.Node, b.States)
	if (err != nil) != b.failed {
		b.failed = err != nil
		slog.Info("figures of objects for metrics", "err", err)
	}
	if err != nil {
		return nil, err
	}
	b.from, b.made, b.figures = reader, b.now(), figures
	return figures, nil
}
