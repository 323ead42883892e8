package image

import (
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

// observe writes what sources and managers say of the copies into the status.
func (p *pass) observe() {
	st := &p.b.Status
	before := st.DiskFileStatusMap
	st.DiskFileStatusMap = map[string]v1beta2.BackingImageDiskFileStatus{}
	for _, disk := range p.disks() {
		st.DiskFileStatusMap[disk] = p.copyOn(disk, before[disk])
	}
	if p.s.Source != nil && p.s.Source.Spec.FileTransferred && !p.known() {
		for disk, f := range st.DiskFileStatusMap {
			if f.State == v1beta2.BackingImageStatePending {
				f.State, f.Message = v1beta2.BackingImageStateFailed, "the file is gone, and no other copy of it is known"
				st.DiskFileStatusMap[disk] = f
			}
		}
	}
	for disk, f := range st.DiskFileStatusMap {
		f.LastStateTransitionTime = before[disk].LastStateTransitionTime
		if f.LastStateTransitionTime == "" || f.State != before[disk].State {
			f.LastStateTransitionTime = p.now.UTC().Format(time.RFC3339)
		}
		st.DiskFileStatusMap[disk] = f
	}
	p.references()
}

// known says whether a file of the image is on a disk, or comes to one, or may be.
func (p *pass) known() bool {
	for _, f := range p.b.Status.DiskFileStatusMap {
		if f.State != v1beta2.BackingImageStateFailed && f.State != v1beta2.BackingImageStatePending {
			return true
		}
	}
	return false
}

// copyOn is the copy on one disk: what the manager of the disk says, or before it has taken the
// file over the source.
func (p *pass) copyOn(disk string, before v1beta2.BackingImageDiskFileStatus) v1beta2.BackingImageDiskFileStatus {
	out := v1beta2.BackingImageDiskFileStatus{DataEngine: v1beta2.DataEngineTypeV1}
	m, src := p.byDisk[disk], p.s.Source
	var f v1beta2.BackingImageFileInfo
	if m != nil && m.Status.BackingImageFileMap[p.b.Name].UUID == p.b.Status.UUID {
		f = m.Status.BackingImageFileMap[p.b.Name]
	}
	first := src != nil && !src.Spec.FileTransferred && src.Spec.DiskUUID == disk
	switch {
	case p.gone(disk):
		out.State, out.Message = v1beta2.BackingImageStateFailed, "no node reports disk "+disk
	case first && f.State != v1beta2.BackingImageStateReady && f.State != v1beta2.BackingImageStateFailed:
		out.State, out.Progress, out.Message = src.Status.CurrentState, src.Status.Progress, src.Status.Message
	case f.UUID == "" && before.State == v1beta2.BackingImageStateReady:
		out.State, out.Message = v1beta2.BackingImageStateUnknown, "the disk has no backing image manager now"
	case f.UUID == "" && before.State == v1beta2.BackingImageStateUnknown:
		out.State, out.Message = before.State, before.Message
	default:
		out.State, out.Progress, out.Message = f.State, f.Progress, f.Message
	}
	switch out.State {
	case v1beta2.BackingImageStateNew:
		out.State = v1beta2.BackingImageStatePending
	case v1beta2.BackingImageStateReady:
		out.Progress = 100
		p.learn(f)
	}
	return out
}

func (p *pass) gone(disk string) bool {
	_, known := p.s.Disks[disk]
	return !known
}

// learn takes over what the image is from a file that is ready. What is known of it never changes
// again: another content has another checksum, and is refused.
func (p *pass) learn(f v1beta2.BackingImageFileInfo) {
	st := &p.b.Status
	if f.Size == 0 || st.Checksum != "" && st.Checksum != f.CurrentChecksum {
		return
	}
	st.Size, st.VirtualSize, st.RealSize, st.Checksum = f.Size, f.VirtualSize, max(st.RealSize, f.RealSize),
		f.CurrentChecksum
}

// references keeps since when no replica uses a copy.
func (p *pass) references() {
	st := &p.b.Status
	before := st.DiskLastRefAtMap
	st.DiskLastRefAtMap = map[string]string{}
	for _, disk := range p.disks() {
		switch {
		case p.s.Used[disk]:
		case before[disk] != "":
			st.DiskLastRefAtMap[disk] = before[disk]
		default:
			st.DiskLastRefAtMap[disk] = p.now.UTC().Format(time.RFC3339)
		}
	}
}
