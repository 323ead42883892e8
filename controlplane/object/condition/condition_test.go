package condition

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func node(status v1beta2.ConditionStatus, reason string, since time.Duration) *v1beta2.Node {
	n := &v1beta2.Node{}
	n.Status.Conditions = []v1beta2.Condition{{Type: v1beta2.NodeConditionReady, Status: status, Reason: reason,
		LastTransitionTime: now.Add(-since).Format(time.RFC3339)}}
	return n
}

// TestNodes has a row per reason of a node's condition Ready.
func TestNodes(t *testing.T) {
	const long, short = managerWait, managerWait - time.Second
	const soon = time.Second
	no, yes, unknown := v1beta2.ConditionFalse, v1beta2.ConditionTrue, v1beta2.ConditionUnknown
	for name, c := range map[string]struct {
		n                                  *v1beta2.Node
		down, ready, removable, noManagers bool
		again                              time.Duration
	}{
		"ready":                  {node(yes, "", long), false, true, false, false, 0},
		"never judged":           {node(unknown, "", long), false, false, false, false, 0},
		"gone":                   {node(no, v1beta2.NodeReasonKubernetesNodeGone, long), true, false, true, false, 0},
		"not ready":              {node(no, v1beta2.NodeReasonKubernetesNodeNotReady, long), true, false, false, false, 0},
		"pressure":               {node(no, v1beta2.NodeReasonKubernetesNodePressure, long), false, false, false, false, 0},
		"unknown condition":      {node(no, v1beta2.NodeReasonUnknownNodeConditionTrue, long), false, false, false, false, 0},
		"manager missing":        {node(no, v1beta2.NodeReasonManagerPodMissing, long), false, false, true, true, 0},
		"manager down":           {node(no, v1beta2.NodeReasonManagerPodDown, long), false, false, false, true, 0},
		"manager went":           {node(no, v1beta2.NodeReasonManagerPodMissing, short), false, false, true, false, soon},
		"manager failed":         {node(no, v1beta2.NodeReasonManagerPodDown, short), false, false, false, false, soon},
		"ready, with old reason": {node(yes, v1beta2.NodeReasonManagerPodMissing, long), false, true, false, false, 0},
	} {
		since, err := time.Parse(time.RFC3339, c.n.Status.Conditions[0].LastTransitionTime)
		if err != nil {
			t.Fatal(err)
		}
		gone, again := ManagerGone(now, c.n, since)
		if NodeDown(c.n) != c.down || NodeReady(c.n) != c.ready || NodeRemovable(c.n) != c.removable ||
			gone != c.noManagers || again != c.again {
			t.Errorf("%s: down %v, ready %v, removable %v, no manager %v (again in %s); want %+v", name, NodeDown(c.n),
				NodeReady(c.n), NodeRemovable(c.n), gone, again, c)
		}
	}
	if gone, _ := ManagerGone(now, nil, time.Time{}); !NodeDown(nil) || gone {
		t.Error("a node without an object is down, whatever its manager")
	}
}

// TestManagerGoneByOneClock: the leader that has stamped it may have another clock.
func TestManagerGoneByOneClock(t *testing.T) {
	for _, stamped := range []time.Duration{-time.Hour, time.Hour} {
		n := node(v1beta2.ConditionFalse, v1beta2.NodeReasonManagerPodMissing, stamped)
		if gone, again := ManagerGone(now, n, now); gone || again != managerWait {
			t.Errorf("stamped %s ago, seen now: %v, again in %s", stamped, gone, again)
		}
		if gone, _ := ManagerGone(now, n, now.Add(-managerWait)); !gone {
			t.Errorf("stamped %s ago, seen long ago: not gone", stamped)
		}
	}
}

func TestPodReady(t *testing.T) {
	pod := func(status corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: status}}}}
	}
	ends := pod(corev1.ConditionTrue)
	ends.DeletionTimestamp = &metav1.Time{Time: now}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"ready": {pod(corev1.ConditionTrue), true}, "not ready": {pod(corev1.ConditionFalse), false},
		"lost": {pod(corev1.ConditionUnknown), false}, "new": {&corev1.Pod{}, false}, "ends": {ends, false},
	} {
		if PodReady(c.pod) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

// TestPodProblem: the words of the first container that says something, or else of the Pod.
func TestPodProblem(t *testing.T) {
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no image"}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error"}}
	for want, states := range map[string][]corev1.ContainerState{
		"evicted":                                nil,
		"container waits: ErrImagePull no image": {{}, waits, ended},
		"container ended: Error":                 {ended, waits},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Message: "evicted"}}
		for _, s := range states {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{State: s})
		}
		if have := PodProblem(pod); have != want {
			t.Errorf("%q, want %q", have, want)
		}
	}
}

func TestDisks(t *testing.T) {
	disk := func(kind string, status v1beta2.ConditionStatus, reason string) v1beta2.DiskStatus {
		return v1beta2.DiskStatus{Conditions: []v1beta2.Condition{{Type: kind, Status: status, Reason: reason}}}
	}
	if !DiskReady(disk(v1beta2.DiskConditionReady, v1beta2.ConditionTrue, "")) ||
		DiskReady(disk(v1beta2.DiskConditionReady, v1beta2.ConditionFalse, "")) || DiskReady(v1beta2.DiskStatus{}) {
		t.Error("ready disks")
	}
	for name, c := range map[string]struct {
		status   v1beta2.ConditionStatus
		reason   string
		ok, full bool
	}{
		"schedulable": {v1beta2.ConditionTrue, "", true, false},
		"no room":     {v1beta2.ConditionFalse, v1beta2.DiskReasonDiskPressure, false, true},
		"not ready":   {v1beta2.ConditionFalse, v1beta2.DiskReasonDiskNotReady, false, false},
		"unknown":     {v1beta2.ConditionUnknown, v1beta2.DiskReasonDiskPressure, false, false},
	} {
		ok, full := DiskSchedulable(disk(v1beta2.DiskConditionSchedulable, c.status, c.reason))
		if ok != c.ok || full != c.full {
			t.Errorf("%s: schedulable %v, pressure %v", name, ok, full)
		}
	}
}

// TestCopyThere has a row for each way in which a copy may be out of reach; whatever changes the
// answer changes what is watched (CopiesView).
func TestCopyThere(t *testing.T) {
	no, yes := v1beta2.ConditionFalse, v1beta2.ConditionTrue
	with := func(n *v1beta2.Node, status v1beta2.ConditionStatus, reason string) *v1beta2.Node {
		n.Status.DiskStatus = map[string]v1beta2.DiskStatus{
			"d": {DiskUUID: "u", DiskPath: "/u", Conditions: []v1beta2.Condition{
				{Type: v1beta2.DiskConditionReady, Status: status, Reason: reason}}},
			"copy": {DiskUUID: "u", DiskPath: "/copy"}, // of the same UUID
		}
		return n
	}
	ready := func() *v1beta2.Node { return node(yes, "", 0) }
	view := CopiesView(with(ready(), yes, ""))
	for name, c := range map[string]struct {
		n     *v1beta2.Node
		disk  string
		there bool
	}{
		"ready":               {with(ready(), yes, ""), "u", true},
		"no disk is named":    {ready(), "", true},
		"no node":             {nil, "", false},
		"node gone":           {with(node(no, v1beta2.NodeReasonKubernetesNodeGone, 0), yes, ""), "u", false},
		"node not ready":      {with(node(no, v1beta2.NodeReasonKubernetesNodeNotReady, 0), yes, ""), "u", false},
		"manager missing":     {with(node(no, v1beta2.NodeReasonManagerPodMissing, 0), no, "NodeNotReady"), "u", true},
		"disk cannot be read": {with(ready(), no, v1beta2.DiskReasonNoDiskInfo), "u", false},
		"another disk there":  {with(ready(), no, v1beta2.DiskReasonDiskFilesystemChanged), "u", false},
		"disk of another":     {with(ready(), yes, ""), "x", false},
	} {
		r := &v1beta2.Replica{Spec: v1beta2.ReplicaSpec{DiskID: c.disk, DiskPath: "/u"}}
		if got := CopyThere(c.n, r); got != c.there {
			t.Errorf("%s: %v, want %v", name, got, c.there)
		}
		if c.n != nil && c.disk == "u" && (CopiesView(c.n) == view) != c.there {
			t.Errorf("%s: seen as %q", name, CopiesView(c.n))
		}
	}
}
