package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/index"
)

// setDisk puts a disk into a node: its UUID, and a condition Ready since a time.
func setDisk(n *v1beta2.Node, name, path, uuid string, status v1beta2.ConditionStatus, reason string, since time.Time) {
	n.Spec.Disks[name] = v1beta2.DiskSpec{Path: path, AllowScheduling: true}
	n.Status.DiskStatus[name] = v1beta2.DiskStatus{
		DiskUUID: uuid, DiskPath: path, StorageMaximum: 100 * gib, StorageAvailable: 90 * gib,
		Conditions: []v1beta2.Condition{{Type: v1beta2.DiskConditionReady, Status: status, Reason: reason,
			LastTransitionTime: since.Format(time.RFC3339)}},
	}
}

// otherNode is node n2 with disk o, whose UUID is that of disk d of storageNode.
func otherNode(status v1beta2.ConditionStatus, reason string) *v1beta2.Node {
	n := &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "longhorn-system", Name: "n2"}}
	n.Spec.Disks, n.Status.DiskStatus = map[string]v1beta2.DiskSpec{}, map[string]v1beta2.DiskStatus{}
	setNodeReady(n, "True", "")
	setDisk(n, "o", "/data", "uuid-d", status, reason, now.Add(-time.Hour))
	return n
}

func setNodeReady(n *v1beta2.Node, status v1beta2.ConditionStatus, reason string) {
	n.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.NodeConditionReady, Status: status, Reason: reason}}
}

// TestDisksWithOneUUID (F20): what a disk says, and whether the replica that is on another disk
// with its UUID comes to it, by what is known of that other disk.
func TestDisksWithOneUUID(t *testing.T) {
	const gone, silent = v1beta2.NodeReasonKubernetesNodeGone, v1beta2.NodeReasonKubernetesNodeNotReady
	marked := func(n *v1beta2.Node) {
		d := n.Status.DiskStatus["d"]
		d.Conditions = append(d.Conditions, v1beta2.Condition{Type: v1beta2.DiskConditionSchedulable, Status: "False",
			Reason: v1beta2.DiskReasonDuplicateUUID})
		n.Status.DiskStatus["d"] = d
	}
	type world struct {
		n, other *v1beta2.Node
		r        *v1beta2.Replica
		s        *seen
	}
	for name, c := range map[string]struct {
		edit   func(*world)
		reason string // of condition Schedulable; "" = True
		moves  bool
	}{
		"both ready": {func(*world) {}, v1beta2.DiskReasonDuplicateUUID, false},
		"both ready, one just now": {func(w *world) {
			w.s.TwinsSince = map[string]time.Time{"d": now.Add(-time.Second)}
		}, v1beta2.DiskReasonUUIDOfOtherDisk, false},
		"node of the other silent": {func(w *world) {
			setNodeReady(w.other, "False", silent)
			setDisk(w.other, "o", "/data", "uuid-d", "False", "NodeNotReady", now)
		}, v1beta2.DiskReasonUUIDOfOtherDisk, false},
		"manager of the other missing": {func(w *world) {
			setNodeReady(w.other, "False", v1beta2.NodeReasonManagerPodMissing)
			setDisk(w.other, "o", "/data", "uuid-d", "False", "NodeNotReady", now)
		}, v1beta2.DiskReasonUUIDOfOtherDisk, false},
		"the other cannot be read": {func(w *world) {
			setDisk(w.other, "o", "/data", "uuid-d", "False", v1beta2.DiskReasonNoDiskInfo, now)
		}, v1beta2.DiskReasonUUIDOfOtherDisk, false},
		"node of the other out of Kubernetes": {func(w *world) {
			setNodeReady(w.other, "False", gone)
			setDisk(w.other, "o", "/data", "uuid-d", "False", "NodeNotReady", now)
		}, "", true},
		"the other is not in its place": {func(w *world) {
			setDisk(w.other, "o", "/data", "uuid-d", "False", v1beta2.DiskReasonDiskFilesystemChanged, now)
		}, "", true},
		"the other was not in its place, and its node is silent": {func(w *world) {
			setNodeReady(w.other, "False", silent)
			setDisk(w.other, "o", "/data", "uuid-d", "False", v1beta2.DiskReasonDiskFilesystemChanged, now)
		}, v1beta2.DiskReasonUUIDOfOtherDisk, false},
		"a copy by what was seen before": {func(w *world) {
			marked(w.n)
			setDisk(w.other, "o", "/data", "uuid-d", "False", v1beta2.DiskReasonDiskFilesystemChanged, now)
		}, v1beta2.DiskReasonDuplicateUUID, false},
		"a copy by what was seen before, node out of Kubernetes": {func(w *world) {
			marked(w.n)
			setNodeReady(w.other, "False", gone)
			setDisk(w.other, "o", "/data", "uuid-d", "False", "NodeNotReady", now)
		}, v1beta2.DiskReasonDuplicateUUID, false},
		"the other was taken off its node": {func(w *world) {
			marked(w.n)
			delete(w.other.Spec.Disks, "o")
			delete(w.other.Status.DiskStatus, "o")
		}, "", true},
		"no object of the other's node": {func(w *world) { w.other = nil }, "", true},
		"the other is another disk": {func(w *world) {
			setDisk(w.other, "o", "/data", "another", "True", "", now)
		}, "", true},
		"the other has not been looked at": {func(w *world) {
			setDisk(w.other, "o", "/data", "", "False", "NoDiskInfo", now)
		}, "", false},
		"its process runs": {func(w *world) {
			w.r.Status.CurrentState = v1beta2.InstanceStateRunning
			setDisk(w.other, "o", "/data", "uuid-d", "False", v1beta2.DiskReasonDiskFilesystemChanged, now)
		}, "", false},
		"own path not looked at": {func(w *world) {
			w.other = nil
			w.n.Spec.Disks["d"] = v1beta2.DiskSpec{Path: "/new", AllowScheduling: true}
		}, "", false},
		"two on one node": {func(w *world) {
			w.other, w.r.Spec.NodeID, w.r.Spec.DiskPath = nil, "n1", "/original"
			setDisk(w.n, "a", "/original", "uuid-d", "True", "", now.Add(-time.Hour))
		}, v1beta2.DiskReasonDuplicateUUID, false},
		"of two on one node one is not in its place": {func(w *world) {
			w.other, w.r.Spec.NodeID, w.r.Spec.DiskPath = nil, "n1", "/original"
			setDisk(w.n, "a", "/original", "uuid-d", "False", v1beta2.DiskReasonDiskFilesystemChanged, now)
		}, "", true},
	} {
		n, s := storageNode(), healthy()
		setDisk(n, "d", "/data", "uuid-d", "True", "", now.Add(-time.Hour))
		r := replica("r", "n2", "uuid-d", gib)
		w := &world{n, otherNode("True", ""), &r, &s}
		c.edit(w)
		s.Replicas, s.Others = []v1beta2.Replica{r}, map[string]*v1beta2.Node{}
		if w.other != nil {
			s.Others["n2"] = w.other
		}
		d := decide(now, n, s)
		schedulable := diskCondition(n, "d", v1beta2.DiskConditionSchedulable)
		if (schedulable.Status == "True") != (c.reason == "") || schedulable.Reason != c.reason {
			t.Errorf("%s: %+v, want reason %q", name, schedulable, c.reason)
		}
		if c.reason != "" {
			other := []string{"disk o of node n2", "longhorn-disk.cfg"}
			if w.other == nil {
				other[0] = "disk a of node n1"
			}
			for _, words := range other {
				if !strings.Contains(schedulable.Message, words) {
					t.Errorf("%s: no %q in message %q", name, words, schedulable.Message)
				}
			}
		}
		if u, ok := d.Do.(loop.Update); ok != c.moves {
			t.Errorf("%s: does %v", name, d.Do)
		} else if ok {
			if to := u.Object.(*v1beta2.Replica).Spec; to.NodeID != "n1" || to.DiskPath != "/data" {
				t.Errorf("%s: moves to %+v", name, to)
			}
		}
		if st := n.Status.DiskStatus["d"]; len(st.ScheduledReplica) != 0 || st.StorageScheduled != 0 {
			t.Errorf("%s: counts what is elsewhere: %v", name, st.ScheduledReplica)
		}
	}
}

// TestDuplicateIsRemembered (F20): both disks are named while both are there, and that outlives the
// loss of either node, until one of them is taken off.
func TestDuplicateIsRemembered(t *testing.T) {
	n, s := storageNode(), healthy()
	setDisk(n, "d", "/data", "uuid-d", "True", "", now.Add(-time.Hour))
	other := otherNode("True", "")
	s.TwinsSince = map[string]time.Time{"d": now.Add(-10 * time.Second)}
	s.Others = map[string]*v1beta2.Node{"n2": other}
	reason := func() string { return diskCondition(n, "d", v1beta2.DiskConditionSchedulable).Reason }
	if d := decide(now, n, s); d.After != 50*time.Second || reason() != v1beta2.DiskReasonUUIDOfOtherDisk {
		t.Errorf("at first: looks again after %v, %s", d.After, reason())
	}
	later := now.Add(50 * time.Second)
	decide(later, n, s)
	if reason() != v1beta2.DiskReasonDuplicateUUID {
		t.Errorf("after a minute: %s", reason())
	}
	kube, pod := s.KubeNode, s.ManagerPod
	s.KubeNode, s.ManagerPod = nil, nil
	decide(later, n, s)
	if reason() != v1beta2.DiskReasonDuplicateUUID {
		t.Errorf("with its node away: %s", reason())
	}
	s.KubeNode, s.ManagerPod = kube, pod
	setDisk(n, "d", "/data", "uuid-d", "True", "", later)
	d := n.Status.DiskStatus["d"]
	d.Conditions = append(d.Conditions, v1beta2.Condition{Type: v1beta2.DiskConditionSchedulable, Status: "False",
		Reason: v1beta2.DiskReasonDuplicateUUID})
	n.Status.DiskStatus["d"] = d
	setDisk(other, "o", "/data", "uuid-d", "False", v1beta2.DiskReasonDiskFilesystemChanged, later)
	decide(later, n, s)
	if reason() != v1beta2.DiskReasonDuplicateUUID {
		t.Errorf("with the other one unmounted: %s", reason())
	}
	s.Others = nil
	decide(later, n, s)
	if reason() != "" {
		t.Errorf("with the other one taken off: %s", reason())
	}
}

// TestTwinsByOneClock: two disks are copies when this process has seen both ready at once for the
// grace, whatever the clocks of their nodes say, and anew when one of them was away.
func TestTwinsByOneClock(t *testing.T) {
	for _, stamped := range []time.Duration{0, time.Hour, -time.Hour} {
		for seenFor, marked := range map[time.Duration]bool{0: false, twinGrace - time.Second: false, twinGrace: true} {
			n, s := storageNode(), healthy()
			setDisk(n, "d", "/data", "uuid-d", "True", "", now.Add(-stamped))
			s.Others = map[string]*v1beta2.Node{"n2": otherNode("True", "")}
			s.TwinsSince = map[string]time.Time{"d": now.Add(-seenFor)}
			decide(now, n, s)
			got := diskCondition(n, "d", v1beta2.DiskConditionSchedulable).Reason == v1beta2.DiskReasonDuplicateUUID
			if got != marked {
				t.Errorf("stamped %s ago, seen for %s: copies %v", stamped, seenFor, got)
			}
		}
	}
	stamp := func(other *v1beta2.Node) string {
		n, s := storageNode(), healthy()
		setDisk(n, "d", "/data", "uuid-d", "True", "", now)
		s.Others = map[string]*v1beta2.Node{"n2": other}
		return twinStamps(n, s)["d"]
	}
	back := otherNode("True", "")
	setDisk(back, "o", "/data", "uuid-d", "True", "", now)
	if a, b := stamp(otherNode("True", "")), stamp(back); a == "" || a == b || a != stamp(otherNode("True", "")) {
		t.Errorf("stamps %q and %q", a, b)
	}
	if got := stamp(otherNode("False", v1beta2.DiskReasonDiskFilesystemChanged)); got != "" {
		t.Errorf("beside one that is away: %q", got)
	}
}

// TestTwinsCountTheirOwn (F20): of two disks with one UUID each counts, and evicts, the replicas at
// its own path.
func TestTwinsCountTheirOwn(t *testing.T) {
	n, s := storageNode(), healthy()
	setDisk(n, "copy", "/copy", "uuid-d", "True", "", now.Add(-time.Hour))
	leaves := n.Spec.Disks["copy"]
	leaves.AllowScheduling, leaves.EvictionRequested = false, true
	n.Spec.Disks["copy"] = leaves
	s.Replicas = []v1beta2.Replica{replica("r", "n1", "uuid-d", gib), replica("elsewhere", "n2", "uuid-d", gib)}
	if d := decide(now, n, s); d.Do != nil {
		t.Errorf("does %v", d.Do)
	}
	if got := n.Status.DiskStatus["d"].ScheduledReplica; len(got) != 1 || got["r"] != gib {
		t.Errorf("counts %v, want r", got)
	}
	if got := n.Status.DiskStatus["copy"].ScheduledReplica; len(got) != 0 {
		t.Errorf("the copy counts %v", got)
	}
}

// TestTwinsWakeEachOther: what becomes of a disk concerns the nodes that have one with its UUID.
func TestTwinsWakeEachOther(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, i := range index.All() {
		builder = builder.WithIndex(i.Object, i.Field, i.Of)
	}
	third := otherNode("True", "")
	third.Name, third.Status.DiskStatus = "n3", map[string]v1beta2.DiskStatus{"o": {DiskUUID: "another"}}
	r := New("longhorn-system")
	r.client = builder.WithObjects(storageNode(), otherNode("True", ""), third).Build()
	if got := r.withTwins(otherNode("True", "")); !slices.Equal(got, []string{"n1"}) {
		t.Errorf("wakes %v, want n1", got)
	}
	for name, c := range map[string]struct {
		edit func(*v1beta2.Node)
		want bool
	}{
		"free space": {func(n *v1beta2.Node) {
			d := n.Status.DiskStatus["o"]
			d.StorageAvailable++
			n.Status.DiskStatus["o"] = d
		}, false},
		"disk away": {func(n *v1beta2.Node) {
			setDisk(n, "o", "/data", "uuid-d", "False", v1beta2.DiskReasonDiskFilesystemChanged, now)
		}, true},
		"another disk": {func(n *v1beta2.Node) { setDisk(n, "o", "/data", "x", "True", "", now) }, true},
		"disk off":     {func(n *v1beta2.Node) { delete(n.Spec.Disks, "o") }, true},
		"node gone":    {func(n *v1beta2.Node) { setNodeReady(n, "False", v1beta2.NodeReasonKubernetesNodeGone) }, true},
	} {
		before, after := otherNode("True", ""), otherNode("True", "")
		c.edit(after)
		if got := twinView(before) != twinView(after); got != c.want {
			t.Errorf("%s: concerns others %v", name, got)
		}
	}
}
