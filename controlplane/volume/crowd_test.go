package volume_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	"ankole.storage/controlplane/naming"
	"ankole.storage/controlplane/volume"
	"ankole.storage/test/seeded"
)

// crowd is a cluster with many volumes and the controller of volumes alone: what follows its orders
// (processes, engines, rebuilds, removed data) is played in a line each. A volume is looked at only
// if something of it changed or the allocator woke it, and other volumes are looked at while its
// own reconciliation runs, as several workers do. The allocator sees changes late.
type crowd struct {
	t     *testing.T
	rng   *rand.Rand
	c     client.Client
	limit int

	allocator *allocator.Allocator
	loop      reconcile.Reconciler
	// due are the volumes to look at, busy those that are being looked at, unshown the replicas of
	// which the allocator was not told yet.
	due, busy, unshown map[string]bool
	looks              int
}

// nested bounds how many reconciliations run inside each other: the workers of a controller.
const nested = 4

func newCrowd(t *testing.T, rng *rand.Rand, nodes, limit int, diskBytes int64) *crowd {
	scheme := runtime.NewScheme()
	must(t, corev1.AddToScheme(scheme))
	must(t, v1beta2.AddToScheme(scheme))
	w := &crowd{t: t, rng: rng, limit: limit, due: map[string]bool{}, busy: map[string]bool{}, unshown: map[string]bool{}}
	w.c = indexed(fake.NewClientBuilder().WithScheme(scheme)).WithStatusSubresource(&v1beta2.Volume{}, &v1beta2.Engine{},
		&v1beta2.Replica{}, &v1beta2.VolumeAttachment{}, &v1beta2.Node{}, &v1beta2.InstanceManager{},
		&v1beta2.EngineImage{}).WithInterceptorFuncs(w.observed()).Build()
	w.allocator = allocator.New(ns, nil)
	w.allocator.MarkSynced()
	for name, value := range map[string]string{"default-engine-image": image, "default-instance-manager-image": imImage,
		"concurrent-replica-rebuild-per-node-limit": fmt.Sprint(limit)} {
		must(t, w.c.Create(t.Context(), &v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Value: value}))
	}
	ei := &v1beta2.EngineImage{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: naming.EngineImageName(image)}}
	must(t, w.c.Create(t.Context(), ei))
	ei.Status.NodeDeploymentMap = map[string]bool{}
	base := &world{t: t, c: w.c}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i+1)
		base.addNode(name)
		ei.Status.NodeDeploymentMap[name] = true
		var n v1beta2.Node
		must(t, w.c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, &n))
		d := n.Status.DiskStatus["d"]
		d.StorageMaximum, d.StorageAvailable = diskBytes, diskBytes
		n.Status.DiskStatus["d"] = d
		must(t, w.c.Status().Update(t.Context(), &n))
	}
	must(t, w.c.Status().Update(t.Context(), ei))
	r := volume.New(volume.Config{Namespace: ns, NodeName: "n1", Allocator: w.allocator}).WithClient(w.c)
	var err error
	w.loop, err = loop.NewReconciler(r.Controller(), w.c, record.NewFakeRecorder(1<<20))
	must(t, err)
	return w
}

// observed notes which volumes a write concerns, and looks at others in the middle of a
// reconciliation: before its reads and before its writes.
func (w *crowd) observed() interceptor.Funcs {
	wrote := func(o client.Object) {
		if v := o.GetLabels()[naming.LabelVolume]; v != "" {
			w.due[v] = true
		}
		switch o := o.(type) {
		case *v1beta2.Volume:
			w.due[o.Name] = true
		case *v1beta2.VolumeAttachment:
			w.due[o.Name] = true
		case *v1beta2.Replica:
			w.unshown[o.Name] = true
		}
	}
	return interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, l, opts...)
			if _, nodes := l.(*v1beta2.NodeList); nodes && len(w.busy) > 0 {
				w.lookAtOthers()
			}
			return err
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			defer wrote(o)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if len(w.busy) > 0 {
				w.lookAtOthers()
			}
			defer wrote(o)
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			defer wrote(o)
			return c.Delete(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			defer wrote(o)
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	}
}

func (w *crowd) lookAtOthers() {
	for w.rng.IntN(2) == 0 && len(w.busy) < nested {
		w.look()
	}
}

// look gives one volume that is due a step.
func (w *crowd) look() {
	for len(w.allocator.Wakeups()) > 0 {
		w.due[(<-w.allocator.Wakeups()).Object.GetName()] = true
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(w.due)) {
		if !w.busy[name] {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return
	}
	name := names[w.rng.IntN(len(names))]
	delete(w.due, name)
	w.busy[name] = true
	defer delete(w.busy, name)
	w.looks++
	again, err := w.loop.Reconcile(context.Background(),
		ctrl.Request{NamespacedName: client.ObjectKey{Namespace: ns, Name: name}})
	if err != nil {
		w.t.Logf("volume %s: %v", name, err)
	}
	if err != nil || again.RequeueAfter > 0 && again.RequeueAfter < time.Second {
		w.due[name] = true
	}
}

// show tells the allocator of some of the replicas that have changed.
func (w *crowd) show() {
	for _, name := range slices.Sorted(maps.Keys(w.unshown)) {
		if w.rng.IntN(2) == 0 {
			continue
		}
		delete(w.unshown, name)
		var r v1beta2.Replica
		if err := w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, &r); err != nil {
			w.allocator.Gone(name)
			continue
		}
		w.allocator.Observe(&r)
	}
}

func (w *crowd) replicas() []v1beta2.Replica {
	var l v1beta2.ReplicaList
	must(w.t, w.c.List(context.Background(), &l))
	return l.Items
}

func (w *crowd) engines() []v1beta2.Engine {
	var l v1beta2.EngineList
	must(w.t, w.c.List(context.Background(), &l))
	return l.Items
}

// obey carries out what the specs of replicas and engines say. Engines take what is added to them
// as WO, and one of all rebuilds ends if rebuilt says so.
func (w *crowd) obey(rebuilt bool) {
	ctx := context.Background()
	listed := map[string]bool{}
	for _, e := range w.engines() {
		w.obeyEngine(&e, &rebuilt)
		for name := range e.Spec.ReplicaAddressMap {
			listed[name] = true
		}
	}
	for i, r := range w.replicas() {
		if r.DeletionTimestamp != nil && !listed[r.Name] {
			r.Finalizers = nil
			must(w.t, client.IgnoreNotFound(w.c.Update(ctx, &r)))
			continue
		}
		want := v1beta2.InstanceStateStopped
		if r.Spec.DesireState == v1beta2.InstanceStateRunning && r.Spec.NodeID != "" {
			want = v1beta2.InstanceStateRunning
		}
		if r.Status.CurrentState != want {
			r.Status.CurrentState, r.Status.Port = want, 10000+i
			r.Status.StorageIP = "10.0.0." + strings.TrimPrefix(r.Spec.NodeID, "n")
			must(w.t, w.c.Status().Update(ctx, &r))
		}
	}
}

func (w *crowd) obeyEngine(e *v1beta2.Engine, rebuilt *bool) {
	st, before := &e.Status, e.Status.DeepCopy()
	if e.Spec.DesireState != v1beta2.InstanceStateRunning {
		return
	}
	started := st.CurrentState != v1beta2.InstanceStateRunning
	if started {
		st.CurrentState, st.UUID, st.Endpoint = v1beta2.InstanceStateRunning, "run", "/dev/x"
		st.ReplicaModeMap, st.Membership = map[string]v1beta2.ReplicaMode{}, nil
	}
	maps.DeleteFunc(st.ReplicaModeMap, func(name string, _ v1beta2.ReplicaMode) bool {
		return e.Spec.ReplicaAddressMap[name] == ""
	})
	for _, name := range slices.Sorted(maps.Keys(e.Spec.ReplicaAddressMap)) {
		switch mode := st.ReplicaModeMap[name]; {
		case started:
			st.ReplicaModeMap[name] = v1beta2.ReplicaModeRW
		case mode == "":
			st.ReplicaModeMap[name] = v1beta2.ReplicaModeWO
		case mode == v1beta2.ReplicaModeWO && *rebuilt:
			st.ReplicaModeMap[name], *rebuilt = v1beta2.ReplicaModeRW, false
		}
	}
	st.CurrentReplicaAddressMap = e.Spec.ReplicaAddressMap
	st.Membership = &v1beta2.Membership{VolumeUUID: "uid-" + e.Spec.VolumeName, Epoch: 1}
	for _, r := range w.replicas() {
		if st.ReplicaModeMap[r.Name] == v1beta2.ReplicaModeRW {
			st.Membership.Members = append(st.Membership.Members, r.Spec.DataDirectoryName)
		}
	}
	if fmt.Sprint(before.ReplicaModeMap, before.Membership) != fmt.Sprint(st.ReplicaModeMap, st.Membership) {
		must(w.t, w.c.Status().Update(context.Background(), e))
	}
}

// create makes a volume that nobody attaches.
func (w *crowd) create(name string, sizeBytes int64, replicas int) {
	must(w.t, w.c.Create(context.Background(), &v1beta2.Volume{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name)},
		Spec: v1beta2.VolumeSpec{Size: sizeBytes, NumberOfReplicas: replicas, Image: image,
			Frontend: v1beta2.VolumeFrontendBlockDev},
	}))
}

func (w *crowd) volumes() []v1beta2.Volume {
	var l v1beta2.VolumeList
	must(w.t, w.c.List(context.Background(), &l))
	return l.Items
}

// live runs the crowd until done says so, in at most so many looks at a volume.
func (w *crowd) live(what string, looks int, done func() bool) {
	w.t.Helper()
	for end := w.looks + looks; w.looks < end; {
		switch w.rng.IntN(8) {
		case 0:
			w.obey(w.rng.IntN(3) == 0)
		case 1, 2:
			w.show()
		default:
			w.look()
			if len(w.due) == 0 {
				w.looks++ // nothing is due: only a rebuild that ends helps
				w.obey(true)
				w.show()
			}
		}
		w.check()
		if done() {
			return
		}
	}
	w.t.Fatalf("after %d looks: not %s\n%s", w.looks, what, w.dump())
}

// check holds that no node has more rebuilds than the limit, and no disk more than it has room for.
func (w *crowd) check() {
	w.t.Helper()
	rebuilds, scheduled := map[string]int{}, map[string]int64{}
	node := map[string]string{}
	for _, r := range w.replicas() {
		node[r.Name] = r.Spec.NodeID
		scheduled[r.Spec.NodeID] += r.Spec.VolumeSize
	}
	for _, e := range w.engines() {
		for name, mode := range e.Status.ReplicaModeMap {
			if mode == v1beta2.ReplicaModeWO {
				rebuilds[node[name]]++
			}
		}
	}
	for n, have := range rebuilds {
		if have > w.limit {
			w.t.Fatalf("%d rebuilds on node %s, the limit is %d\n%s", have, n, w.limit, w.dump())
		}
	}
	var nodes v1beta2.NodeList
	must(w.t, w.c.List(context.Background(), &nodes))
	for _, n := range nodes.Items {
		if most := n.Status.DiskStatus["d"].StorageMaximum; scheduled[n.Name] > most {
			w.t.Fatalf("%d bytes are scheduled on node %s, which has %d\n%s", scheduled[n.Name], n.Name, most, w.dump())
		}
	}
}

func (w *crowd) dump() string {
	s := ""
	for _, r := range w.replicas() {
		s += fmt.Sprintf("%s on %q %s/%s failed=%q healthy=%q retries=%d evict=%v\n", r.Name, r.Spec.NodeID,
			r.Spec.DesireState, r.Status.CurrentState, r.Spec.FailedAt, r.Spec.HealthyAt, r.Spec.RebuildRetryCount,
			r.Spec.EvictionRequested)
	}
	for _, e := range w.engines() {
		s += fmt.Sprintf("%s %v\n", e.Name, e.Status.ReplicaModeMap)
	}
	return s + fmt.Sprintf("due %v", w.due)
}

// TestEvictionKeepsTheRebuildLimit: all replicas of a node are evicted; their volumes are healthy,
// and yet no more rebuilds run on a node than the setting allows. A limit that is counted in the
// cache, or for degraded volumes only, starts all of them at once. Each volume gets its turn,
// without being looked at while it waits.
func TestEvictionKeepsTheRebuildLimit(t *testing.T) {
	t.Parallel()
	const volumes, looksPerVolume = 12, 60
	src := seeded.New(t, "no node has more rebuilds than its limit, and each volume gets its turn")
	src.Fresh()
	w := newCrowd(t, src.Rand(0), 4, 2, 1<<40)
	for i := range volumes {
		w.create(fmt.Sprintf("v%d", i), worldSize, 2)
	}
	w.live("detached", volumes*looksPerVolume, func() bool {
		return w.every(func(v v1beta2.Volume) bool { return v.Status.State == v1beta2.VolumeStateDetached })
	})
	for _, v := range w.volumes() {
		v.Spec.NodeID = "n2"
		must(t, w.c.Update(t.Context(), &v))
	}
	w.live("healthy", volumes*looksPerVolume, func() bool {
		return w.every(func(v v1beta2.Volume) bool { return v.Status.Robustness == v1beta2.VolumeRobustnessHealthy })
	})
	w.close("n1")
	for _, r := range w.replicas() {
		if r.Spec.NodeID == "n1" {
			r.Spec.EvictionRequested = true
			must(t, w.c.Update(t.Context(), &r))
		}
	}
	before := w.looks
	w.live("evicted", volumes*looksPerVolume, func() bool {
		return !slices.ContainsFunc(w.replicas(), func(r v1beta2.Replica) bool { return r.Spec.NodeID == "n1" }) &&
			w.every(func(v v1beta2.Volume) bool { return v.Status.Robustness == v1beta2.VolumeRobustnessHealthy })
	})
	t.Logf("%d looks at %d volumes", w.looks-before, volumes)
}

func (w *crowd) every(ok func(v1beta2.Volume) bool) bool {
	return !slices.ContainsFunc(w.volumes(), func(v v1beta2.Volume) bool { return !ok(v) })
}

// close takes a node out of scheduling.
func (w *crowd) close(node string) {
	var n v1beta2.Node
	must(w.t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: node}, &n))
	n.Spec.AllowScheduling = false
	must(w.t, w.c.Update(context.Background(), &n))
}

// TestVolumesCreatedAtOnceShareTheRoom: of volumes created at once, those for which there is no
// room left are told so, although no node's status says yet what the others have taken. By that
// status alone all would get the same room.
func TestVolumesCreatedAtOnceShareTheRoom(t *testing.T) {
	t.Parallel()
	src := seeded.New(t, "no disk is promised to more than it has room for")
	for range src.Seeds(8) {
		w := newCrowd(t, src.Rand(0), 2, 5, 100<<30)
		const volumes = 6
		for i := range volumes {
			w.create(fmt.Sprintf("v%d", i), 40<<30, 1)
		}
		w.live("judged", 1000, func() bool {
			return w.every(func(v v1beta2.Volume) bool {
				c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionScheduled)
				return c.Status == v1beta2.ConditionTrue || c.Status == v1beta2.ConditionFalse
			})
		})
		placed := 0
		for _, r := range w.replicas() {
			if r.Spec.NodeID != "" {
				placed++
			}
		}
		if placed != 4 {
			t.Fatalf("%d of %d volumes have a place, 4 fit\n%s", placed, volumes, w.dump())
		}
	}
}
