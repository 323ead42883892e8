package volume_test

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/allocator"
	"ankole.storage/controlplane/attachment"
	"ankole.storage/controlplane/engine"
	"ankole.storage/controlplane/engineclient"
	"ankole.storage/controlplane/index"
	"ankole.storage/controlplane/instance"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/replica"
	"ankole.storage/controlplane/snapshot"
	"ankole.storage/controlplane/volume"
)

const (
	ns        = "longhorn-system"
	image     = "ankole/engine:test"
	imImage   = "ankole/instance-manager:test"
	worldSize = int64(1) << 30
)

// fataler is what *testing.T and *rapid.T have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// world is a cluster for the reconcilers of the volume half: a fake API server, nodes with instance
// managers whose processes are entries in a map, and engines that follow the rules of the
// membership protocol in the small (engines_test.go). The node agents delete from real directories.
type world struct {
	t    fataler
	c    client.Client
	now  time.Time
	dir  string
	recs []reconciler

	mu sync.Mutex
	// procs by "<instance manager>/<name>".
	procs map[string]*proc
	// logsRead are the processes, by the same, whose log was read, in order.
	logsRead []string
	// disks by data directory name.
	disks   map[string]*copyOf
	engines map[string]*engineModel // by address
	// standIns are processes that offer the volume where it migrates to, by address.
	standIns map[string]*engineModel
	nextID   int
	// acknowledged are the writes that the volume's user was told are done, by number; nextWrite is
	// the newest number.
	acknowledged big.Int
	nextWrite    int
	// endGranted is how many starts of engines yet are over when the witness has granted them an
	// epoch, before they have heard a replica: a volume that was never used has a record without
	// members then.
	endGranted int
	// bug, if set, is a rule that the engines of this world break.
	bug    bug
	down   map[string]bool
	device *device // nil while the volume has none
	events *record.FakeRecorder
	// rng, if set, lets reconcilers run unevenly: some several times before others run once, as
	// real ones do.
	rng *rand.Rand
	// writes to the API server so far.
	writes atomic.Int64
	// snapshots of each volume's engines, by volume and name.
	snapshots map[string]map[string]engineclient.Snapshot
	// allocator is told of the replicas in unshown later, as a cache is.
	allocator *allocator.Allocator
	unshown   map[string]bool
	// outcomes, if set, says how the next replacement of an engine goes; handedOver counts those that
	// were carried out.
	outcomes       func() outcome
	awaitHandOvers func()
	handedOver     int
	// strangers are rebuilds of volumes that exist for the allocator only, by name.
	strangers map[string]*v1beta2.Replica
	// chains are the names of snapshots, by volume, from the oldest to the newest.
	chains map[string][]string
	// afterStep, if set, is called after each step of a reconciler.
	afterStep func()
	// frozenFor are snapshots for which file systems were to be frozen.
	frozenFor []string
	// cruel lets engines die after an order about snapshots, before they answer.
	cruel bool
}

// proc is a running or ended process.
type proc struct {
	im, name, node string
	order          string
	state          v1beta2.InstanceState
	uuid           string
	port           int
	binary         string
	env            map[string]string
	args           []string
	err            string
}

// indexed gives a client the indexes of the leader's cache.
func indexed(b *fake.ClientBuilder) *fake.ClientBuilder {
	for _, i := range index.All() {
		b = b.WithIndex(i.Object, i.Field, i.Of)
	}
	return b
}

type reconciler struct {
	kind string
	list func() []string
	r    reconcile.Reconciler
}

func init() { log.SetLogger(logr.Discard()) }

func newWorld(t fataler, dir string, nodes int) *world {
	scheme := runtime.NewScheme()
	must(t, corev1.AddToScheme(scheme))
	must(t, v1beta2.AddToScheme(scheme))
	w := &world{
		t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), dir: dir, procs: map[string]*proc{},
		disks:   map[string]*copyOf{},
		engines: map[string]*engineModel{}, standIns: map[string]*engineModel{},
		down: map[string]bool{}, events: record.NewFakeRecorder(10000),
		unshown: map[string]bool{}, chains: map[string][]string{}, strangers: map[string]*v1beta2.Replica{},
		snapshots: map[string]map[string]engineclient.Snapshot{},
	}
	w.allocator = allocator.New(ns, w.clock)
	w.allocator.MarkSynced()
	w.c = indexed(fake.NewClientBuilder().WithScheme(scheme)).WithStatusSubresource(
		&v1beta2.Volume{}, &v1beta2.Engine{}, &v1beta2.Replica{}, &v1beta2.VolumeAttachment{}, &v1beta2.Node{},
		&v1beta2.InstanceManager{}, &v1beta2.EngineImage{}, &v1beta2.Snapshot{}).WithInterceptorFuncs(w.hooks()).Build()
	for i := 1; i <= nodes; i++ {
		w.addNode(fmt.Sprintf("n%d", i))
	}
	w.create(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default-engine-image"}, Value: image})
	w.create(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default-instance-manager-image"},
		Value: imImage})
	w.create(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
		Name: "concurrent-replica-rebuild-per-node-limit"}, Value: strconv.Itoa(rebuildLimit)})
	w.addImage(image, nodes)
	w.addImage(nextImage, nodes)
	w.controllers(nodes)
	return w
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	must(w.t, w.c.Create(context.Background(), o))
}

func (w *world) clock() time.Time { return w.now }

// controllers sets up every reconciler of the volume half, and the agents.
func (w *world) controllers(nodes int) {
	add(w, "Volume", &v1beta2.VolumeList{},
		volume.New(volume.Config{Namespace: ns, NodeName: "n1", Allocator: w.allocator, Now: w.clock}).WithClient(w.c).
			Controller())
	add(w, "VolumeAttachment", &v1beta2.VolumeAttachmentList{},
		attachment.New(attachment.Config{Namespace: ns}).WithClient(w.c).Controller())
	er := engine.New(engine.Config{Namespace: ns, NodeName: "n1", RewatchMost: time.Millisecond, Logs: w,
		Purge: w.SnapshotPurge}, w, w).WithClient(w.c)
	go func() { // drains wake-ups: settle looks at every engine anyway; ends with the test process
		for range er.Monitor().Wakeups() {
		}
	}()
	add(w, "Engine", &v1beta2.EngineList{}, er.Controller())
	w.awaitHandOvers = er.AwaitHandOvers
	add(w, "Snapshot", &v1beta2.SnapshotList{},
		snapshot.New(snapshot.Config{Namespace: ns}, w).WithClient(w.c).Controller())
	add(w, "Replica", &v1beta2.ReplicaList{},
		replica.New(replica.Config{Namespace: ns, NodeName: "n1", Logs: w}, w).WithClient(w.c).Controller())
	for i := 1; i <= nodes; i++ {
		node := fmt.Sprintf("n%d", i)
		a := replica.NewAgent(replica.AgentConfig{Namespace: ns, NodeName: node, Resolve: func(p string) string {
			return filepath.Join(w.dir, node, p)
		}})
		c := a.WithClient(w.c).Controller()
		add(w, "agent "+node, &v1beta2.ReplicaList{}, c)
	}
}

func add[T client.Object, G any](w *world, kind string, list client.ObjectList, c loop.Controller[T, G]) {
	c.Now = w.clock
	r, err := loop.NewReconciler(c, w.c, w.events)
	must(w.t, err)
	w.recs = append(w.recs, reconciler{kind: kind, r: r, list: func() []string {
		l := list.DeepCopyObject().(client.ObjectList)
		must(w.t, w.c.List(context.Background(), l, client.InNamespace(ns)))
		var names []string
		must(w.t, meta.EachListItem(l, func(o runtime.Object) error {
			names = append(names, o.(client.Object).GetName())
			return nil
		}))
		return names
	}})
}

func (w *world) addNode(name string) {
	n := &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1beta2.NodeSpec{
		Name: name, AllowScheduling: true,
		Disks: map[string]v1beta2.DiskSpec{"d": {Path: "/data", AllowScheduling: true, DiskType: v1beta2.DiskTypeFilesystem}},
	}}
	w.create(n)
	n.Status.Conditions = conditions(v1beta2.NodeConditionReady, v1beta2.NodeConditionSchedulable)
	n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": {
		DiskUUID: "disk-" + name, DiskPath: "/data", FilesystemType: "ext4", StorageMaximum: 100 << 30,
		StorageAvailable: 90 << 30,
		Conditions:       conditions(v1beta2.DiskConditionReady, v1beta2.DiskConditionSchedulable),
	}}
	must(w.t, w.c.Status().Update(context.Background(), n))
	im := &v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "im-" + name},
		Spec: v1beta2.InstanceManagerSpec{
			NodeID: name, Image: imImage, Type: v1beta2.InstanceManagerTypeAllInOne,
		}}
	w.create(im)
	im.Status.CurrentState, im.Status.IP = v1beta2.InstanceManagerStateRunning, "10.0.0."+name[1:]
	im.Status.StorageIP, im.Status.ProxyAPIVersion = "192.168.0."+name[1:], 1
	must(w.t, w.c.Status().Update(context.Background(), im))
}

func conditions(types ...string) []v1beta2.Condition {
	var out []v1beta2.Condition
	for _, c := range types {
		out = append(out, v1beta2.Condition{Type: c, Status: v1beta2.ConditionTrue})
	}
	return out
}

// settle runs every reconciler until none changes anything.
func (w *world) settle() {
	w.t.Helper()
	quiet, enough := 0, 3
	if w.rng != nil {
		enough = 8 // an uneven round may leave out who has something to do
	}
	for range 1000 {
		before := w.writes.Load()
		w.round(quiet > 0)
		// One quiet round may only mean that a write lost a race or that a stream was just opened.
		if quiet++; w.writes.Load() != before || !w.listening() {
			quiet = 0
		}
		if quiet == enough {
			return
		}
	}
	w.t.Fatalf("the world does not settle:\n%s", w.dump())
}

// round gives every object a step, or some of them several.
func (w *world) round(showAll bool) {
	w.t.Helper()
	w.listening()
	w.show(showAll)
	w.report()
	for _, rec := range w.turns() {
		w.run(rec)
	}
	w.awaitHandOvers()
	w.purgeOn()
	w.report()
	w.checkSafe()
	w.checkClone()
	w.checkLimit()
	w.watchDevice()
	w.checkDevice()
}

// turns are the reconcilers in the order of one round.
func (w *world) turns() []reconciler {
	if w.rng == nil {
		return w.recs
	}
	var out []reconciler
	for _, rec := range w.recs {
		for range w.rng.IntN(4) {
			out = append(out, rec)
		}
	}
	w.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// run gives every object of a kind one step.
func (w *world) run(rec reconciler) {
	w.t.Helper()
	if node, ok := strings.CutPrefix(rec.kind, "agent "); ok && w.down[node] {
		return
	}
	for _, name := range rec.list() {
		w.stepOf(rec, name)
		if w.afterStep != nil {
			w.afterStep()
		}
	}
	if strings.HasPrefix(rec.kind, "agent") {
		w.checkSafe()
	}
}

// stepOf gives one object a step.
func (w *world) stepOf(rec reconciler, name string) {
	_, err := rec.r.Reconcile(context.Background(),
		ctrl.Request{NamespacedName: client.ObjectKey{Namespace: ns, Name: name}})
	if err != nil {
		w.t.Logf("%s %s: %v", rec.kind, name, err)
	}
}

// advance lets time pass in steps, settling after each.
func (w *world) advance(d, step time.Duration) {
	w.t.Helper()
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(step)
		w.settle()
	}
}

// show has the allocator see what has been written: everything, or, in a world whose reconcilers
// run unevenly, some of it. Wake-ups are dropped, since settle looks at every volume.
func (w *world) show(all bool) {
	for name := range w.unshown {
		if !all && w.rng != nil && w.rng.IntN(3) == 0 {
			continue
		}
		delete(w.unshown, name)
		var r v1beta2.Replica
		if err := w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, &r); err != nil {
			w.allocator.Gone(name)
		} else {
			w.allocator.Observe(&r)
		}
	}
	if v := w.volume("v"); v != nil {
		w.allocator.ObserveVolume(v)
	}
	for len(w.allocator.Wakeups()) > 0 {
		<-w.allocator.Wakeups()
	}
}

// wrote counts writes, to tell rounds that changed something from quiet ones.
func (w *world) dump() string {
	var b strings.Builder
	v := w.volume("v")
	if v != nil {
		fmt.Fprintf(&b, "volume node=%q at=%q state=%s robustness=%s conditions=%v\n", v.Spec.NodeID,
			v.Status.CurrentNodeID, v.Status.State, v.Status.Robustness, v.Status.Conditions)
	}
	var engines v1beta2.EngineList
	must(w.t, w.c.List(context.Background(), &engines))
	for _, e := range engines.Items {
		fmt.Fprintf(&b, "engine %s image=%s/%s upgraded=%v node=%q desire=%s state=%s map=%v modes=%v membership=%v\n", e.Name,
			e.Spec.Image, e.Status.CurrentImage, e.Spec.UpgradedReplicaAddressMap, e.Spec.NodeID,
			e.Spec.DesireState, e.Status.CurrentState, e.Spec.ReplicaAddressMap, e.Status.ReplicaModeMap, e.Status.Membership)
	}
	for _, r := range w.replicas() {
		fmt.Fprintf(&b,
			"replica %s node=%q desire=%s state=%s failed=%q healthy=%q lastHealthy=%q retries=%d dir=%s deleted=%v active=%v image=%s\n",
			r.Name, r.Spec.NodeID, r.Spec.DesireState, r.Status.CurrentState, r.Spec.FailedAt, r.Spec.HealthyAt,
			r.Spec.LastHealthyAt, r.Spec.RebuildRetryCount, r.Spec.DataDirectoryName, r.DeletionTimestamp != nil,
			r.Spec.Active, r.Spec.Image)
	}
	for _, name := range slices.Sorted(maps.Keys(w.procs)) {
		fmt.Fprintf(&b, "process %s %s\n", name, w.procs[name].state)
	}
	for _, name := range slices.Sorted(maps.Keys(w.disks)) {
		c := w.disks[name]
		fmt.Fprintf(&b, "directory %s on %s complete=%v promised=%d record=%v rebuilding=%v removed=%v\n",
			name, c.node, w.complete(c), c.promised, c.record, c.rebuilding, w.removed(name, c))
	}
	fmt.Fprintf(&b, "down %v\n", w.down)
	return b.String()
}

func (w *world) volume(name string) *v1beta2.Volume {
	var v v1beta2.Volume
	if err := w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, &v); err != nil {
		return nil
	}
	return &v
}

func (w *world) engine() *v1beta2.Engine {
	var e v1beta2.Engine
	must(w.t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: "v-e-0"}, &e))
	return &e
}

func (w *world) replicas() []v1beta2.Replica {
	var l v1beta2.ReplicaList
	must(w.t, w.c.List(context.Background(), &l))
	return l.Items
}

func (w *world) newVolume(replicas int, edit func(*v1beta2.VolumeSpec)) {
	delete(w.chains, "v")
	delete(w.snapshots, "v")
	w.acknowledged = big.Int{} // the content of an earlier volume of the name is nobody's
	v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "v"}, Spec: v1beta2.VolumeSpec{
		Size: worldSize, NumberOfReplicas: replicas, Frontend: v1beta2.VolumeFrontendBlockDev, Image: image,
		StaleReplicaTimeout: 30,
	}}
	if edit != nil {
		edit(&v.Spec)
	}
	w.create(v)
}

// ticket wants the volume on a node; an empty node withdraws the ticket.
func (w *world) ticket(id, node string, kind v1beta2.AttacherType) {
	w.t.Helper()
	w.ticketOf("v", id, node, kind)
}

// ticketOf is ticket for any volume.
func (w *world) ticketOf(volume, id, node string, kind v1beta2.AttacherType) {
	w.t.Helper()
	var a v1beta2.VolumeAttachment
	must(w.t, w.c.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: volume}, &a))
	if a.Spec.AttachmentTickets == nil {
		a.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{}
	}
	if node == "" {
		delete(a.Spec.AttachmentTickets, id)
	} else {
		a.Spec.AttachmentTickets[id] = v1beta2.AttachmentTicket{ID: id, NodeID: node, Type: kind, Generation: 1}
	}
	must(w.t, w.c.Update(context.Background(), &a))
}

var (
	_ instance.Processes  = (*world)(nil)
	_ engineclient.Client = (*world)(nil)
)

func (w *world) path(node, dir string) string {
	return filepath.Join(w.dir, node, "host", "data", "replicas", dir)
}

func (w *world) removed(dir string, c *copyOf) bool {
	_, err := os.Stat(w.path(c.node, dir))
	return os.IsNotExist(err)
}
