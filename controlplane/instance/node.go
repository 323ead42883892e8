package instance

import (
	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/condition"
)

// NodeDown says whether a node is down or deleted: there is no object for it (nil), or Kubernetes
// has lost it. A node that is only not ready for another reason may still run its processes well.
func NodeDown(n *v1beta2.Node) bool {
	return condition.NodeDown(n)
}
