package volume

import "ankole.storage/api/longhorn/v1beta2"

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
// Trying again does not help before a person has looked, and no rebuild can begin with what is
// there.
func damaged(r *v1beta2.Replica) bool {
	c := v1beta2.FindCondition(r.Status.Conditions, v1beta2.InstanceConditionInstanceCreation)
	return c.Status == v1beta2.ConditionFalse && c.Reason == v1beta2.InstanceReasonDirectoryDamaged
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
