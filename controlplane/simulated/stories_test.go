package simulated_test

import (
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// volumeOfTwo makes a volume of two replicas and attaches it to a node, "" for nowhere.
func (w *world) volumeOfTwo(node string) *wanted {
	v := w.newVolume()
	edit(w, v.name, func(o *v1beta2.Volume) {
		o.Spec.NumberOfReplicas, o.Spec.DataLocality, o.Spec.StaleReplicaTimeout = 2, v1beta2.DataLocalityDisabled, 0
	})
	w.run(time.Minute)
	w.attach(v, node)
	w.run(5 * time.Minute)
	if n := len(w.good(v.name)); node != "" && n != 2 {
		w.failf("%s has %d good copies", v.name, n)
	}
	return v
}

// without are the nodes without a replica of a volume.
func (w *world) without(volume string) (out []*host) {
	for _, h := range w.nodes {
		if !slices.ContainsFunc(all[*v1beta2.Replica](w), func(r *v1beta2.Replica) bool {
			return r.Spec.VolumeName == volume && r.Spec.NodeID == h.name
		}) {
			out = append(out, h)
		}
	}
	return out
}

// kill ends the process of a replica or an engine.
func (w *world) kill(name string) {
	if p := w.processOf(name); p != nil {
		w.end(p, "killed")
	}
}

func (w *world) processOf(name string) *proc {
	for _, h := range w.nodes {
		for _, p := range w.podsOn(h) {
			if r := p.processes[name]; r != nil {
				return r
			}
		}
	}
	return nil
}

// TestLastCopyIsListedAgain: a replica is deleted and taken off the engine's list, and before the
// engine has removed it the other one is lost.
func TestLastCopyIsListedAgain(t *testing.T) {
	story(t, 3, func(w *world) {
		v := w.volumeOfTwo("n1")
		copies := w.good(v.name)
		engine := w.servings()[0]
		engine.deaf = time.Now().Add(time.Minute)
		_ = w.store.delete(copies[0], client.DeleteOptions{}) // it is there
		w.run(10 * time.Second)
		if e := get[*v1beta2.Engine](w, engine.p.name); len(e.Spec.ReplicaAddressMap) != 1 {
			w.failf("the deleted replica is on the list")
		}
		w.kill(copies[1].Name)
		w.run(20 * time.Minute)
		if n := len(engine.members()); n != 2 || slices.ContainsFunc(w.good(v.name), func(r *v1beta2.Replica) bool {
			return r.Name == copies[0].Name
		}) {
			w.failf("%d replicas are in sync", n)
		}
	})
}

// TestRebuildOnAHungDiskIsGivenUp: the process of a replica that is to be rebuilt hangs, and does
// not end when it is killed.
func TestRebuildOnAHungDiskIsGivenUp(t *testing.T) {
	story(t, 4, func(w *world) {
		v := w.volumeOfTwo("n1")
		copies, free := w.good(v.name), w.without(v.name)
		w.setCapacity(free[0], 500) // the emptiest
		w.lookAtDisk(free[0])
		w.hang(free[0], true)
		w.run(time.Minute)
		_ = w.store.delete(copies[0], client.DeleteOptions{}) // it is there
		w.run(30 * time.Second)
		onHung := func(r *v1beta2.Replica) bool { return r.Spec.NodeID == free[0].name }
		if !slices.ContainsFunc(all[*v1beta2.Replica](w), onHung) {
			w.failf("no replica was placed on the disk that hangs")
		}
		w.run(15 * time.Minute)
		good := w.staying(v.name)
		if len(good) != 2 || slices.ContainsFunc(good, onHung) {
			w.failf("%d good copies", len(good))
		}
	})
}

// TestReplicaOfAnEngineOutOfReachStays: the engine's node is cut off, and a replica is deleted. Its
// process is not ended as long as the engine may use it, or that engine holds all I/O until it
// reaches the witness.
func TestReplicaOfAnEngineOutOfReachStays(t *testing.T) {
	story(t, 4, func(w *world) {
		v := w.volumeOfTwo("")
		h := w.without(v.name)[0]
		w.attach(v, h.name)
		w.run(5 * time.Minute)
		replica := w.good(v.name)[0]
		w.away(h, false)
		w.run(5 * time.Minute)
		_ = w.store.delete(replica, client.DeleteOptions{}) // it is there
		w.run(10 * time.Minute)
		if p := w.processOf(replica.Name); p == nil || !p.alive() {
			w.failf("the process of %s was ended under its engine", replica.Name)
		}
		w.comeBack(h)
		w.run(10 * time.Minute)
		if get[*v1beta2.Replica](w, replica.Name) != nil {
			w.failf("%s is kept", replica.Name)
		}
		if n := len(w.staying(v.name)); n != 2 {
			w.failf("%d good copies", n)
		}
	})
}
