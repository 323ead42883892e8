package instancemanager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/allocator"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/test/seeded"
)

// drainage is a cluster whose nodes are drained: instance managers with budgets, replicas, and the
// part of the controller that keeps budgets, which reads a cache that lags behind.
type drainage struct {
	t   testing.TB
	rng *rand.Rand
	now time.Time
	// api is the API server, cache what the controller's cache shows.
	api, cache client.Client
	cordoned   map[string]bool
	dead       map[string]bool
	uids       int
	// failures makes deletions end without a clear answer; late are those that may still be done.
	failures bool
	late     []lateDeletion
	busy     map[string]bool
	r        *Reconciler
	loop     reconcile.Reconciler
	deleted  int
}

type lateDeletion struct {
	budget policyv1.PodDisruptionBudget
	until  time.Time
}

var drainNodes = []string{"n1", "n2", "n3", "n4"}

func newDrainage(t testing.TB, rng *rand.Rand) *drainage {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, policyv1.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &drainage{t: t, rng: rng, now: time.Unix(1e9, 0), cordoned: map[string]bool{}, dead: map[string]bool{},
		busy: map[string]bool{}}
	builder := func() *fake.ClientBuilder {
		return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1beta2.Node{})
	}
	w.cache = builder().Build()
	w.api = builder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.uids++
			o.SetUID(types.UID(fmt.Sprint(w.uids)))
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return w.remove(ctx, c, o.(*policyv1.PodDisruptionBudget), opts)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, l, opts...)
			if _, ok := l.(*v1beta2.ReplicaList); ok && len(w.busy) > 0 {
				w.lookAtAnother() // another worker, in the middle of a decision
			}
			return err
		},
	}).Build()
	w.r = &Reconciler{client: w.cache, live: w.api, drains: newDrains(),
		cfg: Config{Budgets: allocator.NewBudgets(func() time.Time { return w.now })}}
	for _, n := range drainNodes {
		im := &v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: "im-" + n},
			Spec: v1beta2.InstanceManagerSpec{NodeID: n, Image: image, Type: v1beta2.InstanceManagerTypeAllInOne}}
		w.must(w.api.Create(context.Background(), im))
		w.must(w.api.Create(context.Background(), budgetFor(im)))
		w.must(w.api.Create(context.Background(), &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace,
			Name: n}}))
	}
	l, err := loop.NewReconciler(w.controller(), mixed{Client: w.cache, Writer: w.api}, record.NewFakeRecorder(1<<20))
	w.must(err)
	w.loop = l
	return w
}

// mixed reads a cache and writes to the API server.
type mixed struct {
	client.Client
	client.Writer
}

func (m mixed) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return m.Writer.Create(ctx, o, opts...)
}

func (m mixed) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return m.Writer.Delete(ctx, o, opts...)
}

func (m mixed) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return m.Writer.Update(ctx, o, opts...)
}

func (m mixed) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return m.Writer.Patch(ctx, o, p, opts...)
}

func (m mixed) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	return m.Writer.DeleteAllOf(ctx, o, opts...)
}

func (m mixed) Apply(ctx context.Context, c runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return m.Writer.Apply(ctx, c, opts...)
}

func (w *drainage) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// controller is the controller of instance managers, with budgets alone.
func (w *drainage) controller() loop.Controller[*v1beta2.InstanceManager, seen] {
	return loop.Controller[*v1beta2.InstanceManager, seen]{
		Name: "drains", New: func() *v1beta2.InstanceManager { return &v1beta2.InstanceManager{} },
		Gather: func(ctx context.Context, im *v1beta2.InstanceManager) (seen, error) {
			s := seen{KubeNode: &corev1.Node{}, DrainPolicy: "block-if-contains-last-replica"}
			s.KubeNode.Spec.Unschedulable = w.cordoned[im.Spec.NodeID]
			var err error
			s.PDB, err = read(ctx, w.cache, im.Namespace, naming.PodDisruptionBudgetName(im.Name),
				&policyv1.PodDisruptionBudget{})
			w.must(err)
			return s, w.r.gatherDrain(ctx, im, &s)
		},
		Decide:  func(_ time.Time, im *v1beta2.InstanceManager, s seen) loop.Decision { return decideBudget(im, s) },
		Reserve: w.r.reserve,
		Now:     func() time.Time { return w.now },
	}
}

// look gives an instance manager a step.
func (w *drainage) look(node string) {
	if w.busy[node] {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if len(w.busy) > 0 {
		cancel() // one that would wait for another, which waits for it here, gives up
	}
	w.busy[node] = true
	defer delete(w.busy, node)
	key := client.ObjectKey{Namespace: naming.Namespace, Name: "im-" + node}
	_, err := w.loop.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errNoAnswer) {
		w.t.Fatalf("node %s: %v", node, err)
	}
}

func (w *drainage) lookAtAnother() {
	if w.rng != nil && len(w.busy) < 2 && w.rng.IntN(4) == 0 {
		w.look(w.node())
	}
}

func (w *drainage) node() string { return drainNodes[w.rng.IntN(len(drainNodes))] }

var errNoAnswer = errors.New("the connection broke")

// remove deletes a budget, or does not, and says so, or does not.
func (w *drainage) remove(ctx context.Context, c client.Client, b *policyv1.PodDisruptionBudget,
	opts []client.DeleteOption) error {
	w.lookAtAnother()
	outcome := 9
	if w.failures {
		outcome = w.rng.IntN(6)
	}
	switch outcome {
	case 0:
		return errNoAnswer
	case 1:
		w.late = append(w.late, lateDeletion{*b, w.now.Add(time.Minute)})
		return errNoAnswer
	}
	before := w.safe()
	if err := c.Delete(ctx, b, opts...); err != nil {
		return err
	}
	w.deleted++
	w.expectSafe(before)
	if outcome == 2 {
		return errNoAnswer
	}
	return nil
}

// safe are the volumes with a copy that no drain takes away.
func (w *drainage) safe() map[string]bool {
	shelter, err := ReadShelter(context.Background(), w.api, naming.Namespace)
	w.must(err)
	out := map[string]bool{}
	for _, r := range w.replicas() {
		if r.Spec.HealthyAt != "" && shelter.budgets[r.Spec.NodeID] && !w.dead[r.Spec.NodeID] {
			out[r.Spec.VolumeName] = true
		}
	}
	return out
}

func (w *drainage) expectSafe(before map[string]bool) {
	w.t.Helper()
	now := w.safe()
	for v := range before {
		if !now[v] {
			w.t.Fatalf("volume %s has no copy left that a drain does not take away", v)
		}
	}
}

func (w *drainage) replicas() []v1beta2.Replica {
	var l v1beta2.ReplicaList
	w.must(w.api.List(context.Background(), &l))
	return l.Items
}

func (w *drainage) replica(volume, node string) {
	r := &v1beta2.Replica{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: volume + "-" + node}}
	r.Spec.VolumeName, r.Spec.NodeID, r.Spec.Active, r.Spec.HealthyAt = volume, node, true, "then"
	w.must(w.api.Create(context.Background(), r))
}

// show brings the cache up to date with all objects of a kind.
func (w *drainage) show(kind client.ObjectList) {
	ctx := context.Background()
	have, want := kind.DeepCopyObject().(client.ObjectList), kind.DeepCopyObject().(client.ObjectList)
	w.must(w.cache.List(ctx, have))
	w.must(w.api.List(ctx, want))
	for _, o := range items(have) {
		w.must(w.cache.Delete(ctx, o))
	}
	for _, o := range items(want) {
		o.SetResourceVersion("")
		w.must(w.cache.Create(ctx, o))
	}
}

func items(l client.ObjectList) (out []client.Object) {
	switch l := l.(type) {
	case *policyv1.PodDisruptionBudgetList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	case *v1beta2.ReplicaList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	case *v1beta2.NodeList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	case *v1beta2.InstanceManagerList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	}
	return out
}

func (w *drainage) showAll() {
	for _, kind := range []client.ObjectList{&policyv1.PodDisruptionBudgetList{}, &v1beta2.ReplicaList{},
		&v1beta2.InstanceManagerList{}, &v1beta2.NodeList{}} {
		w.show(kind)
	}
}

// TestTwoDrainsKeepACopy: two nodes with the two copies of a volume are drained at once. The cache
// shows both budgets, so each of them looks free to go: judged by the cache both went, with the
// last two copies.
func TestTwoDrainsKeepACopy(t *testing.T) {
	w := newDrainage(t, nil)
	w.replica("v", "n1")
	w.replica("v", "n2")
	w.showAll()
	w.cordoned["n1"], w.cordoned["n2"] = true, true
	w.look("n1")
	w.look("n2")
	w.look("n1")
	shelter, err := ReadShelter(t.Context(), w.api, naming.Namespace)
	w.must(err)
	if shelter.budgets["n1"] || !shelter.budgets["n2"] {
		t.Fatalf("budgets are left on %v, want none on n1 alone", slices.Sorted(maps.Keys(shelter.budgets)))
	}
	// The second one waits for the volume, or for any budget.
	w.showAll()
	w.look("n2")
	if got := w.r.drains.names("v"); !slices.Equal(got, []string{"im-n2"}) || len(w.r.drains.names("other")) > 0 {
		t.Fatalf("volume v wakes %v", got)
	}
	if got := w.r.drains.names(""); !slices.Equal(got, []string{"im-n2"}) {
		t.Fatalf("a budget wakes %v", got)
	}
	w.replica("v", "n3")
	w.showAll()
	w.look("n2")
	if w.deleted != 2 || len(w.r.drains.names("")) > 0 {
		t.Fatalf("%d budgets released with a copy elsewhere, want 2", w.deleted)
	}
}

// TestReleasedBudgetComesBack: a node that may be drained hears of every volume that has a replica
// there, and of other budgets, since it may have the last copy then: its budget had to come back,
// and nothing woke it.
func TestReleasedBudgetComesBack(t *testing.T) {
	w := newDrainage(t, nil)
	w.replica("v", "n1")
	w.replica("v", "n2")
	w.replica("other", "n2")
	w.showAll()
	w.cordoned["n1"] = true
	w.look("n1")
	w.showAll()
	w.look("n1")
	if w.deleted != 1 {
		t.Fatalf("%d budgets released, want 1", w.deleted)
	}
	w.r.client = interceptor.NewClient(w.cache.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			var options client.ListOptions // the fake client has no indexes
			options.ApplyOptions(opts)
			err := c.List(ctx, l)
			replicas := l.(*v1beta2.ReplicaList)
			replicas.Items = slices.DeleteFunc(replicas.Items, func(r v1beta2.Replica) bool {
				return options.FieldSelector.String() != "volume="+r.Spec.VolumeName
			})
			return err
		}})
	if got := w.r.drainedWith("v", "n2"); !slices.Equal(got, []string{"im-n1"}) {
		t.Errorf("volume v wakes %v", got)
	}
	if got := w.r.drains.on(nil); !slices.Equal(got, []string{"im-n1"}) {
		t.Errorf("another budget wakes %v", got)
	}
	if got := w.r.drainedWith("other", "n2"); len(got) > 0 {
		t.Errorf("a volume without a replica on the node wakes %v", got)
	}
	w.r.client, w.cordoned["n1"] = w.cache, false
	w.look("n1")
	if got := w.r.drains.on(nil); len(got) > 0 {
		t.Errorf("wakes %v, which are not drained", got)
	}
}

// TestDrainHearsOfWhatChangesMeanwhile: a replica that changes after the look at all replicas, and
// before the volume that holds the budget is noted, wakes the instance manager. Who was noted at
// the end of the look only would wait for the next event.
func TestDrainHearsOfWhatChangesMeanwhile(t *testing.T) {
	w := newDrainage(t, nil)
	w.replica("v", "n1")
	w.showAll()
	w.cordoned["n1"] = true
	looks := 0
	w.r.client = interceptor.NewClient(w.cache.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, l, opts...)
			if _, ok := l.(*v1beta2.ReplicaList); ok {
				looks++
				if got := w.r.drains.names("v"); !slices.Equal(got, []string{"im-n1"}) {
					t.Errorf("a change of volume v wakes %v", got)
				}
			}
			return err
		}})
	w.look("n1")
	w.look("n1")
	if looks != 2 {
		t.Fatalf("%d looks", looks)
	}
	w.cordoned["n1"] = false
	w.look("n1")
	if got := w.r.drains.names("v"); len(got) > 0 {
		t.Errorf("volume v wakes %v, which are not drained", got)
	}
}

// TestDrainsKeepACopy draws drains that overlap, with late caches, decisions inside each other, and
// deletions without an answer: no budget goes that leaves a volume without a protected copy.
func TestDrainsKeepACopy(t *testing.T) {
	t.Parallel()
	src := seeded.New(t, "no drain takes the last copy of a volume away")
	released := 0
	for range src.Seeds(25) {
		w := newDrainage(t, src.Rand(0))
		w.failures = true
		for v := range 4 {
			for _, i := range w.rng.Perm(len(drainNodes))[:1+w.rng.IntN(3)] {
				w.replica(fmt.Sprintf("v%d", v), drainNodes[i])
			}
		}
		w.showAll()
		for range 60 {
			w.step()
		}
		released += w.deleted
		if len(w.late) > 0 {
			w.now = w.now.Add(time.Hour)
		}
	}
	if released == 0 {
		t.Fatal("no budget was released")
	}
}

func (w *drainage) step() {
	switch w.rng.IntN(9) {
	case 8:
		n := w.node()
		w.die(n, !w.dead[n])
		if w.rng.IntN(2) == 0 {
			w.show(&v1beta2.NodeList{})
		}
	case 0, 1:
		n := w.node()
		w.cordoned[n] = !w.cordoned[n]
	case 2:
		w.show(&policyv1.PodDisruptionBudgetList{})
	case 3:
		w.now = w.now.Add(time.Duration(w.rng.IntN(90)) * time.Second)
		w.arrive()
	default:
		w.look(w.node())
	}
}

// arrive lets deletions that had no answer be done after all.
func (w *drainage) arrive() {
	w.failures = false
	defer func() { w.failures = true }()
	for _, l := range w.late {
		if !w.now.Before(l.until) {
			continue
		}
		uid := l.budget.UID
		err := w.api.Delete(context.Background(), &l.budget, client.Preconditions{UID: &uid})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			w.t.Fatal(err)
		}
	}
	w.late = nil
}
