package volume

import (
	"fmt"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/firstseen"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/schedule"
)

// cleaning takes away the replicas that a volume in use needs no more. It is the part of a pass
// that cleanup stands for.
type cleaning struct{ *pass }

// cleanup deletes one replica that is not needed any more. One that is deleted already, and kept as
// it may be the last copy, stays as it is. What may be the last good copy is never deleted: a
// recorded member stays while it is one, and a failed replica that holds data stays while no other
// replica is safe.
func (p cleaning) cleanup() loop.Change {
	if p.v.Status.State != v1beta2.VolumeStateAttached || !p.engineReports() || p.upgradeUnderWay() || p.migrating() {
		return nil
	}
	inSync := count(p.undeleted(), func(r *v1beta2.Replica) bool {
		return healthy(r) && p.mode(r) == v1beta2.ReplicaModeRW
	})
	for _, r := range p.undeleted() {
		why := p.superfluous(r, inSync)
		if why == "" || p.mustBeKept(r) {
			continue
		}
		return p.deleteReplica(r, why)
	}
	if inSync > p.v.Spec.NumberOfReplicas && !p.rebuilding() {
		return p.deleteExtra()
	}
	return nil
}

// superfluous says why a replica that serves nobody should go; empty if it should stay.
func (p cleaning) superfluous(r *v1beta2.Replica, inSync int) string {
	switch {
	case r.Spec.FailedAt != "" && r.Spec.RebuildRetryCount >= v1beta2.MaxRebuildRetryCount:
		return "its rebuild failed too often"
	case r.Spec.FailedAt != "" && damaged(r):
		return "its directory is damaged: " + startFailure(&r.Status.InstanceStatus)
	case r.Spec.FailedAt != "" && p.stale(r):
		return "it failed too long ago"
	case r.Spec.FailedAt != "" && r.Spec.Image != p.engine.Spec.Image:
		return "it is of another engine image"
	case r.Spec.FailedAt != "" && r.Spec.EvictionRequested && inSync >= p.v.Spec.NumberOfReplicas:
		return "it has failed, its disk or node is being evicted, and the volume is complete without it"
	case r.Spec.NodeID == "" && !hasData(r) && r.Spec.HardNodeAffinity != "" && !p.anyEvicting() &&
		(p.v.Spec.DataLocality == v1beta2.DataLocalityDisabled || p.v.Spec.DataLocality == ""):
		return "it has no place, and the volume needs none on that node any more"
	case r.Spec.NodeID == "" && !hasData(r) && inSync >= p.v.Spec.NumberOfReplicas && !p.anyEvicting() &&
		(r.Spec.HardNodeAffinity == "" || r.Spec.HardNodeAffinity != p.v.Spec.NodeID):
		return "it has no place and the volume is complete without it"
	}
	return ""
}

// stale replicas failed longer ago than the volume's timeout; the volume looks again when the next
// one becomes so.
func (p cleaning) stale(r *v1beta2.Replica) bool {
	timeout := time.Duration(p.v.Spec.StaleReplicaTimeout) * time.Minute
	failedAt, err := time.Parse(time.RFC3339, r.Spec.FailedAt)
	if timeout <= 0 || err != nil {
		return false
	}
	if wait := firstseen.Left(p.now, failedAt, p.s.FailedSince[r.Name], timeout); wait > 0 {
		p.wakeIn(wait)
		return false
	}
	return true
}

// mustBeKept says whether a replica may hold the only good copy, and so is never deleted here.
func (p cleaning) mustBeKept(r *v1beta2.Replica) bool {
	if p.isMember(r) {
		return true
	}
	return hasData(r) && count(p.live(), p.safe) == 0
}

// safe replicas hold the present data beyond doubt: in sync since their last failure.
func (p cleaning) safe(r *v1beta2.Replica) bool {
	return healthy(r) && p.mode(r) == v1beta2.ReplicaModeRW && later(r.Spec.LastHealthyAt, r.Spec.LastFailedAt)
}

func (p *pass) anyEvicting() bool {
	return count(p.live(), func(r *v1beta2.Replica) bool { return r.Spec.EvictionRequested }) > 0
}

// deleteExtra gives up one of too many replicas in sync: one being evicted, else, with
// auto-balance, the one that schedule.Extra names, else, with best-effort locality, the remote one
// that spreads the data least: a local one is in sync, or there is no place for one, and another
// one was made for a node on which the volume has been before.
func (p cleaning) deleteExtra() loop.Change {
	stay := count(p.undeleted(), func(r *v1beta2.Replica) bool {
		return healthy(r) && !r.Spec.EvictionRequested && p.mode(r) == v1beta2.ReplicaModeRW
	})
	for _, r := range p.undeleted() {
		if r.Spec.EvictionRequested && healthy(r) && stay > 0 {
			return p.deleteReplica(r, "its disk or node is being evicted and the volume is complete without it")
		}
	}
	why := "the volume's replicas are spread better without it"
	switch {
	case p.localStays():
		why = "the volume has a replica on its own node instead"
	case p.unplacedLocal:
		why = "it is one more than wanted, and there is no place for one on the volume's own node: " + p.noPlace
	case !p.balances():
		return nil
	}
	var extra []schedule.Replica
	for _, r := range p.undeleted() {
		if healthy(r) {
			extra = append(extra, scheduling(p).scheduleReplica(r))
		}
	}
	name := ""
	if p.balances() {
		name = schedule.Extra(extra, scheduling(p).scheduleNodes(), scheduling(p).policy(), p.howBalanced())
	} else {
		name = schedule.Surplus(extra, scheduling(p).scheduleNodes(), p.v.Spec.NodeID)
	}
	for _, r := range p.undeleted() {
		if r.Name == name {
			return p.deleteReplica(r, why)
		}
	}
	return nil
}

// deleteReplica deletes the object; its process serves on until the engine has dropped it, and the
// node's agent removes the data after that.
func (p cleaning) deleteReplica(r *v1beta2.Replica, why string) loop.Change {
	p.changeEvents = append(p.changeEvents, loop.Event{
		Reason: naming.EventDelete, Message: fmt.Sprintf("Deleting replica %s: %s", r.Name, why),
	})
	return loop.Delete{Object: r}
}
