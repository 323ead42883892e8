package admission

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/volumefield"
	"ankole.storage/controlplane/object/condition"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/schedule"
	"ankole.storage/controlplane/setting"
)

// checkVolumeUpdate judges a change of a volume that exists. Fields that did not change are not
// judged again where the cluster may have moved on since, so that a controller can always take a
// finalizer away or go on with its work.
func checkVolumeUpdate(old, v *v1beta2.Volume, f VolumeFacts) error {
	if v.DeletionTimestamp != nil {
		return nil
	}
	return firstOf(
		func() error { return checkFixed(old, v) },
		func() error { return checkResize(old, v, f) },
		func() error { return CheckAccessChange(old, v.Spec.AccessMode) },
		func() error { return CheckLocalityChange(old, v.Spec.DataLocality) },
		func() error {
			activated := old.Spec.Standby && !v.Spec.Standby
			if !activated && (old.Spec.Frontend == v.Spec.Frontend || v.Spec.Frontend == v1beta2.VolumeFrontendNone) {
				return nil // completion has left it what it had
			}
			return checkFrontend(v)
		},
		func() error { return checkSelectors(&old.Spec, &v.Spec) },
		func() error { return checkFieldsIfChanged(old, v, f) },
		func() error { return checkImageChange(old, v, f) },
		func() error { return checkPlaceChange(old, v, f) },
		func() error { return checkSnapshotUse(old, v, f) },
		func() error { return checkHashing(old, v) },
	)
}

// checkFixed refuses changes of what is decided at creation.
func checkFixed(old, v *v1beta2.Volume) error {
	o, n := &old.Spec, &v.Spec
	switch {
	case o.DataSource != n.DataSource:
		return invalid("the data source of volume %s cannot be changed", v.Name)
	case o.FromBackup != n.FromBackup && (n.FromBackup != "" || old.Status.RestoreRequired):
		return invalid("the backup that volume %s is restored from cannot be changed", v.Name)
	case !o.Standby && n.Standby:
		return invalid("volume %s cannot become a standby volume; make one from a backup", v.Name)
	case o.CloneMode != "" && o.CloneMode != n.CloneMode:
		return invalid("the clone mode of volume %s cannot be changed", v.Name)
	case !slices.Equal(o.TopologyRequirement, n.TopologyRequirement):
		return invalid("the topology requirement of volume %s cannot be changed", v.Name)
	case o.BackupCompressionMethod != "" && o.BackupCompressionMethod != n.BackupCompressionMethod:
		return invalid("changing backup compression method of volume %s from %s to %s is not supported", v.Name,
			o.BackupCompressionMethod, n.BackupCompressionMethod)
	case validBlockSize(o.BackupBlockSize) && o.BackupBlockSize != n.BackupBlockSize:
		return invalid("changing the backup block size of volume %s is not supported", v.Name)
	case old.Labels[naming.LabelCloneSourceVolume] != "" &&
		old.Labels[naming.LabelCloneSourceVolume] != v.Labels[naming.LabelCloneSourceVolume]:
		return invalid("label %s of volume %s cannot be changed", naming.LabelCloneSourceVolume, v.Name)
	}
	return checkDataEngine("volume "+v.Name, o.DataEngine, n.DataEngine)
}

// checkResize judges a change of size.
func checkResize(old, v *v1beta2.Volume, f VolumeFacts) error {
	if old.Spec.Size == v.Spec.Size {
		return nil
	}
	if err := checkSize(v); err != nil {
		return err
	}
	if v.Spec.Size < old.Spec.Size {
		return CheckCancel(old, v.Spec.Size, f.Engines)
	}
	if err := CheckExpansion(old); err != nil {
		return err
	}
	if old.Status.State == v1beta2.VolumeStateDetached &&
		!v1beta2.IsConditionTrue(old.Status.Conditions, v1beta2.VolumeConditionScheduled) {
		for i := range f.Replicas {
			if f.Replicas[i].Spec.NodeID == "" {
				return forbidden("volume %s has replicas that are not scheduled and cannot be expanded", v.Name)
			}
		}
	}
	return firstOf(
		func() error { return checkClaim(v, f) },
		func() error { return checkFirstNode(v, f) },
		func() error { return checkRoom(v, f) },
	)
}

// CheckExpansion refuses to let a volume grow that is in no state for it. What the rest of the
// cluster has to say is not asked here.
func CheckExpansion(v *v1beta2.Volume) error {
	of := "volume " + v.Name
	switch {
	case v.Spec.NodeID == "" && v.Status.State != v1beta2.VolumeStateDetached:
		return forbidden("invalid volume state to expand: volume %s is %s and belongs to no node; attach it, or wait until it is "+
			"detached", v.Name, stateOf(v))
	case v.Status.Robustness == v1beta2.VolumeRobustnessFaulted:
		return about(of, forbidden("the volume is faulted; salvage it first"))
	case v.Status.RestoreRequired && !v.Status.IsStandby:
		return about(of, forbidden("the volume is restoring data; wait until that is done"))
	case v.Status.CloneStatus.State == v1beta2.VolumeCloneStateInitiated:
		return about(of, forbidden("the volume is being cloned; wait until that is done"))
	}
	return nil
}

// checkClaim refuses to grow a volume beyond the claim that it is bound to: its Pods would not see
// the size.
func checkClaim(v *v1beta2.Volume, f VolumeFacts) error {
	if f.Claim == nil {
		return nil
	}
	asked := f.Claim.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case RoundSize(asked.Value()) >= v.Spec.Size:
		return nil
	case !f.ClaimGrows:
		return forbidden("volume %s cannot be expanded: class %q of its claim %s/%s does not allow claims to grow", v.Name,
			classOf(f.Claim), f.Claim.Namespace, f.Claim.Name)
	}
	return forbidden("expand PVC first: volume %s cannot be expanded to %d bytes before its claim %s/%s, which asks for %s",
		v.Name, v.Spec.Size, f.Claim.Namespace, f.Claim.Name, asked.String())
}

// checkFirstNode refuses to grow a volume while the node of its first replica that has a place is
// not ready. Replicas that have failed do not count: they grow when they are rebuilt.
func checkFirstNode(v *v1beta2.Volume, f VolumeFacts) error {
	var first *v1beta2.Replica
	for i := range f.Replicas {
		r := &f.Replicas[i]
		if r.Spec.NodeID != "" && r.Spec.FailedAt == "" && (first == nil || r.Name < first.Name) {
			first = r
		}
	}
	for i := range f.Nodes {
		if n := &f.Nodes[i]; first != nil && n.Name == first.Spec.NodeID && !condition.NodeReady(n) {
			return forbidden("volume %s cannot be expanded: node %s of replica %s is not ready", v.Name, n.Name, first.Name)
		}
	}
	return nil
}

// CheckCancel judges a smaller size: the end of an expansion that is wanted, as far as the volume
// has not grown. engines are those of the volume.
func CheckCancel(v *v1beta2.Volume, size int64, engines []v1beta2.Engine) error {
	wanted := v.Status.ExpansionRequired // which follows the wish some time later
	for i := range engines {
		has := v.UserBytes(engines[i].SizeBytes())
		wanted = wanted || 0 < has && has < v.Spec.Size
	}
	if !wanted {
		return invalid("shrinking volume %s from %d to %d bytes is not supported", v.Name, v.Spec.Size, size)
	}
	for i := range engines {
		if has := v.UserBytes(engines[i].SizeBytes()); size < has {
			return invalid("volume %s has %d bytes and cannot shrink to %d; set this size to cancel its expansion", v.Name, has,
				size)
		}
		if engines[i].Status.IsExpanding {
			return forbidden("volume %s cannot shrink to %d bytes: the engine expansion is in progress", v.Name, size)
		}
	}
	return nil
}

// checkRoom says which disk has no room for the larger size, or can have no file of it. All
// replicas of the volume on a disk grow together; what they were given before is counted in what is
// scheduled.
func checkRoom(v *v1beta2.Volume, f VolumeFacts) error {
	grow, size := map[string]int64{}, v.DeviceBytes()
	for i := range f.Replicas {
		if s := &f.Replicas[i].Spec; s.DiskID != "" && s.VolumeSize < size {
			grow[s.DiskID] += size - s.VolumeSize
		}
	}
	policy := schedule.Policy{
		OverProvisioningPercent: int64(f.Settings.Int(setting.StorageOverProvisioningPercentage)),
		MinimalAvailablePercent: int64(f.Settings.Int(setting.StorageMinimalAvailablePercentage)),
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		for name, status := range n.Status.DiskStatus {
			more := grow[status.DiskUUID]
			if more > 0 && !schedule.HoldsFile(status.FilesystemType, size) {
				return forbidden("volume %s cannot be expanded to %d bytes: no file on disk %s of node %s can be so large: %s",
					v.Name, v.Spec.Size, n.Spec.Disks[name].Path, n.Name, schedule.LargestVolume(status.FilesystemType))
			}
			disk := schedule.Disk{Maximum: status.StorageMaximum, Available: status.StorageAvailable,
				Reserved: n.Spec.Disks[name].StorageReserved, Scheduled: status.StorageScheduled}
			if more > 0 && !disk.MayGrow(more, policy) {
				return forbidden("volume %s cannot be expanded to %d bytes: disk %s of node %s has no room for %d bytes more; "+
					"free some, or move the replica to another disk", v.Name, v.Spec.Size, n.Spec.Disks[name].Path, n.Name, more)
			}
		}
	}
	return nil
}

// CheckAccessChange refuses another access mode of a volume that is in use, or about to be.
func CheckAccessChange(v *v1beta2.Volume, to v1beta2.AccessMode) error {
	was := v.Spec.AccessMode
	if was == "" || was == to {
		return nil
	}
	switch {
	case v.Status.State != v1beta2.VolumeStateDetached:
		return forbidden("can only update volume access mode while volume is detached: volume %s is %s", v.Name, stateOf(v))
	case v.Spec.NodeID != "":
		return forbidden("can only update volume access mode while volume is detached: volume %s is about to be attached to "+
			"node %s", v.Name, v.Spec.NodeID)
	}
	return nil
}

// stateOf is the state of a volume as clients know it.
func stateOf(v *v1beta2.Volume) v1beta2.VolumeState {
	if v.Status.State == v1beta2.VolumeStateNew {
		return v1beta2.VolumeStateCreating
	}
	return v.Status.State
}

// CheckLocalityChange refuses to make a volume strict-local, or not to be it any more, while its
// engine runs.
func CheckLocalityChange(v *v1beta2.Volume, to v1beta2.DataLocality) error {
	was := v.Spec.DataLocality
	strict := was == v1beta2.DataLocalityStrictLocal || to == v1beta2.DataLocalityStrictLocal
	if was == to || !strict || v.Status.State == v1beta2.VolumeStateDetached {
		return nil
	}
	return forbidden("data locality of volume %s can be changed from %s to %s only while it is detached; it is %s, "+
		"detach it first", v.Name, was, to, stateOf(v))
}

// checkFieldsIfChanged runs the rules of creation on a change of a field they look at.
func checkFieldsIfChanged(old, v *v1beta2.Volume, f VolumeFacts) error {
	o, n := &old.Spec, &v.Spec
	if o.BackupTargetName == n.BackupTargetName || o.BackupTargetName == "" && n.BackupTargetName == naming.BackupTarget {
		f.BackupTargetMissing = false // judged when it was set, or never asked for
	}
	return checkFields(v, f)
}

// checkImageChange judges a wanted engine upgrade.
func checkImageChange(old, v *v1beta2.Volume, f VolumeFacts) error {
	switch {
	case old.Spec.Image == v.Spec.Image:
		return nil
	case v.Spec.Image == "":
		return invalid("volume %s has no engine image", v.Name)
	case v.Spec.Image == old.Status.CurrentImage:
		return nil // back to the image in use
	case f.Image == nil:
		return invalid("engine image %s wanted for volume %s does not exist", v.Spec.Image, v.Name)
	case f.Image.Status.Incompatible:
		return invalid("engine image %s wanted for volume %s is incompatible with this manager", v.Spec.Image, v.Name)
	case f.Image.Status.State != v1beta2.EngineImageStateDeployed:
		return forbidden("engine image %s wanted for volume %s is not deployed yet", v.Spec.Image, v.Name)
	}
	return nil
}

// checkPlaceChange judges where the volume is attached or migrates to.
func checkPlaceChange(old, v *v1beta2.Volume, f VolumeFacts) error {
	o, n := &old.Spec, &v.Spec
	if o.MigrationNodeID != n.MigrationNodeID && n.MigrationNodeID != "" &&
		old.Status.CurrentMigrationNodeID != "" && old.Status.CurrentMigrationNodeID != n.MigrationNodeID {
		return forbidden("volume %s is migrating to node %s; wait for its end before another migration", v.Name,
			old.Status.CurrentMigrationNodeID)
	}
	if n.DataLocality != v1beta2.DataLocalityStrictLocal || n.NodeID == "" || o.NodeID == n.NodeID {
		return nil
	}
	if len(f.Replicas) != 1 {
		return invalid("strict-local volume %s should have exactly one replica, not %d", v.Name, len(f.Replicas))
	}
	if at := f.Replicas[0].Spec.NodeID; at != "" && at != n.NodeID {
		return invalid("strict-local volume %s has its replica on node %s and cannot be attached to node %s", v.Name,
			at, n.NodeID)
	}
	return nil
}

// checkHashing refuses a second wish for checksums while the first is not fulfilled, and one that
// is no time.
func checkHashing(old, v *v1beta2.Volume) error {
	was, at := old.Spec.SnapshotHashingRequestedAt, v.Spec.SnapshotHashingRequestedAt
	if was == at || at == "" {
		return nil
	}
	if was != "" && old.Status.LastOnDemandSnapshotHashingCompleteAt != was {
		return forbidden("the checksums of the snapshots of volume %s that were asked for at %s are not all computed; "+
			"wait until status.lastOnDemandSnapshotHashingCompleteAt is that, or clear spec.snapshotHashingRequestedAt",
			v.Name, was)
	}
	if _, err := time.Parse(time.RFC3339, at); err != nil {
		return invalid("snapshotHashingRequestedAt %q of volume %s is no time of the form %s", at, v.Name, time.RFC3339)
	}
	return nil
}

// checkSnapshotUse keeps limits on snapshots above what the volume has.
func checkSnapshotUse(old, v *v1beta2.Volume, f VolumeFacts) error {
	o, n := &old.Spec, &v.Spec
	countChanged, sizeChanged := o.SnapshotMaxCount != n.SnapshotMaxCount, o.SnapshotMaxSize != n.SnapshotMaxSize
	if !countChanged && !sizeChanged {
		return nil
	}
	most := int(volumefield.Get("snapshotMaxCount").Most)
	upgrade := o.SnapshotMaxCount == 0 && n.SnapshotMaxCount == most && !sizeChanged
	if len(f.Engines) > 1 && !upgrade {
		return forbidden("the snapshot limits of volume %s cannot be changed while it is migrating", v.Name)
	}
	for i := range f.Engines {
		count, size := snapshotUse(&f.Engines[i])
		if countChanged && n.SnapshotMaxCount < count {
			return invalid("snapshot max count %d of volume %s is smaller than current usage %d", n.SnapshotMaxCount,
				v.Name, count)
		}
		if sizeChanged && n.SnapshotMaxSize != 0 && n.SnapshotMaxSize < size {
			return invalid("snapshot max size %d of volume %s is smaller than current usage %d", n.SnapshotMaxSize, v.Name, size)
		}
	}
	return nil
}

// snapshotUse counts the snapshots that are not removed, and their sizes.
func snapshotUse(e *v1beta2.Engine) (count int, size int64) {
	for name, s := range e.Status.Snapshots {
		if name == v1beta2.VolumeHeadName || s.Removed {
			continue
		}
		count++
		n, err := strconv.ParseInt(s.Size, 10, 64)
		if err == nil {
			size += n
		}
	}
	return count, size
}
