package instance

import "ankole.storage/api/longhorn/v1beta2"

// NodeDown says whether a node is down or deleted: there is no object for it (nil), or Kubernetes
// has lost it. A node that is only not ready for another reason may still run its processes well.
func NodeDown(n *v1beta2.Node) bool {
	if n == nil {
		return true
	}
	ready := v1beta2.FindCondition(n.Status.Conditions, v1beta2.NodeConditionReady)
	return ready.Status == v1beta2.ConditionFalse &&
		(ready.Reason == v1beta2.NodeReasonKubernetesNodeGone || ready.Reason == v1beta2.NodeReasonKubernetesNodeNotReady)
}
