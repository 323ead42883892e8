package volume

import (
	"slices"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/schedule"
	"ankole.storage/controlplane/setting"
	"ankole.storage/controlplane/volume/runs"
)

// This file turns API objects into what the scheduler reads.

// scheduling shows the scheduler a volume, its replicas and the nodes.
type scheduling struct{ *pass }

func (p scheduling) policy() schedule.Policy {
	v, s := p.v, p.s.Settings
	out := schedule.Policy{
		SoftNode:                v.Spec.ReplicaSoftAntiAffinity.Or(s.Bool(setting.ReplicaSoftAntiAffinity)),
		SoftZone:                v.Spec.ReplicaZoneSoftAntiAffinity.Or(s.Bool(setting.ReplicaZoneSoftAntiAffinity)),
		SoftDisk:                v.Spec.ReplicaDiskSoftAntiAffinity.Or(s.Bool(setting.ReplicaDiskSoftAntiAffinity)),
		OverProvisioningPercent: int64(s.Int(setting.StorageOverProvisioningPercentage)),
		MinimalAvailablePercent: int64(s.Int(setting.StorageMinimalAvailablePercentage)),
		AllowEmptyNodeSelector:  s.Bool(setting.AllowEmptyNodeSelectorVolume),
		AllowEmptyDiskSelector:  s.Bool(setting.AllowEmptyDiskSelectorVolume),
	}
	if p.balancing() == v1beta2.ReplicaAutoBalanceBestEffort {
		out.BalancePressurePercent = int64(s.Int(setting.ReplicaAutoBalanceDiskPressurePercentage))
	}
	return out
}

func (p scheduling) scheduleVolume() schedule.Volume {
	v := p.v
	out := schedule.Volume{
		Name: v.Name, Size: v.DeviceBytes(), ActualSize: v.Status.ActualSize,
		NodeSelector: v.Spec.NodeSelector, DiskSelector: v.Spec.DiskSelector,
		ReplacementDue: v.Status.Robustness == v1beta2.VolumeRobustnessDegraded && p.replenishWait() <= 0,
	}
	if b := p.s.BackingImage; b != nil {
		out.Image = &schedule.Selectors{Node: b.Spec.NodeSelector, Disk: b.Spec.DiskSelector}
	}
	for _, t := range v.Spec.TopologyRequirement {
		out.Topology = append(out.Topology, schedule.Term{Zone: t.Zone, Region: t.Region})
	}
	if v.Spec.DataLocality == v1beta2.DataLocalityBestEffort && v.Spec.NodeID != "" && p.localReplica() == nil {
		out.LocalNode = v.Spec.NodeID
	}
	return out
}

func (p scheduling) scheduleReplica(r *v1beta2.Replica) schedule.Replica {
	failedAt, _ := time.Parse(time.RFC3339, r.Spec.FailedAt)      // zero for a replica that has not failed
	healthySince, _ := time.Parse(time.RFC3339, r.Spec.HealthyAt) // zero for one that is not in sync
	return schedule.Replica{
		Name: r.Name, NodeID: r.Spec.NodeID, DiskID: r.Spec.DiskID, HardNode: r.Spec.HardNodeAffinity,
		Deleting: r.DeletionTimestamp != nil, Evicting: r.Spec.EvictionRequested, Failed: r.Spec.FailedAt != "",
		Reusable: reusable(r), Backoff: p.rebuildPause(r) > 0, FailedAt: failedAt,
		Down: p.nodeDown(r.Spec.NodeID) || !p.managerRuns(r), HealthySince: healthySince,
	}
}

// managerRuns says whether the instance manager of a replica's process runs, or it has none.
func (p scheduling) managerRuns(r *v1beta2.Replica) bool {
	name := r.Status.InstanceManagerName
	return name == "" || slices.ContainsFunc(p.s.Managers, func(im v1beta2.InstanceManager) bool {
		return im.Name == name && im.Status.CurrentState == v1beta2.InstanceManagerStateRunning
	})
}

// reusable says of a failed replica that it may be rebuilt from what it has.
func reusable(r *v1beta2.Replica) bool {
	return r.Spec.FailedAt != "" && r.Spec.NodeID != "" && r.Spec.DiskID != "" && !r.Spec.EvictionRequested &&
		r.Spec.RebuildRetryCount < v1beta2.MaxRebuildRetryCount && r.DeletionTimestamp == nil && r.Spec.Active &&
		!damaged(r)
}

func (p scheduling) scheduleNodes() []schedule.Node {
	p.nodes.all() // without all of them nothing can be said
	runs := map[string]bool{}
	image := p.s.Settings.String(setting.DefaultInstanceManagerImage)
	for i := range p.s.Managers {
		im := &p.s.Managers[i]
		if im.Spec.Type == v1beta2.InstanceManagerTypeAllInOne &&
			im.Status.CurrentState == v1beta2.InstanceManagerStateRunning && takesProcesses(im, p.s.Network) &&
			(image == "" || im.Spec.Image == image) {
			runs[im.Spec.NodeID] = true
		}
	}
	out := make([]schedule.Node, 0, len(p.s.Nodes))
	for i := range p.s.Nodes {
		n := &p.s.Nodes[i]
		node := schedule.Node{
			Name: n.Name, Zone: n.Status.Zone, Region: n.Status.Region,
			Ready:           condition.NodeReady(n),
			Schedulable:     condition.NodeSchedulable(n),
			AllowScheduling: n.Spec.AllowScheduling && !n.Spec.EvictionRequested, Deleting: n.DeletionTimestamp != nil,
			Tags: n.Spec.Tags, RunsInstances: runs[n.Name], HasImage: p.s.ImageOn[n.Name],
		}
		if node.Ready {
			ready := v1beta2.FindCondition(n.Status.Conditions, v1beta2.NodeConditionReady)
			node.ReadySince, _ = time.Parse(time.RFC3339, ready.LastTransitionTime) // zero: not known
		}
		node.Disks = p.scheduleDisks(n)
		out = append(out, node)
	}
	return out
}

// scheduleDisks describes a node's disks, also those that only its spec or only its status names.
func (p scheduling) scheduleDisks(n *v1beta2.Node) []schedule.Disk {
	var out []schedule.Disk
	for name, spec := range n.Spec.Disks {
		status, ok := n.Status.DiskStatus[name]
		if !ok {
			out = append(out, schedule.Disk{Path: spec.Path, Missing: "the node does not report this disk yet"})
			continue
		}
		d := scheduleDisk(spec, status, p.s.ScheduledBytes[status.DiskUUID])
		d.Hung = p.hung(d.UUID)
		if d.UUID == "" { // nobody has read it yet
			d.Ready, d.Schedulable, d.Pressure = false, false, false
		}
		out = append(out, d)
	}
	for name, status := range n.Status.DiskStatus {
		if _, ok := n.Spec.Disks[name]; !ok {
			out = append(out, schedule.Disk{Path: status.DiskPath, Missing: "the disk is not in the node's spec any more"})
		}
	}
	return out
}

// hung says whether the process of a replica on a disk, whose rebuild has failed, does not end: the
// disk may not answer, which nothing else shows.
func (p scheduling) hung(disk string) bool {
	return slices.ContainsFunc(p.replicas, func(r *v1beta2.Replica) bool {
		return r.Spec.DiskID == disk && runs.Ending(r)
	})
}

// scheduleDisk describes a disk. scheduledBytes is what the allocator counts of replicas there: the
// node's status follows later.
func scheduleDisk(spec v1beta2.DiskSpec, status v1beta2.DiskStatus, scheduledBytes int64) schedule.Disk {
	schedulable, pressure := condition.DiskSchedulable(status)
	for _, size := range status.ScheduledBackingImage {
		scheduledBytes += size
	}
	return schedule.Disk{
		UUID: status.DiskUUID, Path: spec.Path, Filesystem: status.FilesystemType,
		Unsupported: spec.DiskType != "" && spec.DiskType != v1beta2.DiskTypeFilesystem,
		Tags:        spec.Tags, AllowScheduling: spec.AllowScheduling, EvictionRequested: spec.EvictionRequested,
		Ready:       condition.DiskReady(status),
		Schedulable: schedulable, Pressure: pressure,
		Maximum: status.StorageMaximum, Available: status.StorageAvailable, Reserved: spec.StorageReserved,
		Scheduled: scheduledBytes,
	}
}
