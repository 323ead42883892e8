package simulated_test

import (
	"os"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/setting"
)

// heardWithin is how long after a change nobody may decide by what was before any more: later than
// the slowest cache.
const heardWithin = 2 * time.Minute

// seen is a value of something, and since when it had it.
type seen struct {
	value int64
	since time.Time
}

// had notes that something has a value now.
func (w *world) had(what string, value int64) {
	w.values[what] = append(w.values[what], seen{value, time.Now()})
}

// most is the largest value that somebody may still take for the present one.
func (w *world) most(what string) int64 {
	var most int64
	for i, s := range w.values[what] {
		if last := i == len(w.values[what])-1; last || time.Since(w.values[what][i+1].since) < heardWithin {
			most = max(most, s.value)
		}
	}
	return most
}

// setTo is how long a setting has had its value.
func (w *world) setTo(name string) (value string, d time.Duration) {
	if s := get[*v1beta2.Setting](w, name); s != nil {
		value = s.Value
	}
	return value, time.Since(w.set[name])
}

// good are the replicas that have everything that was acknowledged to a volume's user.
func (w *world) good(volume string) (out []*v1beta2.Replica) {
	for _, r := range all[*v1beta2.Replica](w) {
		d := w.copies[r.Spec.DataDirectoryName]
		if r.Spec.VolumeName != volume || !w.holds(d) {
			continue
		}
		if _, err := os.Stat(d.path); err == nil {
			out = append(out, r)
		}
	}
	return out
}

// checked has the promises checked that hold after every look.
func (w *world) checked() {
	if w.crowded {
		return
	}
	servings := w.servings()
	w.copiesKept(servings)
	w.ownProcesses()
	w.cloneWhole(servings)
	w.devicesKept(servings)
}

// copiesKept fails when a controller took the last good copy of a volume. A deleted replica that is
// kept until another one has its data is one.
func (w *world) copiesKept(servings []*serving) {
	for _, name := range sortedNames(w.volumes) {
		if v := w.volumes[name]; v.deleted || w.newest(name) == nil {
			continue
		}
		if len(w.good(name)) == 0 {
			w.failf("P2: the last good copy of %s was deleted", name)
		}
	}
	for _, s := range servings {
		if m := w.newest(s.volume); m == nil || m.Epoch != s.epoch {
			continue // replaced: it acknowledges nothing, and learns of it
		}
		for _, r := range s.replicas {
			if r.mode == engineclient.ModeRW && r.silent.IsZero() && !w.holds(w.copies[r.dir]) {
				w.failf("P2: engine %s reads from %s, which lacks acknowledged writes", s.p.uuid, r.dir)
			}
		}
	}
}

// staying are the good replicas that are not being deleted, and whose machine and disk are there.
func (w *world) staying(volume string) []*v1beta2.Replica {
	return slices.DeleteFunc(w.good(volume), func(r *v1beta2.Replica) bool {
		h := w.host(r.Spec.NodeID)
		return r.DeletionTimestamp != nil || h == nil || !h.reachable() || h.diskGone
	})
}

// noteAllCopies is noteCopies after a machine or a disk has gone or come.
func (w *world) noteAllCopies() {
	for _, name := range sortedNames(w.volumes) {
		w.noteCopies(name)
	}
}

// noteCopies notes since when a volume has the good copies that stay on one node only.
func (w *world) noteCopies(volume string) {
	v := w.volumes[volume]
	if v == nil || w.crowded {
		return
	}
	node := ""
	for i, r := range w.staying(volume) {
		if i > 0 && r.Spec.NodeID != node {
			node = ""
			break
		}
		node = r.Spec.NodeID
	}
	if node != v.only {
		v.only, v.onlySince = node, time.Now()
	}
}

// drainable fails when a drain may take the last good copy of a volume, and could have been kept
// from it for long.
func (w *world) drainable(h *host) {
	policy, since := w.setTo(setting.NodeDrainPolicy)
	if since < heardWithin || policy == "always-allow" || policy == "allow-if-replica-is-stopped" {
		return
	}
	for _, name := range sortedNames(w.volumes) {
		v := w.volumes[name]
		if !v.deleted && v.only == h.name && time.Since(v.onlySince) > heardWithin {
			w.failf("a drain of %s may take the last good copy of %s", h.name, name)
		}
	}
}

// placed fails when a replica is put on a disk whose limit it exceeds.
func (w *world) placed(o client.Object) {
	r, ok := o.(*v1beta2.Replica)
	if !ok || r.Spec.NodeID == "" {
		return
	}
	before := get[*v1beta2.Replica](w, r.Name)
	if before == nil || before.Spec.NodeID != "" || before.ResourceVersion != r.ResourceVersion {
		return // it has its place, or the write is refused
	}
	if time.Since(w.grown) < heardWithin {
		return // what is added by growing is not told of by the replica yet
	}
	sum := r.Spec.VolumeSize
	for _, other := range all[*v1beta2.Replica](w) {
		if other.Spec.NodeID == r.Spec.NodeID && other.Name != r.Name && other.DeletionTimestamp == nil {
			sum += other.Spec.VolumeSize
		}
	}
	limit := w.most("capacity of "+r.Spec.NodeID) * w.most(setting.StorageOverProvisioningPercentage) / 100
	if sum > limit {
		w.failf("%d bytes are placed on %s, whose limit is %d", sum, r.Spec.NodeID, limit)
	}
}

// rebuildsWithin fails when a node has more rebuilds than its limit.
func (w *world) rebuildsWithin(h *host) {
	if w.crowded {
		return
	}
	n := 0
	for _, s := range w.servings() {
		for _, r := range s.replicas {
			if p := w.replicaAt(r.address, s.p); r.mode == engineclient.ModeWO && p != nil && p.pod.host == h {
				n++
			}
		}
	}
	if limit := w.most(setting.ConcurrentReplicaRebuildPerNodeLimit); int64(n) > limit {
		w.failf("%d rebuilds on %s, whose limit is %d", n, h.name, limit)
	}
}

// servings are the engines that serve.
func (w *world) servings() (out []*serving) {
	for _, h := range w.nodes {
		for _, p := range w.podsOn(h) {
			for _, name := range sortedNames(p.processes) {
				if e := p.processes[name].engine; e != nil && !e.ended {
					out = append(out, e)
				}
			}
		}
	}
	return out
}

// oneWriter fails when two engines of a volume are of the newest epoch, or when one is started
// while another one serves on a node that could have been asked for long.
func (w *world) oneWriter(volume string, starting bool) {
	if w.crowded {
		return
	}
	var writers int
	for _, s := range w.servings() {
		if s.volume != volume || !s.contact || len(s.members()) == 0 {
			continue
		}
		if m := w.newest(volume); m != nil && m.Epoch == s.epoch {
			writers++
		}
		h := s.p.pod.host
		if starting && h.reachable() && time.Since(h.since) > heardWithin {
			w.failf("an engine of %s is started, and %s serves on %s", volume, s.p.name, h.name)
		}
	}
	if writers > 1 {
		w.failf("%d engines write to %s", writers, volume)
	}
}

// devicesKept fails when a volume is called faulted although its I/O has not waited for its bound:
// only that and a detachment that was asked for end the device of an attached volume.
func (w *world) devicesKept(servings []*serving) {
	served := map[string]string{}
	for _, s := range servings {
		if s.epoch > 0 && s.source() != "" && !s.standsIn() {
			served[s.p.volumeUID] = s.p.pod.host.name
		}
	}
	for _, v := range all[*v1beta2.Volume](w) {
		u := w.volumes[v.Name]
		if u == nil || u.deleted {
			continue
		}
		switch at := served[string(v.UID)]; {
		case at != "":
			u.device, u.waits = at, time.Time{}
		case u.device != v.Spec.NodeID:
			u.device = "" // detached
		case u.device != "" && u.waits.IsZero():
			u.waits = time.Now()
		}
		if v.Status.State == v1beta2.VolumeStateAttached && v.Status.Robustness == v1beta2.VolumeRobustnessFaulted &&
			u.device != "" && (u.waits.IsZero() || time.Since(u.waits) < ioBound) {
			w.failf("%s is faulted although its I/O waits since %s only", v.Name, u.waits)
		}
	}
}

// stops fails when somebody stops a running engine where its volume is to stay: that would take the
// device down.
func (w *world) stops(p *proc) {
	v := get[*v1beta2.Volume](w, volumeOf(p.name))
	if v != nil && v.DeletionTimestamp == nil && p.alive() && isEngine(p) && p.volumeUID == string(v.UID) &&
		v.Spec.NodeID == p.pod.host.name && v.Status.State == v1beta2.VolumeStateAttached {
		w.failf("engine %s is stopped on the node where its volume is attached", p.uuid)
	}
}

// attachSteps is how many looks attaching a volume to a healthy node takes at most, and attachTime
// how long.
const (
	attachSteps = 400
	attachTime  = time.Minute
)

// attaches has a volume attached to a healthy node, and counts the steps.
func (w *world) attaches() {
	w.calm = true
	name := w.newVolume().name
	w.run(time.Minute)
	for _, h := range w.nodes {
		before, asked := w.looksAt(name), time.Now()
		w.attach(w.volumes[name], h.name)
		for v := get[*v1beta2.Volume](w, name); v.Status.State != v1beta2.VolumeStateAttached ||
			v.Status.CurrentNodeID != h.name; v = get[*v1beta2.Volume](w, name) {
			if n := w.looksAt(name) - before; n > attachSteps || time.Since(asked) > attachTime {
				w.failf("%s is %s at %q after %d looks in %s, wanted at %s", name, v.Status.State, v.Status.CurrentNodeID, n,
					time.Since(asked), h.name)
			}
			w.run(time.Second)
		}
	}
}
