package simulated_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/volume"
)

// mostPerTry is how many changes a try to serve a volume costs at most: objects of its volume and
// what follows from its processes.
const mostPerTry = 60

// quiet fails for changes that controllers make although nothing happens, while time passes. Only
// tries to start what has failed cost some.
func (w *world) quiet(d time.Duration) {
	w.t.Helper()
	before, tries := maps.Clone(w.writes), w.tries
	w.run(d)
	sum, most := 0, ""
	for what, n := range w.writes {
		if n -= before[what]; n > 0 {
			sum += n
			if most == "" || n > w.writes[most]-before[most] || n == w.writes[most]-before[most] && what < most {
				most = what
			}
		}
	}
	if tries = w.tries - tries; sum > tries*mostPerTry {
		w.failf("%d changes in %s in which nothing happened and %d processes were to start; %d times %q", sum, d, tries,
			w.writes[most]-before[most], most)
	}
}

// stuck are the states in which something is wanted that cannot be, each with what tells so.
var stuck = []struct {
	name  string
	nodes int
	// happens brings the state about.
	happens func(w *world)
	// at is the node with the volume, empty for a volume at rest.
	at string
	// event is told once at least, unless it is empty; condition is False or True for long.
	event, condition string
}{
	{"strict-local in use, its node evicted", 3, func(w *world) { w.strict("n2"); w.evictNode("n2") }, "n2",
		"EvictionFailed", "Eviction"},
	{"strict-local in use, its disk evicted", 3, func(w *world) { w.strict("n2"); w.evictDisk("n2") }, "n2",
		"EvictionFailed", "Eviction"},
	{"strict-local in use, cordoned", 3, func(w *world) { w.strict("n2"); w.cordoned("n2", "block-for-eviction") }, "n2",
		"EvictionFailed", "Eviction"},
	{"strict-local in use, cordoned, the last copy", 3, func(w *world) {
		w.strict("n2")
		w.cordoned("n2", "block-for-eviction-if-contains-last-replica")
	}, "n2", "EvictionFailed", "Eviction"},
	{"strict-local at rest, its node evicted", 3, func(w *world) { w.strict("n2"); w.unused(); w.evictNode("n2") }, "",
		"EvictionFailed", "Eviction"},
	{"strict-local at rest, its disk evicted", 3, func(w *world) { w.strict("n2"); w.unused(); w.evictDisk("n2") }, "",
		"EvictionFailed", "Eviction"},
	{"strict-local at rest, cordoned", 3, func(w *world) {
		w.strict("n2")
		w.unused()
		w.cordoned("n2", "block-for-eviction")
	}, "", "EvictionFailed", "Eviction"},
	{"strict-local, balanced", 3, func(w *world) {
		w.strict("n2")
		w.setting(setting.ReplicaAutoBalance, "best-effort")
		w.setting(setting.ReplicaAutoBalanceDiskPressurePercentage, "1")
	}, "n2", "", ""},
	{"strict-local without its copy's machine", 3, func(w *world) {
		w.strict("n2")
		w.unused()
		w.cut("n2")
		w.use("n1")
	}, "", "", ""},
	{"at rest, evicted, no other place", 2, func(w *world) { w.usedOnce(2, nil); w.unused(); w.evictNode("n2") }, "",
		"EvictionFailed", "Eviction"},
	{"in use, evicted, no other place", 2, func(w *world) { w.usedOnce(2, nil); w.evictNode("n2") }, "n1",
		"EvictionFailed", "Eviction"},
	{"never used, evicted, no other place", 2, func(w *world) { w.makeVolume(2, nil); w.settle(); w.evictNode("n2") }, "",
		"EvictionFailed", "Eviction"},
	{"evicted without rebuilds", 3, func(w *world) {
		w.usedOnce(2, nil)
		w.unused()
		w.setting(setting.ConcurrentReplicaRebuildPerNodeLimit, "0")
		w.evictNode(w.elsewhere("n1"))
	}, "", "EvictionFailed", "Eviction"},
	{"rebuilds at rest switched off", 2, func(w *world) {
		w.setting(setting.OfflineReplicaRebuilding, "true")
		w.setting(setting.ConcurrentReplicaRebuildPerNodeLimit, "0")
		w.usedOnce(2, nil)
		w.killFirst(replicaOn("n2"))
		w.settle()
		w.unused()
	}, "", "", ""},
	{"no place for a copy", 2, func(w *world) { w.usedOnce(3, nil) }, "n1", "Scheduled", "Scheduled"},
	{"no place for the local copy", 3, func(w *world) {
		w.takes("n1", false)
		w.usedOnce(1, func(s *v1beta2.VolumeSpec) { s.DataLocality = v1beta2.DataLocalityBestEffort })
	}, "n1", "Scheduled", "Scheduled"},
	{"no room to grow", 2, func(w *world) { w.usedOnce(2, nil); w.wantSize(200 * gib) }, "n1", "", "WaitForExpansion"},
	{"no room to grow at rest", 2, func(w *world) { w.usedOnce(2, nil); w.unused(); w.wantSize(200 * gib) }, "", "",
		"WaitForExpansion"},
	{"an image that is nowhere", 2, func(w *world) {
		w.usedOnce(2, nil)
		w.changeVolume(func(s *v1beta2.VolumeSpec) { s.Image = "ankole/engine:none" })
	}, "n1", "", volume.ConditionEngineUpgrade},
	{"a copy's machine gone, no other place", 2, func(w *world) { w.usedOnce(2, nil); w.cut("n2") }, "n1", "Degraded",
		"Scheduled"},
	{"the only copy's machine gone", 2, func(w *world) {
		w.usedOnce(1, nil)
		w.unused()
		w.cut(w.copyOn())
		w.use(w.free())
	}, "", "", ""},
	{"a snapshot to delete, the only copy's machine gone", 2, func(w *world) {
		w.snapshotAway(func() { w.deleteSnapshot("s1") })
	}, "", "", ""},
	{"a snapshot to take, the only copy's machine gone", 2, func(w *world) {
		w.snapshotAway(func() { w.orderSnapshot("s2") })
	}, "", "", ""},
	{"a snapshot to take, two copies of three gone", 3, func(w *world) {
		w.usedOnce(3, nil)
		w.unused()
		w.cut("n2")
		w.cut("n3")
		w.orderSnapshot("s1")
	}, "", "", ""},
	{"to grow at rest, the only copy's machine gone", 2, func(w *world) {
		w.usedOnce(1, nil)
		w.unused()
		w.cut(w.copyOn())
		w.wantSize(volumeSize + gib)
	}, "", "", ""},
	{"rebuilds at rest without a place", 2, func(w *world) {
		w.setting(setting.OfflineReplicaRebuilding, "true")
		w.usedOnce(2, nil)
		w.unused()
		w.cut("n2")
	}, "", "", ""},
}

// TestStuckIsQuiet: whatever cannot be done, controllers change nothing while nothing happens, and
// a condition and an event tell why.
func TestStuckIsQuiet(t *testing.T) {
	for _, tt := range stuck {
		t.Run(tt.name, func(t *testing.T) {
			scene(t, tt.nodes, func(_ *testing.T, w *world) {
				w.held = false
				tt.happens(w)
				w.run(40 * time.Minute)
				w.quiet(20 * time.Minute)
				v := w.volume("v")
				if v.Status.CurrentNodeID != tt.at {
					w.failf("the volume is at %q, want %q", v.Status.CurrentNodeID, tt.at)
				}
				if tt.event != "" && w.told(tt.event) == 0 {
					w.failf("no event %s", tt.event)
				}
				if tt.condition == "" {
					return
				}
				c := w.condition(tt.condition)
				if c.Message == "" {
					w.failf("condition %+v tells nothing", c)
				}
				if tt.condition == volume.ConditionEviction && c.Status != v1beta2.ConditionFalse {
					w.failf("condition %+v", c)
				}
			})
		})
	}
}

// TestEvictionGoesOnWhenThereIsAPlace: a volume at rest is attached for an eviction when there is a
// place, not before.
func TestEvictionGoesOnWhenThereIsAPlace(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *world) {
		w.held = false
		w.takes("n3", false)
		w.usedOnce(2, nil)
		w.unused()
		w.evictNode("n2")
		w.run(10 * time.Minute)
		if c := w.condition(volume.ConditionEviction); c.Status != v1beta2.ConditionFalse ||
			!strings.Contains(c.Message, "n3: scheduling is switched off") || w.told("Attached") > 1 {
			w.failf("condition %+v", c)
		}
		w.takes("n3", true)
		w.run(10 * time.Minute)
		w.expect(`detached unknown at ""`)
		if on := w.onNodes(); on["n2"] != 0 || on["n3"] != 1 || len(w.replicas()) != 2 {
			w.failf("replicas by node %v", on)
		}
		if c := w.condition(volume.ConditionEviction); c.Status != v1beta2.ConditionTrue {
			t.Errorf("afterwards, condition %+v", c)
		}
	})
}

// TestDrainNamesThePolicyThatLetsItGo: a drain that waits for a copy which cannot move says which
// policy does not wait for it.
func TestDrainNamesThePolicyThatLetsItGo(t *testing.T) {
	for _, policy := range []string{"block-for-eviction", "block-for-eviction-if-contains-last-replica"} {
		scene(t, 3, func(t *testing.T, w *world) {
			w.strict("n2")
			w.unused()
			w.cordoned("n2", policy)
			w.run(10 * time.Minute)
			allowed := func() (c v1beta2.Condition) {
				for _, im := range all[*v1beta2.InstanceManager](w) {
					if im.Spec.NodeID == "n2" {
						c = v1beta2.FindCondition(im.Status.Conditions, v1beta2.InstanceManagerConditionDrainAllowed)
					}
				}
				return c
			}
			const lets = "allow-if-replica-is-stopped"
			if c := allowed(); c.Status != v1beta2.ConditionFalse || !strings.Contains(c.Message, lets) {
				w.failf("condition %+v", c)
			}
			w.setting(setting.NodeDrainPolicy, lets)
			w.run(5 * time.Minute)
			if c := allowed(); c.Status != v1beta2.ConditionTrue {
				w.failf("with policy %s, condition %+v", lets, c)
			}
		})
	}
}

// snapshotAway makes volume v with one copy and a snapshot, at rest, and has something ordered once
// the machine of the copy is away.
func (w *world) snapshotAway(order func()) {
	w.usedOnce(1, nil)
	w.orderSnapshot("s1")
	w.settle()
	w.orderSnapshot("s0") // so that the head stands on another one
	w.settle()
	w.unused()
	w.cut(w.copyOn())
	w.settle()
	order()
}

// TestWorkGoesOnWhenCopiesAreBack: what waits for copies holds no volume attached, and is done when
// they are there.
func TestWorkGoesOnWhenCopiesAreBack(t *testing.T) {
	scene(t, 2, func(_ *testing.T, w *world) {
		w.held = false
		node := ""
		w.snapshotAway(func() { node = w.copyOn(); w.deleteSnapshot("s1"); w.orderSnapshot("s2") })
		w.run(10 * time.Minute)
		w.untouched()
		w.expect(`detached unknown at ""`)
		for _, name := range []string{"s1", "s2"} {
			if why := w.snapshotObject(name).Status.Error; !strings.Contains(why, "away: v-r-") || !strings.Contains(why, node) {
				w.failf("snapshot %s: %q", name, why)
			}
		}
		w.mend(node)
		w.run(5 * time.Minute)
		w.gone("s1")
		w.taken("s2")
		w.untouched()
		w.expect(`detached unknown at ""`)
	})
}

// TestOneCopyIsLeft: a volume with best-effort locality that has one copy more than wanted, and may
// have none where it is attached, gives one up; where it may have one that is made first.
func TestOneCopyIsLeft(t *testing.T) {
	for _, may := range []bool{false, true} {
		scene(t, 3, func(_ *testing.T, w *world) {
			w.held = false
			w.takes("n3", may)
			w.usedOnce(2, func(s *v1beta2.VolumeSpec) { s.DataLocality = v1beta2.DataLocalityBestEffort })
			w.unused()
			w.changeVolume(func(s *v1beta2.VolumeSpec) { s.NumberOfReplicas = 1 })
			w.use("n3")
			w.run(5 * time.Minute)
			w.expect(`attached healthy at "n3"`)
			if on := w.onNodes(); len(w.replicas()) != 1 || (on["n3"] == 1) != may {
				w.failf("a place there: %v; replicas by node %v", may, on)
			}
			w.quiet(10 * time.Minute)
		})
	}
}

// usedOnce makes volume v and attaches it to n1.
func (w *world) usedOnce(replicas int, edit func(*v1beta2.VolumeSpec)) {
	w.makeVolume(replicas, edit)
	w.settle()
	w.use("n1")
}

// strict makes a strict-local volume v, with its only copy on a node.
func (w *world) strict(node string) {
	w.makeVolume(1, func(s *v1beta2.VolumeSpec) { s.DataLocality = v1beta2.DataLocalityStrictLocal })
	w.settle()
	w.use(node)
}

func (w *world) use(node string) {
	w.tickets("ui", node, v1beta2.AttacherTypeLonghornAPI)
	w.settle()
}

func (w *world) unused() {
	w.tickets("ui", "", "")
	w.settle()
}

// copyOn is the node of volume v's first replica.
func (w *world) copyOn() string { return w.replicas()[0].Spec.NodeID }

func (w *world) evictNode(node string) {
	edit(w, node, func(n *v1beta2.Node) { n.Spec.AllowScheduling, n.Spec.EvictionRequested = false, true })
}

func (w *world) evictDisk(node string) {
	edit(w, node, func(n *v1beta2.Node) {
		d := n.Spec.Disks["d"]
		d.AllowScheduling, d.EvictionRequested = false, true
		n.Spec.Disks["d"] = d
	})
}

func (w *world) cordoned(node, policy string) {
	w.setting(setting.NodeDrainPolicy, policy)
	w.editNode(node, func(n *corev1.Node) { n.Spec.Unschedulable = true })
}
