package volume

import (
	"slices"
	"strings"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/condition"
)

// noteNoSpace has the volume's users mount its file system again after its disks were full. ext4
// that could not write its journal has ended: no remount makes it writable, only another mount when
// its last user has gone. That the disks were full is remembered while it is so, since an error of
// the file system alone is for a person to look at: another mount might make it worse.
func (p *pass) noteNoSpace() {
	if p.engine == nil {
		return
	}
	had := v1beta2.IsConditionTrue(p.v.Status.Conditions, v1beta2.VolumeConditionNoSpace)
	ended := p.takesNoWrites()
	full := p.fullDisks()
	c := v1beta2.Condition{Type: v1beta2.VolumeConditionNoSpace, Status: v1beta2.ConditionFalse}
	switch {
	case ended && len(full) > 0:
		c.Status = v1beta2.ConditionTrue
		c.Message = "its file system takes no writes since there is no space on " + strings.Join(full, ", ") +
			"; it is to be mounted again when there is space"
		if !had {
			p.tell(true, v1beta2.VolumeConditionNoSpace, "volume %s: %s", p.v.Name, c.Message)
		}
	case !had:
		return
	case ended:
		salvaging{p}.requestRemount("its file system takes no writes since its disks were full, and they have space again")
	}
	p.setCondition(c)
}

// takesNoWrites says whether the file system of the attached volume takes none.
func (p *pass) takesNoWrites() bool {
	return p.engine != nil && p.v.Status.State == v1beta2.VolumeStateAttached &&
		v1beta2.IsConditionTrue(p.engine.Status.Conditions, v1beta2.EngineConditionFilesystemReadOnly)
}

// leastSpace is what a file system may have left, in bytes, when a write finds no space: blocks
// that are kept back or too scattered.
const leastSpace = 16 << 20

// fullDisks are the disks of replicas in use that have no space left, as far as their nodes say.
func (p *pass) fullDisks() (full []string) {
	for _, r := range p.live() {
		n := p.nodes.named(r.Spec.NodeID)
		if n == nil || r.Spec.FailedAt != "" {
			continue
		}
		name := condition.DiskOf(n, r)
		d, ok := n.Status.DiskStatus[name]
		if ok && condition.DiskReady(d) && d.StorageMaximum > 0 && d.StorageAvailable < leastSpace {
			full = append(full, "disk "+name+" of node "+n.Name)
		}
	}
	slices.Sort(full)
	return slices.Compact(full)
}
