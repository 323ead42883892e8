package loop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var key = client.ObjectKey{Namespace: "ns", Name: "pod"}

func pod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
}

type decideFunc func(now time.Time, p *corev1.Pod, secrets int) Decision

// world is one reconciler over a fake API server; its kind is Pod, what it gathers is the number of
// Secrets.
type world struct {
	client.Client
	r      *Reconciler[*corev1.Pod, int]
	events *record.FakeRecorder
}

func newWorld(t *testing.T, decide decideFunc, hooks interceptor.Funcs) *world {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(&corev1.Pod{}).
		WithObjects(pod()).WithInterceptorFuncs(hooks).Build()
	w := &world{Client: c, events: record.NewFakeRecorder(20)}
	r, err := NewReconciler(Controller[*corev1.Pod, int]{
		Name: "test",
		New:  func() *corev1.Pod { return &corev1.Pod{} },
		Gather: func(ctx context.Context, _ *corev1.Pod) (int, error) {
			var l corev1.SecretList
			err := c.List(ctx, &l)
			return len(l.Items), err
		},
		Decide: decide,
		Conditions: func(p *corev1.Pod) []Condition {
			var out []Condition
			for _, c := range p.Status.Conditions {
				out = append(out, Condition{Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message})
			}
			return out
		},
		Now: func() time.Time { return time.Unix(1000, 0) },
	}, c, w.events)
	if err != nil {
		t.Fatal(err)
	}
	w.r = r
	return w
}

func (w *world) step(t *testing.T) ctrl.Result {
	t.Helper()
	res, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil {
		t.Fatalf("step: %v", err)
	}
	return res
}

func (w *world) recorded() []string {
	var out []string
	for {
		select {
		case e := <-w.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

func setReady(p *corev1.Pod, status corev1.ConditionStatus) {
	p.Status.Conditions = []corev1.PodCondition{{Type: "Ready", Status: status, Reason: "Because"}}
}

func TestStatusIsWrittenBeforeTheChangeAndThenItSettles(t *testing.T) {
	var order []string
	hooks := interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			order = append(order, "create")
			return c.Create(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			order = append(order, sub)
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	}
	w := newWorld(t, func(_ time.Time, p *corev1.Pod, secrets int) Decision {
		p.Status.Message = "wants a secret"
		if secrets > 0 {
			return Decision{After: time.Minute}
		}
		return Decision{
			Do:     Create{Object: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}}},
			Events: []Event{{Reason: "Made", Message: "it"}},
		}
	}, hooks)

	if res := w.step(t); res.RequeueAfter != again {
		t.Fatalf("after the status write: %+v", res)
	}
	if got := w.recorded(); len(got) != 0 {
		t.Fatalf("event of the change recorded before the change: %q", got)
	}
	w.step(t)
	if got := w.recorded(); len(got) != 1 || got[0] != "Normal Made it" {
		t.Fatalf("events %q", got)
	}
	if res := w.step(t); res.RequeueAfter != time.Minute {
		t.Fatalf("settled step: %+v, want the decision's After", res)
	}
	if got := strings.Join(order, " "); got != "status create" {
		t.Fatalf("writes %q, want one status write, then one create", got)
	}
}

func TestEventsFollowConditionFlips(t *testing.T) {
	status := corev1.ConditionTrue
	w := newWorld(t, func(_ time.Time, p *corev1.Pod, _ int) Decision {
		setReady(p, status)
		return Decision{}
	}, interceptor.Funcs{})
	for _, tt := range []struct {
		name   string
		status corev1.ConditionStatus
		want   string
	}{
		{"first seen true is no news", corev1.ConditionTrue, ""},
		{"unchanged", corev1.ConditionTrue, ""},
		{"turns false", corev1.ConditionFalse, "Warning Ready Ready is False: Because"},
		{"turns true", corev1.ConditionTrue, "Normal Ready Ready is True: Because"},
	} {
		status = tt.status
		w.step(t)
		if got := strings.Join(w.recorded(), ","); got != tt.want {
			t.Errorf("%s: events %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestDecideMayNotEditSpec(t *testing.T) {
	w := newWorld(t, func(_ time.Time, p *corev1.Pod, _ int) Decision {
		p.Spec.NodeName = "n"
		p.Status.Message = "x"
		return Decision{}
	}, interceptor.Funcs{})
	_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err == nil || !strings.Contains(err.Error(), "loop.Update") {
		t.Fatalf("got %v, want an error naming the way out", err)
	}
	var p corev1.Pod
	if err := w.Get(t.Context(), key, &p); err != nil || p.Status.Message != "" {
		t.Fatalf("status was written all the same: %q, %v", p.Status.Message, err)
	}
}

func TestALaggingCacheHoldsTheLoop(t *testing.T) {
	hidden := false
	var gathers int
	hooks := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object,
		opts ...client.GetOption) error {
		if _, isSecret := o.(*corev1.Secret); isSecret && hidden {
			return client.IgnoreAlreadyExists(c.Get(ctx, client.ObjectKey{Name: "no such"}, o))
		}
		return c.Get(ctx, k, o, opts...)
	}}
	w := newWorld(t, func(time.Time, *corev1.Pod, int) Decision {
		gathers++
		if gathers > 1 {
			return Decision{}
		}
		return Decision{
			Do: Create{Object: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", GenerateName: "s-"}}}}
	}, hooks)
	hidden = true
	w.step(t)
	pause := catchUpFirst
	for range 9 {
		if res := w.step(t); res.RequeueAfter != min(pause, catchUpMost) {
			t.Fatalf("step on a lagging cache: %+v, want %s", res, min(pause, catchUpMost))
		}
		pause *= 2
	}
	if gathers != 1 {
		t.Fatalf("decided %d times before the cache caught up", gathers)
	}
	hidden = false
	w.step(t)
	if gathers != 2 {
		t.Fatal("did not go on after the cache caught up")
	}
}

func TestRestlessObjectIsSlowedDown(t *testing.T) {
	n := 0
	w := newWorld(t, func(_ time.Time, p *corev1.Pod, _ int) Decision {
		n++
		p.Status.Message = strings.Repeat("x", n)
		return Decision{}
	}, interceptor.Funcs{})
	for i := 1; i < restlessAfter; i++ {
		if res := w.step(t); res.RequeueAfter != again {
			t.Fatalf("step %d: %+v", i, res)
		}
	}
	if res := w.step(t); res.RequeueAfter != restlessPause {
		t.Fatalf("after %d writes: %+v", restlessAfter, res)
	}
}

// TestDeletingWhatIsDeletedSettles: an object that is deleted and stays, for its finalizer, is not
// deleted again at once, and no event tells of it.
func TestDeletingWhatIsDeletedSettles(t *testing.T) {
	deletes := 0
	kept := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", Finalizers: []string{"a/b"}}}
	settled := func(time.Time, *corev1.Pod, int) Decision { return Decision{} }
	w := newWorld(t, settled, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			deletes++
			return c.Delete(ctx, o, opts...)
		},
	})
	if err := w.Create(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	w.r.Decide = func(time.Time, *corev1.Pod, int) Decision {
		s := &corev1.Secret{}
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(kept), s); err != nil {
			t.Fatal(err)
		}
		return Decision{Do: Delete{Object: s}, Events: []Event{{Reason: "Gone"}}, After: time.Minute}
	}
	if res := w.step(t); res.RequeueAfter != again || deletes != 1 || len(w.recorded()) != 1 {
		t.Fatalf("the first time: %+v, %d deleted", res, deletes)
	}
	if res := w.step(t); res.RequeueAfter != time.Minute || deletes != 1 || len(w.recorded()) != 0 {
		t.Fatalf("the second time: %+v, %d deleted", res, deletes)
	}
	inner := w.r.Decide
	w.r.Decide = func(now time.Time, p *corev1.Pod, n int) Decision {
		d := inner(now, p, n)
		d.Do = Reserving{d.Do}
		return d
	}
	if res := w.step(t); res.RequeueAfter != time.Minute || deletes != 1 {
		t.Fatalf("with a reservation: %+v, %d deleted", res, deletes)
	}
}

func TestCalls(t *testing.T) {
	fail := errors.New("connection refused")
	for _, tt := range []struct {
		name  string
		err   error
		after time.Duration
		want  time.Duration
		event string
	}{
		{"succeeds", nil, 0, callSettle, "Normal Start done"},
		{"succeeds with own delay", nil, time.Hour, time.Hour, "Normal Start done"},
		{"fails", fail, 0, 0, "Warning FailedStarting connection refused"},
		{"fails for what is told of elsewhere", fmt.Errorf("%w: %w", ErrTold, fail), 0, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(time.Time, *corev1.Pod, int) Decision {
				return Decision{
					Do:            Call{What: "start it", Order: "it"},
					Events:        []Event{{Reason: "Start", Message: "done"}},
					FailureReason: "FailedStarting",
					After:         tt.after,
				}
			}, interceptor.Funcs{})
			w.r.Carry = func(_ context.Context, p *corev1.Pod, _ int, order any) error {
				if p.Name != key.Name || order != "it" {
					t.Errorf("carries out %v for %s", order, p.Name)
				}
				return tt.err
			}
			res, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			if !errors.Is(err, tt.err) || res.RequeueAfter != tt.want {
				t.Fatalf("got %+v, %v", res, err)
			}
			if got := strings.Join(w.recorded(), ","); got != tt.event {
				t.Fatalf("events %q, want %q", got, tt.event)
			}
		})
	}
}

func TestReserving(t *testing.T) {
	var reserved, done int
	var free bool
	var reserveErr, writeErr, ended error
	w := newWorld(t, func(time.Time, *corev1.Pod, int) Decision {
		return Decision{After: time.Second, Do: Reserving{
			Create{Object: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", GenerateName: "s"}}}}}
	}, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
		opts ...client.CreateOption) error {
		if writeErr != nil {
			return writeErr
		}
		return c.Create(ctx, o, opts...)
	}})
	w.r.Reserve = func(context.Context, *corev1.Pod, int, Change) (func(error), error) {
		if reserved++; !free || reserveErr != nil {
			return nil, reserveErr
		}
		return func(err error) { done++; ended = err }, nil
	}
	broken := errors.New("broken")
	for _, row := range []struct {
		name                 string
		free                 bool
		reserveErr, writeErr error
		again                time.Duration
		wantErr, wantEnded   error
		wantDone             int
	}{
		{name: "not there any more", again: time.Second},
		{name: "unknown", reserveErr: broken, wantErr: broken},
		{name: "the change fails", free: true, writeErr: broken, wantErr: broken, wantEnded: broken, wantDone: 1},
		{name: "done", free: true, again: again, wantDone: 1},
	} {
		reserved, done, ended = 0, 0, nil
		free, reserveErr, writeErr = row.free, row.reserveErr, row.writeErr
		result, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		if result.RequeueAfter != row.again || !errors.Is(err, row.wantErr) || reserved != 1 || done != row.wantDone ||
			!errors.Is(ended, row.wantEnded) {
			t.Errorf("%s: %+v, %v, asked %d times, ended %d times with %v", row.name, result, err, reserved, done, ended)
		}
	}
}

// TestFailedGatherIsTriedAgain: without all that it reads nothing is decided; the error makes the
// queue ask again, later and later.
func TestFailedGatherIsTriedAgain(t *testing.T) {
	away, decided := errors.New("the API server does not answer"), 0
	w := newWorld(t, func(time.Time, *corev1.Pod, int) Decision { decided++; return Decision{} }, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if away != nil {
				return away
			}
			return c.List(ctx, l, opts...)
		}})
	for range 2 {
		if res, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); !errors.Is(err, away) || decided != 0 {
			t.Errorf("%+v, %v, decided %d times", res, err, decided)
		}
	}
	away = nil
	if w.step(t); decided != 1 {
		t.Errorf("decided %d times when it could be read", decided)
	}
}

func TestAGoneObjectIsForgotten(t *testing.T) {
	w := newWorld(t, func(_ time.Time, p *corev1.Pod, _ int) Decision {
		return Decision{Do: Delete{Object: p}}
	}, interceptor.Funcs{})
	var gone []client.ObjectKey
	w.r.Gone = func(_ context.Context, k client.ObjectKey) { gone = append(gone, k) }
	w.step(t)
	w.step(t)
	if len(gone) != 1 || gone[0] != key {
		t.Fatalf("Gone called for %v", gone)
	}
	if len(w.r.memory) != 0 {
		t.Fatal("memory kept for an object that is gone")
	}
}

func TestAnIncompleteControllerIsRefused(t *testing.T) {
	if _, err := NewReconciler(Controller[*corev1.Pod, int]{Name: "x"}, nil, nil); err == nil {
		t.Fatal("accepted a controller without Gather and Decide")
	}
}

// TestDecisionsSeePlainData: what acts is refused wherever it is in what is gathered.
func TestDecisionsSeePlainData(t *testing.T) {
	type plain struct {
		Err  error
		Pod  *corev1.Pod
		Many map[string][]*int
		Any  any
		When time.Time
		Own  *plain
	}
	type locked struct{ sync.Mutex }
	if err := decidesBy[plain](); err != nil {
		t.Error(err)
	}
	for _, err := range []error{
		decidesBy[struct{ Do func() }](), decidesBy[*struct{ C []chan int }](), decidesBy[struct{ L map[string]*locked }](),
		decidesBy[func()](), decidesBy[map[string]struct{ R client.Reader }](),
	} {
		if err == nil || !strings.Contains(err.Error(), "name an order instead") {
			t.Errorf("accepted, or refused for %v", err)
		}
	}
}

func decidesBy[G any]() error {
	_, err := NewReconciler(Controller[*corev1.Pod, G]{Name: "x", New: func() *corev1.Pod { return &corev1.Pod{} },
		Gather: func(context.Context, *corev1.Pod) (g G, err error) { return g, nil },
		Decide: func(time.Time, *corev1.Pod, G) Decision { return Decision{} }}, nil, nil)
	return err
}
