package node

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/schedule"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

const gib = int64(1 << 30)

func kube(edit ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{
		"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r",
	}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, e := range edit {
		e(n)
	}
	return n
}

func managerPod(ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "longhorn-manager-x"},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
}

func with(kind corev1.NodeConditionType, status corev1.ConditionStatus, since time.Time) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for i := range n.Status.Conditions {
			if n.Status.Conditions[i].Type == kind {
				n.Status.Conditions[i].Status = status
				n.Status.Conditions[i].LastTransitionTime = metav1.Time{Time: since}
				return
			}
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status})
	}
}

func TestReadiness(t *testing.T) {
	long, justNow := now.Add(-time.Minute), now.Add(-time.Second)
	seen := map[time.Time]time.Duration{long: 0, justNow: kubeletGrace - time.Second}
	up := managerPod(corev1.ConditionTrue)
	for _, tt := range []struct {
		name    string
		kube    *corev1.Node
		manager *corev1.Pod
		reason  string // "" = True
		recheck time.Duration
	}{
		{"fine", kube(), up, "", 0},
		{"gone", nil, up, "KubernetesNodeGone", 0},
		{"manager missing", kube(), nil, "ManagerPodMissing", 0},
		{"manager not ready", kube(), managerPod(corev1.ConditionFalse), "ManagerPodDown", 0},
		{"kubelet silent", kube(with(corev1.NodeReady, corev1.ConditionUnknown, justNow)), up, "KubernetesNodeNotReady", 0},
		{"not ready for long", kube(with(corev1.NodeReady, corev1.ConditionFalse, long)), up, "KubernetesNodeNotReady", 0},
		{"not ready just now", kube(with(corev1.NodeReady, corev1.ConditionFalse, justNow)), up, "",
			kubeletGrace - time.Second},
		{"node down goes before manager down", kube(with(corev1.NodeReady, corev1.ConditionUnknown, long)),
			managerPod(corev1.ConditionFalse), "KubernetesNodeNotReady", 0},
		{"disk pressure", kube(with(corev1.NodeDiskPressure, corev1.ConditionTrue, long)), up, "KubernetesNodePressure", 0},
		{"manager missing goes before pressure", kube(with(corev1.NodeDiskPressure, corev1.ConditionTrue, long)), nil,
			"ManagerPodMissing", 0},
		{"too many processes", kube(with(corev1.NodePIDPressure, corev1.ConditionTrue, long)), up,
			"KubernetesNodePressure", 0},
		{"no memory", kube(with(corev1.NodeMemoryPressure, corev1.ConditionTrue, long)), up, "KubernetesNodePressure", 0},
		{"no network", kube(with(corev1.NodeNetworkUnavailable, corev1.ConditionTrue, long)), up,
			"KubernetesNodePressure", 0},
		{"no pressure", kube(with(corev1.NodeMemoryPressure, corev1.ConditionFalse, long)), up, "", 0},
		{"unknown trouble", kube(with("KernelDeadlock", corev1.ConditionTrue, long)), up, "UnknownNodeConditionTrue", 0},
	} {
		grace := time.Duration(0)
		for since, left := range seen {
			stamped := kube(with(corev1.NodeReady, corev1.ConditionFalse, since))
			if unreadyStamp(tt.kube) == unreadyStamp(stamped) {
				grace = left
			}
		}
		c, recheck := readiness(grace, "n1", tt.kube, tt.manager)
		if (c.Status == v1beta2.ConditionTrue) != (tt.reason == "") || c.Reason != tt.reason {
			t.Errorf("%s: %s/%s, want reason %q", tt.name, c.Status, c.Reason, tt.reason)
		}
		if recheck != tt.recheck {
			t.Errorf("%s: looks again after %v, want %v", tt.name, recheck, tt.recheck)
		}
		if c.Status == v1beta2.ConditionFalse && c.Message == "" {
			t.Errorf("%s: no message", tt.name)
		}
	}
}

// TestKubeletGraceByOneClock: a kubelet that says its node is not ready has its time since this
// process has heard it, whatever its clock says; none where the node counts as down already.
func TestKubeletGraceByOneClock(t *testing.T) {
	for _, tt := range []struct {
		unready time.Time
		down    bool
		want    time.Duration
	}{
		{time.Time{}, false, 0},
		{now, false, kubeletGrace},
		{now.Add(-kubeletGrace + time.Second), false, time.Second},
		{now.Add(-time.Hour), false, 0},
		{now, true, 0},
	} {
		n := storageNode()
		n.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.NodeConditionReady, Status: v1beta2.ConditionTrue}}
		if tt.down {
			n.Status.Conditions[0].Status = v1beta2.ConditionFalse
			n.Status.Conditions[0].Reason = v1beta2.NodeReasonKubernetesNodeNotReady
		}
		if got := kubeletGraceLeft(now, n, tt.unready); got != tt.want {
			t.Errorf("heard at %s, down %v: %s left, want %s", tt.unready, tt.down, got, tt.want)
		}
	}
}

// storageNode has disk d, reported Ready by its agent: 100 GiB, 90 available, 10 reserved.
func storageNode() *v1beta2.Node {
	n := &v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "longhorn-system", Name: "n1", UID: "u"}}
	n.Spec.Disks = map[string]v1beta2.DiskSpec{"d": {Path: "/data", AllowScheduling: true, StorageReserved: 10 * gib}}
	n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": {
		DiskUUID: "uuid-d", DiskPath: "/data", StorageMaximum: 100 * gib, StorageAvailable: 90 * gib,
		Conditions: []v1beta2.Condition{{Type: "Ready", Status: "True"}},
	}}
	return n
}

func healthy() seen {
	return seen{
		KubeNode: kube(), ManagerPod: managerPod(corev1.ConditionTrue),
		DefaultManager: &v1beta2.InstanceManager{ObjectMeta: metav1.ObjectMeta{Name: "im"}}, DefaultManagerImage: "i",
		Policy:          schedule.Policy{OverProvisioningPercent: 100, MinimalAvailablePercent: 25},
		DisableOnCordon: true,
	}
}

func replica(name, node, disk string, size int64) v1beta2.Replica {
	r := v1beta2.Replica{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta2.ReplicaSpec{Active: true}}
	r.Spec.NodeID, r.Spec.DiskID, r.Spec.DiskPath, r.Spec.VolumeSize = node, disk, "/data", size
	return r
}

func diskCondition(n *v1beta2.Node, disk, kind string) v1beta2.Condition {
	return v1beta2.FindCondition(n.Status.DiskStatus[disk].Conditions, kind)
}

func TestLeaderWritesItsFields(t *testing.T) {
	n, s := storageNode(), healthy()
	s.Replicas = []v1beta2.Replica{replica("r1", "n1", "uuid-d", 5*gib), replica("r2", "n1", "uuid-d", 7*gib),
		replica("r3", "n1", "other", gib), replica("duplicate", "n1", "uuid-d", 7*gib)}
	s.Replicas[1].Spec.FailedAt, s.Replicas[3].Spec.Active = "2030-01-01T00:00:00Z", false
	if d := decide(now, n, s); d.Do != nil {
		t.Fatalf("does %v", d.Do)
	}
	if n.Status.Zone != "z" || n.Status.Region != "r" {
		t.Errorf("zone %q, region %q", n.Status.Zone, n.Status.Region)
	}
	d := n.Status.DiskStatus["d"]
	if d.StorageScheduled != 12*gib || len(d.ScheduledReplica) != 2 || d.ScheduledReplica["r2"] != 7*gib ||
		d.InstanceManagerName != "im" {
		t.Errorf("disk %+v", d)
	}
	if c := diskCondition(n, "d", "Schedulable"); c.Status != v1beta2.ConditionTrue {
		t.Errorf("Schedulable: %+v", c)
	}
	if d.StorageMaximum != 100*gib || d.DiskUUID != "uuid-d" {
		t.Error("the leader changed a field of the agent")
	}
}

func TestDiskSchedulability(t *testing.T) {
	for _, tt := range []struct {
		name   string
		edit   func(*v1beta2.Node, *seen)
		reason string // "" = True
		ready  v1beta2.ConditionStatus
	}{
		{"fine", func(*v1beta2.Node, *seen) {}, "", "True"},
		{"node not ready", func(_ *v1beta2.Node, s *seen) { s.ManagerPod = nil }, "NodeNotReady", "False"},
		{"disk not ready", func(n *v1beta2.Node, _ *seen) {
			d := n.Status.DiskStatus["d"]
			d.Conditions = []v1beta2.Condition{{Type: "Ready", Status: "False"}}
			n.Status.DiskStatus["d"] = d
		}, "DiskNotReady", "False"},
		{"at the limit of free space", func(n *v1beta2.Node, _ *seen) {
			d := n.Status.DiskStatus["d"]
			d.StorageAvailable = 25 * gib
			n.Status.DiskStatus["d"] = d
		}, "DiskPressure", "True"},
		{"promised to the limit", func(_ *v1beta2.Node, s *seen) {
			s.Replicas = []v1beta2.Replica{replica("r", "n1", "uuid-d", 90*gib)}
		}, "", "True"},
		{"promised too much", func(_ *v1beta2.Node, s *seen) {
			s.Replicas = []v1beta2.Replica{replica("r", "n1", "uuid-d", 90*gib+1)}
		}, "DiskPressure", "True"},
	} {
		n, s := storageNode(), healthy()
		s.Replicas = []v1beta2.Replica{replica("r", "n1", "uuid-d", gib)}
		tt.edit(n, &s)
		decide(now, n, s)
		c := diskCondition(n, "d", "Schedulable")
		if (c.Status == v1beta2.ConditionTrue) != (tt.reason == "") || c.Reason != tt.reason {
			t.Errorf("%s: Schedulable %s/%s, want reason %q", tt.name, c.Status, c.Reason, tt.reason)
		}
		if got := diskCondition(n, "d", "Ready").Status; got != tt.ready {
			t.Errorf("%s: Ready %s, want %s", tt.name, got, tt.ready)
		}
		d := n.Status.DiskStatus["d"]
		if counts := d.StorageScheduled > 0 && len(d.ScheduledReplica) > 0; counts != (tt.ready == "True") {
			t.Errorf("%s: counts %d bytes of replicas %v", tt.name, d.StorageScheduled, d.ScheduledReplica)
		}
	}
}

func TestDiskEntriesFollowTheSpec(t *testing.T) {
	n, s := storageNode(), healthy()
	n.Spec.Disks["new"] = v1beta2.DiskSpec{Path: "/new"}
	delete(n.Spec.Disks, "d")
	decide(now, n, s)
	if len(n.Status.DiskStatus) != 1 || n.Status.DiskStatus["new"].DiskPath != "/new" {
		t.Fatalf("disk status %+v", n.Status.DiskStatus)
	}
}

func TestLeaderChanges(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*v1beta2.Node, *seen)
		do   string
	}{
		{"instance manager missing", func(_ *v1beta2.Node, s *seen) {
			s.DefaultManager = nil
		}, "create *v1beta2.InstanceManager"},
		{"instance manager missing on a node without disks", func(n *v1beta2.Node, s *seen) {
			n.Spec.Disks, n.Status.DiskStatus, s.DefaultManager = nil, nil, nil
		}, "create *v1beta2.InstanceManager"},
		{"instance manager missing, nobody could run it", func(_ *v1beta2.Node, s *seen) {
			s.DefaultManager, s.ManagerPod = nil, nil
		}, ""},
		{"disk came from another node", func(_ *v1beta2.Node, s *seen) {
			s.Replicas = []v1beta2.Replica{replica("r", "dead", "uuid-d", gib)}
		}, "update *v1beta2.Replica r"},
		{"disk is on another node too", func(_ *v1beta2.Node, s *seen) {
			s.Replicas = []v1beta2.Replica{replica("r", "n2", "uuid-d", gib)}
			s.Others = map[string]*v1beta2.Node{"n2": otherNode("True", "")}
		}, ""},
		{"being deleted", func(n *v1beta2.Node, _ *seen) {
			n.DeletionTimestamp, n.Finalizers = &metav1.Time{Time: now}, []string{v1beta2.Finalizer}
		}, "update *v1beta2.Node longhorn-system/n1"},
	} {
		n, s := storageNode(), healthy()
		tt.edit(n, &s)
		d := decide(now, n, s)
		got := ""
		if d.Do != nil {
			got = d.Do.String()
		}
		if (got == "") != (tt.do == "") || !strings.HasPrefix(got, tt.do) {
			t.Errorf("%s: does %q, want %q", tt.name, got, tt.do)
		}
	}
}

func TestEviction(t *testing.T) {
	evictNode := func(n *v1beta2.Node, _ *seen) { n.Spec.EvictionRequested = true }
	cordon := func(policy string) func(*v1beta2.Node, *seen) {
		return func(_ *v1beta2.Node, s *seen) { s.KubeNode.Spec.Unschedulable, s.DrainPolicy = true, policy }
	}
	// others is node n2 with disk x, not ready for a reason.
	others := func(reason string) []v1beta2.Node {
		n := v1beta2.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
		n.Status.DiskStatus = map[string]v1beta2.DiskStatus{"d": {DiskUUID: "x"}}
		if reason != "" {
			n.Status.Conditions = []v1beta2.Condition{{Type: "Ready", Status: "False", Reason: reason}}
		}
		return []v1beta2.Node{n}
	}
	// why is what the messages of these cases end with.
	why := map[string]string{"node down": "stays on node n1: KubernetesNodeNotReady",
		"Kubernetes node gone": "stays on node n1: KubernetesNodeGone", "no longer": "stays on node n1"}
	for _, tt := range []struct {
		name     string
		edit     func(*v1beta2.Node, *seen)
		evicting bool // before
		event    string
		auto     bool
	}{
		{"Kubernetes node gone", func(n *v1beta2.Node, s *seen) {
			evictNode(n, s)
			s.KubeNode = nil
		}, true, "EvictionCanceled", false},
		{"nobody asks", func(*v1beta2.Node, *seen) {}, false, "", false},
		{"the node", evictNode, false, "EvictionUserRequested", false},
		{"the node, already", evictNode, true, "", false},
		{"the node still takes replicas", func(n *v1beta2.Node, _ *seen) {
			n.Spec.EvictionRequested, n.Spec.AllowScheduling = true, true
		}, false, "", false},
		{"the disk", func(n *v1beta2.Node, _ *seen) {
			n.Spec.Disks["d"] = v1beta2.DiskSpec{Path: "/data", EvictionRequested: true}
		},
			false, "EvictionUserRequested", false},
		{"no longer", func(*v1beta2.Node, *seen) {}, true, "EvictionCanceled", false},
		{"node down", func(n *v1beta2.Node, s *seen) {
			evictNode(n, s)
			s.KubeNode = kube(with(corev1.NodeReady, corev1.ConditionUnknown, now))
		}, true, "EvictionCanceled", false},
		{"cordoned, default policy", cordon("block-if-contains-last-replica"), false, "", false},
		{"cordoned, evict", cordon("block-for-eviction"), false, "EvictionAutomatic", true},
		{"cordoned, evict the last", cordon("block-for-eviction-if-contains-last-replica"), false, "EvictionAutomatic", true},
		{"cordoned, evict the last, copy elsewhere", func(n *v1beta2.Node, s *seen) {
			cordon("block-for-eviction-if-contains-last-replica")(n, s)
			other := replica("r2", "n2", "x", gib)
			other.Spec.Active, other.Spec.HealthyAt = true, "t"
			s.Siblings, s.Shelter = []v1beta2.Replica{other}, instancemanager.NewShelter([]string{"n2"}, others(""))
		}, false, "", false},
		{"cordoned, evict the last, copy on a dead node", func(n *v1beta2.Node, s *seen) {
			cordon("block-for-eviction-if-contains-last-replica")(n, s)
			other := replica("r2", "n2", "x", gib)
			other.Spec.Active, other.Spec.HealthyAt = true, "t"
			s.Siblings = []v1beta2.Replica{other}
			s.Shelter = instancemanager.NewShelter([]string{"n2"}, others(v1beta2.NodeReasonKubernetesNodeGone))
		}, false, "EvictionAutomatic", true},
	} {
		n, s := storageNode(), healthy()
		r := replica("r1", "n1", "uuid-d", gib)
		r.Spec.EvictionRequested = tt.evicting
		s.Replicas = []v1beta2.Replica{r}
		tt.edit(n, &s)
		d := decide(now, n, s)
		event := ""
		if len(d.Events) > 0 {
			event = d.Events[0].Reason
			if !strings.HasSuffix(d.Events[0].Message, why[tt.name]) {
				t.Errorf("%s: message %q, want %q", tt.name, d.Events[0].Message, why[tt.name])
			}
			if d.Events[0].On == nil || d.Events[0].On.GetName() != "r1" {
				t.Errorf("%s: the event is about %v", tt.name, d.Events[0].On)
			}
		}
		if event != tt.event || (d.Do != nil) != (tt.event != "") || n.Status.AutoEvicting != tt.auto {
			t.Errorf("%s: event %q, does %v, auto %v", tt.name, event, d.Do, n.Status.AutoEvicting)
		}
	}
}

// TestDiskThatIsAwayIsToldOn: what the manager of a node found of a disk stays while that manager
// is away, since copies there do not count: with one that counted, the last other copy could be
// drained away.
func TestDiskThatIsAwayIsToldOn(t *testing.T) {
	for _, found := range []string{v1beta2.DiskReasonNoDiskInfo, v1beta2.DiskReasonDiskFilesystemChanged, ""} {
		n, s := storageNode(), healthy()
		d := n.Status.DiskStatus["d"]
		want := v1beta2.DiskReasonNodeNotReady
		if found != "" {
			want = found
			d.Conditions = []v1beta2.Condition{{Type: "Ready", Status: "False", Reason: found}}
		}
		n.Status.DiskStatus["d"] = d
		s.ManagerPod = nil
		decide(now, n, s)
		if c := diskCondition(n, "d", "Ready"); c.Reason != want || c.Status != v1beta2.ConditionFalse {
			t.Errorf("found %q: %+v", found, c)
		}
	}
}

// TestSchedulable: a cordoned node takes no new replicas where the setting says so, or where they
// would have to leave it at once, to be replaced there again.
func TestSchedulable(t *testing.T) {
	cordoned := kube(func(n *corev1.Node) { n.Spec.Unschedulable = true })
	for _, tt := range []struct {
		name           string
		kube           *corev1.Node
		setting        bool
		policy         string
		status, reason string
	}{
		{"node", kube(), true, "block-for-eviction", "True", ""},
		{"cordoned", cordoned, true, "always-allow", "False", "KubernetesNodeCordoned"},
		{"cordoned, and the setting is off", cordoned, false, "block-if-contains-last-replica", "True", ""},
		{"the same, always-allow", cordoned, false, "always-allow", "True", ""},
		{"the same, replicas are evicted", cordoned, false, "block-for-eviction", "False", "KubernetesNodeCordoned"},
		{"the same, the last ones are", cordoned, false, "block-for-eviction-if-contains-last-replica", "False",
			"KubernetesNodeCordoned"},
		{"node that is gone", nil, true, "block-for-eviction", "True", ""},
	} {
		c := schedulability(tt.kube, tt.setting, tt.policy)
		if c.Type != "Schedulable" || string(c.Status) != tt.status || c.Reason != tt.reason {
			t.Errorf("%s: %+v, want %s, %q", tt.name, c, tt.status, tt.reason)
		}
	}
}

// TestManagerIsMissedFromItsLossOn: how long a node has been without a manager Pod does not begin
// with what the node suffered from before: of a node under pressure whose manager was restarted the
// data of deleted replicas would be left after seconds.
func TestManagerIsMissedFromItsLossOn(t *testing.T) {
	n, s, stamps := storageNode(), healthy(), firstseen.New()
	for _, step := range []struct {
		at      time.Duration
		node    corev1.ConditionStatus // Ready
		trouble corev1.ConditionStatus // disk pressure
		manager *corev1.Pod
		gone    bool
		again   time.Duration
	}{
		{0, "True", "False", managerPod("True"), false, 0},
		{time.Hour, "True", "True", managerPod("True"), false, 0},
		{2 * time.Hour, "True", "True", nil, false, 2 * time.Minute},
		{2*time.Hour + time.Minute, "True", "True", managerPod("False"), false, time.Minute},
		{2*time.Hour + 2*time.Minute, "True", "False", managerPod("False"), true, 0},
		{3 * time.Hour, "Unknown", "False", managerPod("False"), false, 0},
		{4 * time.Hour, "True", "False", managerPod("False"), false, 2 * time.Minute},
		{5 * time.Hour, "True", "False", managerPod("False"), true, 0},
	} {
		at := now.Add(step.at)
		s.KubeNode = kube(with(corev1.NodeReady, step.node, at), with(corev1.NodeDiskPressure, step.trouble, at))
		s.ManagerPod = step.manager
		decide(at, n, s)
		since := stamps.At(at, n.Name, condition.ManagerStamp(n))
		if gone, again := condition.ManagerGone(at, n, since); gone != step.gone || again != step.again {
			t.Errorf("after %s: gone %v, again in %s; want %v, %s", step.at, gone, again, step.gone, step.again)
		}
	}
}
