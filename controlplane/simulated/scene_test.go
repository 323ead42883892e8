package simulated_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

const (
	volumeSize = gib
	// ioBound is how long I/O may wait; the setting's default.
	ioBound = 5 * time.Minute
)

// scene plays what is told on a cluster of so many nodes, with some seeds: what is late and in what
// order things happen is drawn, what happens is not. Rebuilds and copies end when the scene says
// so.
func scene(t *testing.T, nodes int, tell func(t *testing.T, w *world)) {
	t.Helper()
	scenes(t, 2, nodes, tell)
}

// drawn plays what is told with more seeds, since what happens is drawn too.
func drawn(t *testing.T, seeds uint64, nodes int, tell func(w *world)) {
	t.Helper()
	scenes(t, seeds, nodes, func(_ *testing.T, w *world) { tell(w) })
}

func scenes(t *testing.T, seeds uint64, nodes int, tell func(t *testing.T, w *world)) {
	t.Helper()
	for seed := uint64(1); seed <= seeds; seed++ {
		cryptotest.SetGlobalRandom(t, seed)
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed, dir)
			w.mu.Lock()
			defer w.mu.Unlock()
			defer func() {
				for _, p := range w.processes() {
					p.stop()
				}
			}()
			w.calm, w.held, w.tellAll = true, true, *trace
			w.build(nodes)
			for _, h := range w.nodes {
				w.setCapacity(h, 100)
			}
			settings := map[string]string{
				setting.OfflineReplicaRebuilding: "false", setting.NodeDrainPolicy: "block-if-contains-last-replica",
				setting.ReplicaAutoBalance: "disabled", setting.ConcurrentReplicaRebuildPerNodeLimit: "5",
				setting.DefaultInstanceManagerImage: "im:1", setting.StorageOverProvisioningPercentage: "100",
				setting.ReplicaReplenishmentWaitInterval: "600", setting.ReplicaSoftAntiAffinity: "false",
				setting.StorageNetwork: "", setting.DisableSchedulingOnCordonedNode: "true",
				setting.GuaranteedInstanceManagerCPU: `{"v1":"12"}`}
			for _, name := range sortedNames(settings) {
				w.setting(name, settings[name])
			}
			w.run(2 * time.Minute)
			tell(t, w)
		})
	}
}

// inScene is a test of a scene, with volume v attached to n1, unless it has no replicas.
func inScene(nodes, replicas int, tell func(t *testing.T, w *world)) func(*testing.T) {
	return func(t *testing.T) {
		scene(t, nodes, func(t *testing.T, w *world) {
			if replicas > 0 {
				w.attached(replicas)
			}
			tell(t, w)
		})
	}
}

// story is a scene after which faults end: then all is as it is wanted.
func story(t *testing.T, nodes int, tell func(w *world)) {
	t.Helper()
	scene(t, nodes, func(_ *testing.T, w *world) {
		w.held = false
		w.setting(setting.ReplicaReplenishmentWaitInterval, "0")
		w.run(time.Second)
		tell(w)
		w.heal()
		w.converged()
	})
}

// makeVolume makes volume v.
func (w *world) makeVolume(replicas int, edit func(*v1beta2.VolumeSpec)) {
	w.volumes["v"] = &wanted{name: "v"}
	v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v", Labels: naming.VolumeLabels("v"),
		Finalizers: []string{v1beta2.Finalizer}},
		Spec: v1beta2.VolumeSpec{Size: volumeSize, NumberOfReplicas: replicas, Frontend: v1beta2.VolumeFrontendBlockDev,
			Image: engineImage, StaleReplicaTimeout: 30}}
	if edit != nil {
		edit(&v.Spec)
	}
	w.create(v)
}

// attached makes volume v and attaches it to n1.
func (w *world) attached(replicas int) {
	w.makeVolume(replicas, nil)
	w.settle()
	w.tickets("ui", "n1", v1beta2.AttacherTypeLonghornAPI)
	w.settle()
}

// tickets wants volume v on a node; an empty node withdraws the ticket.
func (w *world) tickets(id, node string, kind v1beta2.AttacherType) {
	w.ticketOf("v", id, node, kind)
}

func (w *world) ticketOf(volume, id, node string, kind v1beta2.AttacherType) {
	w.note("user: ticket %s of %s on %q", id, volume, node)
	if v := w.volumes[volume]; v != nil {
		v.node = node
	}
	a := get[*v1beta2.VolumeAttachment](w, volume)
	if a.Spec.AttachmentTickets == nil {
		a.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{}
	}
	if node == "" {
		delete(a.Spec.AttachmentTickets, id)
	} else {
		a.Spec.AttachmentTickets[id] = v1beta2.AttachmentTicket{ID: id, NodeID: node, Type: kind, Generation: 1}
	}
	must(w, w.store.update(a, false))
}

// settle lets everybody notice what has happened, and do what follows from it.
func (w *world) settle() { w.run(90 * time.Second) }

// rebuilt ends every rebuild.
func (w *world) rebuilt() {
	for _, s := range w.servings() {
		for _, r := range s.replicas {
			s.rebuilt(r, false)
		}
	}
}

// heals ends rebuilds until volume v has what it wants, letting time pass.
func (w *world) heals(limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		w.run(30 * time.Second)
		w.rebuilt()
		w.run(30 * time.Second)
		v := w.volume("v")
		if v.Status.State == v1beta2.VolumeStateAttached && v.Status.Robustness == v1beta2.VolumeRobustnessHealthy {
			return
		}
	}
	w.failf("the volume does not heal")
}

// expect describes volume v shortly and compares.
func (w *world) expect(want string) {
	w.t.Helper()
	got := "gone"
	if v := w.volume("v"); v != nil {
		got = fmt.Sprintf("%s %s at %q", v.Status.State, v.Status.Robustness, v.Status.CurrentNodeID)
	}
	if got != want {
		w.failf("volume is %s, want %s", got, want)
	}
}

func (w *world) volume(name string) *v1beta2.Volume { return get[*v1beta2.Volume](w, name) }

// engine is the object of volume v's engine.
func (w *world) engine() *v1beta2.Engine {
	e := get[*v1beta2.Engine](w, "v-e-0")
	if e == nil {
		w.failf("no engine")
	}
	return e
}

// served is the engine of volume v that runs; nil if there is none.
func (w *world) served() *serving {
	for _, s := range w.servings() {
		if s.volume == "v" && !s.standsIn() {
			return s
		}
	}
	return nil
}

// replicas are those of volume v.
func (w *world) replicas() (out []v1beta2.Replica) {
	for _, r := range w.replicasOf("v") {
		out = append(out, *r.DeepCopy())
	}
	return out
}

func (w *world) replicaNames() (out []string) {
	for _, r := range w.replicas() {
		out = append(out, r.Name)
	}
	return out
}

// onNodes counts the replicas of volume v by node.
func (w *world) onNodes() map[string]int {
	out := map[string]int{}
	for _, r := range w.replicas() {
		out[r.Spec.NodeID]++
	}
	return out
}

// free is the first node without a replica of volume v.
func (w *world) free() string { return w.without("v")[0].name }

// elsewhere is a node with a replica of volume v other than that one.
func (w *world) elsewhere(node string) string {
	nodes := w.onNodes()
	delete(nodes, node)
	return sortedNames(nodes)[0]
}

// modes counts the replicas of the running engine by mode.
func (w *world) modes() map[v1beta2.ReplicaMode]int {
	out := map[v1beta2.ReplicaMode]int{}
	for _, m := range w.engine().Status.ReplicaModeMap {
		out[m]++
	}
	return out
}

// running are the processes that run, all others beside them: those that have failed.
func (w *world) running() (alive, others []*proc) {
	for _, h := range w.nodes {
		for _, p := range w.podsOn(h) {
			for _, name := range sortedNames(p.processes) {
				if r := p.processes[name]; r.alive() {
					alive = append(alive, r)
				} else {
					others = append(others, r)
				}
			}
		}
	}
	return alive, others
}

func isEngine(p *proc) bool  { return slices.Contains(p.args, "controller") && !isStandIn(p) }
func isStandIn(p *proc) bool { return argument(p.args, "--stand-in-for") != "" }
func isReplica(p *proc) bool { return !isEngine(p) && !isStandIn(p) }

// replicaOn matches the processes of replicas on a node.
func replicaOn(node string) func(*proc) bool {
	return func(p *proc) bool { return isReplica(p) && p.pod.host.name == node }
}

// killFirst ends the first process that matches, if there is one.
func (w *world) killFirst(match func(*proc) bool) {
	alive, _ := w.running()
	if i := slices.IndexFunc(alive, match); i >= 0 {
		w.note("process %s is killed", alive[i].name)
		w.end(alive[i], "signal: killed")
	}
}

// killReplicas ends all of them at once: no engine has a moment to go on without some.
func (w *world) killReplicas() {
	alive, _ := w.running()
	for _, p := range alive {
		if isReplica(p) {
			w.end(p, "signal: killed")
		}
	}
}

// keepAway ends an instance manager with all its processes; until it may come its node has none.
func (w *world) keepAway(node string) {
	h := w.host(node)
	h.noPods = true
	w.killPod(h)
}

func (w *world) letCome(node string) {
	h := w.host(node)
	h.noPods = false
	for _, p := range all[*corev1.Pod](w) {
		if p.Spec.NodeName == node && len(p.OwnerReferences) > 0 {
			w.kubelet(h, p.Name, p.UID)
		}
	}
}

func (w *world) cut(node string)  { w.away(w.host(node), false) }
func (w *world) mend(node string) { w.comeBack(w.host(node)) }

// condition is one of volume v.
func (w *world) condition(kind string) v1beta2.Condition {
	return v1beta2.FindCondition(w.volume("v").Status.Conditions, kind)
}

// change changes volume v as a user would.
func (w *world) changeVolume(change func(*v1beta2.VolumeSpec)) {
	edit(w, "v", func(v *v1beta2.Volume) { change(&v.Spec) })
}

// takes says whether a node takes new replicas.
func (w *world) takes(node string, on bool) {
	edit(w, node, func(n *v1beta2.Node) { n.Spec.AllowScheduling = on })
}

// evict asks for the node of a replica to be emptied.
func (w *world) evict(name string) {
	edit(w, get[*v1beta2.Replica](w, name).Spec.NodeID, func(n *v1beta2.Node) {
		n.Spec.AllowScheduling, n.Spec.EvictionRequested = false, true
	})
}

// rebuilding lets so many rebuilds end, one after the other.
func (w *world) rebuilding(rounds int) {
	for range rounds {
		w.settle()
		w.rebuilt()
	}
	w.settle()
}

// gone says whether a directory was removed.
func (d *data) gone() bool {
	_, err := os.Stat(d.path)
	return os.IsNotExist(err)
}

// recorder notes events, as "<reason> <message>".
type recorder struct {
	record.EventRecorder
	w *world
}

func (r recorder) Event(_ runtime.Object, kind, reason, message string) {
	r.w.events = append(r.w.events, kind+" "+reason+" "+message)
}

func (r recorder) Eventf(o runtime.Object, kind, reason, format string, args ...any) {
	r.Event(o, kind, reason, fmt.Sprintf(format, args...))
}

func (r recorder) AnnotatedEventf(o runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	r.Event(o, kind, reason, fmt.Sprintf(format, args...))
}

// eventsOf counts the events since the last call with a word, a reason or a name, that contain a
// text.
func (w *world) eventsOf(reason, text string) (n int) {
	for _, e := range w.events {
		if strings.Contains(" "+e+" ", " "+reason+" ") && strings.Contains(e, text) {
			n++
		}
	}
	w.events = nil
	return n
}

// told is eventsOf with any message.
func (w *world) told(reason string) int { return w.eventsOf(reason, "") }

// fault does one thing to a machine, or to a volume's processes, if it can be done.
func (w *world) fault(h *host, volume string) {
	of := func(match func(*proc) bool) func(*proc) bool {
		return func(p *proc) bool { return match(p) && volumeOf(p.name) == volume }
	}
	switch w.rng.IntN(9) {
	case 0:
		w.killFirst(of(replicaOn(h.name)))
	case 1:
		w.killFirst(of(isEngine))
	case 2:
		w.killPod(h)
	case 3:
		w.silence(h, !h.mute)
	case 4:
		if h.reachable() {
			w.away(h, false)
		}
	case 5:
		w.comeBack(h)
	case 6:
		w.ticketOf(volume, "ui", h.name, v1beta2.AttacherTypeLonghornAPI)
	case 7:
		w.rebuilt()
		for _, s := range w.servings() {
			s.copied()
		}
	case 8:
		w.run(w.between(time.Minute, 10*time.Minute))
	}
}

// pause lets some time pass, or nearly none, so that the next fault comes in the middle.
func (w *world) pause() { w.run(w.between(0, w.between(10*time.Millisecond, 2*time.Minute))) }

// endFaults brings machines back.
func (w *world) endFaults() {
	for _, h := range w.nodes {
		w.comeBack(h)
		w.silence(h, false)
	}
}
