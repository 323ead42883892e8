package volume

import (
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// ConditionStart of a Volume is our addition: False while the last attempt to serve it has failed,
// with what the processes have said.
const (
	ConditionStart    = "Start"
	ReasonStartFailed = "StartFailed"
	ReasonServes      = "Serves"
)

// startFailure is what the process of an instance that could not start has said; empty if it did
// not fail.
func startFailure(s *v1beta2.InstanceStatus) string {
	c := v1beta2.FindCondition(s.Conditions, v1beta2.InstanceConditionInstanceCreation)
	if c.Status != v1beta2.ConditionFalse {
		return ""
	}
	return c.Message
}

// damaged says that a replica's process has found its directory not to be what an engine left.
// Trying again does not help, and no rebuild can begin with what is there.
func damaged(r *v1beta2.Replica) bool {
	c := v1beta2.FindCondition(r.Status.Conditions, v1beta2.InstanceConditionInstanceCreation)
	return c.Status == v1beta2.ConditionFalse && c.Reason == v1beta2.InstanceReasonDirectoryDamaged
}

// othersMayServe says whether an engine may find enough members without the damaged copies.
func (p *pass) othersMayServe() bool {
	members, recorded := p.members()
	return recorded && count(p.candidates(), func(r *v1beta2.Replica) bool {
		return p.isMember(r) && !damaged(r) && p.reachable(r)
	}) >= max(1, (len(members)+1)/2)
}

// because adds to a sentence what the process of a replica has said, or that of the engine.
func (p *pass) because(why string, r *v1beta2.Replica) string {
	if said := startFailure(&r.Status.InstanceStatus); said != "" {
		return why + ": " + said
	}
	if said := startFailure(&p.engine.Status.InstanceStatus); said != "" {
		return why + ": " + said
	}
	return why
}

// noteStart keeps the condition Start.
func (p *pass) noteStart(status v1beta2.ConditionStatus, message string) {
	reason := ReasonServes
	if status == v1beta2.ConditionFalse {
		reason = ReasonStartFailed
	}
	have := v1beta2.FindCondition(p.v.Status.Conditions, ConditionStart)
	if status == v1beta2.ConditionTrue && have.Status != v1beta2.ConditionFalse {
		return // it has never failed
	}
	p.setCondition(v1beta2.Condition{Type: ConditionStart, Status: status, Reason: reason, Message: message})
}

// salvageWait is how long to wait before a faulted volume is tried again: the engine's pause, and
// ten times that of the replicas if it is they that cannot start.
func (p *pass) salvageWait() time.Duration {
	wait, soonest := p.s.Run.RetryAt.Sub(p.now), time.Duration(-1)
	for _, r := range p.live() {
		if r.Spec.NodeID == "" || !p.reachable(r) {
			continue
		}
		if !damaged(r) || p.chosen(r) {
			return wait
		}
		run := p.s.ReplicaRuns[r.Name]
		left := run.RetryAt.Add(damagedPauses * pauseAfter(run.Failures)).Sub(p.now)
		if left = max(0, left); soonest < 0 || left < soonest {
			soonest = left
		}
	}
	return max(wait, soonest)
}

// damagedPauses is how many times longer than a process that has failed a damaged copy is left
// alone: a person has to look at it.
const damagedPauses = 10
