package simulated_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
)

// wanted is what the user of a volume wants. node is where it is to be attached, "" for nowhere.
type wanted struct {
	name, node string
	deleted    bool
	// only is the node that alone has good copies, "" for none, since onlySince.
	only      string
	onlySince time.Time
	// device is the node with its block device, "" for none, whose I/O waits since.
	device string
	waits  time.Time
}

// pick draws one of several.
func pick[T any](w *world, from []T) T { return from[w.rng.IntN(len(from))] }

// freeName is a name for a volume: a new one, or that of one that is gone.
func (w *world) freeName() string {
	if w.rng.IntN(2) == 0 {
		for _, name := range sortedNames(w.volumes) {
			if w.volumes[name].deleted && get[*v1beta2.Volume](w, name) == nil {
				return name
			}
		}
	}
	w.ids++
	return fmt.Sprintf("v%d", w.ids)
}

func (w *world) newVolume() *wanted {
	name := w.freeName()
	v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: naming.VolumeLabels(name),
		Finalizers: []string{v1beta2.Finalizer}},
		Spec: v1beta2.VolumeSpec{Size: (1 + w.rng.Int64N(2)) * gib, NumberOfReplicas: 1 + w.rng.IntN(len(w.nodes)),
			Frontend: v1beta2.VolumeFrontendBlockDev, Image: engineImage, StaleReplicaTimeout: 30}}
	if w.rng.IntN(6) == 0 {
		v.Spec.DataLocality = v1beta2.DataLocalityBestEffort
	}
	w.note("user: create %s, %d replicas of %d GiB %s", name, v.Spec.NumberOfReplicas, v.Spec.Size/gib,
		v.Spec.DataLocality)
	w.volumes[name] = &wanted{name: name}
	w.create(v)
	return w.volumes[name]
}

// attach asks for a volume on a node, "" for nowhere.
func (w *world) attach(v *wanted, to string) {
	w.note("user: %s on %q", v.name, to)
	v.node = to
	w.ticket(v)
}

// ticket brings the attachment to what is wanted; again while there is none yet.
func (w *world) ticket(v *wanted) {
	if v.deleted {
		return
	}
	a := get[*v1beta2.VolumeAttachment](w, v.name)
	if a == nil {
		w.after(5*time.Second, func() { w.ticket(v) })
		return
	}
	a.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{}
	if v.node != "" {
		a.Spec.AttachmentTickets["csi"] = v1beta2.AttachmentTicket{ID: "csi", NodeID: v.node,
			Type: v1beta2.AttacherTypeCSI, Generation: 1}
	}
	_ = w.store.update(a, false) // it was read a moment before
}

// act is one thing that a user does, or that happens to the cluster.
func (w *world) act() {
	h := pick(w, w.nodes)
	names := w.names()
	if len(names) == 0 || len(names) < 5 && w.rng.IntN(8) == 0 {
		w.newVolume()
		return
	}
	v := w.volumes[pick(w, names)]
	switch w.rng.IntN(29) {
	case 0, 1, 2:
		w.attach(v, h.name)
	case 3, 4:
		w.attach(v, "")
	case 5:
		w.deleteVolume(v)
	case 6:
		w.note("user: %s larger", v.name)
		w.grown = time.Now()
		edit(w, v.name, func(o *v1beta2.Volume) { o.Spec.Size += gib / 2 })
	case 7:
		n := 1 + w.rng.IntN(len(w.nodes))
		w.note("user: %s with %d replicas", v.name, n)
		edit(w, v.name, func(o *v1beta2.Volume) { o.Spec.NumberOfReplicas = n })
	case 8:
		w.deleteReplica()
	case 9:
		w.change()
	case 10:
		w.placing(h)
	case 11, 12:
		w.lose(h)
	case 13:
		w.diskGone(h, !h.diskGone)
	case 22:
		w.hang(h, !h.hung)
	case 23:
		w.silence(h, !h.mute)
	case 25:
		w.note("all replicas are killed")
		w.killReplicas()
	case 26:
		w.note("the next engine ends when it is granted an epoch")
		w.endGranted++
		w.killProcess()
	case 27:
		w.note("user: %s as large as it is", v.name)
		w.cancelGrowth(v.name)
	case 28:
		w.meddle()
	case 24:
		w.network(h, w.rng.IntN(2) == 0)
	case 14, 15:
		w.cordon(h, !h.drained)
	case 16:
		w.killPod(h)
	case 17, 18:
		w.killProcess()
	case 19:
		w.restartAgent(h)
	case 20:
		w.resize(h)
	case 21:
		if w.rng.IntN(4) == 0 {
			w.note("another manager leads")
			w.newLeader()
		}
	}
}

func (w *world) names() (out []string) {
	for _, v := range all[*v1beta2.Volume](w) {
		if !w.volumes[v.Name].deleted {
			out = append(out, v.Name)
		}
	}
	return out
}

func (w *world) deleteVolume(v *wanted) {
	w.note("user: delete %s", v.name)
	v.deleted, v.node = true, ""
	if o := get[*v1beta2.Volume](w, v.name); o != nil {
		_ = w.store.delete(o, client.DeleteOptions{}) // it is there
	}
}

// deleteReplica deletes a replica that the webhook would let go: another one is a good copy.
func (w *world) deleteReplica() {
	replicas := all[*v1beta2.Replica](w)
	if len(replicas) == 0 {
		return
	}
	r := pick(w, replicas)
	for _, o := range w.good(r.Spec.VolumeName) {
		if o.Name != r.Name && o.Spec.HealthyAt != "" && o.Spec.FailedAt == "" {
			w.note("user: delete replica %s", r.Name)
			_ = w.store.delete(r, client.DeleteOptions{}) // it is there
			if w.rng.IntN(2) == 0 {
				w.deafen(r.Spec.VolumeName, o.Name)
			}
			return
		}
	}
}

// deafen keeps orders from a volume's engine for a while, in which the process of one of its
// replicas is killed.
func (w *world) deafen(volume, replica string) {
	for _, s := range w.servings() {
		if s.volume == volume {
			s.deaf = time.Now().Add(w.between(time.Second, time.Minute))
			w.note("%s is deaf until %s", s.p.name, s.deaf.Sub(w.started))
		}
	}
	w.after(w.between(0, time.Minute), func() {
		for _, h := range w.nodes {
			for _, p := range w.podsOn(h) {
				if r := p.processes[replica]; r != nil && r.alive() {
					w.note("process %s is killed", replica)
					w.end(r, "killed")
				}
			}
		}
	})
}

// change changes a setting.
func (w *world) change() {
	values := map[string][]string{
		setting.OfflineReplicaRebuilding: {"true", "false"},
		setting.NodeDrainPolicy: {"block-if-contains-last-replica", "allow-if-replica-is-stopped", "always-allow",
			"block-for-eviction", "block-for-eviction-if-contains-last-replica"},
		setting.ReplicaAutoBalance:                   {"disabled", "least-effort", "best-effort"},
		setting.ConcurrentReplicaRebuildPerNodeLimit: {"1", "2", "5"},
		setting.GuaranteedInstanceManagerCPU:         {`{"v1":"12"}`, `{"v1":"5"}`, `{"v1":"20"}`},
		setting.DefaultInstanceManagerImage:          {"im:1", "im:2"},
		setting.StorageOverProvisioningPercentage:    {"100", "150", "60"},
		setting.ReplicaReplenishmentWaitInterval:     {"600", "60", "0"},
		setting.ReplicaSoftAntiAffinity:              {"false", "true"},
		setting.DisableSchedulingOnCordonedNode:      {"true", "false"},
	}
	var names []string
	for _, d := range setting.Definitions() {
		if values[d.Name] != nil {
			names = append(names, d.Name)
		}
	}
	name := pick(w, names)
	value := pick(w, values[name])
	w.note("user: setting %s = %s", name, value)
	w.setting(name, value)
}

// placing changes what may be on a node's disk.
func (w *world) placing(h *host) {
	allow, evict := w.rng.IntN(2) == 0, false
	if !allow {
		evict = w.rng.IntN(2) == 0
	}
	w.note("user: disk of %s scheduling %v eviction %v", h.name, allow, evict)
	edit(w, h.name, func(n *v1beta2.Node) {
		d := n.Spec.Disks["d"]
		d.AllowScheduling, d.EvictionRequested = allow, evict
		n.Spec.Disks["d"] = d
	})
}

func (w *world) setCapacity(h *host, gibs int64) {
	h.capacity = gibs * gib
	w.had("capacity of "+h.name, h.capacity)
}

func (w *world) resize(h *host) {
	w.setCapacity(h, 2+w.rng.Int64N(14))
	w.note("disk of %s has %d GiB", h.name, h.capacity/gib)
	w.after(w.between(0, 30*time.Second), func() { w.lookAtDisk(h) })
}

func (w *world) diskGone(h *host, gone bool) {
	w.note("disk of %s gone: %v", h.name, gone)
	h.diskGone = gone
	w.noteAllCopies()
	w.after(w.between(0, 30*time.Second), func() { w.lookAtDisk(h) })
	for _, p := range w.podsOn(h) {
		for _, name := range sortedNames(p.processes) {
			if r := p.processes[name]; gone && r.engine == nil && r.alive() && w.rng.IntN(2) == 0 {
				w.end(r, "its disk is gone")
			}
		}
	}
	w.noticed()
}

// lose takes a node away, and plans when it comes back, if it does.
func (w *world) lose(h *host) {
	if !h.reachable() {
		return
	}
	w.away(h, w.rng.IntN(2) == 0)
	turn := h.turn
	if w.rng.IntN(3) > 0 {
		w.after(w.between(5*time.Second, 5*time.Minute), func() {
			if h.turn == turn {
				w.comeBack(h)
			}
		})
	}
}

// away takes a node away: its power is off, or its network is cut.
func (w *world) away(h *host, off bool) {
	h.off, h.cut = off, !off
	w.noteAllCopies()
	w.note("node %s is lost, power off: %v", h.name, h.off)
	h.turn++
	turn := h.turn
	w.stopAgent(h)
	for _, p := range w.podsOn(h) {
		w.streams.changed(p)
		if h.off {
			w.endPod(p.uid)
		}
		for _, r := range p.processes {
			if r.engine != nil {
				r.engine.publish()
			}
		}
	}
	w.noticed()
	w.after(w.between(10*time.Second, 50*time.Second), func() {
		if h.turn == turn {
			w.kubeReady(h, corev1.ConditionUnknown)
		}
	})
}

func (w *world) comeBack(h *host) {
	if h.reachable() {
		return
	}
	w.note("node %s is back", h.name)
	h.off, h.cut, h.since = false, false, time.Now()
	w.noteAllCopies()
	h.turn++
	w.kubeReady(h, corev1.ConditionTrue)
	w.kick(h)
	for _, p := range w.podsOn(h) {
		w.streams.changed(p)
	}
	w.noticed()
	w.bringAgent(h)
}

// kick has a kubelet look at the Pods of its node soon.
func (w *world) kick(h *host) {
	for _, p := range all[*corev1.Pod](w) {
		if p.Spec.NodeName == h.name && len(p.OwnerReferences) > 0 {
			w.after(w.between(0, 5*time.Second), func() { w.kubelet(h, p.Name, p.UID) })
		}
	}
}

// bringAgent starts the node's manager Pod again after a while.
func (w *world) bringAgent(h *host) {
	w.podReady("manager-"+h.name, false)
	turn := h.turn
	w.after(w.between(time.Second, 20*time.Second), func() {
		if h.turn == turn && h.reachable() {
			w.startAgent(h)
			w.podReady("manager-"+h.name, true)
		}
	})
}

func (w *world) restartAgent(h *host) {
	if h.reachable() && w.agents[h.name] != nil {
		w.note("manager Pod of %s restarts", h.name)
		w.stopAgent(h)
		w.bringAgent(h)
	}
}

// cordon cordons a node and drains it, or ends that. A drain evicts the users of volumes, and the
// Pods of instance managers that no budget holds.
func (w *world) cordon(h *host, on bool) {
	w.note("node %s cordoned: %v", h.name, on)
	h.drained = on
	w.editNode(h.name, func(n *corev1.Node) { n.Spec.Unschedulable = on })
	if !on {
		return
	}
	if w.rng.IntN(2) == 0 {
		for _, name := range w.names() {
			if v := w.volumes[name]; v.node == h.name {
				w.attach(v, pick(w, w.nodes).name)
			}
		}
		w.drain(h)
	}
}

func (w *world) drain(h *host) {
	if !h.drained {
		return
	}
	for _, p := range w.podsOn(h) {
		if get[*policyv1.PodDisruptionBudget](w, p.name) == nil {
			if o := get[*corev1.Pod](w, p.name); o != nil && o.DeletionTimestamp == nil {
				w.note("drain of %s evicts %s", h.name, p.name)
				w.drainable(h)
				_ = w.store.delete(o, client.DeleteOptions{}) // it is there
			}
		}
	}
	w.after(20*time.Second, func() { w.drain(h) })
}

// podsOn are the instance managers that run on a machine, whether their Pod is still known or not.
func (w *world) podsOn(h *host) (out []*pod) {
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		if w.pods[uid].host == h {
			out = append(out, w.pods[uid])
		}
	}
	return out
}

func (w *world) killPod(h *host) {
	for _, p := range w.podsOn(h) {
		w.note("instance manager %s is killed", p.name)
		w.endPod(p.uid)
		w.after(w.between(0, 3*time.Second), func() { w.kubelet(h, p.name, p.uid) })
	}
}

func (w *world) killProcess() {
	var running []*proc
	for _, h := range w.nodes {
		for _, p := range w.podsOn(h) {
			for _, name := range sortedNames(p.processes) {
				if p.processes[name].alive() {
					running = append(running, p.processes[name])
				}
			}
		}
	}
	if len(running) > 0 {
		p := pick(w, running)
		w.note("process %s is killed", p.name)
		w.end(p, "killed")
	}
}
