package volume

import (
	"fmt"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/schedule"
)

// ReasonNoRoom is that of the condition WaitForExpansion.
const ReasonNoRoom = "NoRoom"

// expanding makes a volume as large as is wanted. It is the part of a pass that grow stands for.
type expanding struct{ *pass }

// noteExpansion finds out whether the volume is to grow, and whether there is room for that.
func (p expanding) noteExpansion() {
	v, wanted := p.v, p.v.Status.ExpansionRequired
	v.Status.ExpansionRequired = p.engine != nil && v.DeviceBytes() > p.engine.SizeBytes()
	if v.Status.ExpansionRequired {
		p.noRoom = p.fullDisk(v.DeviceBytes())
	}
	told := v1beta2.IsConditionTrue(v.Status.Conditions, v1beta2.VolumeConditionWaitForExpansion)
	switch {
	case p.noRoom != "":
		p.wakeIn(placeAgainAfter)
		p.setCondition(v1beta2.Condition{Type: v1beta2.VolumeConditionWaitForExpansion, Status: v1beta2.ConditionTrue,
			Reason: ReasonNoRoom, Message: p.noRoom})
		if !told {
			p.tell(true, naming.EventFailedExpansion, "volume %s cannot be expanded to %d bytes yet: %s", v.Name, v.Spec.Size,
				p.noRoom)
		}
	case told:
		p.setCondition(v1beta2.Condition{Type: v1beta2.VolumeConditionWaitForExpansion, Status: v1beta2.ConditionFalse})
	}
	if wanted && !v.Status.ExpansionRequired && p.engine != nil && (told || p.grownSpec() > v.DeviceBytes()) &&
		p.engine.SizeBytes() <= v.DeviceBytes() {
		p.tell(false, naming.EventCanceledExpansion, "the expansion of volume %s was cancelled; it has %d bytes", v.Name,
			v.Spec.Size)
	}
}

// grownSpec is the largest size that engine and replicas were asked to have.
func (p expanding) grownSpec() int64 {
	size := p.engine.Spec.VolumeSize
	for _, r := range p.live() {
		size = max(size, r.Spec.VolumeSize)
	}
	return size
}

// fullDisk names a disk on which the volume's replicas cannot all become size bytes large; empty
// if there is none. What was reserved before is not asked for again.
func (p expanding) fullDisk(size int64) string {
	grow := map[string]int64{}
	for _, r := range p.live() {
		if r.Spec.DiskID != "" && r.Spec.VolumeSize < size {
			grow[r.Spec.DiskID] += size - r.Spec.VolumeSize
		}
	}
	if len(grow) == 0 {
		return ""
	}
	policy, disks := scheduling(p).policy(), p.disks()
	for _, r := range p.live() {
		more := grow[r.Spec.DiskID]
		if more == 0 {
			continue
		}
		delete(grow, r.Spec.DiskID)
		disk, known := disks[r.Spec.DiskID]
		switch {
		case !known:
			return fmt.Sprintf("disk %s of node %s is not known", r.Spec.DiskPath, r.Spec.NodeID)
		case !disk.MayGrow(more, policy):
			return fmt.Sprintf("disk %s of node %s has no room for %d bytes more", r.Spec.DiskPath, r.Spec.NodeID, more)
		}
	}
	return ""
}

// disks are all disks that are known, by UUID.
func (p expanding) disks() map[string]schedule.Disk {
	out := map[string]schedule.Disk{}
	for _, n := range scheduling(p).scheduleNodes() {
		for _, d := range n.Disks {
			out[d.UUID] = d
		}
	}
	return out
}

// grow brings the sizes in the specs of replicas and engine to the wanted one: the replicas first,
// which takes the room, then the engine, once the size is known that the volume has. Where an
// expansion was cancelled they follow it down as far as the volume has not grown.
func (p expanding) grow() loop.Change {
	e := p.engine
	if p.noRoom != "" {
		return nil
	}
	size := max(p.v.DeviceBytes(), e.SizeBytes())
	for _, r := range p.live() {
		if r.Spec.VolumeSize != size {
			c := r.DeepCopy()
			c.Spec.VolumeSize = size
			return reserving(c)
		}
	}
	if e.Status.CurrentSize != 0 && e.Spec.VolumeSize != size {
		return p.editEngine(func(s *v1beta2.EngineSpec) { s.VolumeSize = size })
	}
	if p.v.DeviceBytes() < size {
		user := p.v.UserBytes(size)
		p.changeEvents = append(p.changeEvents, loop.Event{Reason: naming.EventCanceledExpansion,
			Message: fmt.Sprintf("The volume had %d bytes before its expansion was cancelled, which stays its size", user)})
		c := p.v.DeepCopy()
		c.Spec.Size = user
		return loop.Update{Object: c}
	}
	return nil
}

// expansionPending says whether an engine is to expand the volume that has not failed to.
func (p *pass) expansionPending() bool {
	return p.v.Status.ExpansionRequired && p.noRoom == "" && p.engine.Status.LastExpansionError == ""
}
