package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ankole.storage/standalone/process"
)

// eventQueue is how many events (exits, probe verdicts) may wait for a worker. Senders give up when
// the worker has ended, so the bound only has to avoid needless blocking.
const eventQueue = 32

// worker owns one Pod.
type worker struct {
	a     *Agent
	log   *slog.Logger
	uid   types.UID
	after <-chan struct{} // closed when the Pod that had the name before is gone

	mu  sync.Mutex // guards what others touch
	pod *v1.Pod
	// gone: removed from the API without our doing.
	gone bool
	// stopGrace bounds the termination of everything when the node stops.
	stopGrace *time.Duration
	running   map[string]*process.Process // for exec and logs

	wakeup  chan struct{}
	events  chan func()
	ended   chan struct{}
	wg      sync.WaitGroup
	seen    *v1.Pod // as of the last step
	vols    volumes
	report  *reporter
	recs    []*record
	status  v1.PodStatus
	verdict *verdict
	ready   bool // volumes have been set up
	dirty   bool // volumes must be looked at again
	retryAt time.Time
	refresh time.Time
}

func newWorker(a *Agent, pod *v1.Pod, after <-chan struct{}) *worker {
	w := &worker{
		a: a, uid: pod.UID, pod: pod, seen: pod, after: after,
		log:     a.cfg.Log.With("pod", pod.Namespace+"/"+pod.Name),
		wakeup:  make(chan struct{}, 1),
		events:  make(chan func(), eventQueue),
		ended:   make(chan struct{}),
		running: map[string]*process.Process{},
		status:  *pod.Status.DeepCopy(),
	}
	w.vols = volumes{a: a, tokens: map[string]token{}}
	w.report = newReporter(a, pod, w.log)
	return w
}

// update hands the worker a new version of its Pod.
func (w *worker) update(pod *v1.Pod) {
	w.mu.Lock()
	w.pod = pod
	w.mu.Unlock()
	w.wake()
}

// remove tells the worker that the Pod is no longer in the API.
func (w *worker) remove() {
	w.mu.Lock()
	w.gone = true
	w.mu.Unlock()
	w.wake()
}

// stop has the worker end all containers within grace, keep quiet about it, and end.
func (w *worker) stop(grace time.Duration) {
	w.mu.Lock()
	w.stopGrace = &grace
	w.mu.Unlock()
	w.wake()
}

func (w *worker) wake() {
	select {
	case w.wakeup <- struct{}{}:
	default:
	}
}

// post has fn run by the worker.
func (w *worker) post(ctx context.Context, fn func()) {
	select {
	case w.events <- fn:
	case <-ctx.Done():
	case <-w.ended:
	}
}

func (w *worker) snapshot() (pod *v1.Pod, gone bool, stop *time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod, w.gone, w.stopGrace
}

// run is the worker's life. When ctx is cancelled it leaves everything as it is: the node has died.
func (w *worker) run(ctx context.Context) {
	defer close(w.ended)
	inner, cancel := context.WithCancel(ctx)
	defer w.wg.Wait()
	defer cancel()
	w.wg.Go(func() { w.report.run(inner) })
	if !w.begin(inner) {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		w.a.awaitResume(ctx)
		if ctx.Err() != nil {
			return
		}
		wake, done := w.step(inner)
		if done {
			return
		}
		if wake.IsZero() {
			wake = time.Now().Add(refreshInterval)
		}
		timer.Reset(time.Until(wake))
		select {
		case <-ctx.Done():
			return
		case <-w.wakeup:
		case <-timer.C:
		case fn := <-w.events:
			fn()
		}
	}
}

// begin waits for a predecessor, asks for admission and makes the Pod's records.
func (w *worker) begin(ctx context.Context) bool {
	if w.after != nil {
		select {
		case <-w.after:
		case <-ctx.Done():
			return false
		}
	}
	pod, _, _ := w.snapshot()
	if w.a.terminal(pod) {
		return true // only its deletion is left to us
	}
	if v := w.a.admit(pod); v != nil {
		w.verdict = v
		w.a.events.Event(pod, v1.EventTypeWarning, v.reason, v.message)
		return true
	}
	w.a.takeAddress(pod)
	w.recs = newRecords(pod, time.Now())
	if err := os.MkdirAll(w.a.podDir(pod), 0o755); err != nil {
		w.log.Error("cannot make the Pod's folder", "error", err)
	}
	return true
}

// step does what is due and returns when to look again.
func (w *worker) step(ctx context.Context) (wake time.Time, done bool) {
	pod, gone, stop := w.snapshot()
	now := time.Now()
	if !maps.Equal(pod.Labels, w.seen.Labels) || !maps.Equal(pod.Annotations, w.seen.Annotations) {
		w.dirty = true // files made from them change
	}
	w.seen = pod
	w.deadline(pod, now)
	ending := gone || stop != nil || pod.DeletionTimestamp != nil || w.verdict != nil
	w.hurry(pod, gone, stop, now)
	p := decide(pod.Spec.RestartPolicy, w.recs, ending, now)
	for _, r := range p.kill {
		w.kill(ctx, pod, r, w.grace(pod, gone, stop), "Stopping container "+r.spec.Name)
	}
	if len(p.start) > 0 && !w.prepare(ctx, pod, now) {
		p.start = nil // until retryAt
	}
	for _, r := range p.start {
		w.start(ctx, pod, r)
	}
	if w.ready && !ending {
		w.refreshVolumes(ctx, pod, now)
	}
	w.enforce(now)
	if len(p.start) > 0 || len(p.kill) > 0 {
		p.wakeAt(now) // the state changed: decide again
	}
	if stop != nil {
		return p.wake, p.done
	}
	if w.a.terminal(pod) && len(w.recs) == 0 && w.verdict == nil {
		w.status = pod.Status // ended in an earlier life of the node: what was reported stands
	} else {
		w.status = w.a.statusOf(pod, &w.status, w.recs, w.verdict, ending, time.Now())
	}
	if gone && p.done {
		return p.wake, true
	}
	w.report.send(w.status, pod.Status, p.done && pod.DeletionTimestamp != nil)
	return w.nextWake(p), false
}

// nextWake adds the worker's own deadlines to the plan's.
func (w *worker) nextWake(p plan) time.Time {
	p.wakeAt(w.retryAt)
	p.wakeAt(w.refresh)
	pod, _, _ := w.snapshot()
	if s := pod.Spec.ActiveDeadlineSeconds; s != nil && w.status.StartTime != nil && w.verdict == nil {
		p.wakeAt(w.status.StartTime.Add(time.Duration(*s) * time.Second))
	}
	return p.wake
}

// deadline fails a Pod that ran longer than its activeDeadlineSeconds.
func (w *worker) deadline(pod *v1.Pod, now time.Time) {
	s := pod.Spec.ActiveDeadlineSeconds
	if s == nil || w.status.StartTime == nil || w.verdict != nil || len(w.recs) == 0 ||
		finished(pod.Spec.RestartPolicy, w.recs) {
		return
	}
	if now.Sub(w.status.StartTime.Time) >= time.Duration(*s)*time.Second {
		w.verdict = &verdict{"DeadlineExceeded", "Pod was active on the node longer than the specified deadline"}
	}
}

// grace is how long a container may take to stop.
func (w *worker) grace(pod *v1.Pod, gone bool, stop *time.Duration) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		seconds = *s
	}
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		seconds = *s
	} else if gone {
		seconds = 1 // removed by force
	}
	grace := time.Duration(max(seconds, 1)) * time.Second
	if stop != nil {
		grace = min(grace, *stop)
	}
	return grace
}

// hurry shortens terminations that are under way when the grace period has become shorter.
func (w *worker) hurry(pod *v1.Pod, gone bool, stop *time.Duration, now time.Time) {
	if !gone && stop == nil && pod.DeletionTimestamp == nil {
		return
	}
	at := now.Add(w.grace(pod, gone, stop))
	for _, r := range w.recs {
		if r.killing && at.Before(r.killAt) {
			r.killAt = at
		}
	}
}

// prepare sets up networks and volumes before the first container. Failing is normal while a Secret
// is missing.
func (w *worker) prepare(ctx context.Context, pod *v1.Pod, now time.Time) bool {
	if w.ready {
		return true
	}
	if now.Before(w.retryAt) && !w.dirty {
		return false
	}
	w.dirty = false
	if err := w.a.attachNetworks(ctx, pod); err != nil {
		w.retryAt = now.Add(retryInterval)
		w.a.events.Event(pod, v1.EventTypeWarning, "FailedCreatePodSandBox", err.Error())
		w.log.Warn("networks not ready", "error", err)
		return false
	}
	if err := w.vols.set(ctx, pod); err != nil {
		w.retryAt = now.Add(retryInterval)
		w.a.events.Event(pod, v1.EventTypeWarning, "FailedMount", err.Error())
		w.log.Warn("volumes not ready", "error", err)
		return false
	}
	w.ready, w.retryAt, w.refresh = true, time.Time{}, w.nextRefresh(now)
	return true
}

// nextRefresh is when volumes must be looked at again without an event.
func (w *worker) nextRefresh(now time.Time) time.Time {
	next := now.Add(refreshInterval)
	if !w.vols.refresh.IsZero() && w.vols.refresh.Before(next) {
		next = w.vols.refresh
	}
	return next
}

func (w *worker) refreshVolumes(ctx context.Context, pod *v1.Pod, now time.Time) {
	if !w.dirty && now.Before(w.refresh) {
		return
	}
	w.dirty = false
	w.refresh = w.nextRefresh(now)
	if err := w.vols.set(ctx, pod); err != nil {
		w.log.Warn("volumes could not be refreshed", "error", err)
		w.refresh = now.Add(retryInterval)
		return
	}
	w.refresh = w.nextRefresh(now)
}

// touch has the worker look at the volumes again and retry what waited for an object. It never
// blocks: if the queue is full, the periodic refresh sees the change.
func (w *worker) touch() {
	select {
	case w.events <- w.sourcesChanged:
	default:
	}
}

func (w *worker) sourcesChanged() {
	w.dirty, w.retryAt = true, time.Time{}
	for _, r := range w.recs {
		if r.reason == "CreateContainerConfigError" {
			r.notBefore = time.Time{}
		}
	}
}

// kill begins to end a container: preStop hook, SIGTERM, and SIGKILL after the grace period.
func (w *worker) kill(ctx context.Context, pod *v1.Pod, r *record, grace time.Duration, why string) {
	r.killing, r.hard = true, false
	r.killAt = time.Now().Add(grace)
	r.ready = false
	r.probes.cancel()
	w.a.events.Event(pod, v1.EventTypeNormal, "Killing", why)
	proc := r.proc
	hook := r.spec.Lifecycle
	if hook == nil || hook.PreStop == nil {
		proc.Signal(syscall.SIGTERM)
		return
	}
	w.wg.Go(func() {
		hookCtx, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		if err := w.a.runHook(hookCtx, pod, r.spec, hook.PreStop, proc); err != nil {
			w.a.events.Event(pod, v1.EventTypeWarning, "FailedPreStopHook", err.Error())
		}
		proc.Signal(syscall.SIGTERM)
	})
}

// enforce sends SIGKILL to containers whose grace is over.
func (w *worker) enforce(now time.Time) {
	for _, r := range w.recs {
		if r.state == running && r.killing && !r.hard && !now.Before(r.killAt) {
			r.hard = true
			r.proc.Kill()
		}
	}
}

// cleanup removes the Pod's folder when it is gone for good.
func (w *worker) cleanup() {
	pod, _, _ := w.snapshot()
	if err := os.RemoveAll(w.a.podDir(pod)); err != nil {
		w.log.Warn("cannot remove the Pod's folder", "error", err)
	}
}

func (w *worker) String() string {
	pod, _, _ := w.snapshot()
	return fmt.Sprintf("%s/%s", pod.Namespace, pod.Name)
}
