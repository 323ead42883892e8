package instancemanager

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/instance"
	"ankole.storage/controlplane/setting"
	"ankole.storage/test/seeded"
)

// checkDeletion holds that no Pod goes while a process is in it, unless with a node or by a fault.
// Orders that are on their way arrive at the worst moment, which is this one.
func (w *site) checkDeletion(o client.Object) {
	w.t.Helper()
	name := o.GetName()
	switch o.(type) {
	case *corev1.Pod, *v1beta2.InstanceManager:
	default:
		return
	}
	w.arrive()
	for _, m := range w.machines {
		if m.name != name || m.ended {
			continue
		}
		w.seen["removed"]++
		if len(m.procs) > 0 {
			w.t.Fatalf("the Pod of %s is deleted with processes in it\n%s", name, w.dump())
		}
	}
}

// arrive carries out the orders that are on their way.
func (w *site) arrive() {
	late := w.late
	w.late = nil
	for _, order := range late {
		order()
	}
}

// check holds what must be true after every step.
func (w *site) check() {
	w.t.Helper()
	for _, name := range w.names(&v1beta2.ReplicaList{}) {
		var r v1beta2.Replica
		w.get(name, &r)
		p := w.processOf(&r)
		if r.Status.CurrentState == v1beta2.InstanceStateUnknown {
			w.seen["unknown"]++
		}
		if p != nil && r.Status.CurrentState == v1beta2.InstanceStateStopped && !r.Status.Starting {
			w.over[p.Status.UUID] = true // whatever comes, this one is not what the object orders next
		}
		of, _, _ := strings.Cut(r.Status.Order, "/")
		switch {
		case p == nil:
		case r.Status.CurrentState == v1beta2.InstanceStateError && p.Spec.Order == r.Status.Order &&
			r.Status.Started:
			w.t.Fatalf("replica %s is in error and its process runs\n%s", name, w.dump())
		case p.Spec.Order == "" || r.Spec.DesireState != v1beta2.InstanceStateRunning ||
			r.Status.CurrentState != v1beta2.InstanceStateRunning || r.Status.UUID != p.Status.UUID:
		case p.Spec.Order != r.Status.Order || of != string(r.UID) || w.over[p.Status.UUID]:
			w.t.Fatalf("replica %s has taken process %s of order %s\n%s", name, p.Status.UUID, p.Spec.Order, w.dump())
		}
	}
}

// processOf is the process of a replica's name in its instance manager, or else on its node; nil if
// there is none.
func (w *site) processOf(r *v1beta2.Replica) (p *v1beta2.InstanceProcess) {
	for _, m := range w.machines {
		if m.procs[r.Name] != nil && (m.name == r.Status.InstanceManagerName || m.node == r.Spec.NodeID && p == nil) {
			p = m.procs[r.Name]
		}
	}
	return p
}

// checkRelease holds that no object goes whose process is known to be there, on a node that is up.
func (w *site) checkRelease(r *v1beta2.Replica) {
	w.t.Helper()
	for _, name := range w.names(&v1beta2.InstanceManagerList{}) {
		var im v1beta2.InstanceManager
		w.get(name, &im)
		p := instance.Find(&im, r.Name)
		if p != nil && im.Spec.NodeID == r.Spec.NodeID && strings.HasPrefix(p.Spec.Order, string(r.UID)) {
			w.t.Fatalf("replica %s goes, its process %s does not\n%s", r.Name, p.Status.UUID, w.dump())
		}
	}
}

func (w *site) dump() string {
	var b strings.Builder
	for _, name := range w.names(&v1beta2.ReplicaList{}) {
		var r v1beta2.Replica
		w.get(name, &r)
		fmt.Fprintf(&b, "replica %s uid=%s node=%s desire=%s wanted=%v deleted=%v %+v\n", name, r.UID, r.Spec.NodeID,
			r.Spec.DesireState, w.wanted[name], r.DeletionTimestamp != nil, r.Status.InstanceStatus)
	}
	for _, name := range w.names(&v1beta2.InstanceManagerList{}) {
		var im v1beta2.InstanceManager
		w.get(name, &im)
		fmt.Fprintf(&b, "instance manager %s image=%s node=%s %s closed=%q lists %v\n", name, im.Spec.Image, im.Spec.NodeID,
			im.Status.CurrentState, im.Status.ClosedPod, im.Status.InstanceReplicas)
	}
	for uid, m := range w.machines {
		fmt.Fprintf(&b, "machine %s of %s on %s refuses=%v old=%v\n", uid, m.name, m.node, m.refuses, m.old)
		for name, p := range m.procs {
			fmt.Fprintf(&b, "  %s %s order %s\n", name, p.Status.UUID, p.Spec.Order)
		}
	}
	for _, name := range w.names(&v1beta2.OrphanList{}) {
		var o v1beta2.Orphan
		w.get(name, &o)
		fmt.Fprintf(&b, "orphan %v deleted=%v conditions %v\n", o.Spec.Parameters, o.DeletionTimestamp != nil,
			o.Status.Conditions)
	}
	fmt.Fprintf(&b, "down %v mute %v\nfaults %q\n", w.down, w.mute, w.history)
	return b.String()
}

func (w *site) newReplica(name, node string) {
	w.wanted[name] = true
	r := &v1beta2.Replica{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1beta2.Finalizer}}}
	r.Spec.VolumeName, r.Spec.NodeID, r.Spec.Image, r.Spec.DiskPath = "v", node, "engine:1", "/data"
	r.Spec.DataDirectoryName = name
	w.create(r)
}

func (w *site) deleteReplica(name string) {
	var r v1beta2.Replica
	if w.get(name, &r) {
		must(w.t, w.c.Delete(context.Background(), &r))
	}
	w.wanted[name] = false
}

func (w *site) setDown(node string, down bool) {
	if down {
		w.down[node] = true
	} else {
		delete(w.down, node)
	}
	w.nodeReady(node, !down)
}

// killPod ends a machine with all its processes; its kubelet says so.
func (w *site) killPod(node string) {
	for uid, m := range w.machines {
		if m.node != node || w.down[node] {
			continue
		}
		var p corev1.Pod
		if w.get(m.name, &p) && p.UID == uid {
			p.Status.Phase = corev1.PodFailed
			must(w.t, w.raw.Status().Update(context.Background(), &p))
			m.procs = map[string]*v1beta2.InstanceProcess{}
			m.refuses, m.ended = true, true
		}
	}
}

// converged says what is not as it should be when no fault is left.
func (w *site) converged() string {
	owned := map[string]bool{}
	for _, name := range w.names(&v1beta2.ReplicaList{}) {
		var r v1beta2.Replica
		w.get(name, &r)
		p := w.processOf(&r)
		if r.DeletionTimestamp != nil {
			return "replica " + name + " is still being deleted"
		}
		if !w.wanted[name] {
			if p != nil || r.Status.CurrentState != v1beta2.InstanceStateStopped {
				return "replica " + name + " has not stopped"
			}
			continue
		}
		if p == nil || r.Status.CurrentState != v1beta2.InstanceStateRunning || r.Status.UUID != p.Status.UUID {
			return "replica " + name + " does not run"
		}
		if p.Spec.Order != "" && p.Spec.Order != r.Status.Order {
			return "replica " + name + " runs by another order"
		}
		owned[p.Status.UUID] = true
	}
	for _, m := range w.machines {
		for name, p := range m.procs {
			if !owned[p.Status.UUID] {
				return "process " + name + " belongs to nobody"
			}
		}
	}
	if n := len(w.names(&v1beta2.OrphanList{})); n > 0 {
		return fmt.Sprintf("%d orphans are left", n)
	}
	for _, name := range w.names(&v1beta2.InstanceManagerList{}) {
		var im v1beta2.InstanceManager
		w.get(name, &im)
		synced := v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionSettingSynced)
		busy := len(im.Status.InstanceReplicas) > 0
		if !busy && synced.Status == v1beta2.ConditionFalse {
			return "instance manager " + name + " was made with other settings and is idle"
		}
	}
	return ""
}

// TestOrphanedProcess: a replica is deleted while its node is away. Its process is reported when
// the node is back, and is ended after the grace period.
func TestOrphanedProcess(t *testing.T) {
	w := newSite(t, 1)
	w.newReplica("v-r-1", "n1")
	w.pass(10, time.Second)
	w.setDown("n1", true)
	w.pass(3, time.Second)
	w.deleteReplica("v-r-1")
	w.pass(5, time.Second)
	if w.get("v-r-1", &v1beta2.Replica{}) {
		t.Fatalf("the object waits for a node that is away\n%s", w.dump())
	}
	w.setDown("n1", false)
	w.pass(5, time.Second)
	orphans := w.names(&v1beta2.OrphanList{})
	if len(orphans) != 1 {
		t.Fatalf("not reported\n%s", w.dump())
	}
	var o v1beta2.Orphan
	w.get(orphans[0], &o)
	c := v1beta2.FindCondition(o.Status.Conditions, v1beta2.OrphanConditionInstanceExist)
	if o.Spec.OrphanType != v1beta2.OrphanTypeReplicaInstance || o.Spec.NodeID != "n1" || c.Reason != "running" ||
		o.Labels["longhornreplica"] != "v-r-1" || o.Spec.Parameters[v1beta2.OrphanParameterInstanceName] != "v-r-1" {
		t.Fatalf("reported as %+v", o)
	}
	w.pass(4, time.Minute)
	if w.converged() != "process v-r-1 belongs to nobody" {
		t.Fatalf("ended before the grace period: %s\n%s", w.converged(), w.dump())
	}
	w.pass(5, time.Minute)
	if why := w.converged(); why != "" {
		t.Fatalf("%s\n%s", why, w.dump())
	}
}

// TestAnyFaults draws faults, changes of settings, orders of a user and new leaders. After every
// step checkDeletion and check hold; when the faults are over, every replica that is wanted runs by
// its own order, nothing else does, and settings have taken effect where nothing runs.
func TestAnyFaults(t *testing.T) {
	const long = 80
	seeds := uint64(long)
	if testing.Short() {
		seeds = 15
	}
	src := seeded.New(t, "P7: nothing that keeps the leader from observing a process ends it")
	seen := map[string]int{}
	runs := 0
	for range src.Seeds(seeds) {
		anyFaults(t, src.Rand(0), seen)
		runs++
	}
	for _, what := range []string{"removed", "unknown", "other", "orphan", "refused", "late"} {
		if seen[what] == 0 && runs == long {
			t.Errorf("no run has seen %q: %v", what, seen)
		}
	}
}

func anyFaults(t *testing.T, r *rand.Rand, seen map[string]int) {
	kinds := []string{"down", "up", "mute", "hear", "leader", "annotation", "network", "lose", "lose", "late", "kill",
		"stop", "start", "delete", "again", "cpu", "image", "away", "away", "twice", "twice", "race",
		"race", "race"}
	names, nodes := []string{"v-r-1", "v-r-2", "v-r-3"}, []string{"n1", "n2"}
	w := newSite(t, len(nodes))
	w.seen, w.rand = seen, r
	if r.IntN(2) == 0 {
		w.setting(setting.DefaultInstanceManagerImage, "im:old")
	}
	for i, name := range names {
		w.newReplica(name, nodes[i%2])
	}
	w.pass(8, time.Second)
	for range 1 + r.IntN(20) {
		what, node, name := kinds[r.IntN(len(kinds))], nodes[r.IntN(2)], names[r.IntN(3)]
		w.history = append(w.history, fmt.Sprintf("%s %s %s %s", w.now.Format(time.TimeOnly), what, node, name))
		w.fault(what, node, name)
		w.pass(r.IntN(5), time.Second)
	}
	for _, node := range nodes {
		w.setDown(node, false)
		delete(w.mute, node)
		w.networkOf(node, true)
	}
	w.late, w.loseAnswer = nil, false
	for range 20 { // the grace period of orphans, and pauses between Pods
		w.pass(1, time.Minute)
		w.pass(6, time.Second)
		if w.converged() == "" {
			return
		}
	}
	t.Fatalf("%s\n%s", w.converged(), w.dump())
}

func (w *site) networkOf(node string, there bool) {
	for _, m := range w.machines {
		if m.node == node {
			w.networkStatus(m.name, there)
		}
	}
}

func (w *site) fault(what, node, name string) {
	switch what {
	case "down", "up":
		w.setDown(node, what == "down")
	case "mute":
		w.mute[node] = true
	case "hear":
		delete(w.mute, node)
	case "leader":
		w.newLeader()
	case "annotation", "network":
		w.networkOf(node, what == "network")
	case "lose":
		w.loseAnswer = true
	case "late":
		w.arrive()
	default:
		w.compound(what, node, name)
	}
}

// compound is a history of several faults that has to come in one piece.
func (w *site) compound(what, node, name string) {
	switch what {
	case "away": // and back under a new leader, which has no stream yet
		w.setDown(node, true)
		w.pass(2, time.Second)
		w.newLeader()
		w.mute[node] = true
		w.setDown(node, false)
		w.pass(2, time.Second)
	case "twice": // the same name again, or the same replica, while its node is away
		if w.rand.IntN(2) == 0 { // its process is started and not listed any more
			w.wanted[name] = false
			w.pass(4, time.Second)
			w.mute[node], w.wanted[name] = true, w.get(name, &v1beta2.Replica{})
			w.pass(4, time.Second)
		}
		w.setDown(node, true)
		w.pass(2, time.Second)
		if w.wanted[name] = false; w.rand.IntN(2) == 0 {
			w.deleteReplica(name)
		}
		w.pass(3, time.Second)
		if w.wanted[name] = w.get(name, &v1beta2.Replica{}); !w.wanted[name] {
			w.newReplica(name, node)
		}
		w.mute[node] = w.rand.IntN(3) > 0
		w.setDown(node, false)
	case "race": // an order is on its way while its instance manager becomes due for a removal
		for _, other := range w.names(&v1beta2.ReplicaList{}) {
			w.wanted[other] = false
		}
		w.pass(6, time.Second)
		w.wanted[name] = w.get(name, &v1beta2.Replica{})
		w.loseAnswer = true
		for i := 0; i < 8 && w.loseAnswer; i++ {
			w.pass(1, time.Second)
		}
		w.fault("cpu", node, name)
	case "kill":
		w.killPod(node)
	case "stop", "start":
		w.wanted[name] = what == "start" && slices.Contains(w.names(&v1beta2.ReplicaList{}), name)
	case "delete":
		w.deleteReplica(name)
	case "again":
		if !w.get(name, &v1beta2.Replica{}) {
			w.newReplica(name, node)
		}
	case "cpu":
		var s v1beta2.Setting
		value := "20"
		if w.get(setting.GuaranteedInstanceManagerCPU, &s) && s.Value == value {
			value = "10"
		}
		w.setting(setting.GuaranteedInstanceManagerCPU, value)
	case "image":
		w.setting(setting.DefaultInstanceManagerImage, "im:2")
	}
}
