package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"ankole.storage/api/longhorn/v1beta2"
)

// Health is what the devices below one disk say about themselves.
type Health struct {
	// At is when they were asked; zero: never.
	At time.Time
	// Devices is what each one says, by name.
	Devices map[string]v1beta2.DiskHealth
}

// healthWatch asks devices about their health beside the agent's loop: one that does not answer
// holds up nobody. The agent's manager runs it as a Runnable.
type healthWatch struct {
	// ask is Host.Health.
	ask func(ctx context.Context, path string) (map[string]v1beta2.DiskHealth, error)
	now func() time.Time
	// wakeups wake the agent when there is an answer.
	wakeups chan event.GenericEvent

	mu      sync.Mutex
	ctx     context.Context // nil before Start and after its end
	work    sync.WaitGroup
	asked   map[string]time.Time // by path
	answers map[string]Health    // by path
}

func newHealthWatch(ask func(ctx context.Context, path string) (map[string]v1beta2.DiskHealth, error),
	now func() time.Time) *healthWatch {
	return &healthWatch{ask: ask, now: now, wakeups: make(chan event.GenericEvent, 1),
		asked: map[string]time.Time{}, answers: map[string]Health{}}
}

// Start lets questions be asked until ctx ends, and waits for the last of them.
func (w *healthWatch) Start(ctx context.Context) error {
	w.mu.Lock()
	w.ctx = ctx
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.ctx = nil
	w.mu.Unlock()
	w.work.Wait()
	return nil
}

// Of returns the newest answer of the devices below a disk's directory, and has them asked if the
// last question is healthEvery ago; last is when that was, by an earlier process perhaps. The node
// is woken when they have answered.
func (w *healthWatch) Of(node, path string, last time.Time) Health {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.asked[path]; ok {
		last = at
	}
	if w.ctx == nil || w.now().Sub(last) < healthEvery {
		return w.answers[path]
	}
	ctx := w.ctx
	w.asked[path] = w.now()
	w.work.Go(func() {
		devices, err := w.ask(ctx, path)
		if err != nil {
			slog.Info("cannot ask the devices of a disk about their health", "path", path, "err", err)
			return // asked again in healthEvery
		}
		w.mu.Lock()
		w.answers[path] = Health{w.now(), devices}
		w.mu.Unlock()
		select {
		case w.wakeups <- event.GenericEvent{Object: &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}}:
		case <-ctx.Done():
		}
	})
	return w.answers[path]
}

// Forget makes the next question come at once (the setting was off meanwhile).
func (w *healthWatch) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.asked)
	clear(w.answers)
}
