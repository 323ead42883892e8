package simulated_test

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"ankole.storage/api/longhorn/v1beta2"
)

var (
	seeds = flag.Int("seeds", 12, "number of histories")
	trace = flag.Bool("trace", false, "tell every look and write too")
	first = flag.Int("first", 1, "seed of the first one")
)

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// TestWorld plays histories of users, faults and rest.
func TestWorld(t *testing.T) {
	for seed := *first; seed < *first+*seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, uint64(seed))
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { play(t, seed, dir) })
		})
	}
}

func init() { slog.SetDefault(slog.New(slog.DiscardHandler)) }

func play(t *testing.T, seed int, dir string) {
	w := &world{t: t, rng: rand.New(rand.NewPCG(uint64(seed), 7)), dir: dir, store: newStore(),
		agents: map[string]*process{}, worked: map[string]time.Time{}, started: time.Now()}
	w.site = site{pods: map[types.UID]*pod{}, copies: map[string]*data{}, volumes: map[string]*wanted{}}
	w.store.wrote = w.wrote
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() {
		for _, p := range w.processes() {
			p.stop()
		}
	}()
	w.build(2 + w.rng.IntN(3))
	w.run(time.Minute)
	for range 1 + w.rng.IntN(3) {
		for range 3 + w.rng.IntN(12) {
			w.act()
			w.run(w.between(0, w.between(time.Second, 90*time.Second)))
		}
		w.rest()
	}
	w.heal()
	w.rest()
	w.converged()
	t.Logf("%d writes in %s", w.store.version, time.Since(w.started))
}

// restFor is how long nothing must have been changed for an object that counts as being at rest.
// What is tried again and again is tried within that time.
const restFor = 10 * time.Minute

// mostAtRest is how often an object may be looked at in that time. A volume without a usable
// replica that somebody wants is opened again about once in a minute, with some fifty looks.
const mostAtRest = 2000

// rest lets time pass without news, and then has everybody look at everything once, as a new leader
// would: whoever finds something to do then was not woken for it.
func (w *world) rest() {
	w.calm = true
	w.run(40 * time.Minute)
	before := w.looks()
	w.run(restFor + time.Minute)
	for object, n := range w.looks() {
		if n -= before[object]; n > mostAtRest {
			w.failf("%s: %d looks in eleven minutes of rest", object, n)
		}
	}
	for _, p := range w.processes() {
		for _, c := range p.controllers {
			for key := range p.view.shown[w.store.kindOf(c.For)] {
				c.wake(key, 0)
			}
		}
	}
	w.note("everybody looks at everything")
	w.explain = true
	w.run(3 * time.Second)
	w.explain = false
	w.calm = false
}

// looks counts the looks at each object so far.
func (w *world) looks() map[string]int {
	out := map[string]int{}
	for _, p := range w.processes() {
		for _, c := range p.controllers {
			for name, n := range c.looks {
				out[c.Name+" "+name] += n
			}
		}
	}
	return out
}

// heal ends every fault and everything that keeps volumes from what is wanted.
func (w *world) heal() {
	w.note("faults end")
	w.calm = true
	for _, h := range w.nodes {
		h.capacity = 100 * gib
		w.comeBack(h)
		w.diskGone(h, false)
		w.cordon(h, false)
		edit(w, h.name, func(n *v1beta2.Node) {
			d := n.Spec.Disks["d"]
			d.AllowScheduling, d.EvictionRequested = true, false
			n.Spec.Disks["d"] = d
		})
	}
	w.run(2 * time.Hour)
}

// converged says that every volume is where and how it is wanted.
func (w *world) converged() {
	for _, name := range sortedNames(w.volumes) {
		want, v := w.volumes[name], get[*v1beta2.Volume](w, name)
		switch {
		case want.deleted && v != nil:
			w.failf("%s is not gone", name)
		case want.deleted:
		case v == nil:
			w.failf("%s is gone", name)
		case want.node == "" && v.Status.State != v1beta2.VolumeStateDetached:
			w.failf("%s is %s, not detached", name, v.Status.State)
		case want.node != "" && (v.Status.State != v1beta2.VolumeStateAttached || v.Status.CurrentNodeID != want.node ||
			v.Status.Robustness != v1beta2.VolumeRobustnessHealthy):
			w.failf("%s is %s at %q and %s, wanted at %s", name, v.Status.State, v.Status.CurrentNodeID,
				v.Status.Robustness, want.node)
		case want.node != "" && v.Status.CurrentNodeID != "" && w.engineSize(name) != v.Spec.Size:
			w.failf("%s has %d bytes, wanted %d", name, w.engineSize(name), v.Spec.Size)
		}
	}
	for _, im := range all[*v1beta2.InstanceManager](w) {
		if im.Status.CurrentState != v1beta2.InstanceManagerStateRunning {
			w.failf("instance manager %s is %s", im.Name, im.Status.CurrentState)
		}
	}
}

func (w *world) engineSize(volume string) int64 {
	for _, e := range all[*v1beta2.Engine](w) {
		if e.Spec.VolumeName == volume {
			return e.Status.CurrentSize
		}
	}
	return 0
}

func (w *world) dump() string {
	var b strings.Builder
	for _, n := range all[*v1beta2.Node](w) {
		h := w.host(n.Name)
		fmt.Fprintf(&b, "node %s off=%v cut=%v gone=%v drained=%v %v disk=%+v\n", n.Name, h.off, h.cut, h.diskGone, h.drained,
			v1beta2.FindCondition(n.Status.Conditions, "Ready"), n.Status.DiskStatus["d"])
	}
	for _, im := range all[*v1beta2.InstanceManager](w) {
		fmt.Fprintf(&b, "im %s node=%s %s closed=%q\n", im.Name, im.Spec.NodeID, im.Status.CurrentState, im.Status.ClosedPod)
	}
	for _, v := range all[*v1beta2.Volume](w) {
		fmt.Fprintf(&b, "volume %s replicas=%d node=%q at=%q %s %s %v\n", v.Name, v.Spec.NumberOfReplicas, v.Spec.NodeID,
			v.Status.CurrentNodeID, v.Status.State, v.Status.Robustness, v.Status.Conditions)
	}
	for _, e := range all[*v1beta2.Engine](w) {
		fmt.Fprintf(&b, "engine %s node=%q %s %s map=%v modes=%v size=%d/%d %+v\n", e.Name, e.Spec.NodeID, e.Spec.DesireState,
			e.Status.CurrentState, e.Spec.ReplicaAddressMap, e.Status.ReplicaModeMap, e.Status.CurrentSize, e.Spec.VolumeSize,
			e.Status.Membership)
	}
	for _, r := range all[*v1beta2.Replica](w) {
		fmt.Fprintf(&b, "replica %s dir=%s node=%q %s %s failed=%q healthy=%q retries=%d evict=%v deleted=%v\n", r.Name,
			r.Spec.DataDirectoryName, r.Spec.NodeID, r.Spec.DesireState, r.Status.CurrentState, r.Spec.FailedAt,
			r.Spec.HealthyAt, r.Spec.RebuildRetryCount, r.Spec.EvictionRequested, r.DeletionTimestamp != nil)
	}
	for _, h := range w.nodes {
		for _, p := range w.podsOn(h) {
			for _, name := range sortedNames(p.processes) {
				fmt.Fprintf(&b, "process %s/%s %s %s\n", p.name, name, p.processes[name].state, p.processes[name].problem)
			}
		}
	}
	return b.String()
}
