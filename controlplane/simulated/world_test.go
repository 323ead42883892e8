package simulated_test

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
)

// world is a cluster in simulated time: an API server, manager processes with the controllers of
// production, and models of everything else. One goroutine does everything that the seed decides.
type world struct {
	t *testing.T
	// mu is held by the goroutine of the world except while it waits.
	mu    sync.Mutex
	rng   *rand.Rand
	dir   string
	store *store
	// leader is the manager process that leads; nil while none does. agents are those of the nodes.
	leader *process
	agents map[string]*process
	plans  plans
	// reading: a reconciler runs, so that its reads may be interrupted; looking is its controller.
	reading bool
	looking *controller
	// calm: nothing is refused or late by more than a moment any more.
	calm bool
	// verdicts: a check that fails panics.
	verdicts bool
	// afterLook, if set, is called after each look.
	afterLook func()
	// held: rebuilds and copies end when somebody says so.
	held bool
	// events are those that controllers have written.
	events []string
	// worked is when something was last changed for a volume, or another object, by a controller.
	worked  map[string]time.Time
	history []string
	started time.Time
	// inMinute counts the looks since minute.
	minute   time.Time
	inMinute int
	// writes counts the changes that controllers have made, by what is changed.
	writes map[string]int
	// explain: everybody looks at everything, and what is written then is told.
	explain bool
	// values are what limits were, set is when a setting was changed, grown when a volume was.
	values map[string][]seen
	set    map[string]time.Time
	grown  time.Time
	// tellAll: every look and write is noted.
	tellAll bool
	// crowded: the world has so many objects that nothing may go through all of them after each
	// step. What costs are counted, promises are not checked, and there are no agents.
	crowded bool
	counts  counts
	site
}

// plan is something that happens at a time.
type plan struct {
	at  time.Time
	seq int
	do  func()
}

type plans []plan

func (p plans) Len() int { return len(p) }
func (p plans) Less(i, j int) bool {
	return p[i].at.Before(p[j].at) || p[i].at.Equal(p[j].at) && p[i].seq < p[j].seq
}
func (p plans) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *plans) Push(x any)   { *p = append(*p, x.(plan)) }
func (p *plans) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}

func (w *world) at(t time.Time, do func()) {
	w.site.seq++
	heap.Push(&w.plans, plan{t, w.site.seq, do})
}

func (w *world) after(d time.Duration, do func()) { w.at(time.Now().Add(d), do) }

// between draws a duration.
func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)+1))
}

// lag is how long after a write a cache shows it.
func (w *world) lag() time.Duration {
	switch {
	case w.calm || w.rng.IntN(20) > 0:
		return w.between(time.Millisecond, 20*time.Millisecond)
	case w.rng.IntN(20) > 0:
		return w.between(0, time.Second)
	}
	return w.between(0, 30*time.Second)
}

func (w *world) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf("%s %s", time.Since(w.started).Round(time.Millisecond),
		fmt.Sprintf(format, args...)))
}

// verdict is what a check says, where that is what is asked for (judged).
type verdict string

func (w *world) failf(format string, args ...any) {
	w.t.Helper()
	if w.verdicts {
		panic(verdict(fmt.Sprintf(format, args...)))
	}
	w.t.Fatalf("%s\nhistory:\n%s\n%s", fmt.Sprintf(format, args...), w.lastEvents(), w.dump())
}

// process is a manager process: a view with the controllers that run on it.
type process struct {
	ctrl.Manager
	w           *world
	view        *view
	controllers []*controller
	cancel      context.CancelFunc
	ctx         context.Context
}

// wait lets streams and timers of the controllers do what they can do now.
func (w *world) wait() {
	w.mu.Unlock()
	synctest.Wait()
	w.mu.Lock()
}

// part is what runs in a manager process.
type part interface{ SetupWithManager(ctrl.Manager) error }

// start builds a manager process; setup registers its controllers.
func (w *world) start(keep func(client.Object) bool, parts ...part) *process {
	p := &process{w: w, view: newView(w, keep)}
	p.ctx, p.cancel = context.WithCancel(w.t.Context())
	for _, part := range parts {
		if err := part.SetupWithManager(p); err != nil {
			w.t.Fatal(err)
		}
	}
	w.wait()
	return p
}

// stop ends it; what it planned is dropped.
func (p *process) stop() {
	p.view.over = true
	p.cancel()
	p.w.wait()
}

func (p *process) GetClient() client.Client    { return &api{w: p.w, view: p.view} }
func (p *process) GetAPIReader() client.Reader { return &api{w: p.w} }
func (p *process) GetCache() cache.Cache       { return informers{view: p.view} }
func (p *process) Add(r manager.Runnable) error {
	go func() { _ = r.Start(p.ctx) }()
	return nil
}
func (p *process) GetEventRecorderFor(string) record.EventRecorder { return recorder{w: p.w} }

// Register implements loop.Registrar.
func (p *process) Register(r loop.Registration) error {
	c := &controller{Registration: r, p: p, waiting: newAgenda(), looks: map[string]int{},
		busy: map[client.ObjectKey]bool{}}
	p.controllers = append(p.controllers, c)
	q := queue{c: c}
	p.view.handle(reflect.TypeOf(r.For).Elem(), func(before, after client.Object) {
		for _, o := range []client.Object{before, after} {
			if o != nil {
				c.wake(client.ObjectKeyFromObject(o), 0)
			}
		}
	})
	for _, s := range r.Sources {
		p.view.handle(reflect.TypeOf(s.Object).Elem(), func(before, after client.Object) {
			switch {
			case before == nil:
				s.Handler.Create(p.ctx, event.CreateEvent{Object: after}, q)
			case after == nil:
				s.Handler.Delete(p.ctx, event.DeleteEvent{Object: before}, q)
			default:
				s.Handler.Update(p.ctx, event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
			}
		})
	}
	return nil
}

// controller has the requests of one controller: one for an object at most, at the earliest time
// that was asked for, as the priority queue of controller-runtime has them.
type controller struct {
	loop.Registration
	p       *process
	waiting agenda
	looks   map[string]int
	busy    map[client.ObjectKey]bool // are being looked at
}

func (c *controller) wake(key client.ObjectKey, in time.Duration) {
	c.waiting.add(key, time.Now().Add(in))
}

// queue is what handlers of events put requests into.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	c *controller
}

func (q queue) Add(r reconcile.Request)                        { q.c.wake(r.NamespacedName, 0) }
func (q queue) AddAfter(r reconcile.Request, in time.Duration) { q.c.wake(r.NamespacedName, in) }

// heard takes in what came from outside Kubernetes.
func (c *controller) heard() {
	for _, w := range c.Wakeups {
		for len(w.From) > 0 {
			c.woken(w, <-w.From)
		}
	}
}

// woken takes in one piece of news.
func (c *controller) woken(w loop.Wakeups, news event.GenericEvent) {
	for _, r := range c.Woken(w, news.Object) {
		c.wake(r.NamespacedName, 0)
	}
}

// look is one step for one object.
func (c *controller) look(r reconcile.Request) {
	w := c.p.w
	c.waiting.take(r.NamespacedName)
	c.looks[r.Name]++
	w.hot(c, r)
	c.busy[r.NamespacedName], w.looking, w.reading = true, c, true
	result, err := c.Reconciler.Reconcile(c.p.ctx, r)
	w.looking, w.reading = nil, false
	delete(c.busy, r.NamespacedName)
	if w.tellAll {
		w.note("%s %s: %v %v", c.Name, r.Name, result.RequeueAfter, err)
	}
	w.counts.looks[c.Name]++
	w.checked()
	if w.afterLook != nil {
		w.afterLook()
	}
	switch {
	case err != nil:
		if !errors.Is(err, errInjected) {
			w.note("%s %s: %v", c.Name, r.Name, err)
		}
		c.wake(r.NamespacedName, c.RateLimiter.When(r))
	case result.RequeueAfter > 0:
		c.RateLimiter.Forget(r)
		c.wake(r.NamespacedName, result.RequeueAfter)
	default:
		c.RateLimiter.Forget(r)
	}
}

// mostLooks is how often objects are looked at in a simulated minute, at most.
const mostLooks = 3000

// hot bounds the number of looks in each simulated minute.
func (w *world) hot(c *controller, r reconcile.Request) {
	if now := time.Now().Truncate(time.Minute); !now.Equal(w.minute) {
		w.minute, w.inMinute = now, 0
	}
	if w.inMinute++; w.inMinute > mostLooks && !w.crowded {
		w.failf("more than %d looks in a minute, the last one at %s %s", mostLooks, c.Name, r.Name)
	}
}

var errInjected = errors.New("the API server does not answer")

// refused lets some writes of controllers fail, and counts the others.
func (w *world) refused(a *api, verb string, o client.Object) error {
	if a.view == nil {
		return nil
	}
	w.counts.writes[fmt.Sprintf("%s %T", verb, o)]++
	if w.crowded {
		return nil
	}
	w.lookAtOthers()
	w.placed(o)
	if !w.calm && w.rng.IntN(200) == 0 {
		return errInjected
	}
	if w.tellAll {
		w.note("%s %T %s\n%s", verb, o, o.GetName(), differing(w.store.kindOf(o).objects[client.ObjectKeyFromObject(o)], o))
	}
	subject := o.GetLabels()[naming.LabelVolume]
	if subject == "" {
		subject = o.GetName()
	}
	w.writes[fmt.Sprintf("%s %T %s", verb, o, o.GetName())]++
	if !w.changed(subject) {
		return nil
	}
	differs := differing(w.store.kindOf(o).objects[client.ObjectKeyFromObject(o)], o)
	if differs == "" && verb == "status of" {
		return nil // see plain
	}
	if _, ok := o.(*v1beta2.Volume); ok && strings.HasPrefix(differs, "OwnerID:") && strings.Count(differs, "\n") == 1 {
		return nil // the owner of a resting volume is brought up to date when something else happens to it
	}
	w.found(fmt.Sprintf("%s %T %s\n%s", verb, o, o.GetName(), differs))
	return nil
}

// changed notes that something is changed for a volume or another object. While everybody looks at
// everything it tells whether that had been at rest.
func (w *world) changed(subject string) (rested bool) {
	rested = time.Since(w.worked[subject]) > restFor
	if !w.explain || !rested {
		w.worked[subject] = time.Now()
	}
	return w.explain && rested
}

// ordered notes an order to a process of a volume, or to an instance manager.
func (w *world) order(subject, what string) {
	if w.changed(subject) {
		w.found(what)
	}
}

func (w *world) found(what string) {
	w.failf("nobody was woken for what there is to do: %s", what)
}

// differing tells the fields of spec and status in which an object is to be written otherwise than
// it is.
func differing(have, next client.Object) string {
	var b strings.Builder
	for _, part := range []string{"Spec", "Status"} {
		to := reflect.ValueOf(next).Elem().FieldByName(part)
		if have == nil || !to.IsValid() || to.Kind() != reflect.Struct {
			continue
		}
		from := reflect.ValueOf(have).Elem().FieldByName(part)
		for i := range to.NumField() {
			if x, y := plain(from.Field(i)), plain(to.Field(i)); !equality.Semantic.DeepEqual(x, y) {
				fmt.Fprintf(&b, "%s: %s -> %s\n", to.Type().Field(i).Name, text(x), text(y))
			}
		}
	}
	return b.String()
}

// plain is a value as differing compares it. Of what holds up a drain only one volume is named, and
// the name stays while that volume holds it, whether another one does too or not.
func plain(v reflect.Value) any {
	conditions, ok := v.Interface().([]v1beta2.Condition)
	if !ok {
		return v.Interface()
	}
	conditions = slices.Clone(conditions)
	for i, c := range conditions {
		if c.Type == v1beta2.InstanceManagerConditionDrainAllowed {
			conditions[i].Reason, conditions[i].Message = "", ""
		}
	}
	return conditions
}

// interrupt lets a change be shown between two reads of a step.
func (w *world) interrupt(v *view) {
	if !w.reading || w.rng.IntN(8) > 0 {
		return
	}
	behind := v.behind()
	if len(behind) == 0 {
		return
	}
	w.reading = false // handlers read too
	v.show(behind[w.rng.IntN(len(behind))], false)
	w.reading = true
}

func (w *world) processes() []*process {
	var out []*process
	if w.leader != nil {
		out = append(out, w.leader)
	}
	if len(w.agents) == 0 {
		return out
	}
	for _, n := range w.nodes {
		if p := w.agents[n.name]; p != nil {
			out = append(out, p)
		}
	}
	return out
}

// run lets time pass until end: whatever is due happens, one thing at a time.
func (w *world) run(d time.Duration) {
	end := time.Now().Add(d)
	for {
		w.wait()
		now := time.Now()
		if len(w.plans) > 0 && !w.plans[0].at.After(now) {
			heap.Pop(&w.plans).(plan).do()
			continue
		}
		next, due := end, 0
		for _, p := range w.processes() {
			for _, c := range p.controllers {
				c.heard()
				ready, later := c.waiting.until(now)
				if due += len(ready); !later.IsZero() && later.Before(next) {
					next = later
				}
			}
		}
		if due > 0 {
			w.lookAt(w.rng.IntN(due))
			continue
		}
		if !now.Before(end) {
			return
		}
		if len(w.plans) > 0 && w.plans[0].at.Before(next) {
			next = w.plans[0].at
		}
		w.sleep(next.Sub(now))
	}
}

// sleep lets time pass, d at most: streams and timers of the controllers wake it.
func (w *world) sleep(d time.Duration) {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(time.After(d))}}
	var of []func(event.GenericEvent)
	for _, p := range w.processes() {
		for _, c := range p.controllers {
			for _, from := range c.Wakeups {
				cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(from.From)})
				of = append(of, func(news event.GenericEvent) { c.woken(from, news) })
			}
		}
	}
	w.mu.Unlock()
	chosen, value, ok := reflect.Select(cases)
	w.mu.Lock()
	if chosen > 0 && ok {
		of[chosen-1](value.Interface().(event.GenericEvent))
	}
}
