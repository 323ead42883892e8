package simulated_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/heard"
	"ankole.storage/controlplane/setting"
)

const (
	// oldImage is an instance manager that tells no orders and cannot be closed.
	oldImage = "im:old"
	// orderTime is how long an order may be on its way.
	orderTime = 10 * time.Second
)

// lost lets the answer to an order be lost: the order arrives some time later, or when an instance
// manager is about to be removed, which is the worst moment.
func (w *world) lost(order func()) {
	done := false
	once := func() {
		if !done {
			done = true
			order()
		}
	}
	w.late = append(w.late, once)
	w.after(w.between(orderTime/2, orderTime-time.Millisecond), once)
	w.after(orderTime, func() { w.late = w.late[1:] })
}

// removed fails when a controller removes a Pod while a process runs in it.
func (w *world) removed(o client.Object) {
	switch o.(type) {
	case *corev1.Pod, *v1beta2.InstanceManager:
	default:
		return
	}
	w.removals, w.met = w.removals+1, w.met+len(w.late)
	for _, order := range slices.Clone(w.late) {
		order()
	}
	for _, h := range w.nodes {
		for _, p := range w.podsOn(h) {
			for _, name := range sortedNames(p.processes) {
				if p.name == o.GetName() && p.processes[name].alive() {
					w.failf("%T %s is deleted while %s runs in it", o, p.name, name)
				}
			}
		}
	}
}

// released fails when a node's agent lets the object of a replica go while its process is known to
// be there.
func (w *world) released(o client.Object) {
	r, ok := o.(*v1beta2.Replica)
	if !ok || r.DeletionTimestamp == nil || controllerutil.ContainsFinalizer(r, v1beta2.Finalizer) {
		return
	}
	for _, im := range all[*v1beta2.InstanceManager](w) {
		heard, _ := w.streams.heard.Of(im.Name)
		p := heard.Find(r.Name)
		if p != nil && im.Spec.NodeID == r.Spec.NodeID && strings.HasPrefix(p.Spec.Order, string(r.UID)) {
			w.failf("replica %s goes, its process %s does not", r.Name, p.Status.UUID)
		}
	}
}

// ownProcesses fails when an object has taken a process that was not made for it, or is in error
// while its process runs.
func (w *world) ownProcesses() {
	for _, r := range all[*v1beta2.Replica](w) {
		w.ownProcess(r.Name, string(r.UID), &r.Spec.InstanceSpec, &r.Status.InstanceStatus)
	}
	for _, e := range all[*v1beta2.Engine](w) {
		w.ownProcess(e.Name, string(e.UID), &e.Spec.InstanceSpec, &e.Status.InstanceStatus)
	}
}

func (w *world) ownProcess(name, uid string, spec *v1beta2.InstanceSpec, st *v1beta2.InstanceStatus) {
	p := w.processIn(st.InstanceManagerName, spec.NodeID, name)
	if p == nil || !p.alive() || p.order == "" {
		return
	}
	if st.CurrentState == v1beta2.InstanceStateStopped && !st.Starting {
		w.over[p.uuid] = true // whatever comes, this one is not what the object orders next
	}
	of, _, _ := strings.Cut(st.Order, "/")
	switch {
	case st.CurrentState == v1beta2.InstanceStateError && p.order == st.Order && st.Started && w.toldOf(p):
		w.failf("%s is in error and its process %s runs", name, p.uuid)
	case spec.DesireState == v1beta2.InstanceStateRunning && st.CurrentState == v1beta2.InstanceStateRunning &&
		st.UUID == p.uuid && (p.order != st.Order || of != uid || w.over[p.uuid]):
		w.failf("%s has taken process %s of order %s", name, p.uuid, p.order)
	}
}

// toldOf says whether a leader hears of a process, which does not end with its Pod.
func (w *world) toldOf(p *proc) bool {
	o := get[*corev1.Pod](w, p.pod.name)
	return p.pod.host.reachable() && !p.pod.host.mute && o != nil && o.UID == p.pod.uid
}

// processIn is the process of an object in its instance manager, or else on its node.
func (w *world) processIn(manager, node, name string) (found *proc) {
	for _, h := range w.nodes {
		for _, p := range w.podsOn(h) {
			if r := p.processes[name]; r != nil && (p.name == manager || h.name == node && found == nil) {
				found = r
			}
		}
	}
	return found
}

// nothingLeft says that every process belongs to an object, and that settings are in effect where
// nothing runs.
func (w *world) nothingLeft() {
	for _, h := range w.nodes {
		for _, p := range w.podsOn(h) {
			for _, name := range sortedNames(p.processes) {
				r, e := get[*v1beta2.Replica](w, name), get[*v1beta2.Engine](w, name)
				if !(r != nil && r.Status.UUID == p.processes[name].uuid || e != nil && e.Status.UUID == p.processes[name].uuid) {
					w.failf("process %s in %s belongs to nobody", name, p.name)
				}
			}
		}
	}
	if n := len(all[*v1beta2.Orphan](w)); n > 0 {
		w.failf("%d orphans are left", n)
	}
	for _, im := range all[*v1beta2.InstanceManager](w) {
		synced := v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionSettingSynced)
		if len(im.Status.InstanceReplicas)+len(im.Status.InstanceEngines) == 0 && synced.Status == v1beta2.ConditionFalse {
			w.failf("instance manager %s was made with other settings and is idle", im.Name)
		}
	}
}

// silence lets the instance managers of a machine not answer on their streams, or answer again.
func (w *world) silence(h *host, mute bool) {
	w.note("instance managers of %s are mute: %v", h.name, mute)
	h.mute, h.since = mute, time.Now()
	for _, p := range w.podsOn(h) {
		w.streams.changed(p)
	}
}

// unready has the probes of a machine's instance managers fail, or succeed again.
func (w *world) unready(h *host, unready bool) {
	for _, p := range w.podsOn(h) {
		o := get[*corev1.Pod](w, p.name)
		o.Status.ContainerStatuses = []corev1.ContainerStatus{{Ready: !unready}}
		w.write(o)
	}
}

// network writes or removes the annotation of the storage network on a machine's Pods.
func (w *world) network(h *host, there bool) {
	for _, p := range w.podsOn(h) {
		o := get[*corev1.Pod](w, p.name)
		if o == nil || o.UID != p.uid || o.Annotations[naming.AnnotationNetworks] == "" ||
			(o.Annotations[naming.AnnotationNetworkStatus] != "") == there {
			continue
		}
		w.note("%s has an address on the storage network: %v", p.name, there)
		p.annotate(o, there)
		w.write(o)
	}
}

// storageIP is the address on the storage network of a Pod with an address.
func storageIP(ip string) string { return "192.168" + strings.TrimPrefix(ip, "10.0") }

// annotate writes what the network plugin says of a Pod.
func (p *pod) annotate(o *corev1.Pod, there bool) {
	if o.Annotations[naming.AnnotationNetworks] == "" {
		return
	}
	p.storageIP = storageIP(p.ip)
	delete(o.Annotations, naming.AnnotationNetworkStatus)
	if there {
		o.Annotations[naming.AnnotationNetworkStatus] = `[{"interface":"lhnet1","ips":["` + p.storageIP + `"]}]`
	}
}

// TestOrphanedProcess: a replica is deleted while its node is away. Its process is reported when
// the node is back, and is ended after the grace period.
func TestOrphanedProcess(t *testing.T) {
	story(t, 3, func(w *world) {
		v := w.volumeOfTwo("n1")
		replica := w.good(v.name)[0]
		h := w.host(replica.Spec.NodeID)
		if h.name == "n1" {
			replica = w.good(v.name)[1]
			h = w.host(replica.Spec.NodeID)
		}
		w.away(h, false)
		w.run(2 * time.Minute)
		w.deleteVolume(v)
		w.run(5 * time.Minute)
		if get[*v1beta2.Replica](w, replica.Name) != nil {
			w.failf("the object waits for a node that is away")
		}
		w.comeBack(h)
		w.run(30 * time.Second)
		orphans := all[*v1beta2.Orphan](w)
		if len(orphans) != 1 {
			w.failf("%d orphans are reported", len(orphans))
		}
		o := orphans[0]
		c := v1beta2.FindCondition(o.Status.Conditions, v1beta2.OrphanConditionInstanceExist)
		if o.Spec.OrphanType != v1beta2.OrphanTypeReplicaInstance || o.Spec.NodeID != h.name || c.Reason != "running" ||
			o.Labels["longhornreplica"] != replica.Name ||
			o.Spec.Parameters[v1beta2.OrphanParameterInstanceName] != replica.Name {
			w.failf("reported as %+v", o)
		}
		w.run(4 * time.Minute)
		if w.processOf(replica.Name) == nil {
			w.failf("ended before the grace period")
		}
		w.run(5 * time.Minute)
		w.nothingLeft()
	})
}

// TestOrderMeetsARemoval: an instance manager becomes due for a removal while an order is on its
// way to it, under each kind of instance manager.
func TestOrderMeetsARemoval(t *testing.T) {
	for _, image := range []string{"im:1", oldImage} {
		removals, met := 0, 0
		story(t, 2, func(w *world) {
			w.setting(setting.DefaultInstanceManagerImage, image)
			w.run(5 * time.Minute)
			v := w.volumeOfTwo("n1")
			for i := range 6 {
				w.attach(v, "")
				w.run(2 * time.Minute)
				w.loses = true
				w.after(w.between(0, 25*time.Second), func() {
					w.setting(setting.GuaranteedInstanceManagerCPU, []string{`{"v1":"20"}`, `{"v1":"12"}`}[i%2])
				})
				w.after(w.between(0, 25*time.Second), func() { w.attach(v, "n1") })
				w.run(w.between(20*time.Second, 40*time.Second))
				w.loses = false
				w.run(3 * time.Minute)
			}
			removals, met = removals+w.removals, met+w.met
		})
		if removals == 0 || met == 0 && image != oldImage { // that one is removed when all orders have arrived
			t.Errorf("%s: %d instance managers were removed, with %d orders on their way to one", image, removals, met)
		}
	}
}

// TestVolumeOfAnEarlierOnesName: a volume is deleted while the node of its engine is away, and
// another one of its name is attached there as soon as the node is back. The engine that has run on
// is not the new volume's.
func TestVolumeOfAnEarlierOnesName(t *testing.T) {
	story(t, 3, func(w *world) {
		v := w.volumeOfTwo("n1")
		edit(w, v.name, func(o *v1beta2.Volume) { o.Spec.NumberOfReplicas = 3 })
		w.run(5 * time.Minute)
		h := w.host("n1")
		w.away(h, false)
		w.run(2 * time.Minute)
		w.attach(v, "")
		w.deleteVolume(v)
		w.run(5 * time.Minute)
		former := w.processOf(v.name + "-e-0")
		if get[*v1beta2.Volume](w, v.name) != nil || former == nil || !former.alive() {
			w.failf("the volume is not gone, or its engine has not outlived its object")
		}
		again := w.newVolume()
		for again.name != v.name {
			w.deleteVolume(again)
			again = w.newVolume()
		}
		w.run(time.Minute)
		w.newLeader()
		w.silence(h, true) // the node is ready before its processes are listed
		w.comeBack(h)
		w.attach(again, "n1")
		w.run(time.Minute)
		if now := w.processOf(v.name + "-e-0"); now != former {
			w.failf("an engine is started where it is not known what runs")
		}
		w.silence(h, false)
		w.run(2 * time.Minute)
		now, e := w.processOf(v.name+"-e-0"), get[*v1beta2.Engine](w, v.name+"-e-0")
		if now == nil || now == former || now.order != e.Status.Order || now.uuid != e.Status.UUID {
			w.failf("the engine is run %+v, made for %s", now, e.Status.Order)
		}
		for _, r := range all[*v1beta2.Replica](w) {
			if r.Spec.VolumeName == v.name && r.Spec.LastFailedAt != "" {
				w.failf("replica %s was marked as failed by the engine of the former volume", r.Name)
			}
		}
	})
}

// TestRunThatIsOverIsNotTaken: a process is started and not listed before its node is lost. Its
// object is stopped then, and wanted again when the node is back: what runs was made for an order
// that is over.
func TestRunThatIsOverIsNotTaken(t *testing.T) {
	story(t, 3, func(w *world) {
		v := w.newVolume()
		edit(w, v.name, func(o *v1beta2.Volume) { o.Spec.NumberOfReplicas, o.Spec.DataLocality = 1, "" })
		w.run(time.Minute)
		h := w.host(w.replicasOf(v.name)[0].Spec.NodeID)
		at := w.without(v.name)[0].name
		w.silence(h, true)
		w.attach(v, at)
		w.run(30 * time.Second)
		w.away(h, false)
		w.run(2 * time.Minute)
		w.attach(v, "")
		w.run(5 * time.Minute)
		if r := w.replicasOf(v.name)[0]; w.processOf(r.Name) == nil || !w.over[w.processOf(r.Name).uuid] {
			w.failf("no run of %s is over", r.Name)
		}
		w.attach(v, at)
		w.run(w.between(0, 10*time.Second))
		w.comeBack(h)
		w.run(w.between(0, time.Minute))
		w.silence(h, false)
		w.run(5 * time.Minute)
	})
}

// TestNewLeaderGoesByWhatItHears: a leader is lost before it has written what it has heard, and the
// next one hears nothing for a while. Nothing changes until it does, and nothing then.
func TestNewLeaderGoesByWhatItHears(t *testing.T) {
	story(t, 3, func(w *world) {
		v := w.volumeOfTwo("n1")
		w.calm = true
		w.run(time.Minute)
		before := w.runsOf(v.name)
		for _, h := range w.nodes {
			w.silence(h, true)
		}
		for _, im := range all[*v1beta2.InstanceManager](w) {
			im.Status.InstanceEngines, im.Status.InstanceReplicas = nil, nil
			must(w, w.store.update(im, true))
		}
		w.newLeader()
		for _, mute := range []bool{true, false} {
			for _, h := range w.nodes {
				w.silence(h, mute)
			}
			w.run(30 * time.Second)
			if now := w.runsOf(v.name); !maps.Equal(now, before) || len(now) < 3 {
				w.failf("instance managers are mute %v: %v, before %v", mute, now, before)
			}
		}
		for _, im := range all[*v1beta2.InstanceManager](w) {
			heard, _ := w.streams.heard.Of(im.Name)
			if len(im.Status.InstanceEngines) != len(heard.Engines) || len(im.Status.InstanceReplicas) != len(heard.Replicas) {
				w.failf("the status of %s does not show what was heard", im.Name)
			}
		}
	})
}

// runsOf are the processes of a volume by its objects: state and UUID.
func (w *world) runsOf(volume string) map[string]string {
	out := map[string]string{}
	for _, r := range w.replicasOf(volume) {
		out[r.Name] = string(r.Status.CurrentState) + " " + r.Status.UUID
	}
	e := get[*v1beta2.Engine](w, volume+"-e-0")
	out[e.Name] = string(e.Status.CurrentState) + " " + e.Status.UUID
	return out
}

func (w *world) replicasOf(volume string) (out []*v1beta2.Replica) {
	for _, r := range all[*v1beta2.Replica](w) {
		if r.Spec.VolumeName == volume {
			out = append(out, r)
		}
	}
	return out
}

func (p *pod) list() *heard.Processes {
	out := &heard.Processes{Engines: map[string]v1beta2.InstanceProcess{},
		Replicas: map[string]v1beta2.InstanceProcess{}, APIVersion: 4, APIMinVersion: 1, ProxyAPIVersion: 1}
	for _, r := range p.processes {
		out.Put(r.tell())
	}
	return out
}

func (p *proc) tell() v1beta2.InstanceProcess {
	kind := v1beta2.InstanceTypeReplica
	if strings.Contains(p.name, "-e-") {
		kind = v1beta2.InstanceTypeEngine
	}
	return v1beta2.InstanceProcess{
		Spec: v1beta2.InstanceProcessSpec{Name: p.name, Order: p.order, Binary: p.binary},
		Status: v1beta2.InstanceProcessStatus{Type: kind, State: p.state, ErrorMsg: p.problem, PortStart: p.port,
			PortEnd: p.port, UUID: p.uuid}}
}
