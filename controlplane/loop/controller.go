package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// backoffFirst and backoffMost bound the retry of a failing step: quick enough for a passing
	// fault, slow enough that a lasting one costs nothing.
	backoffFirst = 50 * time.Millisecond
	backoffMost  = 30 * time.Second
	// callSettle is how long after a Call the loop looks again when nothing wakes it earlier.
	callSettle = time.Second
	// defaultWorkers reconcile different objects of a kind at once; one object is never reconciled
	// twice at once.
	defaultWorkers = 8
	// stepTimeout bounds one gather-decide-apply step, so that a hung peer cannot hold a worker for
	// ever.
	stepTimeout = 2 * time.Minute
)

// Controller describes how objects of one kind are looked after. T is the pointer type of the kind,
// G what Gather collects for Decide.
type Controller[T client.Object, G any] struct {
	// Name identifies the controller in logs, metrics and as source component of events.
	Name string
	// Source is the source component of its events if that is not Name.
	Source string
	// New returns an empty object of the kind.
	New func() T
	// Gather reads what Decide needs. An error ends the step; it is retried with back-off.
	Gather func(ctx context.Context, object T) (G, error)
	// GatherAll, if set, adds what most decisions do without because it costs much, such as all nodes
	// of the cluster (Decision.Lacks).
	GatherAll func(ctx context.Context, object T, gathered G) (G, error)
	// Decide is pure. It may edit only the status of object.
	Decide func(now time.Time, object T, gathered G) Decision
	// Note, if set, remembers what each decision has noted.
	Note func(object T, note any)
	// Carry carries out the order of a Call that Decide asks for; object and gathered are what Decide
	// was given, and belong to the cache.
	Carry func(ctx context.Context, object T, gathered G, order any) error
	// Reserve takes what a Reserving change needs. done is told how the change ended, once; nil: what
	// it needs is not there any more, nothing is changed, and the loop looks again after
	// Decision.After, or at once.
	Reserve func(ctx context.Context, object T, gathered G, change Change) (done func(err error), err error)
	// Conditions returns the conditions in the object's status, for events; nil when the kind has
	// none.
	Conditions func(object T) []Condition
	// SharedStatus: somebody else writes other parts of the kind's status, so this controller writes
	// only what it changes.
	SharedStatus bool
	// Gone, if set, is told about an object that no longer exists, to drop what is held in memory
	// for it.
	Gone func(ctx context.Context, key client.ObjectKey)
	// Watches are the other kinds whose changes wake objects of this kind.
	Watches []Watch
	// Wakeups are news from outside Kubernetes (a data plane stream).
	Wakeups []Wakeups
	// Workers is the number of objects reconciled at once; 0 means defaultWorkers.
	Workers int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Wakeups are a channel of news from outside Kubernetes.
type Wakeups struct {
	From <-chan event.GenericEvent
	// Names of the objects that a piece of news is for; nil: the one that it names.
	Names func(about client.Object) []string
}

// By are the wake-ups of the objects that a channel names.
func By(from <-chan event.GenericEvent) []Wakeups { return []Wakeups{{From: from}} }

// Watch wakes objects of a controller's kind when an object of another kind changes.
type Watch struct {
	object client.Object
	// names of the objects to wake when an object was made or removed.
	names func(client.Object) []string
	// updated names those to wake after an update.
	updated func(before, after client.Object) []string
	// elsewhere: the objects to wake are in the manager's namespace, wherever the changed one is.
	elsewhere bool
	// within is how long a wake-up may wait for further ones; 0: it does not.
	within time.Duration
}

// Watching watches objects of the type of proto. names returns the names (in the same namespace as
// the changed object, or in the manager's for cluster-wide kinds, see Setup) of the objects to
// wake; after an update those of the object before and of the object after it.
//
// An object that many others depend on and that changes often is better watched with
// WatchingChanges: what a change costs must not grow with the number of objects it does not
// concern.
func Watching[O client.Object](proto O, names func(changed O) []string) Watch {
	return WatchingChanges(proto, func(O, O) bool { return true }, names)
}

// WatchingChanges is Watching for updates by which something that matters has changed. It costs the
// API server nothing less, but those not concerned are not woken.
func WatchingChanges[O client.Object](proto O, matters func(before, after O) bool, names func(O) []string) Watch {
	w := WatchingUpdates(proto, names, func(before, after O) []string {
		if !matters(before, after) {
			return nil
		}
		return append(names(before), names(after)...)
	})
	return w
}

// WatchingUpdates is Watching where an update says by itself whom it concerns.
func WatchingUpdates[O client.Object](proto O, names func(O) []string, updated func(before, after O) []string) Watch {
	return Watch{
		object:  proto,
		names:   func(o client.Object) []string { return names(o.(O)) },
		updated: func(before, after client.Object) []string { return updated(before.(O), after.(O)) },
	}
}

// Within lets wake-ups wait up to d, so that many changes soon after each other cost one look. It
// is for what is only counted.
func (w Watch) Within(d time.Duration) Watch {
	w.within = d
	return w
}

// Elsewhere has objects of the manager's namespace woken, not of that of the changed object: it is
// for users of the system, who have namespaces of their own.
func (w Watch) Elsewhere() Watch {
	w.elsewhere = true
	return w
}

// Changed is a comparison for WatchingChanges by what a view of the object shows.
func Changed[O client.Object, V comparable](view func(O) V) func(before, after O) bool {
	return func(before, after O) bool { return view(before) != view(after) }
}

// ByOwner names the owners of the given kind, e.g. "InstanceManager".
func ByOwner[O client.Object](kind string) func(O) []string {
	return func(o O) []string {
		var names []string
		for _, ref := range o.GetOwnerReferences() {
			if ref.Kind == kind {
				names = append(names, ref.Name)
			}
		}
		return names
	}
}

// ByLabel names the value of a label, e.g. the volume of a replica.
func ByLabel[O client.Object](key string) func(O) []string {
	return func(o O) []string {
		if v := o.GetLabels()[key]; v != "" {
			return []string{v}
		}
		return nil
	}
}

// BySameName names the object of the same name.
func BySameName[O client.Object]() func(O) []string {
	return func(o O) []string { return []string{o.GetName()} }
}

// Registration is a controller as Setup registers it: who looks at its objects, and what wakes
// them.
type Registration struct {
	// Name of the controller.
	Name string
	// For is an empty object of its kind.
	For client.Object
	// Reconciler makes one step for an object.
	Reconciler reconcile.Reconciler
	// RateLimiter says when a failed step is tried again.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
	// Workers is the number of objects reconciled at once.
	Workers int
	// Sources are the kinds, other than the own one, whose changes wake objects.
	Sources []Source
	// Wakeups are those from outside Kubernetes. Whoever sends them may know no more of an object than
	// its name: it is in Namespace then.
	Wakeups   []Wakeups
	Namespace string
}

// Woken names the objects that a piece of news is for.
func (r Registration) Woken(w Wakeups, about client.Object) (out []reconcile.Request) {
	names := []string{about.GetName()}
	if w.Names != nil {
		names = w.Names(about)
	}
	for _, name := range names {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{
			Namespace: cmp.Or(about.GetNamespace(), r.Namespace), Name: name}})
	}
	return out
}

// Source is a kind that is watched, and whom its changes wake.
type Source struct {
	Object  client.Object
	Handler handler.EventHandler
}

// Registrar is a manager that runs the controllers itself: a simulated one.
type Registrar interface {
	Register(r Registration) error
}

// Setup registers the controller with a manager. Objects woken by a cluster-wide kind (a Kubernetes
// Node) are looked for in namespace; objects woken by a namespaced one in its own namespace.
func Setup[T client.Object, G any](mgr ctrl.Manager, namespace string, c Controller[T, G]) error {
	//lint:ignore SA1019 clients of the reference read core/v1 events, which only the old recorder writes
	events := mgr.GetEventRecorderFor(cmp.Or(c.Source, c.Name))
	r, err := NewReconciler(c, mgr.GetClient(), events)
	if err != nil {
		return err
	}
	reg := Registration{
		Name: c.Name, For: c.New(), Reconciler: r, Workers: c.Workers, Wakeups: c.Wakeups, Namespace: namespace,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](backoffFirst,
			backoffMost),
	}
	if reg.Workers == 0 {
		reg.Workers = defaultWorkers
	}
	for _, w := range c.Watches {
		reg.Sources = append(reg.Sources, Source{w.object, w.handler(namespace)})
	}
	if own, ok := mgr.(Registrar); ok {
		return own.Register(reg)
	}
	return reg.complete(mgr)
}

// complete hands the controller to controller-runtime.
func (r Registration) complete(mgr ctrl.Manager) error {
	skipNameValidation := true // a process may lead, lose the lease and lead again
	b := ctrl.NewControllerManagedBy(mgr).Named(r.Name).For(r.For).WithOptions(controller.Options{
		MaxConcurrentReconciles: r.Workers,
		SkipNameValidation:      &skipNameValidation,
		ReconciliationTimeout:   stepTimeout,
		RateLimiter:             r.RateLimiter,
	})
	for _, s := range r.Sources {
		b = b.Watches(s.Object, s.Handler)
	}
	for _, w := range r.Wakeups {
		b = b.WatchesRawSource(source.Channel(w.From, handler.EnqueueRequestsFromMapFunc(
			func(_ context.Context, about client.Object) []reconcile.Request { return r.Woken(w, about) })))
	}
	if err := b.Complete(r.Reconciler); err != nil {
		return fmt.Errorf("register %s: %w", r.Name, err)
	}
	return nil
}

// handler wakes whom a change concerns.
func (w Watch) handler(namespace string) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	wake := func(q queue, o client.Object, names []string) {
		in := namespace
		if ns := o.GetNamespace(); ns != "" && !w.elsewhere {
			in = ns
		}
		for _, name := range names {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: in, Name: name}}, w.within)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { wake(q, e.Object, w.names(e.Object)) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { wake(q, e.Object, w.names(e.Object)) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			wake(q, e.ObjectNew, w.updated(e.ObjectOld, e.ObjectNew))
		},
	}
}

// NewReconciler returns the loop without a manager around it, for tests that step it by hand.
func NewReconciler[T client.Object, G any](c Controller[T, G], cl client.Client,
	events record.EventRecorder) (*Reconciler[T, G], error) {
	if c.Name == "" || c.New == nil || c.Gather == nil || c.Decide == nil {
		return nil, errors.New("loop: Controller needs Name, New, Gather and Decide")
	}
	if what := acting(reflect.TypeFor[G](), map[reflect.Type]bool{}); what != "" {
		return nil, fmt.Errorf("loop: what %s decides by has a %s: name an order instead", c.Name, what)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Reconciler[T, G]{Controller: c, client: cl, events: events, memory: map[client.ObjectKey]*memory{}}, nil
}

// acting names what of a type of this module is no plain data, empty if nothing is: a function, a
// channel, an interface, or what has a lock.
func acting(t reflect.Type, known map[reflect.Type]bool) string {
	if known[t] {
		return ""
	}
	known[t] = true
	switch t.Kind() {
	case reflect.Func, reflect.Chan:
		return t.String()
	case reflect.Interface:
		if t.NumMethod() > 0 && t != reflect.TypeFor[error]() {
			return t.String()
		}
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return acting(t.Elem(), known)
	case reflect.Map:
		return cmp.Or(acting(t.Key(), known), acting(t.Elem(), known))
	case reflect.Struct:
		if t.PkgPath() == "sync" {
			return t.String()
		}
		for i := 0; i < t.NumField() && (t.PkgPath() == "" || strings.HasPrefix(t.PkgPath(), "ankole.storage/")); i++ {
			if what := acting(t.Field(i).Type, known); what != "" {
				return what
			}
		}
	}
	return ""
}

// Reconciler runs the steps of a Controller. It is safe for concurrent use for different objects.
type Reconciler[T client.Object, G any] struct {
	Controller[T, G]
	client client.Client
	events record.EventRecorder

	mu     sync.Mutex
	memory map[client.ObjectKey]*memory
}

// memory is what the loop remembers of an object between steps; losing it costs only a look too
// many.
type memory struct {
	pending *expectation
	writes  int // without a settled step in between
}

func (r *Reconciler[T, G]) remember(key client.ObjectKey) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.memory[key]
	if m == nil {
		m = &memory{}
		r.memory[key] = m
	}
	return m
}

func (r *Reconciler[T, G]) forget(key client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memory, key)
}
