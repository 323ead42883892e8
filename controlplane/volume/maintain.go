package volume

import (
	"fmt"
	"maps"
	"slices"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/schedule"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/volume/clone"
	"ankole.storage/controlplane/volume/restore"
)

// maintaining has a volume that nobody uses attached for work that needs an engine. It is the part
// of a pass that nobody else needs.
type maintaining struct{ *pass }

// maintain attaches a volume that nobody uses when it has work that needs an engine: a larger size,
// replicas to move off a disk that is being evicted if there is a place for them, missing ones to
// rebuild (if the volume or the setting asks for that), or a clone, of it or into it. It does so by
// a ticket of its own, which goes as soon as the work is done, a workload wants the volume, or too
// few copies are there to be served. A volume that is being filled has no other work, and no user
// yet.
func (p maintaining) maintain() loop.Change {
	if change := p.moveEmpty(); change != nil {
		return change
	}
	evict := p.evictable()
	rebuild := p.offlineRebuilding()
	expand := p.v.Status.ExpansionRequired && p.noRoom == ""
	cloned, alone := cloning(p).wantsClone()
	restored := restoring(p).wantsRestore()
	alone = alone || restore.Needed(p.v)
	possible := p.v.Status.Robustness != v1beta2.VolumeRobustnessFaulted && p.copies.Lacks() == ""
	p.workWaits = p.anyEvicting() || expand || cloned || restored || p.lacksReplicas()
	for _, job := range []struct {
		kind   v1beta2.AttacherType
		wanted bool
	}{
		{v1beta2.AttacherTypeVolumeExpansion, expand && !alone},
		{v1beta2.AttacherTypeVolumeEviction, evict && !alone}, {v1beta2.AttacherTypeVolumeRebuilding, rebuild && !alone},
		{v1beta2.AttacherTypeVolumeClone, cloned}, {v1beta2.AttacherTypeVolumeRestore, restored},
	} {
		wanted := job.wanted && possible && (alone || !p.inUse())
		if change := p.ticket(job.kind, wanted, alone); change != nil {
			return change
		}
	}
	p.noteOfflineRebuilding(rebuild)
	return nil
}

// moveEmpty moves replicas of a volume that has never been attached off disks that are being
// evicted. There is nothing to copy, so no engine is needed: a replica elsewhere is as good, and is
// there before the other one goes.
func (p maintaining) moveEmpty() loop.Change {
	if members, _ := p.members(); !p.anyEvicting() || p.anyData() || len(members) > 0 || p.inUse() || !p.closed() ||
		p.v.Spec.NodeID != "" || p.v.Status.State != v1beta2.VolumeStateDetached {
		return nil
	}
	if count(p.live(), usable) < clone.Replicas(p.v) {
		return replenishing(p).addReplica("", "precheck new replica failed: ", 0)
	}
	if count(p.live(), func(r *v1beta2.Replica) bool { return usable(r) && r.Spec.NodeID != "" }) < clone.Replicas(p.v) {
		return nil // step place says what is in the way
	}
	for _, r := range p.undeleted() {
		if r.Spec.EvictionRequested {
			return cleaning(p).deleteReplica(r, "its disk or node is being evicted, and the volume has never been attached")
		}
	}
	return nil
}

// inUse says whether somebody else has a ticket.
func (p maintaining) inUse() bool {
	for _, t := range p.s.Attachment.Spec.AttachmentTickets {
		switch t.Type {
		case v1beta2.AttacherTypeVolumeExpansion, v1beta2.AttacherTypeVolumeEviction, v1beta2.AttacherTypeVolumeRebuilding,
			v1beta2.AttacherTypeVolumeClone, v1beta2.AttacherTypeVolumeRestore:
		default:
			return true
		}
	}
	return false
}

// offlineRebuilding says whether a volume that nobody uses lacks replicas and is to be rebuilt now.
func (p maintaining) offlineRebuilding() bool {
	return p.lacksReplicas() && (p.repairable() || p.mayBeRepairable())
}

// lacksReplicas says whether replicas of the volume are missing and are to be rebuilt although
// nobody uses it.
func (p maintaining) lacksReplicas() bool {
	v := p.v
	enabled := v.Spec.OfflineRebuilding.Or(p.s.Settings.Bool(setting.OfflineReplicaRebuilding))
	return enabled && !v.Spec.Standby && p.anyData() && count(p.live(), healthy) < v.Spec.NumberOfReplicas
}

// repairable says whether attaching would help: a rebuild is under way, or there is a replica to
// rebuild or a place for one.
func (p maintaining) repairable() bool {
	if p.s.Settings.Int(setting.ConcurrentReplicaRebuildPerNodeLimit) == 0 {
		p.noRepair = "rebuilds are switched off: setting " + setting.ConcurrentReplicaRebuildPerNodeLimit + " is 0"
		return false
	}
	replenishing(p).wakeAfterPause()
	underway := count(p.live(), func(r *v1beta2.Replica) bool {
		return usable(r) && r.Spec.HealthyAt == "" && r.Spec.NodeID != "" && !p.nodeDown(r.Spec.NodeID)
	})
	if underway > 0 || schedule.Reuse(p.request(schedule.Replica{})) != "" {
		return true
	}
	req := p.request(schedule.Replica{})
	req.Volume.ReplacementDue = true
	_, why := schedule.Place(req)
	if len(why) > 0 {
		p.lacksRoom = true
		p.noRepair = fmt.Sprintf("%s%s (%s)", p.boundText(), why, schedule.Describe(schedule.Explain(req)))
	}
	return len(why) == 0
}

// mayBeRepairable says whether an attached volume is to stay so although there is nothing to
// rebuild now: a failed rebuild's process is being ended, and until it has ended its disk counts as
// one that hangs. Attaching starts such processes and ends them, so a volume that was detached for
// that would be attached again as soon as they have ended. Who does not end in comeUpWait hangs.
func (p maintaining) mayBeRepairable() bool {
	if p.v.Spec.NodeID == "" {
		return false
	}
	may := false
	for _, r := range p.live() {
		since := p.s.ReplicaRuns[r.Name].Ending
		if left := since.Add(comeUpWait).Sub(p.now); !since.IsZero() && left > 0 {
			p.wakeIn(left)
			may = true
		}
	}
	return may
}

// ticket puts this controller's ticket of a kind in or takes it out; hidden: without a frontend.
func (p maintaining) ticket(kind v1beta2.AttacherType, wanted, hidden bool) loop.Change {
	id := naming.AttachmentTicketID(string(kind), p.v.Name)
	have, there := p.s.Attachment.Spec.AttachmentTickets[id]
	misplaced := there && wanted && p.nodeDown(have.NodeID)
	if there == wanted && !misplaced {
		return nil
	}
	a := p.s.Attachment.DeepCopy()
	a.Spec.AttachmentTickets = maps.Clone(a.Spec.AttachmentTickets)
	if !wanted {
		delete(a.Spec.AttachmentTickets, id)
		return loop.Update{Object: a}
	}
	node := p.maintenanceNode()
	if node == "" || (misplaced && node == have.NodeID) {
		return nil // nowhere to go; woken when a node comes back
	}
	if a.Spec.AttachmentTickets == nil {
		a.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{}
	}
	frontend := v1beta2.AttachmentParameterAny
	if hidden {
		frontend = v1beta2.AttachmentParameterTrue
	}
	a.Spec.AttachmentTickets[id] = v1beta2.AttachmentTicket{
		ID: id, NodeID: node, Type: kind,
		Parameters: map[string]string{v1beta2.AttachmentParameterDisableFrontend: frontend},
	}
	return loop.Update{Object: a}
}

// maintenanceNode is where the volume is, or the node of one of its replicas: an engine beside its
// data is cheapest.
func (p *pass) maintenanceNode() string {
	if n := p.v.Spec.NodeID; n != "" && !p.nodeDown(n) {
		return n
	}
	var up []string
	for _, r := range p.live() {
		if n := r.Spec.NodeID; n != "" && p.reachable(r) &&
			condition.NodeReady(p.nodes.named(n)) {
			up = append(up, n)
		}
	}
	if len(up) == 0 {
		return ""
	}
	return slices.Min(up)
}

// noteOfflineRebuilding tells that a volume is attached only for a rebuild. The condition appears
// with the first such time.
func (p maintaining) noteOfflineRebuilding(wanted bool) {
	id := naming.AttachmentTicketID(string(v1beta2.AttacherTypeVolumeRebuilding), p.v.Name)
	_, there := p.s.Attachment.Spec.AttachmentTickets[id]
	have := v1beta2.FindCondition(p.v.Status.Conditions, v1beta2.VolumeConditionOfflineRebuilding)
	switch {
	case wanted && there:
		p.setCondition(v1beta2.Condition{
			Type: v1beta2.VolumeConditionOfflineRebuilding, Status: v1beta2.ConditionTrue,
			Reason: v1beta2.VolumeReasonOfflineRebuildingInProgress,
		})
	case have.Status == v1beta2.ConditionTrue:
		p.setCondition(
			v1beta2.Condition{Type: v1beta2.VolumeConditionOfflineRebuilding, Status: v1beta2.ConditionFalse},
		)
	}
}
