package backingimage

import (
	"cmp"
	"maps"
	"slices"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/schedule"
)

// Disk is a disk that may have copies of backing images, and the node that reports it.
type Disk struct {
	UUID, Path, Node string
	// Up: the node answers, and the disk can be read and written.
	Up bool
	// Takes: new copies may be put there, as far as node and disk are concerned.
	Takes bool
	// Leaving: copies are to leave the disk.
	Leaving bool
	// DiskTags and NodeTags are what an image can ask for.
	DiskTags, NodeTags []string
	// Space is the room on the disk, in bytes.
	Space schedule.Disk
}

// Disks finds the disks of all nodes by UUID. Of several with one UUID it is one that is up, since
// the others are not there.
func Disks(nodes []v1beta2.Node) map[string]Disk {
	all := map[string]Disk{}
	for _, n := range slices.SortedFunc(slices.Values(nodes), func(a, b v1beta2.Node) int {
		return cmp.Compare(a.Name, b.Name)
	}) {
		for _, name := range slices.Sorted(maps.Keys(n.Status.DiskStatus)) {
			d, ok := diskOf(&n, name)
			if before, twice := all[d.UUID]; ok && (!twice || d.Up && !before.Up) {
				all[d.UUID] = d
			}
		}
	}
	return all
}

// diskOf is a disk of a node; not ok: the node does not know which one it is.
func diskOf(n *v1beta2.Node, name string) (Disk, bool) {
	status := n.Status.DiskStatus[name]
	spec, wanted := n.Spec.Disks[name]
	if status.DiskUUID == "" || !wanted {
		return Disk{}, false
	}
	down := condition.NodeDown(n)
	d := Disk{UUID: status.DiskUUID, Path: spec.Path, Node: n.Name, DiskTags: spec.Tags, NodeTags: n.Spec.Tags,
		Up:      !down && condition.DiskReady(status),
		Leaving: n.Spec.EvictionRequested && !n.Spec.AllowScheduling || spec.EvictionRequested && !spec.AllowScheduling,
		Space: schedule.Disk{Maximum: status.StorageMaximum, Available: status.StorageAvailable,
			Reserved: spec.StorageReserved, Scheduled: status.StorageScheduled}}
	schedulable, _ := condition.DiskSchedulable(status)
	filesystem := spec.DiskType == "" || spec.DiskType == v1beta2.DiskTypeFilesystem
	d.Takes = d.Up && condition.NodeReady(n) && condition.NodeSchedulable(n) && n.Spec.AllowScheduling && schedulable &&
		spec.AllowScheduling && !d.Leaving && filesystem && n.DeletionTimestamp == nil
	return d, true
}

// Fits says whether an image of that many bytes may be put on the disk, with the tags that it asks
// for.
func (d Disk) Fits(b *v1beta2.BackingImage, size int64, policy schedule.Policy) bool {
	return d.Takes && d.Space.Fits(size, size, policy) &&
		schedule.TagsMatch(b.Spec.NodeSelector, d.NodeTags, policy.AllowEmptyNodeSelector) &&
		schedule.TagsMatch(b.Spec.DiskSelector, d.DiskTags, policy.AllowEmptyDiskSelector)
}

// DisksChanged says whether something of a node's disks has changed that decides about copies. What
// is free changes all the time, and is looked at when there is a reason.
func DisksChanged(before, after *v1beta2.Node) bool {
	return !maps.EqualFunc(outlines(before), outlines(after), func(a, b Disk) bool {
		return a.Path == b.Path && a.Up == b.Up && a.Takes == b.Takes && a.Leaving == b.Leaving &&
			slices.Equal(a.DiskTags, b.DiskTags) && slices.Equal(a.NodeTags, b.NodeTags)
	})
}

func outlines(n *v1beta2.Node) map[string]Disk { return Disks([]v1beta2.Node{*n}) }
