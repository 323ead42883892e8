// Package runs remembers the failed runs of the processes of volumes, and decides by them when the
// next one may start. It lives in memory only: forgetting it costs an early retry.
package runs

import (
	"maps"
	"slices"
	"sync"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

const (
	// retryFirst and retryMost bound the pause before a process is started again. The first failure
	// costs none, so that I/O goes on soon after a crash.
	retryFirst = time.Second
	retryMost  = time.Minute
	// steadyAfter is how long an engine must serve, or a replica run, for its earlier failures to be
	// forgotten: one that has done so for longer than a start takes can be started, and giving its
	// volume up would end a file system that a restart keeps.
	steadyAfter = 5 * time.Second
)

// Run is what is remembered of the failed runs of an engine or a replica.
type Run struct {
	// Failures in a row.
	Failures int
	// RetryAt is when the next start may be ordered.
	RetryAt time.Time
	// Awaited is since when a running engine's volume waits for the process of a replica to come up;
	// zero if it does not.
	Awaited time.Time
	// Ending is since when the process of a replica whose rebuild has failed is being ended; zero if
	// it is not.
	Ending time.Time
}

// Runs remembers failed runs by volume and instance. Use New. It may be used by several goroutines.
type Runs struct {
	mu   sync.Mutex
	mine map[string]map[string]*history
	// awaited and ending are Run.Awaited and Run.Ending.
	awaited, ending clocks
}

// clocks are since when something has lasted, by volume and replica.
type clocks map[string]map[string]time.Time

// keep returns those of a volume's replicas for which it lasts, and forgets the others.
func (c clocks) keep(now time.Time, volume string, replicas []v1beta2.Replica,
	lasts func(*v1beta2.Replica) bool) map[string]time.Time {
	before, since := c[volume], map[string]time.Time{}
	delete(c, volume)
	for i := range replicas {
		o := &replicas[i]
		if !lasts(o) {
			continue
		}
		if since[o.Name] = now; !before[o.Name].IsZero() {
			since[o.Name] = before[o.Name]
		}
	}
	if len(since) > 0 {
		c[volume] = since
	}
	return since
}

type history struct {
	Run
	lastFailed string // UUID of the last run counted
	goodSince  time.Time
}

// New returns a memory without any.
func New() *Runs {
	return &Runs{mine: map[string]map[string]*history{}, awaited: clocks{}, ending: clocks{}}
}

// Forget forgets a volume.
func (r *Runs) Forget(volume string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mine, volume)
	delete(r.awaited, volume)
	delete(r.ending, volume)
}

// Engine observes an engine, nil if there is none, at now. It serves as long as it has a replica in
// sync.
func (r *Runs) Engine(now time.Time, volume string, e *v1beta2.Engine) Run {
	if e == nil {
		return Run{}
	}
	serves := slices.Contains(slices.Collect(maps.Values(e.Status.ReplicaModeMap)), v1beta2.ReplicaModeRW)
	return r.Observe(now, volume, e.Name, &e.Status.InstanceStatus, serves)
}

// Replicas observes the replicas of a volume at now, and forgets what is remembered of others, and
// of other engines than its own. active is the volume's engine, nil if there is none. It returns
// what is remembered by name.
func (r *Runs) Replicas(now time.Time, volume string, active *v1beta2.Engine, engines []v1beta2.Engine,
	replicas []v1beta2.Replica) map[string]Run {
	out := map[string]Run{}
	awaited, ends := r.times(now, volume, active, replicas)
	for i := range replicas {
		seen := r.Observe(now, volume, replicas[i].Name, &replicas[i].Status.InstanceStatus, true)
		seen.Awaited, seen.Ending = awaited[replicas[i].Name], ends[replicas[i].Name]
		out[replicas[i].Name] = seen
	}
	engine := func(name string) bool {
		return slices.ContainsFunc(engines, func(e v1beta2.Engine) bool { return e.Name == name })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.mine[volume], func(name string, _ *history) bool {
		_, there := out[name]
		return !there && !engine(name)
	})
	return out
}

// times notes since when the processes of replicas are awaited beside a running engine, and since
// when those of failed rebuilds are being ended.
func (r *Runs) times(now time.Time, volume string, e *v1beta2.Engine,
	replicas []v1beta2.Replica) (awaited, ends map[string]time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	serves := e != nil && e.Status.CurrentState == v1beta2.InstanceStateRunning && e.Status.ReplicaModeMap != nil
	awaited = r.awaited.keep(now, volume, replicas, func(o *v1beta2.Replica) bool {
		return serves && o.Spec.DesireState == v1beta2.InstanceStateRunning && o.Spec.FailedAt == "" &&
			o.Status.CurrentState != v1beta2.InstanceStateRunning && o.Status.CurrentState != v1beta2.InstanceStateError
	})
	return awaited, r.ending.keep(now, volume, replicas, Ending)
}

// Observe counts a failed run once, by the identity of its process. good: the process does what it
// is for, if it runs.
func (r *Runs) Observe(now time.Time, volume, name string, s *v1beta2.InstanceStatus, good bool) Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.mine[volume][name]
	switch {
	case s.CurrentState == v1beta2.InstanceStateError:
		if h == nil {
			h = &history{}
			if r.mine[volume] == nil {
				r.mine[volume] = map[string]*history{}
			}
			r.mine[volume][name] = h
		}
		if !h.goodSince.IsZero() && now.Sub(h.goodSince) > steadyAfter {
			h.Failures = 0
		}
		h.goodSince = time.Time{}
		if id := s.UUID; id != "" && id != h.lastFailed {
			h.lastFailed = id
			h.Failures++
			h.RetryAt = now.Add(pauseAfter(h.Failures))
		}
	case s.CurrentState == v1beta2.InstanceStateRunning && good && h != nil:
		if h.goodSince.IsZero() {
			h.goodSince = now
		}
		if now.Sub(h.goodSince) > steadyAfter {
			delete(r.mine[volume], name)
			h = nil
		}
	}
	if h == nil {
		return Run{}
	}
	return h.Run
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

// Ending says of a replica whose rebuild has failed that its process is being ended.
func Ending(r *v1beta2.Replica) bool {
	return r.Spec.FailedAt != "" && r.Spec.HealthyAt == "" && r.Status.CurrentState == v1beta2.InstanceStateStopping
}
