package simulated_test

import (
	"flag"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/setting"
	"ankole.storage/test/lack"
)

var (
	tell  = flag.Bool("tell", false, "tell what the counts of a crowd are made of")
	large = flag.Int("crowd", 10_000, "volumes of the largest crowd, on a tenth as many nodes")
)

// crowd is a cluster with many nodes and volumes, in which nothing is late and nothing fails.
type crowd struct {
	*world
	t *testing.T
	// costs are what was counted, by what happened, for each volume or event.
	costs map[string]cost
}

// cost is what something costs. The first four do not depend on the machine.
type cost struct {
	looks, writes, live, cached float64
	allocated, bytes            float64
	cpu                         time.Duration
}

func (c cost) String() string {
	const as = "%8.2f looks %7.2f writes %6.2f live reads %9.1f objects of caches %8.0f allocations %8.1f kB %8s"
	return fmt.Sprintf(as, c.looks, c.writes, c.live, c.cached, c.allocated, c.bytes/1000, c.cpu.Round(time.Microsecond))
}

// measured does something for so many volumes, or once, and notes what it costs.
func (c *crowd) measured(what string, n int, do func()) {
	counts, mem, cpu := c.counts.copied(), memory(), processorTime()
	do()
	d, now := c.counts.since(counts), memory()
	per := func(v int) float64 { return float64(v) / float64(n) }
	c.costs[what] = cost{looks: per(sum(d.looks)), writes: per(sum(d.writes)), live: per(d.live),
		cached:    per(sum(d.cached)),
		allocated: float64(now.Mallocs-mem.Mallocs) / float64(n),
		bytes:     float64(now.TotalAlloc-mem.TotalAlloc) / float64(n), cpu: (processorTime() - cpu) / time.Duration(n)}
	c.t.Logf("%4d nodes %5d volumes: %-42s %s", len(c.nodes), len(c.volumes), what, c.costs[what])
	if *tell {
		c.t.Logf("looks%s\n  writes%s\n  objects of caches%s", most(d.looks, n, 12), most(d.writes, n, 16),
			most(d.cached, n, 24))
	}
}

func memory() (m runtime.MemStats) {
	runtime.ReadMemStats(&m)
	return m
}

// processorTime is that of this process.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// inCrowd tells what is to happen in a cluster of so many nodes, with as many volumes as are told.
func inCrowd(t *testing.T, nodes int, happens func(c *crowd)) map[string]cost {
	cryptotest.SetGlobalRandom(t, 1)
	dir, costs := t.TempDir(), map[string]cost{}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, dir)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calm, w.crowded = true, true
		w.setting(setting.DefaultEngineImage, engineImage)
		w.setting(setting.DefaultInstanceManagerImage, "im:1")
		w.setting(setting.StorageMinimalAvailablePercentage, "0")
		for _, d := range setting.Definitions() { // as many as a real cluster has
			if get[*v1beta2.Setting](w, d.Name) == nil && d.Default != "" {
				w.setting(d.Name, d.Default)
			}
		}
		for i := range nodes {
			w.join(fmt.Sprintf("n%d", i+1))
		}
		w.image(engineImage)
		w.newLeader()
		defer func() { w.leader.stop() }()
		c := &crowd{world: w, t: t, costs: costs}
		c.measured(joins, nodes, func() { w.run(5 * time.Minute) })
		happens(c)
	})
	return costs
}

// join adds a machine with a large disk.
func (w *world) join(name string) {
	h := &host{name: name, uuid: "disk-" + name}
	w.setCapacity(h, 10_000)
	w.addHost(h)
}

// Names of costs.
const (
	joins    = "a node joins"
	created  = "created, per volume"
	inCaches = "objects of caches"
)

// atOnce is how many volumes are made, or attached, at a time.
const atOnce = 100

// create makes so many volumes of three replicas.
func (c *crowd) create(n int) {
	c.measured(created, n, func() {
		for i := range n {
			name := fmt.Sprintf("v%d", len(c.volumes)+1)
			c.volumes[name] = &wanted{name: name}
			c.world.create(&v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: naming.VolumeLabels(name),
				Finalizers: []string{v1beta2.Finalizer}},
				Spec: v1beta2.VolumeSpec{Size: gib, NumberOfReplicas: 3, Frontend: v1beta2.VolumeFrontendBlockDev,
					Image: engineImage, StaleReplicaTimeout: 30}})
			if (i+1)%atOnce == 0 || i == n-1 {
				c.run(10 * time.Second)
			}
		}
		c.run(time.Minute)
	})
}

// attach attaches volumes from one to another, so many at a time, spread over the nodes.
func (c *crowd) attach(what string, from, to, atOnce int) {
	c.measured(what, to-from, func() {
		for i := from; i < to; i++ {
			c.world.attach(c.volumes[fmt.Sprintf("v%d", i+1)], c.nodes[i%len(c.nodes)].name)
			if (i+1-from)%atOnce == 0 || i == to-1 {
				c.run(10 * time.Second)
			}
		}
		c.run(time.Minute)
	})
	for i := from; i < to; i++ {
		v := get[*v1beta2.Volume](c.world, fmt.Sprintf("v%d", i+1))
		if v.Status.State != v1beta2.VolumeStateAttached || v.Status.Robustness != v1beta2.VolumeRobustnessHealthy {
			c.failf("%s is %s and %s", v.Name, v.Status.State, v.Status.Robustness)
		}
	}
}

// event is what happens once to a cluster that rests, and concerns so many.
func (c *crowd) event(what string, n int, d time.Duration, happens func()) {
	c.measured(what, n, func() {
		happens()
		c.run(d)
	})
}

// resync has caches show every object again, as they do every few hours.
func (c *crowd) resync() {
	v := c.leader.view
	for _, k := range c.store.order {
		for _, key := range v.shown[k].keys() {
			v.tell(k.of, v.shown[k].objects[key], v.shown[k].objects[key])
		}
	}
}

// lives makes volumes, attaches them, and lets happen what happens to a cluster.
func (c *crowd) lives(volumes int) {
	runtime.GC()
	heap := memory().HeapAlloc
	c.create(volumes)
	c.attach("attached, per volume", 0, volumes-alone, atOnce)
	runtime.GC()
	c.t.Logf("%d volumes: %.1f kB each, with what is simulated of them", volumes,
		float64(memory().HeapAlloc-heap)/float64(volumes)/1000)
	c.event("nothing, for ten minutes", 1, 10*time.Minute, func() {})
	c.attach("attached alone, per volume", volumes-alone, volumes, 1)
	h, there := c.nodes[len(c.nodes)/2], 0
	for _, r := range all[*v1beta2.Replica](c.world) {
		if r.Spec.NodeID == h.name {
			there++
		}
	}
	c.event("an instance manager restarts, per replica", there, 5*time.Minute, func() { c.killPod(h) })
	c.event("a node is lost, per replica", there, 5*time.Minute, func() { c.away(h, true) })
	c.event("and is back, per replica", there, 5*time.Minute, func() { c.comeBack(h) })
	c.event("a setting of volumes", 1, time.Minute, func() { c.setting(setting.ReplicaSoftAntiAffinity, "true") })
	c.event("a setting of nodes, per node", len(c.nodes), time.Minute, func() {
		c.setting(setting.StorageOverProvisioningPercentage, "110")
	})
	c.measured("a resync, per volume", volumes, func() {
		c.resync()
		c.run(time.Minute)
	})
	c.measured("another leader, per volume", volumes, func() {
		c.newLeader()
		c.run(5 * time.Minute)
	})
}

// alone is how many volumes are attached one after the other.
const alone = 10

// TestCostOfMoreVolumes: what a volume costs, and what an event does, is the same beside four times
// as many volumes on four times as many nodes.
func TestCostOfMoreVolumes(t *testing.T) {
	sameCost(t, 100, 400)
}

// TestCostOfThousandsOfVolumes is the same with ten thousand volumes on a thousand nodes.
func TestCostOfThousandsOfVolumes(t *testing.T) {
	lack.RealTime(t, "it takes minutes")
	sameCost(t, 1000, *large)
}

// sameCost compares what volumes cost in two clusters with so many, ten to a node.
func sameCost(t *testing.T, small, large int) {
	t.Helper()
	few := inCrowd(t, small/10, func(c *crowd) { c.lives(small) })
	many := inCrowd(t, large/10, func(c *crowd) { c.lives(large) })
	for _, what := range sortedNames(few) {
		one, other := few[what], many[what]
		for _, of := range []struct {
			name     string
			one, two float64
		}{{"looks", one.looks, other.looks}, {"writes", one.writes, other.writes}, {"live reads", one.live, other.live},
			{inCaches, one.cached, other.cached}} {
			if what == joins || what == created && of.name == inCaches {
				continue // one of a few; each place is looked for on every node
			}
			if of.two > 1.1*of.one+1 {
				t.Errorf("%s: %.2f %s, and %.2f beside more", what, of.one, of.name, of.two)
			}
		}
	}
}
