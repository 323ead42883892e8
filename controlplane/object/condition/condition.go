// Package condition says what the conditions of nodes, Pods and disks mean: is this node down, is
// that Pod ready, may a disk take replicas? There is one rule for each, and controllers, webhooks
// and REST ask it here, so that they never disagree.
//
// The package is pure.
package condition

import (
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
)

// NodeDown says whether a node is down or deleted: there is no object for it (nil), or Kubernetes
// has lost contact with it. A node that is not ready for another reason, as when its manager Pod
// alone is missing, is not down: its instances may run well.
func NodeDown(n *v1beta2.Node) bool {
	if n == nil {
		return true
	}
	return notReady(n, v1beta2.NodeReasonKubernetesNodeGone, v1beta2.NodeReasonKubernetesNodeNotReady)
}

// NodeReady says whether a node can be used for everything.
func NodeReady(n *v1beta2.Node) bool {
	return v1beta2.IsConditionTrue(n.Status.Conditions, v1beta2.NodeConditionReady)
}

// NodeSchedulable says whether condition Schedulable of a node lets new replicas be put there.
func NodeSchedulable(n *v1beta2.Node) bool {
	return v1beta2.IsConditionTrue(n.Status.Conditions, v1beta2.NodeConditionSchedulable)
}

// CopyThere says whether the copy of a replica on its node can be counted on: the node is not down,
// and the disk is not known to be away. While the manager of the node says nothing of the disk,
// what it said last counts. A copy that names no disk is judged by its node alone.
func CopyThere(n *v1beta2.Node, r *v1beta2.Replica) bool {
	if NodeDown(n) {
		return false
	}
	if r.Spec.DiskID == "" {
		return true
	}
	d, ok := n.Status.DiskStatus[DiskOf(n, r)]
	return ok && !DiskAway(d)
}

// DiskOf names the disk of a node that a replica of that node is on; empty if the node does not
// report it. Of several disks with one UUID it is the one at the replica's path.
func DiskOf(n *v1beta2.Node, r *v1beta2.Replica) (name string) {
	if r.Spec.DiskID == "" {
		return ""
	}
	for _, disk := range slices.Sorted(maps.Keys(n.Status.DiskStatus)) {
		d := n.Status.DiskStatus[disk]
		switch {
		case d.DiskUUID != r.Spec.DiskID:
		case path.Clean(d.DiskPath) == path.Clean(r.Spec.DiskPath):
			return disk
		case name == "":
			name = disk
		}
	}
	return name
}

// DiskAway says whether the manager of its node has found that a disk cannot be used.
func DiskAway(d v1beta2.DiskStatus) bool {
	c := v1beta2.FindCondition(d.Conditions, v1beta2.DiskConditionReady)
	return c.Status == v1beta2.ConditionFalse && c.Reason != v1beta2.DiskReasonNodeNotReady
}

// NodeRemovable says whether the object of a node may be deleted once nothing is on it: the node is
// gone from Kubernetes, or nothing of this system runs there any more.
func NodeRemovable(n *v1beta2.Node) bool {
	return notReady(n, v1beta2.NodeReasonKubernetesNodeGone, v1beta2.NodeReasonManagerPodMissing)
}

// managerWait is how long a node may be without a working manager Pod before it is given up: an
// upgrade replaces the Pods of all managers, and each is back after some seconds.
const managerWait = 2 * time.Minute

// NoManager says of a node's condition Ready that the node is not down and has no working manager
// Pod. Its transition time is then the beginning of that, whatever the node suffered from before.
func NoManager(ready v1beta2.Condition) bool {
	return ready.Status == v1beta2.ConditionFalse &&
		(ready.Reason == v1beta2.NodeReasonManagerPodMissing || ready.Reason == v1beta2.NodeReasonManagerPodDown)
}

// ManagerStamp tells the time without a working manager Pod of a node that is not down from others,
// by the clock of the leader of then; empty if it has one.
func ManagerStamp(n *v1beta2.Node) string {
	if n == nil {
		return ""
	}
	ready := v1beta2.FindCondition(n.Status.Conditions, v1beta2.NodeConditionReady)
	if !NoManager(ready) {
		return ""
	}
	return "since " + ready.LastTransitionTime
}

// ManagerGone says whether a node that is not down has been without a working manager Pod for so
// long that nobody waits for what only that Pod can do: since is when this process has seen
// ManagerStamp first. Otherwise again is when to ask once more; 0 if a change of the node will
// tell.
func ManagerGone(now time.Time, n *v1beta2.Node, since time.Time) (gone bool, again time.Duration) {
	if ManagerStamp(n) == "" {
		return false, 0
	}
	if rest := since.Add(managerWait).Sub(now); rest > 0 {
		return false, rest
	}
	return true, 0
}

func notReady(n *v1beta2.Node, reasons ...string) bool {
	ready := v1beta2.FindCondition(n.Status.Conditions, v1beta2.NodeConditionReady)
	if ready.Status != v1beta2.ConditionFalse {
		return false
	}
	for _, reason := range reasons {
		if ready.Reason == reason {
			return true
		}
	}
	return false
}

// KubeNodeChanged says whether a Kubernetes node has changed in more than its heartbeat and what
// its kubelet tells of images and volumes.
func KubeNodeChanged(before, after *corev1.Node) bool {
	return before.Spec.Unschedulable != after.Spec.Unschedulable || !maps.Equal(before.Labels, after.Labels) ||
		!maps.Equal(before.Annotations, after.Annotations) ||
		!before.Status.Allocatable.Cpu().Equal(*after.Status.Allocatable.Cpu()) ||
		!slices.EqualFunc(before.Status.Conditions, after.Status.Conditions, func(a, b corev1.NodeCondition) bool {
			a.LastHeartbeatTime, b.LastHeartbeatTime = metav1.Time{}, metav1.Time{}
			return equality.Semantic.DeepEqual(a, b)
		})
}

// PodReady says whether a Pod has the condition Ready and is not about to end.
func PodReady(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// PodProblem says in the words of Kubernetes why a Pod does not run; empty if nothing is known.
func PodProblem(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			return strings.TrimSpace("container ended: " + t.Reason + " " + t.Message)
		}
		if w := c.State.Waiting; w != nil && w.Reason != "" {
			return strings.TrimSpace("container waits: " + w.Reason + " " + w.Message)
		}
	}
	return pod.Status.Message
}

// CopiesView is what CopyThere looks at of a node: a node of which it has not changed holds the
// copies that it held.
func CopiesView(n *v1beta2.Node) string {
	if NodeDown(n) {
		return "down"
	}
	var there []string
	for _, d := range n.Status.DiskStatus {
		if !DiskAway(d) {
			there = append(there, d.DiskUUID+d.DiskPath)
		}
	}
	slices.Sort(there)
	return strings.Join(there, " ")
}

// DiskReady says whether a disk can be used: it is there, and it is the one it was.
func DiskReady(d v1beta2.DiskStatus) bool {
	return v1beta2.IsConditionTrue(d.Conditions, v1beta2.DiskConditionReady)
}

// DiskSchedulable says whether a disk may take replicas as far as its state is concerned. pressure
// tells that it may not for want of room.
func DiskSchedulable(d v1beta2.DiskStatus) (schedulable, pressure bool) {
	c := v1beta2.FindCondition(d.Conditions, v1beta2.DiskConditionSchedulable)
	return c.Status == v1beta2.ConditionTrue,
		c.Status == v1beta2.ConditionFalse && c.Reason == v1beta2.DiskReasonDiskPressure
}
