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
	seeds = flag.Int("seeds", 12, "number of histories; a quarter of them with -short")
	trace = flag.Bool("trace", false, "tell every look and write too")
	last  = flag.Int("last", 400, "number of events before a failure that are told")
	first = flag.Uint64("first", 1, "seed of the first one")
)

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// number is how many histories are played.
func number() int {
	if testing.Short() {
		return max(1, *seeds/4)
	}
	return *seeds
}

// TestWorld plays histories of users, faults and rest.
func TestWorld(t *testing.T) {
	for seed := *first; seed < *first+uint64(number()); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { history(t, seed, *trace) })
	}
}

// TestRegressions plays the histories that have failed once.
func TestRegressions(t *testing.T) {
	for _, seed := range []uint64{
		186, // a deleted replica that is kept for the last data counts as a copy; a member that is back
		17,  // replicas that leave a cordoned node are replaced there
		461, // a setting waits for a Pod whose instance manager is gone
		404, // a volume is attached for a rebuild and detached again, without end
		966, // a replica that is deleted and kept is deleted again, without end
	} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { history(t, seed, *trace) })
	}
}

// TestHistoriesRepeat: a seed gives the same history to the letter, or no failure could be had
// again.
func TestHistoriesRepeat(t *testing.T) {
	for seed := *first; seed < *first+min(3, uint64(number())); seed++ {
		var told [2]string
		for i := range told {
			t.Run(fmt.Sprint(seed), func(t *testing.T) { told[i] = history(t, seed, true) })
		}
		if told[0] != told[1] {
			t.Errorf("seed %d gives two histories, which begin to differ with\n%s", seed, firstDifference(told[0], told[1]))
		}
		if len(told[0]) < 10_000 {
			t.Errorf("the history of seed %d has %d bytes only", seed, len(told[0]))
		}
	}
}

// TestScenesRepeat is TestHistoriesRepeat for scenes, with what runs beside the controllers.
func TestScenesRepeat(t *testing.T) {
	var told [2]string
	for i := range told {
		drawn(t, 2, 4, func(w *world) {
			w.tellAll = true
			w.upgradedAmongFaults()
			told[i] += strings.ReplaceAll(strings.Join(w.history, "\n"), w.dir, "")
		})
	}
	if told[0] != told[1] || len(told[0]) < 10_000 {
		t.Errorf("the same seeds give two histories, which begin to differ with\n%s", firstDifference(told[0], told[1]))
	}
}

// firstDifference is the first line in which two texts differ, of both.
func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d\n%s\n%s", i+1, x[i], y[i])
		}
	}
	return "nothing"
}

// history plays a seed, and tells what has happened: with all, every look and write too.
func history(t *testing.T, seed uint64, all bool) (told string) {
	cryptotest.SetGlobalRandom(t, seed)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, dir)
		w.tellAll = all
		w.play()
		told = strings.ReplaceAll(strings.Join(w.history, "\n"), dir, "")
	})
	return told
}

func init() { slog.SetDefault(slog.New(slog.DiscardHandler)) }

func newWorld(t *testing.T, seed uint64, dir string) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), dir: dir, store: newStore(),
		agents: map[string]*process{}, worked: map[string]time.Time{}, started: time.Now(),
		writes: map[string]int{}, counts: newCounts(),
		values: map[string][]seen{}, set: map[string]time.Time{}}
	w.site = site{pods: map[types.UID]*pod{}, byIP: map[string]*pod{}, engineOf: map[string]*serving{},
		copies: map[string]*data{}, volumes: map[string]*wanted{},
		over: map[string]bool{}, acknowledged: map[string]int{}, lines: map[string]*line{}}
	w.store.wrote = w.wrote
	return w
}

func (w *world) play() {
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
	w.attaches()
	w.t.Logf("%d writes in %s", w.store.version, time.Since(w.started))
}

// restFor is how long nothing must have been changed for an object that counts as being at rest.
// What is tried again and again is tried within that time.
const restFor = 10 * time.Minute

// longestTimer is when the last thing comes that only time brings: a copy that fails is waited for
// during replica-replenishment-wait-interval, 10 minutes, and may fail once more at its end; a
// failed copy of a healthy volume goes staleReplicaTimeout after that, 30 minutes.
const longestTimer = 45 * time.Minute

// mostAtRest is how often an object may be looked at in that time. A volume without a usable
// replica that somebody wants is opened again about once in a minute, with some fifty looks.
const mostAtRest = 2000

// rest lets time pass without news, and then has everybody look at everything once, as a new leader
// would: whoever finds something to do then was not woken for it.
func (w *world) rest() {
	w.calm = true
	w.run(longestTimer)
	before := w.looks()
	w.quiet(restFor + time.Minute)
	for object, n := range w.looks() {
		if n -= before[object]; n > mostAtRest {
			w.failf("%s: %d looks in eleven minutes of rest", object, n)
		}
	}
	for _, p := range w.processes() {
		for _, c := range p.controllers {
			for _, key := range p.view.shown[w.store.kindOf(c.For)].keys() {
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

// looksAt counts the looks at a volume and what belongs to it.
func (w *world) looksAt(volume string) (sum int) {
	for object, n := range w.looks() {
		_, name, _ := strings.Cut(object, " ")
		if name == volume || strings.HasPrefix(name, volume+"-") {
			sum += n
		}
	}
	return sum
}

// heal ends every fault and everything that keeps volumes from what is wanted.
func (w *world) heal() {
	w.note("faults end")
	w.calm, w.held = true, false
	for _, h := range w.nodes {
		w.setCapacity(h, 100)
		w.comeBack(h)
		w.letCome(h.name)
		w.silence(h, false)
		w.network(h, true)
		w.diskGone(h, false)
		w.hang(h, false)
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
		case want.node != "" && len(w.good(name)) < v.Spec.NumberOfReplicas:
			w.failf("%d of %d copies of %s hold the newest data", len(w.good(name)), v.Spec.NumberOfReplicas, name)
		case want.node != "" && v.Status.CurrentNodeID != "" && w.engineSize(name) != v.Spec.Size:
			w.failf("%s has %d bytes, wanted %d", name, w.engineSize(name), v.Spec.Size)
		}
	}
	for _, im := range all[*v1beta2.InstanceManager](w) {
		if im.Status.CurrentState != v1beta2.InstanceManagerStateRunning {
			w.failf("instance manager %s is %s", im.Name, im.Status.CurrentState)
		}
	}
	w.nothingLeft()
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
