package volume_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/allocator"
	"ankole.storage/controlplane/keys/volumekey"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/volume"
	"ankole.storage/test/seeded"
)

// store is an API server and its cache in a map, whose answers cost the same however many objects
// there are: what belongs to a volume is found by the index of the real cache.
type store struct {
	client.Client // panics for what the controller of volumes does not ask for
	objects       map[string]map[client.ObjectKey]client.Object
	byVolume      map[string]map[string][]client.Object
	version       int64
	writes        int
	// wrote is called with what was written.
	wrote func(client.Object)
}

func newStore() *store {
	return &store{objects: map[string]map[client.ObjectKey]client.Object{},
		byVolume: map[string]map[string][]client.Object{}}
}

func kindOf(o any) string { return reflect.TypeOf(o).Elem().Name() }

func (s *store) put(o client.Object) {
	kind, key := kindOf(o), client.ObjectKeyFromObject(o)
	if s.objects[kind] == nil {
		s.objects[kind], s.byVolume[kind] = map[client.ObjectKey]client.Object{}, map[string][]client.Object{}
	}
	s.version++
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	stored := o.DeepCopyObject().(client.Object)
	if v := stored.GetLabels()[naming.LabelVolume]; v != "" {
		of := slices.DeleteFunc(s.byVolume[kind][v], func(o client.Object) bool { return o.GetName() == key.Name })
		s.byVolume[kind][v] = append(of, stored)
	}
	s.objects[kind][key] = stored
}

func (s *store) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	have := s.objects[kindOf(into)][key]
	if have == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kindOf(into)}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(have).Elem())
	return nil
}

func (s *store) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	kind := items.Type().Elem().Name()
	var o client.ListOptions
	o.ApplyOptions(opts)
	add := func(have client.Object) { items.Set(reflect.Append(items, reflect.ValueOf(have).Elem())) }
	if o.FieldSelector != nil && !o.FieldSelector.Empty() {
		for _, have := range s.byVolume[kind][o.FieldSelector.Requirements()[0].Value] {
			add(have)
		}
		return nil
	}
	for _, have := range s.objects[kind] {
		add(have)
	}
	return nil
}

func (s *store) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	have := s.objects[kindOf(o)][client.ObjectKeyFromObject(o)]
	if have == nil || have.GetResourceVersion() != o.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{Resource: kindOf(o)}, o.GetName(), nil)
	}
	s.writes++
	s.put(o)
	s.wrote(o)
	return nil
}

func (s *store) Status() client.SubResourceWriter { return statusOf{s: s} }

type statusOf struct {
	client.SubResourceWriter
	s *store
}

func (w statusOf) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return w.s.Update(ctx, o)
}

// fleet is many volumes at rest and the controller of volumes. The allocator sees changes late.
type fleet struct {
	*store
	t         *testing.T
	rng       *rand.Rand
	allocator *allocator.Allocator
	loop      reconcile.Reconciler
	due       []string
	queued    map[string]bool
	looks     int
	// under are the volumes that are upgraded, with their nodes, on how many each node has, and most
	// the largest number that one had at once.
	under map[string]string
	on    map[string]int
	most  int
	// unshown are volumes whose change the allocator was not told of yet.
	unshown map[string]bool
}

const (
	fleetNodes = 5
	fleetSize  = int64(1) << 30
	image      = "ankole/engine:test"
	nextImage  = "ankole/engine:next"
	masterKey  = "20260102T030405Z"
	ns         = "longhorn-system"
)

func conditions(kind string) []v1beta2.Condition {
	return []v1beta2.Condition{{Type: kind, Status: v1beta2.ConditionTrue}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newFleet(t *testing.T, rng *rand.Rand, volumes int) *fleet {
	f := &fleet{store: newStore(), t: t, rng: rng, queued: map[string]bool{}, unshown: map[string]bool{},
		under: map[string]string{}, on: map[string]int{}, allocator: allocator.New(ns, nil)}
	f.wrote = func(o client.Object) {
		switch o := o.(type) {
		case *v1beta2.Volume:
			f.unshown[o.Name] = true
			f.wake(o.Name)
			f.count(o)
		default:
			f.wake(o.GetLabels()[naming.LabelVolume])
		}
	}
	for name, value := range map[string]string{"default-engine-image": image,
		"default-instance-manager-image": "ankole/instance-manager:test"} {
		f.put(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Value: value})
	}
	for _, name := range []string{image, nextImage} {
		ei := &v1beta2.EngineImage{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: naming.EngineImageName(name)},
			Spec: v1beta2.EngineImageSpec{Image: name}}
		ei.Status.Version, ei.Status.ControllerAPIVersion = name, 5
		ei.Status.Conditions = conditions(v1beta2.EngineImageConditionReady)
		ei.Status.NodeDeploymentMap = map[string]bool{}
		for n := range fleetNodes {
			ei.Status.NodeDeploymentMap[fmt.Sprintf("n%d", n)] = true
		}
		f.put(ei)
	}
	for n := range fleetNodes {
		f.put(&v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("n%d", n)},
			Status: v1beta2.NodeStatus{Conditions: conditions(v1beta2.NodeConditionReady)}})
	}
	for i := range volumes {
		f.add(i)
	}
	f.allocator.MarkSynced()
	f.put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: naming.SecretVolumeKeys},
		Data: map[string][]byte{masterKey: []byte(strings.Repeat("ab", 32))}})
	keys := &volumekey.Keys{Client: f, Namespace: ns, Now: func() time.Time {
		return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	}}
	must(t, keys.Load(t.Context()))
	r := volume.New(volume.Config{Namespace: ns, NodeName: "n0", Allocator: f.allocator, Keys: keys}).WithClient(f)
	var err error
	f.loop, err = loop.NewReconciler(r.Controller(), f, record.NewFakeRecorder(1<<20))
	must(t, err)
	return f
}

// add makes a volume of two replicas that has nothing to do.
func (f *fleet) add(i int) {
	name, node := fmt.Sprintf("v%d", i), fmt.Sprintf("n%d", i%fleetNodes)
	v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name),
		Finalizers: []string{v1beta2.Finalizer}},
		Spec: v1beta2.VolumeSpec{Size: fleetSize, NumberOfReplicas: 2, Image: image, Frontend: v1beta2.VolumeFrontendNone},
		Status: v1beta2.VolumeStatus{State: v1beta2.VolumeStateDetached, CurrentImage: image, OwnerID: node,
			ProcessKey: masterKey, Robustness: v1beta2.VolumeRobustnessUnknown,
			Conditions: conditions(v1beta2.VolumeConditionScheduled)}}
	const state = v1beta2.InstanceStateStopped
	e := &v1beta2.Engine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: naming.EngineName(name, 0),
		Labels: naming.VolumeLabels(name)}}
	e.Spec.VolumeName, e.Spec.Image, e.Spec.Active, e.Spec.VolumeSize = name, image, true, fleetSize
	e.Status.Membership = &v1beta2.Membership{VolumeUUID: name, Epoch: 1}
	e.Spec.ReplicaAddressMap, e.Status.ReplicaModeMap = map[string]string{}, map[string]v1beta2.ReplicaMode{}
	e.Status.CurrentSize = fleetSize
	for k := range 2 {
		r := &v1beta2.Replica{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("%s-r-%d", name, k),
			Labels: naming.VolumeLabels(name)}}
		r.Spec.VolumeName, r.Spec.Image, r.Spec.Active, r.Spec.VolumeSize = name, image, true, fleetSize
		r.Spec.NodeID, r.Spec.DiskID = fmt.Sprintf("n%d", (i+k)%fleetNodes), "disk"
		r.Spec.DataDirectoryName = fmt.Sprintf("%s-%08d", name, k)
		r.Spec.HealthyAt, r.Spec.LastHealthyAt = "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"
		r.Spec.DesireState, r.Status.CurrentState = state, state
		e.Status.Membership.Members = append(e.Status.Membership.Members, r.Spec.DataDirectoryName)
		f.put(r)
		f.allocator.Observe(r)
	}
	e.Spec.DesireState, e.Status.CurrentState = state, state
	f.put(e)
	f.put(&v1beta2.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	f.put(v)
	f.allocator.ObserveVolume(v)
}

// count notes how many upgrades are under way on each node.
func (f *fleet) count(v *v1beta2.Volume) {
	if node := f.under[v.Name]; node != "" {
		f.on[node]--
		delete(f.under, v.Name)
	}
	if v.Spec.Image != v.Status.CurrentImage {
		f.under[v.Name] = v.Status.OwnerID
		f.on[v.Status.OwnerID]++
		f.most = max(f.most, f.on[v.Status.OwnerID])
	}
}

func (f *fleet) wake(name string) {
	if !f.queued[name] {
		f.queued[name] = true
		f.due = append(f.due, name)
	}
}

// set writes a setting and wakes whom the controller's watch would.
func (f *fleet) set(name, value string) {
	s := &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Value: value}
	f.put(s)
	f.allocator.ObserveSetting(s)
	for key := range f.objects["Volume"] {
		f.wake(key.Name)
	}
}

// live goes on until nothing is left to do.
func (f *fleet) live() {
	f.t.Helper()
	for range 100 * len(f.objects["Volume"]) {
		if !f.step() {
			return
		}
	}
	f.t.Fatalf("%d volumes are still due", len(f.due))
}

// step looks at a volume that is due, any of them, or shows the allocator one that was written.
func (f *fleet) step() (more bool) {
	for len(f.allocator.Wakeups()) > 0 {
		f.wake((<-f.allocator.Wakeups()).Object.GetName())
	}
	switch {
	case len(f.due) > 0 && f.rng.IntN(4) > 0:
		f.look()
	case len(f.unshown) > 0:
		f.show()
	}
	return len(f.due) > 0 || len(f.unshown) > 0 || len(f.allocator.Wakeups()) > 0
}

func (f *fleet) look() {
	i := f.rng.IntN(len(f.due))
	name := f.due[i]
	f.due[i] = f.due[len(f.due)-1]
	f.due = f.due[:len(f.due)-1]
	delete(f.queued, name)
	f.looks++
	again, err := f.loop.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: ns,
		Name: name}})
	must(f.t, err)
	if again.RequeueAfter > 0 && again.RequeueAfter < time.Second {
		f.wake(name)
	}
}

func (f *fleet) show() {
	for name := range f.unshown {
		delete(f.unshown, name)
		f.allocator.ObserveVolume(f.objects["Volume"][client.ObjectKey{Namespace: ns, Name: name}].(*v1beta2.Volume))
		return
	}
}

// TestE9ThousandsOfVolumes is E9: 2,000 volumes are brought to the default image, never
// more of a node at once than the limit, each by the same few writes, and looked at a few times.
func TestE9ThousandsOfVolumes(t *testing.T) {
	t.Parallel()
	const volumes, limit = 2000, 3
	src := seeded.New(t, "no node has more upgrades under way than its limit, and each volume gets its turn")
	f := newFleet(t, src.Rand(0), volumes)
	f.set("concurrent-automatic-engine-upgrade-per-node-limit", strconv.Itoa(limit))
	f.live()
	before := f.writes
	if before > 5*volumes { // what the objects of a new leader lack
		t.Errorf("%d writes for %d volumes that have the default image", before, volumes)
	}
	looks := f.looks
	f.set("default-engine-image", nextImage)
	f.live()
	if n := f.withImage(nextImage); n != volumes {
		t.Errorf("%d of %d volumes have the default image", n, volumes)
	}
	if f.most != limit {
		t.Errorf("a node had up to %d upgrades at once, the limit is %d", f.most, limit)
	}
	// A wish, the engine, two replicas, the result; and the looks after each, at the beginning, and
	// when the turn has come.
	if n := f.writes - before; n > 5*volumes {
		t.Errorf("%d writes", n)
	}
	if n := f.looks - looks; n > 12*volumes {
		t.Errorf("%d looks", n)
	}
	t.Logf("%d volumes: %d writes, %d looks", volumes, f.writes-before, f.looks-looks)
}

// TestE13LimitIsLowered is E13 and E2: what is under way is finished, nothing else begins.
func TestE13LimitIsLowered(t *testing.T) {
	t.Parallel()
	const volumes = 50
	src := seeded.New(t, "nothing begins while the limit is 0, and what is under way ends")
	for range src.Seeds(5) {
		f := newFleet(t, src.Rand(0), volumes)
		f.set("default-engine-image", nextImage)
		f.live()
		if f.most != 0 {
			t.Fatalf("%d upgrades began on a node although the limit is 0", f.most)
		}
		f.set("concurrent-automatic-engine-upgrade-per-node-limit", "2")
		for f.withImage(nextImage) < volumes/5 || len(f.under) == 0 {
			f.step()
		}
		f.set("concurrent-automatic-engine-upgrade-per-node-limit", "0")
		want := f.withImage(nextImage) + len(f.under)
		f.live()
		if n := f.withImage(nextImage); n != want || len(f.under) > 0 {
			t.Errorf("%d volumes have the default image, want %d; %d are under way", n, want, len(f.under))
		}
	}
}

func (f *fleet) withImage(image string) (n int) {
	for _, o := range f.objects["Volume"] {
		if o.(*v1beta2.Volume).Status.CurrentImage == image {
			n++
		}
	}
	return n
}
