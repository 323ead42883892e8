package instancemanager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/controlplane/engineclient"
	"ankole.storage/controlplane/index"
	"ankole.storage/controlplane/instance"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/naming"
	"ankole.storage/controlplane/orphan"
	"ankole.storage/controlplane/replica"
	"ankole.storage/controlplane/setting"
)

// site is a cluster for the controllers of instance managers, replicas and orphans: a fake API
// server, kubelets whose Pods are machines, and processes that are entries of a map in a machine.
type site struct {
	t     *testing.T
	c     client.WithWatch
	raw   client.WithWatch // not watched by the checks
	now   time.Time
	steps []step
	next  int // UIDs

	// machines by the UID of their Pod; pods that are gone have none.
	machines map[types.UID]*machine
	// down nodes answer nobody; mute instance managers do not answer on the stream.
	down, mute map[string]bool
	// wanted replicas by name: whether they are to run. The volume controller's part.
	wanted map[string]bool
	// known is what the present leader was told by streams; a new leader knows nothing.
	known map[client.ObjectKey]*told
	// loseAnswer lets the next order be carried out without an answer; late are orders that are
	// still on their way.
	loseAnswer bool
	late       []func()
	// history is the faults so far, seen what has happened in all runs. over are the runs that an
	// object has given up.
	history []string
	seen    map[string]int
	rand    *rand.Rand
	over    map[string]bool
}

type step struct {
	kind string
	list client.ObjectList
	r    reconcile.Reconciler
}

// machine is a Pod that runs. refuses: it was closed. old: it is one of the reference, which
// tells no orders and cannot be closed. ended: its Pod has failed.
type machine struct {
	node, name, ip string
	procs          map[string]*v1beta2.InstanceProcess
	refuses, old   bool
	ended          bool
}

// told is what a leader knows of a Pod.
type told struct {
	pod       types.UID
	processes *Processes
	lost      time.Time
}

var errGone = errors.New("no answer")

func newSite(t *testing.T, nodes int) *site {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, policyv1.AddToScheme, v1beta2.AddToScheme} {
		must(t, add(scheme))
	}
	w := &site{t: t, now: now, machines: map[types.UID]*machine{}, down: map[string]bool{}, mute: map[string]bool{},
		wanted: map[string]bool{}, seen: map[string]int{}, over: map[string]bool{}}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1beta2.Replica{}, &v1beta2.Engine{},
		&v1beta2.InstanceManager{}, &v1beta2.Node{}, &v1beta2.Orphan{}, &corev1.Pod{})
	for _, i := range index.All() {
		builder.WithIndex(i.Object, i.Field, i.Of)
	}
	w.raw = builder.Build()
	w.c = interceptor.NewClient(w.raw, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.next++
			o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.next)))
			o.SetCreationTimestamp(metav1.NewTime(w.now))
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			w.checkDeletion(o)
			return c.Delete(ctx, o, opts...)
		},
	})
	w.setting(setting.DefaultInstanceManagerImage, "im:1")
	w.setting(setting.StorageNetwork, "kube-system/data")
	w.setting(setting.OrphanResourceAutoDeletion, setting.OrphanKindInstance)
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: naming.VolumeSecretName("v")},
		Data: map[string][]byte{naming.VolumeSecretKey: []byte(strings.Repeat("0", 64))}})
	for i := 1; i <= nodes; i++ {
		name := fmt.Sprintf("n%d", i)
		n := &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		w.create(n)
		k := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		k.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
		must(t, w.c.Create(context.Background(), k))
		w.nodeReady(name, true)
	}
	w.newLeader()
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

func (w *site) create(o client.Object) {
	w.t.Helper()
	o.SetNamespace(naming.Namespace)
	must(w.t, w.c.Create(context.Background(), o))
}

// get reads an object; false if it is not there.
func (w *site) get(name string, into client.Object) bool {
	err := w.c.Get(context.Background(), client.ObjectKey{Namespace: naming.Namespace, Name: name}, into)
	must(w.t, client.IgnoreNotFound(err))
	return err == nil
}

func (w *site) setting(name, value string) {
	var s v1beta2.Setting
	if w.get(name, &s) {
		s.Value = value
		must(w.t, w.c.Update(context.Background(), &s))
		return
	}
	w.create(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
}

func (w *site) nodeReady(name string, ready bool) {
	var n v1beta2.Node
	w.get(name, &n)
	c := v1beta2.Condition{Type: v1beta2.NodeConditionReady, Status: v1beta2.ConditionTrue}
	if !ready {
		c.Status, c.Reason = v1beta2.ConditionFalse, v1beta2.NodeReasonKubernetesNodeNotReady
	}
	n.Status.Conditions, _ = v1beta2.SetCondition(n.Status.Conditions, c, w.now)
	must(w.t, w.c.Status().Update(context.Background(), &n))
}

// newLeader starts all controllers anew, without anything in memory.
func (w *site) newLeader() {
	w.steps, w.known = nil, map[client.ObjectKey]*told{}
	r := New(Config{Namespace: naming.Namespace, NodeName: "n1", Close: w.close,
		Proxies: engineclient.NewProxies(nil)})
	r.client, r.follower = w.c, w
	r.starts.now, r.closings.now = w.clock, w.clock
	addStep(w, "InstanceManager", &v1beta2.InstanceManagerList{}, r.controller())
	addStep(w, "Replica", &v1beta2.ReplicaList{},
		replica.New(replica.Config{Namespace: naming.Namespace, NodeName: "n1"}, w).WithClient(w.c).Controller())
	addStep(w, "Orphan", &v1beta2.OrphanList{},
		orphan.New(orphan.Config{Namespace: naming.Namespace, NodeName: "n1"}, w).WithClient(w.c).Controller())
}

func (w *site) clock() time.Time { return w.now }

func addStep[T client.Object, G any](w *site, kind string, list client.ObjectList, c loop.Controller[T, G]) {
	c.Now = w.clock
	r, err := loop.NewReconciler(c, w.c, record.NewFakeRecorder(100000))
	must(w.t, err)
	w.steps = append(w.steps, step{kind: kind, list: list, r: r})
}

// names lists the objects of a kind.
func (w *site) names(list client.ObjectList) []string {
	l := list.DeepCopyObject().(client.ObjectList)
	must(w.t, w.c.List(context.Background(), l, client.InNamespace(naming.Namespace)))
	var out []string
	must(w.t, meta.EachListItem(l, func(o runtime.Object) error {
		out = append(out, o.(client.Object).GetName())
		return nil
	}))
	slices.Sort(out)
	return out
}

// round lets every controller and every kubelet act once.
func (w *site) round() {
	w.t.Helper()
	for _, s := range w.steps {
		for _, name := range w.names(s.list) {
			_, err := s.r.Reconcile(context.Background(),
				ctrl.Request{NamespacedName: client.ObjectKey{Namespace: naming.Namespace, Name: name}})
			if err != nil {
				w.t.Logf("%s %s: %v", s.kind, name, err)
			}
		}
		w.check()
	}
	w.kubelets()
	w.volumes()
	w.check()
}

// pass lets time go by.
func (w *site) pass(rounds int, each time.Duration) {
	w.t.Helper()
	for range rounds {
		w.now = w.now.Add(each)
		w.round()
	}
}

// kubelets start Pods that are new, end those that are gone, and collect what has no owner.
func (w *site) kubelets() {
	ctx := context.Background()
	images := map[string]bool{}
	for _, name := range w.names(&v1beta2.InstanceManagerList{}) {
		images[name] = true
	}
	present := map[types.UID]bool{}
	for _, name := range w.names(&corev1.PodList{}) {
		var p corev1.Pod
		w.get(name, &p)
		switch {
		case w.down[p.Spec.NodeName]:
			present[p.UID] = true
		case !images[name]:
			w.checkDeletion(&p)
			must(w.t, w.raw.Delete(ctx, &p))
		case w.machines[p.UID] == nil && p.Status.Phase == "":
			w.next++
			m := &machine{node: p.Spec.NodeName, name: name, ip: fmt.Sprintf("10.0.%d.%d", w.next/256, w.next%256),
				procs: map[string]*v1beta2.InstanceProcess{}, old: p.Spec.Containers[0].Image == "im:old"}
			p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: m.ip,
				ContainerStatuses: []corev1.ContainerStatus{{Ready: true}}}
			must(w.t, w.raw.Status().Update(ctx, &p))
			w.networkStatus(name, true)
			w.machines[p.UID] = m
			present[p.UID] = true
		default:
			present[p.UID] = true
		}
	}
	maps.DeleteFunc(w.machines, func(uid types.UID, m *machine) bool { return !present[uid] && !w.down[m.node] })
}

// networkStatus writes or removes the annotation of the storage network.
func (w *site) networkStatus(pod string, there bool) {
	var p corev1.Pod
	if !w.get(pod, &p) || p.Annotations[naming.AnnotationNetworks] == "" {
		return
	}
	delete(p.Annotations, naming.AnnotationNetworkStatus)
	if there {
		p.Annotations[naming.AnnotationNetworkStatus] = `[{"interface":"lhnet1","ips":["192.168.0.7"]}]`
	}
	must(w.t, w.raw.Update(context.Background(), &p))
}

// volumes does what volume and node controllers do: instance managers for the default image,
// replicas that are wanted again after they failed, and the agents' part of a deletion.
func (w *site) volumes() {
	ctx := context.Background()
	var image v1beta2.Setting
	w.get(setting.DefaultInstanceManagerImage, &image)
	for _, node := range w.names(&v1beta2.NodeList{}) {
		name := naming.InstanceManagerName(node, image.Value)
		if !w.get(name, &v1beta2.InstanceManager{}) {
			w.create(&v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1beta2.InstanceManagerSpec{Image: image.Value, NodeID: node, Type: v1beta2.InstanceManagerTypeAllInOne}})
		}
	}
	for _, name := range w.names(&v1beta2.ReplicaList{}) {
		var r v1beta2.Replica
		w.get(name, &r)
		before := r.DeepCopy()
		state := r.Status.CurrentState
		switch {
		case r.DeletionTimestamp != nil && state == v1beta2.InstanceStateStopped && r.Status.InstanceManagerName == "" &&
			!w.down[r.Spec.NodeID]:
			w.checkRelease(&r)
			controllerutil.RemoveFinalizer(&r, v1beta2.Finalizer)
		case !w.wanted[name] || state == v1beta2.InstanceStateError:
			r.Spec.DesireState = v1beta2.InstanceStateStopped
		case state == v1beta2.InstanceStateStopped || state == "":
			r.Spec.DesireState = v1beta2.InstanceStateRunning
			r.Spec.StorageNetwork = "kube-system/data"
		}
		if len(before.Finalizers) != len(r.Finalizers) || before.Spec.DesireState != r.Spec.DesireState {
			must(w.t, w.c.Update(ctx, &r))
		}
	}
}

// Follow implements Follower.
func (w *site) Follow(key client.ObjectKey, pod types.UID, _ string) (*Processes, time.Time) {
	k := w.known[key]
	if k == nil || k.pod != pod {
		k = &told{pod: pod, lost: w.now}
		w.known[key] = k
	}
	m := w.machines[pod]
	if m == nil || w.down[m.node] || w.mute[m.node] {
		if k.lost.IsZero() {
			k.lost = w.now
		}
		return k.processes, k.lost
	}
	p := &Processes{Engines: map[string]v1beta2.InstanceProcess{}, Replicas: map[string]v1beta2.InstanceProcess{},
		APIVersion: 4, APIMinVersion: 1}
	for name, process := range m.procs {
		p.Replicas[name] = *process
	}
	k.processes, k.lost = p, time.Time{}
	return p, time.Time{}
}

// Wakeups implements Follower: every instance manager is looked at in each round.
func (w *site) Wakeups() <-chan event.GenericEvent { return nil }

// Drop implements Follower.
func (w *site) Drop(key client.ObjectKey) { delete(w.known, key) }

// at returns the machine at an address that answers.
func (w *site) at(ip string) (types.UID, *machine) {
	for uid, m := range w.machines {
		if m.ip == ip && !w.down[m.node] {
			return uid, m
		}
	}
	return "", nil
}

// Create implements instance.Processes.
func (w *site) Create(_ context.Context, im *v1beta2.InstanceManager, p instance.Process) error {
	ip := im.Status.IP
	if im.Status.CurrentState != v1beta2.InstanceManagerStateRunning {
		w.t.Fatalf("process %s is ordered in instance manager %s, which is %s", p.Name, im.Name, im.Status.CurrentState)
	}
	order := func() error {
		_, m := w.at(ip)
		if m == nil {
			return errGone
		}
		if have := m.procs[p.Name]; have != nil {
			if have.Spec.Order != "" && have.Spec.Order != p.Order {
				return fmt.Errorf("%s is taken by %s", p.Name, have.Spec.Order)
			}
			return nil
		}
		if m.refuses {
			w.seen["refused"]++
			return errors.New("about to be removed")
		}
		w.next++
		process := &v1beta2.InstanceProcess{Spec: v1beta2.InstanceProcessSpec{Name: p.Name, Order: p.Order}}
		if m.old {
			process.Spec.Order = ""
		}
		process.Status.State, process.Status.Type = v1beta2.InstanceStateRunning, v1beta2.InstanceTypeReplica
		process.Status.UUID, process.Status.PortStart = fmt.Sprintf("run-%d", w.next), 10000
		m.procs[p.Name] = process
		return nil
	}
	if w.loseAnswer {
		w.loseAnswer = false
		until := w.now.Add(callTimeout)
		w.late = append(w.late, func() {
			if w.now.Before(until) {
				w.seen["late"]++
				_ = order() // nobody waits for the answer
			}
		})
		return errGone
	}
	return order()
}

// Delete implements instance.Processes.
func (w *site) Delete(_ context.Context, im *v1beta2.InstanceManager, name, uuid string) error {
	_, m := w.at(im.Status.IP)
	if m == nil {
		return errGone
	}
	if p := m.procs[name]; p != nil && (uuid == "" || uuid == p.Status.UUID) {
		if uuid != "" {
			w.seen["other"]++
		}
		delete(m.procs, name)
	}
	return nil
}

// Replace implements instance.Processes: no engine is upgraded here.
func (w *site) Replace(context.Context, *v1beta2.InstanceManager, instance.Process) error {
	w.t.Fatal("an engine is to be replaced")
	return nil
}

// DeleteLast implements instance.Processes.
func (w *site) DeleteLast(ctx context.Context, im *v1beta2.InstanceManager, name, uuid string) error {
	w.seen["orphan"]++
	return w.Delete(ctx, im, name, uuid)
}

// close is the order to close, as Callers.CloseIdle gives it.
func (w *site) close(_ context.Context, ip string) (map[string]*imrpc.ProcessResponse, bool, error) {
	_, m := w.at(ip)
	if m == nil {
		return nil, false, errGone
	}
	list := map[string]*imrpc.ProcessResponse{}
	for name, p := range m.procs {
		list[name] = process(name, string(p.Status.State))
	}
	m.refuses = !m.old && len(list) == 0
	return list, m.refuses, nil
}
