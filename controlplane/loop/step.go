package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// restlessAfter writes in a row without a settled step mean that decide does not settle (two
	// controllers fighting, a status that never equals itself). The longest honest chain is a
	// volume with 20 replicas.
	restlessAfter = 100
	// restlessPause slows such an object down, so that it cannot flood the API server.
	restlessPause = 5 * time.Second
	// again is the delay to the next step of an unsettled object; 0 would mean "no requeue".
	again = time.Millisecond
	// staleRetry is the delay after a write that lost against another writer: the cache needs to
	// catch up first.
	staleRetry = 20 * time.Millisecond
)

// Reconcile makes one step for the object named by req.
func (r *Reconciler[T, G]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := req.NamespacedName
	mem := r.remember(key)
	if mem.pending != nil {
		if !mem.pending.met(ctx, r.client, time.Now()) {
			return ctrl.Result{RequeueAfter: mem.pending.next()}, nil
		}
		mem.pending = nil
	}
	object := r.New()
	// It is the cache's: Decide gets a copy.
	if err := r.client.Get(ctx, key, object, client.UnsafeDisableDeepCopy); err != nil {
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, fmt.Errorf("read %T %s: %w", object, key, err)
		}
		r.forget(key)
		if r.Gone != nil {
			r.Gone(ctx, key)
		}
		return ctrl.Result{}, nil
	}
	gathered, err := r.Gather(ctx, object)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather for %T %s: %w", object, key, err)
	}
	wanted := object.DeepCopyObject().(T)
	decision := r.Decide(r.Now(), wanted, gathered)
	if decision.Lacks {
		if gathered, err = r.GatherAll(ctx, object, gathered); err != nil {
			return ctrl.Result{}, fmt.Errorf("gather more for %T %s: %w", object, key, err)
		}
		wanted = object.DeepCopyObject().(T)
		if decision = r.Decide(r.Now(), wanted, gathered); decision.Lacks {
			return ctrl.Result{}, fmt.Errorf("decide for %T %s lacks facts that nobody can gather", object, key)
		}
	}
	if r.Note != nil {
		r.Note(object, decision.Note)
	}
	return r.apply(ctx, mem, object, wanted, gathered, decision)
}

// apply writes the status if it differs, else carries out the change, and says when to look again.
func (r *Reconciler[T, G]) apply(ctx context.Context, mem *memory, object, wanted T, gathered G, d Decision) (
	ctrl.Result, error) {
	if !equality.Semantic.DeepEqual(object, wanted) {
		return r.writeStatus(ctx, mem, object, wanted, d)
	}
	if d.Do == nil || inEffect(d.Do) {
		mem.writes = 0
		return ctrl.Result{RequeueAfter: d.After}, nil
	}
	pending, err := r.carry(ctx, object, gathered, d.Do)
	if lostRace(d.Do, err) {
		r.log(object).Debug("lost a race, looking again", "change", d.Do.String(), "reason", err)
		retry := staleRetry
		if errors.Is(err, errNotReserved) && d.After > retry {
			retry = d.After
		}
		return r.pace(object, mem, retry), nil
	}
	if err != nil {
		if d.FailureReason != "" && !errors.Is(err, ErrTold) {
			r.record(object, Event{Warning: true, Reason: d.FailureReason, Message: err.Error()})
		}
		return ctrl.Result{}, fmt.Errorf("%s: %w", d.Do, err)
	}
	r.log(object).Info("applied", "change", d.Do.String())
	r.record(object, d.Events...)
	if _, isCall := d.Do.(Call); isCall {
		after := d.After
		if after == 0 {
			after = callSettle
		}
		return ctrl.Result{RequeueAfter: after}, nil
	}
	return r.wrote(object, mem, pending), nil
}

// carry carries out a change.
func (r *Reconciler[T, G]) carry(ctx context.Context, object T, gathered G, change Change) (pending *expectation,
	err error) {
	switch c := change.(type) {
	case Call:
		return nil, r.Carry(ctx, object, gathered, c.Order)
	case Reserving:
		done, err := r.Reserve(ctx, object, gathered, c.Change)
		if err != nil {
			return nil, err
		}
		if done == nil {
			return nil, errNotReserved
		}
		err = errInterrupted
		defer func() { done(err) }()
		pending, err = c.apply(ctx, r.client)
		return pending, err
	}
	return change.apply(ctx, r.client)
}

func (r *Reconciler[T, G]) writeStatus(ctx context.Context, mem *memory, object, wanted T, d Decision) (ctrl.Result,
	error) {
	if err := onlyStatusDiffers(object, wanted); err != nil {
		return ctrl.Result{}, err
	}
	var events []Event
	if r.Conditions != nil {
		events = conditionEvents(r.Conditions(object), r.Conditions(wanted))
	}
	if d.Do == nil {
		events = append(events, d.Events...)
	}
	var change Change = UpdateStatus{Object: wanted}
	if r.SharedStatus {
		change = patchStatus{Object: wanted, Before: object}
	}
	pending, err := change.apply(ctx, r.client)
	if lostRace(change, err) {
		return r.pace(object, mem, staleRetry), nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("%s: %w", change, err)
	}
	r.log(object).Debug("status written")
	r.record(object, events...)
	return r.wrote(object, mem, pending), nil
}

// wrote notes a write and says when to look again.
func (r *Reconciler[T, G]) wrote(object T, mem *memory, pending *expectation) ctrl.Result {
	if pending != nil {
		pending.since = time.Now()
	}
	mem.pending = pending
	return r.pace(object, mem, again)
}

// pace counts a write (or a lost one) and gives the delay to the next step: delay, or a pause when
// the object is restless.
func (r *Reconciler[T, G]) pace(object T, m *memory, delay time.Duration) ctrl.Result {
	m.writes++
	if m.writes < restlessAfter {
		return ctrl.Result{RequeueAfter: delay}
	}
	m.writes = 0
	r.log(object).Warn("object does not settle, slowing down; two writers may disagree about it", "writes", restlessAfter)
	return ctrl.Result{RequeueAfter: restlessPause}
}

func (r *Reconciler[T, G]) log(object T) *slog.Logger {
	return slog.With("controller", r.Name, "object", object.GetName())
}

func (r *Reconciler[T, G]) record(object T, events ...Event) {
	for _, e := range events {
		var about client.Object = object
		if e.On != nil {
			about = e.On
		}
		r.events.Event(about, e.kind(), e.Reason, e.Message)
	}
}

// inEffect tells a deletion of what is deleted already and stays, for a finalizer or until its
// kubelet has removed it. It would change nothing, so the next step would ask for it again at once.
func inEffect(change Change) bool {
	if r, ok := change.(Reserving); ok {
		return inEffect(r.Change)
	}
	d, ok := change.(Delete)
	return ok && d.Object.GetDeletionTimestamp() != nil
}

// lostRace tells a write that failed only because the world moved on since it was read.
func lostRace(change Change, err error) bool {
	switch c := change.(type) {
	case Reserving:
		return errors.Is(err, errNotReserved) || lostRace(c.Change, err)
	case Create:
		return apierrors.IsAlreadyExists(err)
	case Update, UpdateStatus, patchStatus:
		return apierrors.IsConflict(err) || apierrors.IsNotFound(err)
	case Delete:
		return apierrors.IsConflict(err)
	}
	return false
}

// onlyStatusDiffers guards the rule that decide edits nothing but the status in place: anything
// else would be lost silently, because only the status is written.
func onlyStatusDiffers(object, wanted client.Object) error {
	if !equality.Semantic.DeepEqual(withoutStatus(object), withoutStatus(wanted)) {
		return fmt.Errorf("decide for %T %s edited more than the status: return loop.Update with a copy instead",
			object, client.ObjectKeyFromObject(object))
	}
	return nil
}

// withoutStatus is the object without its status, to be compared: everything else is shared.
func withoutStatus(o client.Object) any {
	c := reflect.New(reflect.TypeOf(o).Elem())
	c.Elem().Set(reflect.ValueOf(o).Elem())
	if status := c.Elem().FieldByName("Status"); status.IsValid() {
		status.SetZero()
	}
	return c.Interface()
}
