package node

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/host/patience"
)

// kubeletGrace is how long a kubelet may miss its heartbeat before the node counts as down: a
// restarting kubelet stays within it.
var kubeletGrace = patience.Of(10 * time.Second)

// readiness says whether the node can be used, from the Kubernetes node and the manager Pod on it
// (nil if gone). grace is how much longer a kubelet may say that it is not ready. recheck is when
// to look again although nothing changes (0: no need).
func readiness(grace time.Duration, name string, kube *corev1.Node, manager *corev1.Pod) (c v1beta2.Condition,
	recheck time.Duration) {
	no := func(reason, format string, args ...any) v1beta2.Condition {
		return v1beta2.Condition{
			Type: v1beta2.NodeConditionReady, Status: v1beta2.ConditionFalse,
			Reason: reason, Message: fmt.Sprintf(format, args...),
		}
	}
	if kube == nil {
		return no(v1beta2.NodeReasonKubernetesNodeGone, "Kubernetes node %s is gone", name), 0
	}
	reason, message, recheck := kubeProblem(grace, kube)
	switch {
	case reason == v1beta2.NodeReasonKubernetesNodeNotReady:
		return no(reason, "%s", message), recheck
	case manager == nil:
		return no(v1beta2.NodeReasonManagerPodMissing,
			"there is no manager Pod on node %s; check the DaemonSet longhorn-manager", name), recheck
	case !condition.PodReady(manager):
		return no(v1beta2.NodeReasonManagerPodDown, "manager Pod %s on node %s is not ready", manager.Name, name), recheck
	case reason != "":
		return no(reason, "%s", message), recheck
	}
	return v1beta2.Condition{Type: v1beta2.NodeConditionReady, Status: v1beta2.ConditionTrue}, recheck
}

// kubeletGraceLeft is how much longer the kubelet of a node may say that it is not ready, unready
// since this process has seen it say so (zero: it does not): none on a node that counts as down
// already.
func kubeletGraceLeft(now time.Time, n *v1beta2.Node, unready time.Time) time.Duration {
	if unready.IsZero() || condition.NodeDown(n) {
		return 0
	}
	return max(0, unready.Add(kubeletGrace).Sub(now))
}

// unreadyStamp is since when a kubelet says, by its clock, that its node is not ready; empty if it
// does not.
func unreadyStamp(kube *corev1.Node) string {
	if kube == nil {
		return ""
	}
	for _, c := range kube.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse {
			return "since " + c.LastTransitionTime.String()
		}
	}
	return ""
}

// kubeProblem returns what Kubernetes says against a node; an empty reason if nothing.
func kubeProblem(grace time.Duration, kube *corev1.Node) (reason, message string, recheck time.Duration) {
	for _, c := range kube.Status.Conditions {
		bad := c.Status == corev1.ConditionTrue
		switch c.Type {
		case corev1.NodeReady:
			if bad {
				continue
			}
			if grace > 0 && c.Status == corev1.ConditionFalse {
				recheck = grace
				continue
			}
			return v1beta2.NodeReasonKubernetesNodeNotReady,
				fmt.Sprintf("Kubernetes node %s is not ready: %s", kube.Name, c.Message), 0
		case corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeMemoryPressure, corev1.NodeNetworkUnavailable:
			if bad && reason == "" {
				reason = v1beta2.NodeReasonKubernetesNodePressure
				message = fmt.Sprintf("Kubernetes node %s reports %s: %s", kube.Name, c.Type, c.Message)
			}
		default:
			if bad && reason == "" {
				reason = v1beta2.NodeReasonUnknownNodeConditionTrue
				message = fmt.Sprintf("Kubernetes node %s reports %s, which is not known: %s", kube.Name, c.Type, c.Message)
			}
		}
	}
	return reason, message, recheck
}

// schedulability says whether new replicas may go to the node. Where the drain policy evicts the
// replicas of cordoned nodes, a new one would have to leave again at once, for ever.
func schedulability(kube *corev1.Node, disableOnCordon bool, drainPolicy string) v1beta2.Condition {
	c := v1beta2.Condition{Type: v1beta2.NodeConditionSchedulable, Status: v1beta2.ConditionTrue}
	evicts := drainPolicy == instancemanager.DrainEviction || drainPolicy == instancemanager.DrainEvictionOfLast
	if kube == nil || !kube.Spec.Unschedulable || !disableOnCordon && !evicts {
		return c
	}
	c.Status, c.Reason = v1beta2.ConditionFalse, v1beta2.NodeReasonKubernetesNodeCordoned
	c.Message = "Kubernetes node " + kube.Name + " is cordoned and setting disable-scheduling-on-cordoned-node is true"
	if !disableOnCordon {
		c.Message = "Kubernetes node " + kube.Name + " is cordoned and setting node-drain-policy is " + drainPolicy
	}
	return c
}

// conditions lists node and disk conditions, for events. A node is new until its manager runs and
// its disks are prepared, and may lack for good what no volume, or none so far, has any use for.
func conditions(n *v1beta2.Node) []loop.Condition {
	out := loop.Conditions(n.Status.Conditions)
	loop.Expect(out, v1beta2.NodeConditionReady, v1beta2.NodeReasonManagerPodMissing, v1beta2.NodeReasonManagerPodDown)
	loop.Expect(out, v1beta2.NodeConditionKernelModulesLoaded, v1beta2.NodeReasonKernelModulesNotLoaded)
	loop.Expect(out, v1beta2.NodeConditionNFSClientInstalled, v1beta2.NodeReasonNFSClientIsNotFound)
	for _, name := range slices.Sorted(maps.Keys(n.Status.DiskStatus)) {
		disk := loop.Conditions(n.Status.DiskStatus[name].Conditions)
		loop.Expect(disk, v1beta2.DiskConditionReady, v1beta2.DiskReasonPreparing, v1beta2.DiskReasonNodeNotReady)
		loop.Expect(disk, v1beta2.DiskConditionSchedulable, v1beta2.DiskReasonDiskNotReady,
			v1beta2.DiskReasonNodeNotReady)
		for i := range disk {
			disk[i].Of = "disk " + name
		}
		out = append(out, disk...)
	}
	return out
}
