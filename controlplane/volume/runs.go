package volume

import (
	"sync"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

const (
	// retryFirst and retryMost bound the pause before an engine is started again. The first failure
	// costs none, so that I/O goes on soon after a crash.
	retryFirst = time.Second
	retryMost  = 5 * time.Minute
	// steadyAfter is how long an engine must run for its earlier failures to be forgotten: one that
	// has served for longer than a start takes can be started, and giving its volume up would end a
	// file system that a restart keeps.
	steadyAfter = 5 * time.Second
)

// run is what is remembered of an engine's failed runs. It lives in memory only: forgetting it
// costs an early retry.
type run struct {
	// Failures in a row.
	Failures int
	// RetryAt is when the next start may be ordered.
	RetryAt time.Time
}

// runs remembers failed runs by volume.
type runs struct {
	mu   sync.Mutex
	mine map[string]*history
}

type history struct {
	run
	lastFailed   string // UUID of the last run counted
	runningSince time.Time
}

func newRuns() *runs { return &runs{mine: map[string]*history{}} }

func (r *runs) forget(volume string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mine, volume)
}

// observe counts a failed run once, by the identity of its process.
func (r *runs) observe(now time.Time, volume string, e *v1beta2.Engine) run {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.mine[volume]
	if e == nil {
		return run{}
	}
	switch e.Status.CurrentState {
	case v1beta2.InstanceStateError:
		if h == nil {
			h = &history{}
			r.mine[volume] = h
		}
		if !h.runningSince.IsZero() && now.Sub(h.runningSince) > steadyAfter {
			h.Failures = 0
		}
		h.runningSince = time.Time{}
		if id := e.Status.UUID; id != "" && id != h.lastFailed {
			h.lastFailed = id
			h.Failures++
			h.RetryAt = now.Add(pauseAfter(h.Failures))
		}
	case v1beta2.InstanceStateRunning:
		if h != nil && h.runningSince.IsZero() {
			h.runningSince = now
		}
		if h != nil && now.Sub(h.runningSince) > steadyAfter {
			delete(r.mine, volume)
			h = nil
		}
	}
	if h == nil {
		return run{}
	}
	return h.run
}

// pauseAfter is 0, 1 s, 2 s, 4 s, … up to retryMost.
func pauseAfter(failures int) time.Duration {
	if failures <= 1 {
		return 0
	}
	pause := retryFirst
	for i := 2; i < failures && pause < retryMost; i++ {
		pause *= 2
	}
	return min(pause, retryMost)
}
