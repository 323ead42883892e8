package volume

import (
	"fmt"
	"strings"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/volume/clone"
)

// ConditionEviction of a Volume is our addition: False while replicas of it are to leave their disk
// or node and there is no place for others, with the reason. It appears with the first such time.
const (
	ConditionEviction = "Eviction"
	ReasonNoPlace     = "NoPlace"
)

// evictable says whether an engine could move the replicas that are to leave, and notes in the
// condition if it could not. There is nothing to attach the volume for as long as that is so.
func (p maintaining) evictable() bool {
	if !p.anyEvicting() {
		p.noteEviction("")
		return false
	}
	if !p.anyData() { // see moveEmpty
		why := ""
		if p.lacksPlace() {
			why = p.noPlaceText()
		}
		p.noteEviction(why)
		return false
	}
	complete := func(r *v1beta2.Replica) bool { return usable(r) && healthy(r) }
	if count(p.live(), complete) >= clone.Replicas(p.v) || p.repairable() || p.mayBeRepairable() {
		p.noteEviction("")
		return true
	}
	p.noteEviction(p.noRepair)
	return false
}

// noteEviction keeps the condition: why replicas that are to leave cannot, empty if nothing is in
// their way or none is to leave.
func (p maintaining) noteEviction(why string) {
	stuck := v1beta2.FindCondition(p.v.Status.Conditions, ConditionEviction).Status == v1beta2.ConditionFalse
	switch {
	case why == "" && stuck:
		p.setCondition(v1beta2.Condition{Type: ConditionEviction, Status: v1beta2.ConditionTrue})
	case why != "" && !stuck: // the first message of a lasting failure stays, as in condition Scheduled
		p.evictionFailed(why)
	}
}

// evictionFailed tells of replicas that are to leave their disk or node, and of their volume, that
// there is no place for another one.
func (p maintaining) evictionFailed(why string) {
	var names []string
	for _, r := range p.live() {
		if !r.Spec.EvictionRequested {
			continue
		}
		names = append(names, r.Name)
		p.events = append(p.events, loop.Event{On: r, Warning: true, Reason: naming.EventEvictionFailed,
			Message: "Replica " + r.Name + " stays on node " + r.Spec.NodeID + ", there is no place for another one: " + why})
	}
	message := fmt.Sprintf("%s cannot leave yet, there is no place for another replica: %s", strings.Join(names, ", "), why)
	p.tell(true, naming.EventEvictionFailed, "%s", message)
	p.setCondition(v1beta2.Condition{Type: ConditionEviction, Status: v1beta2.ConditionFalse, Reason: ReasonNoPlace,
		Message: message})
}

// boundTo is the only node for replicas of the volume, empty if it may have them on any: a
// strict-local volume has its replica where it is attached, or would be for work of its own.
func (p *pass) boundTo() string {
	switch {
	case p.v.Spec.DataLocality != v1beta2.DataLocalityStrictLocal:
		return ""
	case p.v.Spec.NodeID != "":
		return p.v.Spec.NodeID
	}
	return p.maintenanceNode()
}

// boundText says that the volume's data locality leaves one node only; empty if it does not.
func (p *pass) boundText() string {
	node := p.boundTo()
	if node == "" {
		return ""
	}
	return fmt.Sprintf("data locality %s leaves node %s only: ", p.v.Spec.DataLocality, node)
}
