package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/engineclient"
)

const (
	// progressEvery and sizesEvery bound how often figures that change all the time reach the API
	// server: a rebuild's progress reaches the object at most once a second, the growth of the head
	// every ten.
	progressEvery = time.Second
	sizesEvery    = 10 * time.Second
	// suspendGrace is how long I/O must be held back before it is told: agreeing on a new set of
	// replicas holds it back for a moment each time.
	suspendGrace = 2 * time.Second
	// rewatchFirst and rewatchMost bound the pause before a broken stream is opened again; the
	// latter is a default.
	rewatchFirst = 100 * time.Millisecond
	rewatchMost  = 5 * time.Second
	// wakeupBuffer holds wake-ups while the controller's queue takes them; the queue merges them by
	// name.
	wakeupBuffer = 128
)

// Monitor holds one stream of states per running engine and wakes the controller when something
// worth writing changed.
type Monitor struct {
	engines   engineclient.Client
	namespace string
	wakeups   chan event.GenericEvent
	pauseMost time.Duration

	mu      sync.Mutex
	watches map[string]*watch
	closed  bool
	running sync.WaitGroup
}

// watch is the stream of one run of an engine.
type watch struct {
	target engineclient.Target
	run    string
	cancel context.CancelFunc

	latest, published *engineclient.State
	publishedAt       time.Time
	suspendedSince    time.Time // zero while I/O flows
	timer             *time.Timer
	refused           map[string]string
	// notFilled is the engine's refusal to be filled from another volume; zero if there is none.
	notFilled refusal
}

// NewMonitor returns a monitor without streams. Add it to a controller manager, which stops it.
// pauseMost bounds the pause before a broken stream is opened again; 0 means five seconds.
func NewMonitor(engines engineclient.Client, namespace string, pauseMost time.Duration) *Monitor {
	if pauseMost == 0 {
		pauseMost = rewatchMost
	}
	return &Monitor{
		engines: engines, namespace: namespace, pauseMost: pauseMost,
		wakeups: make(chan event.GenericEvent, wakeupBuffer), watches: map[string]*watch{},
	}
}

// Wakeups names engines to look at.
func (m *Monitor) Wakeups() <-chan event.GenericEvent { return m.wakeups }

// Start waits for the end of ctx, then ends all streams and waits for them. It makes the monitor a
// Runnable.
func (m *Monitor) Start(ctx context.Context) error {
	<-ctx.Done()
	m.mu.Lock()
	m.closed = true
	for name := range m.watches {
		m.drop(name)
	}
	m.mu.Unlock()
	m.running.Wait()
	return nil
}

// Watch returns the newest state of an engine's run, opening its stream if there is none; nil until
// the first state came. The second result are the addresses among wanted that the engine refused to
// admit.
func (m *Monitor) Watch(t engineclient.Target, run string, wanted []string) (*engineclient.State, map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.watches[t.Engine]
	if w != nil && (w.target != t || w.run != run) {
		m.drop(t.Engine)
		w = nil
	}
	if w == nil {
		if m.closed {
			return nil, nil
		}
		ctx, cancel := context.WithCancel(context.Background()) // ended by drop
		w = &watch{target: t, run: run, cancel: cancel, refused: map[string]string{}}
		m.watches[t.Engine] = w
		m.running.Go(func() { m.follow(ctx, w) })
	}
	maps.DeleteFunc(w.refused, func(address, _ string) bool { return !slices.Contains(wanted, address) })
	return w.published, maps.Clone(w.refused)
}

// Refused notes the outcome of an order to admit a replica: refusals are remembered while the
// replica is wanted.
func (m *Monitor) Refused(engine, address string, err error) {
	lasting := errors.Is(err, engineclient.ErrPrecondition) || errors.Is(err, engineclient.ErrInvalid) ||
		errors.Is(err, engineclient.ErrNotFound)
	m.mu.Lock()
	w := m.watches[engine]
	if w != nil && lasting {
		w.refused[address] = err.Error()
	}
	m.mu.Unlock()
	if lasting {
		m.wake(context.Background(), engine)
	}
}

// Drop ends the stream of an engine that does not run.
func (m *Monitor) Drop(engine string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(engine)
}

func (m *Monitor) drop(engine string) {
	w := m.watches[engine]
	if w == nil {
		return
	}
	w.cancel()
	if w.timer != nil {
		w.timer.Stop()
	}
	delete(m.watches, engine)
	m.engines.Forget(w.target)
}

func (m *Monitor) follow(ctx context.Context, w *watch) {
	first := min(rewatchFirst, m.pauseMost)
	pause := first
	for ctx.Err() == nil {
		err := m.engines.Watch(ctx, w.target, func(s engineclient.State) {
			pause = first
			m.observe(ctx, w, s)
		})
		if ctx.Err() != nil {
			return
		}
		slog.Info("stream of engine state broke, opening it again", "engine", w.target.Engine, "error", err, "pause", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, m.pauseMost)
	}
}

// observe stores a state and publishes it at once, later or never, by what changed.
func (m *Monitor) observe(ctx context.Context, w *watch, s engineclient.State) {
	m.mu.Lock()
	w.latest = &s
	switch {
	case !s.Suspended:
		w.suspendedSince = time.Time{}
	case w.suspendedSince.IsZero():
		w.suspendedSince = time.Now()
	}
	wait, changed := urgency(w.published, &s)
	if !changed || ctx.Err() != nil {
		m.mu.Unlock()
		return
	}
	if wait -= time.Since(w.publishedAt); wait > 0 {
		m.publishIn(ctx, w, wait)
		m.mu.Unlock()
		return
	}
	m.mu.Unlock()
	m.publish(ctx, w)
}

func (m *Monitor) publish(ctx context.Context, w *watch) {
	m.mu.Lock()
	if ctx.Err() != nil {
		m.mu.Unlock()
		return
	}
	told := *w.latest
	if left := suspendGrace - time.Since(w.suspendedSince); told.Suspended && left > 0 {
		told.Suspended, told.SuspendedReason = false, ""
		m.publishIn(ctx, w, left)
	}
	w.published, w.publishedAt = &told, time.Now()
	m.mu.Unlock()
	m.wake(ctx, w.target.Engine)
}

// publishIn publishes later. The caller holds the lock.
func (m *Monitor) publishIn(ctx context.Context, w *watch, wait time.Duration) {
	if w.timer == nil {
		w.timer = time.AfterFunc(wait, func() { m.publish(ctx, w) })
		return
	}
	w.timer.Reset(wait)
}

func (m *Monitor) wake(ctx context.Context, engine string) {
	e := event.GenericEvent{Object: &v1beta2.Engine{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: engine}}}
	select {
	case m.wakeups <- e:
	case <-ctx.Done():
	}
}

// urgency says how old the published state must be before a newer one replaces it, and whether they
// differ in anything that is written to the object at all.
func urgency(old, now *engineclient.State) (wait time.Duration, changed bool) {
	switch {
	case old == nil || outline(old) != outline(now):
		return 0, true
	case !slices.EqualFunc(old.Replicas, now.Replicas, sameReplica):
		return 0, true
	case !maps.EqualFunc(old.Snapshots, now.Snapshots, sameSnapshot):
		return 0, true
	case !sameBackups(old, now):
		return 0, true
	case old.Restore.Percent != now.Restore.Percent || !maps.Equal(old.Backups, now.Backups):
		return progressEvery, true
	case old.Clone.Percent != now.Clone.Percent || !slices.EqualFunc(old.Replicas, now.Replicas, sameProgress):
		return progressEvery, true
	case !maps.EqualFunc(old.Snapshots, now.Snapshots, func(a, b engineclient.Snapshot) bool {
		return a.SizeBytes == b.SizeBytes
	}):
		return sizesEvery, true
	}
	return 0, false
}

// shape is what of a state is compared at once.
type shape struct {
	size       int64
	endpoint   string
	device     string
	up         bool
	suspended  bool
	why        string
	generation int64
	expanding  bool
	failed     string
	clone      engineclient.Clone
	restore    engineclient.RestoreProgress
	limits     [4]int64
}

func outline(s *engineclient.State) shape {
	clone := s.Clone
	clone.Percent = 0
	restore := s.Restore
	restore.Percent = 0
	return shape{s.SizeBytes, s.Endpoint, s.DeviceID, s.FrontendUp, s.Suspended, s.SuspendedReason, s.Generation,
		s.Expanding, s.LastExpansionError + s.LastExpansionFailedAt, clone, restore, limits(s.Options)}
}

// sameBackups compares backups but for their progress.
func sameBackups(old, now *engineclient.State) bool {
	return maps.EqualFunc(old.Backups, now.Backups, func(a, b engineclient.BackupProgress) bool {
		a.Percent, b.Percent = 0, 0
		return a == b
	})
}

func limits(o engineclient.Options) (out [4]int64) {
	if o.SnapshotMaxCount != nil && o.SnapshotMaxSizeBytes != nil {
		out = [4]int64{int64(*o.SnapshotMaxCount), *o.SnapshotMaxSizeBytes}
	}
	if o.RebuildConcurrency != nil {
		out[2] = int64(*o.RebuildConcurrency)
	}
	if o.RebuildBandwidth != nil {
		out[3] = *o.RebuildBandwidth
	}
	return out
}

func sameReplica(a, b engineclient.Replica) bool {
	return a.Address == b.Address && a.Mode == b.Mode && a.Error == b.Error && a.Lost == b.Lost &&
		samePurge(a.Purge, b.Purge) &&
		(a.Rebuild == nil) == (b.Rebuild == nil) &&
		(a.Rebuild == nil || (a.Rebuild.Running == b.Rebuild.Running && a.Rebuild.State == b.Rebuild.State &&
			a.Rebuild.Error == b.Rebuild.Error))
}

func sameProgress(a, b engineclient.Replica) bool {
	return (a.Rebuild == nil || b.Rebuild == nil || a.Rebuild.Percent == b.Rebuild.Percent) &&
		samePurgeProgress(a.Purge, b.Purge)
}

func sameSnapshot(a, b engineclient.Snapshot) bool {
	return a.Parent == b.Parent && a.Removed == b.Removed && a.UserCreated == b.UserCreated && a.Created == b.Created &&
		slices.Equal(a.Children, b.Children) && maps.Equal(a.Labels, b.Labels)
}

// Latest returns the newest state of an engine's stream, nil if there is none. It is younger than
// what Watch returns, which changes only as fast as it is worth writing. Nobody may change it.
func (m *Monitor) Latest(engine string) *engineclient.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.watches[engine]; w != nil {
		return w.latest
	}
	return nil
}
