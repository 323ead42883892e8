package simulated_test

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/allocator"
	"ankole.storage/controlplane/keys/volumekey"
	"ankole.storage/controlplane/node"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/node/orphan"
	"ankole.storage/controlplane/node/settingsync"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engine"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/process/replica"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/volume"
	"ankole.storage/controlplane/volume/attachment"
	"ankole.storage/controlplane/volume/snapshot"
)

const (
	namespace   = naming.Namespace
	engineImage = "ankole/engine:1"
	gib         = int64(1) << 30
)

// site is what the controllers do not run: machines, kubelets, processes.
type site struct {
	seq   int
	nodes []*host
	// pods are the running instance managers by the UID of their Pod.
	pods map[types.UID]*pod
	// byIP are those that had an address last; none is given twice.
	byIP    map[string]*pod
	streams *streams
	// copies are replica directories by name.
	copies  map[string]*data
	ids     int
	volumes map[string]*wanted
	// late are orders that are on their way and whose answer is lost; loses: every answer is.
	late  []func()
	loses bool
	// acknowledged is the newest write that the user of a volume was told is done, by the UID.
	acknowledged map[string]int
	// lines are the snapshots of volumes by UID. cruel lets engines die after an order about them.
	lines map[string]*line
	cruel bool
	// outcomes, if set, says how the next replacement of an engine goes; handedOver counts those that
	// were carried out.
	outcomes   func() outcome
	handedOver int
	// engineOf is the engine that was last started for a volume.
	engineOf map[string]*serving
	// logsRead are the processes whose log was read, in order; starts counts processes, tries the
	// orders to start one.
	logsRead      []string
	starts, tries int
	// keys are the leader's master keys.
	keys *volumekey.Keys
	// endGranted is how many starts of engines end as soon as the witness has granted an epoch, bug a
	// rule that engines break.
	endGranted int
	bug        bug
	// over are the runs that an object has given up. removals counts what controllers removed of
	// instance managers, met the orders that were on their way then.
	over map[string]bool
	// collecting: what has no owner any more is removed soon.
	collecting    bool
	removals, met int
}

// host is a machine. A machine that is off runs nothing; one that is cut off reaches nobody.
type host struct {
	name     string
	off, cut bool
	diskGone bool
	// hung: the disk answers no reads and no writes, and looks as if nothing had happened.
	hung bool
	// noPods: no instance manager comes up.
	noPods bool
	// kubeletLate is how long it takes longer until a Pod that is being deleted is told to end, and
	// endLate until it has ended then.
	kubeletLate, endLate time.Duration
	// mute: its instance managers answer orders, and tell nothing on their streams.
	mute     bool
	drained  bool
	uuid     string
	capacity int64
	// turn counts how often it was lost, so that what was planned before is dropped.
	turn int
	// since is when it was last reached, or told of its processes, after it had not.
	since time.Time
}

func (h *host) reachable() bool { return !h.off && !h.cut }

func (w *world) host(name string) *host {
	for _, h := range w.nodes {
		if h.name == name {
			return h
		}
	}
	return nil
}

func get[T client.Object](w *world, name string) T {
	var none T
	of := reflect.TypeFor[T]().Elem()
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if of == reflect.TypeFor[corev1.Node]() {
		key.Namespace = ""
	}
	o := w.store.kind(of).objects[key]
	if o == nil {
		return none
	}
	return o.DeepCopyObject().(T)
}

func all[T client.Object](w *world) (out []T) {
	k := w.store.kind(reflect.TypeFor[T]().Elem())
	for _, key := range k.keys() {
		out = append(out, k.objects[key].(T))
	}
	return out
}

// write stores an object as it is, status included, as its owner outside of the controllers would.
func (w *world) write(o client.Object) { w.store.put(w.store.kindOf(o), o) }

func (w *world) create(o client.Object) {
	o.SetNamespace(namespace)
	full := o.DeepCopyObject().(client.Object)
	if err := w.store.create(o); err != nil {
		w.failf("create: %v", err)
	}
	if st := statusOf(full); st.IsValid() {
		full.SetUID(o.GetUID())
		full.SetCreationTimestamp(o.GetCreationTimestamp())
		w.write(full)
	}
}

// edit changes an object as a user would; nothing if it is not there.
func edit[T client.Object](w *world, name string, change func(T)) {
	if o := get[T](w, name); !reflect.ValueOf(o).IsNil() {
		change(o)
		_ = w.store.update(o, false) // deleted meanwhile, at worst
	}
}

func (w *world) setting(name, value string) {
	w.set[name] = time.Now()
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		w.had(name, n)
	}
	if get[*v1beta2.Setting](w, name) == nil {
		w.create(&v1beta2.Setting{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
		return
	}
	edit(w, name, func(s *v1beta2.Setting) { s.Value = value })
}

func (w *world) build(nodes int) {
	w.setting(setting.DefaultEngineImage, engineImage)
	w.setting(setting.DefaultInstanceManagerImage, "im:1")
	w.setting(setting.ConcurrentReplicaRebuildPerNodeLimit, fmt.Sprint(1+w.rng.IntN(3)))
	w.setting(setting.StorageMinimalAvailablePercentage, "0")
	w.setting(setting.StorageOverProvisioningPercentage, "100")
	w.setting(setting.OrphanResourceAutoDeletion, setting.OrphanKindInstance)
	w.setting(setting.OfflineReplicaRebuilding, fmt.Sprint(w.rng.IntN(2) == 0))
	if w.rng.IntN(4) == 0 {
		w.setting(setting.DefaultInstanceManagerImage, oldImage)
	}
	if w.rng.IntN(3) == 0 {
		w.setting(setting.StorageNetwork, "kube-system/data")
	}
	for range w.rng.IntN(5) {
		w.change()
	}
	for i := 1; i <= nodes; i++ {
		h := &host{name: fmt.Sprintf("n%d", i), uuid: fmt.Sprintf("disk-%d", i)}
		w.setCapacity(h, 3+w.rng.Int64N(12))
		w.addHost(h)
		w.startAgent(h)
	}
	w.image(engineImage)
	w.image(nextImage)
	w.newLeader()
}

// addHost adds a machine, with what Kubernetes has of it and a manager Pod.
func (w *world) addHost(h *host) {
	w.nodes = append(w.nodes, h)
	k := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.name}}
	k.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	k.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	must(w, w.store.create(k.DeepCopy()))
	have := w.store.kindOf(k).objects[client.ObjectKey{Name: h.name}]
	k.SetUID(have.GetUID())
	w.write(k)
	w.create(&v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: h.name, Finalizers: []string{v1beta2.Finalizer}},
		Spec: v1beta2.NodeSpec{Name: h.name, AllowScheduling: true, Disks: map[string]v1beta2.DiskSpec{
			"d": {Path: "/data", AllowScheduling: true, DiskType: v1beta2.DiskTypeFilesystem}}}})
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "manager-" + h.name,
		Labels: map[string]string{naming.LabelApp: naming.AppManager}}, Spec: corev1.PodSpec{NodeName: h.name}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	w.create(p)
}

func must(w *world, err error) {
	if err != nil {
		w.failf("%v", err)
	}
}

// newLeader ends the manager process that leads and starts another.
func (w *world) newLeader() {
	if w.leader != nil {
		w.leader.stop()
	}
	if w.streams != nil {
		w.streams.cancel()
	}
	w.streams = newStreams(w)
	lists := w.streams.heard
	limits := allocator.New(namespace, nil)
	w.keys = &volumekey.Keys{Client: &api{w: w}, Namespace: namespace,
		Used: volumekey.UsedBy(&api{w: w}, namespace)}
	w.lookAtKeys()
	leads := w.nodes[0].name
	engines := &engines{w: w}
	w.leader = w.start(func(client.Object) bool { return true },
		limits,
		settingsync.New(settingsync.Config{Namespace: namespace}),
		node.New(namespace),
		instancemanager.New(instancemanager.Config{Namespace: namespace, NodeName: leads, Close: w.closeIdle,
			Follower: w.streams, Heard: lists, Proxies: engineclient.NewProxies(dialProxy), Budgets: allocator.NewBudgets(nil)}),
		volume.New(volume.Config{Namespace: namespace, NodeName: leads, Allocator: limits, Keys: w.keys}),
		attachment.New(attachment.Config{Namespace: namespace}),
		engine.New(engine.Config{Namespace: namespace, NodeName: leads, Logs: &orders{w: w}, Keys: w.keys,
			Heard: lists, Purge: engines.SnapshotPurge}, &orders{w: w}, engines),
		snapshot.New(snapshot.Config{Namespace: namespace}, engines),
		orphan.New(orphan.Config{Namespace: namespace, NodeName: leads, Heard: lists}, &orders{w: w}),
		replica.New(replica.Config{Namespace: namespace, NodeName: leads, Logs: &orders{w: w}, Keys: w.keys,
			Heard: lists},
			&orders{w: w}),
	)
}

// lookAtKeys has the leader compare the master keys with the Secret.
func (w *world) lookAtKeys() {
	for w.keys.Load(w.t.Context()) != nil {
	}
}

// meddle has somebody ask for another master key, or delete them all, and the leader notice.
func (w *world) meddle() {
	secret := get[*corev1.Secret](w, naming.SecretVolumeKeys)
	if w.rng.IntN(2) == 0 {
		w.note("user: another master key")
		edit(w, secret.Name, func(s *corev1.Secret) {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, volumekey.AnnotationRotate, "")
		})
	} else {
		w.note("user: delete Secret %s", secret.Name)
		must(w, w.store.delete(secret, client.DeleteOptions{}))
	}
	w.lookAtKeys()
}

// startAgent starts the manager process of a node, with the agent that removes data.
func (w *world) startAgent(h *host) {
	if p := w.agents[h.name]; p != nil {
		p.stop()
	}
	w.agents[h.name] = w.start(func(o client.Object) bool {
		switch o := o.(type) {
		case *v1beta2.Replica:
			return o.Spec.NodeID == h.name
		case *v1beta2.Node, *corev1.Node:
			return o.GetName() == h.name
		}
		return true
	}, replica.NewAgent(replica.AgentConfig{Namespace: namespace, NodeName: h.name, Resolve: func(p string) string {
		return filepath.Join(w.dir, h.name, p)
	}}))
	w.lookAtDisk(h)
}

func (w *world) stopAgent(h *host) {
	if p := w.agents[h.name]; p != nil {
		p.stop()
		delete(w.agents, h.name)
	}
}

// wrote follows every change of the store.
func (w *world) wrote(k *kind, before, after client.Object) {
	for _, p := range w.processes() {
		p.view.written(k)
	}
	for _, o := range []client.Object{before, after} {
		if o != nil {
			w.noteCopies(o.GetLabels()[naming.LabelVolume])
		}
	}
	switch o := after.(type) {
	case nil:
		w.collectSoon()
	case *v1beta2.Node:
		h := w.host(o.Name)
		w.after(w.between(0, 100*time.Millisecond), func() { w.lookAtDisk(h) })
	case *corev1.Pod:
		w.podWritten(o)
	}
}

// collectSoon plans a removal of what has no owner any more: in a crowd one is enough for all.
func (w *world) collectSoon() {
	if w.crowded && w.collecting {
		return
	}
	w.collecting = true
	w.after(w.between(0, 2*time.Second), w.collect)
}

// collect removes what has no owner any more.
func (w *world) collect() {
	w.collecting = false
	uids := map[types.UID]bool{}
	for _, k := range w.store.order {
		for _, o := range k.objects {
			uids[o.GetUID()] = true
		}
	}
	for _, k := range w.store.order {
		for _, key := range k.keys() {
			o := k.objects[key]
			for _, ref := range o.GetOwnerReferences() {
				if !uids[ref.UID] && o.GetDeletionTimestamp() == nil {
					_ = w.store.delete(o, client.DeleteOptions{}) // it is there
					break
				}
			}
		}
	}
}

// lookAtDisk is the agent's look at the disk of its node (package node), which reports what it
// finds; it looks every 30 seconds too, which finds nothing else here.
func (w *world) lookAtDisk(h *host) {
	if h == nil || w.agents[h.name] == nil && !(w.crowded && h.reachable()) {
		return
	}
	n := get[*v1beta2.Node](w, h.name)
	if n == nil {
		return
	}
	d, there := n.Status.DiskStatus["d"]
	if !there {
		return
	}
	d.DiskPath, d.DiskType, d.FilesystemType, d.DiskUUID = "/data", v1beta2.DiskTypeFilesystem, "xfs", h.uuid
	d.StorageMaximum, d.StorageAvailable = h.capacity, h.capacity
	for _, c := range w.copies {
		if w.crowded {
			break // disks are large
		}
		if c.node == h.name {
			d.StorageAvailable -= c.size / 8
		}
	}
	ready := v1beta2.Condition{Type: v1beta2.DiskConditionReady, Status: v1beta2.ConditionTrue}
	if h.diskGone {
		ready.Status, ready.Reason = v1beta2.ConditionFalse, v1beta2.DiskReasonNoDiskInfo
	}
	if v1beta2.IsConditionTrue(n.Status.Conditions, v1beta2.NodeConditionReady) {
		d.Conditions, _ = v1beta2.SetCondition(d.Conditions, ready, time.Now())
	}
	n.Status.DiskStatus["d"] = d
	_ = w.store.update(n, true) // it is read a moment before
}

// editNode changes a Kubernetes node.
func (w *world) editNode(name string, change func(*corev1.Node)) {
	n := get[*corev1.Node](w, name)
	change(n)
	w.write(n)
}

func (w *world) kubeReady(h *host, status corev1.ConditionStatus) {
	w.editNode(h.name, func(n *corev1.Node) {
		if n.Status.Conditions[0].Status != status {
			n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: status,
				LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second))}
		}
	})
	for _, p := range all[*corev1.Pod](w) {
		ready := status
		if status == corev1.ConditionTrue && strings.HasPrefix(p.Name, "manager-") && w.agents[h.name] == nil {
			ready = corev1.ConditionFalse
		}
		if p.Spec.NodeName == h.name && len(p.Status.Conditions) > 0 {
			w.podReady(p.Name, ready == corev1.ConditionTrue)
		}
	}
}

func (w *world) podReady(name string, ready bool) {
	p := get[*corev1.Pod](w, name)
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	if p == nil || p.Status.Conditions[0].Status == status {
		return
	}
	p.Status.Conditions[0].Status = status
	w.write(p)
}

func (w *world) lastEvents() string {
	from := max(0, len(w.history)-*last)
	return strings.Join(w.history[from:], "\n")
}
