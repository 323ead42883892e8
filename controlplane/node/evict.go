package node

import (
	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
)

// evictor says who wants a replica to leave its node.
type evictor int

const (
	nobody evictor = iota
	user           // spec.evictionRequested of the node or the disk
	policy         // the drain policy, on a cordoned node
)

// evictorOf says whether a replica on the node should leave it. A node that is down cannot give
// anything away: its replicas are replaced as failed ones.
func evictorOf(n *v1beta2.Node, r *v1beta2.Replica, s seen) evictor {
	if s.KubeNode == nil || condition.NodeDown(n) {
		return nobody
	}
	if n.Spec.EvictionRequested && !n.Spec.AllowScheduling {
		return user
	}
	if d := n.Spec.Disks[condition.DiskOf(n, r)]; d.EvictionRequested && !d.AllowScheduling {
		return user
	}
	if !s.KubeNode.Spec.Unschedulable {
		return nobody
	}
	switch s.DrainPolicy {
	case instancemanager.DrainEviction:
		return policy
	case instancemanager.DrainEvictionOfLast:
		if !instancemanager.CopyElsewhere(r, s.Siblings, s.Shelter) {
			return policy
		}
	}
	return nobody
}

// decideEviction marks, or unmarks, one replica of the node.
func decideEviction(n *v1beta2.Node, s seen) (loop.Decision, bool) {
	for i := range s.Replicas {
		r := &s.Replicas[i]
		if r.Spec.NodeID != n.Name || r.DeletionTimestamp != nil {
			continue
		}
		who := evictorOf(n, r, s)
		if r.Spec.EvictionRequested == (who != nobody) {
			continue
		}
		u := r.DeepCopy()
		u.Spec.EvictionRequested = who != nobody
		return loop.Decision{Do: loop.Update{Object: u}, Events: []loop.Event{evictionEvent(n, r, who)}}, true
	}
	return loop.Decision{}, false
}

func evictionEvent(n *v1beta2.Node, r *v1beta2.Replica, who evictor) loop.Event {
	e := loop.Event{On: r}
	switch who {
	case user:
		e.Reason = naming.EventEvictionUserRequested
		e.Message = "replica " + r.Name + " is to leave node " + n.Name + ": eviction of the node or the disk is requested"
	case policy:
		e.Reason = naming.EventEvictionAutomatic
		e.Message = "replica " + r.Name + " is to leave node " + n.Name +
			": the node is cordoned and the drain policy asks for it"
	default:
		e.Reason = naming.EventEvictionCanceled
		e.Message = "replica " + r.Name + " stays on node " + n.Name
		if c := v1beta2.FindCondition(n.Status.Conditions, v1beta2.NodeConditionReady); condition.NodeDown(n) {
			// A node that is down cannot give anything away.
			e.Message += ": " + c.Reason
		}
	}
	return e
}

// autoEvicting tells whether some replica leaves the node by policy alone.
func autoEvicting(n *v1beta2.Node, s seen) bool {
	for i := range s.Replicas {
		if s.Replicas[i].Spec.NodeID == n.Name && evictorOf(n, &s.Replicas[i], s) == policy {
			return true
		}
	}
	return false
}
