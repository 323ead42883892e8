package replica

import (
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// rebuild is what engines say of the rebuild of a replica.
type rebuild struct {
	// Done: an engine has the replica in sync.
	Done bool
	// Error says why its rebuild failed; empty if nobody says that one has.
	Error string
}

// rebuildOf reads what an engine says of a replica.
func rebuildOf(e *v1beta2.Engine, name string) rebuild {
	address, ok := e.Status.CurrentReplicaAddressMap[name]
	if !ok {
		address = e.Spec.ReplicaAddressMap[name] // one that the engine refuses
	}
	out := rebuild{Done: e.Status.ReplicaModeMap[name] == v1beta2.ReplicaModeRW}
	if address != "" && !out.Done {
		out.Error = e.Status.RebuildStatus["tcp://"+address].Error
	}
	return out
}

// rebuilt wakes the replicas of which an engine says something new about their rebuild.
func rebuilt(before, after *v1beta2.Engine) (names []string) {
	for name := range after.Status.ReplicaModeMap {
		if rebuildOf(before, name) != rebuildOf(after, name) {
			names = append(names, name)
		}
	}
	return names
}

// noteRebuild keeps the condition RebuildFailed: True from a rebuild that failed until one has
// succeeded. A replica that never failed to be rebuilt has none.
//
// The reason is the node's where the node is down, Disconnection where the replica's process is not
// there any more or the engine went away without a word, else General. What is known later may make
// a General failure one of the others, and not the reverse.
func noteRebuild(now time.Time, rep *v1beta2.Replica, s seen) {
	c := v1beta2.Condition{Type: v1beta2.ReplicaConditionRebuildFailed, Status: v1beta2.ConditionFalse}
	have := v1beta2.FindCondition(rep.Status.Conditions, c.Type)
	if s.Rebuild.Done {
		if have.Status == v1beta2.ConditionTrue {
			rep.Status.Conditions, _ = v1beta2.SetCondition(rep.Status.Conditions, c, now)
		}
		return
	}
	c.Status, c.Message = v1beta2.ConditionTrue, s.Rebuild.Error
	state := rep.Status.CurrentState
	ended := state == v1beta2.InstanceStateError || state == v1beta2.InstanceStateUnknown
	silent := c.Message == "" && unfinished(rep)
	switch {
	case c.Message == "" && !silent:
		return
	case s.NodeDown:
		c.Reason = v1beta2.NodeReasonKubernetesNodeGone
		if s.Node != nil {
			c.Reason = readiness(s.Node).Reason
		}
	case ended || silent:
		c.Reason = v1beta2.ReplicaReasonRebuildDisconnection
	default:
		c.Reason = v1beta2.ReplicaReasonRebuildGeneral
	}
	if silent {
		c.Message = "the rebuild did not come to its end, its engine or its process went away; last failed at " +
			rep.Spec.LastFailedAt
	}
	known := have.Status == v1beta2.ConditionTrue && have.Reason != v1beta2.ReplicaReasonRebuildGeneral
	if known && (silent || have.Message == c.Message) {
		return
	}
	if silent && have.Status == v1beta2.ConditionTrue && !ended && !s.NodeDown {
		return // the engine has said why, while it had the replica
	}
	if silent && have.Status == v1beta2.ConditionTrue {
		c.Message = have.Message
	}
	rep.Status.Conditions, _ = v1beta2.SetCondition(rep.Status.Conditions, c, now)
}

// unfinished says of a replica that it is marked as failed before it was in sync, by a rebuild and
// not by the volume's first start.
func unfinished(rep *v1beta2.Replica) bool {
	return rep.Spec.NodeID != "" && rep.Spec.FailedAt != "" && rep.Spec.HealthyAt == "" && rep.Spec.RebuildRetryCount > 0
}
