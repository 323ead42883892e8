package metrics

import (
	"maps"
	"slices"
	"strconv"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// backupCodes are the values of longhorn_backup_state. A backup that is being deleted is in none of
// the reference's states.
var backupCodes = map[lh.BackupState]float64{lh.BackupStateNew: 0, lh.BackupStatePending: 1,
	lh.BackupStateInProgress: 2, lh.BackupStateCompleted: 3, lh.BackupStateError: 4, lh.BackupStateUnknown: 5}

// imageCodes are the values of longhorn_backing_image_state.
var imageCodes = map[lh.BackingImageState]float64{lh.BackingImageStateNew: 0, lh.BackingImageStatePending: 0,
	lh.BackingImageStateStarting: 1, lh.BackingImageStateInProgress: 2, lh.BackingImageStateReadyForTransfer: 3,
	lh.BackingImageStateReady: 4, lh.BackingImageStateFailed: 5, lh.BackingImageStateFailedAndCleanUp: 6,
	lh.BackingImageStateUnknown: 7}

// code is the number of a state; that of unknown for one that is not in the table.
func code[S ~string](codes map[S]float64, state, unknown S) float64 {
	if c, ok := codes[state]; ok {
		return c
	}
	return codes[unknown]
}

// size adds a sample of a size that an object has as text; none while it is not known.
func size(s *Figures, metric, text string, labels ...string) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		s.add(metric, float64(n), labels...)
	}
}

// gatherBackups reports backups, backup volumes and backup targets.
func (g *gathering) gatherBackups() {
	type key struct{ target, volume string }
	backups, volumes := map[key]int{}, map[string]int{}
	for i := range g.backups.Items {
		b := &g.backups.Items[i]
		volume := b.Status.VolumeName
		if volume == "" {
			volume = b.Labels[naming.LabelBackupVolume]
		}
		backups[key{b.Status.BackupTargetName, volume}]++
		job := b.Status.Labels[naming.LabelRecurringJob]
		if job == "" {
			job = b.Spec.Labels[naming.LabelRecurringJob]
		}
		labels := []string{volume, b.Name, job}
		size(g.Figures, "longhorn_backup_actual_size_bytes", b.Status.Size, labels...)
		size(g.Figures, "longhorn_backup_uploaded_data_size_bytes", b.Status.NewlyUploadDataSize, labels...)
		g.add("longhorn_backup_state", code(backupCodes, b.Status.State, lh.BackupStateUnknown), labels...)
	}
	for i := range g.backupVolumes.Items {
		v := &g.backupVolumes.Items[i]
		volumes[v.Spec.BackupTargetName]++
		g.add("longhorn_backup_volume_backups_count",
			float64(backups[key{v.Spec.BackupTargetName, v.Spec.VolumeName}]), v.Name)
		if ver := v.Status.Verification; ver != nil && ver.Ended() && ver.Error == "" {
			labels := []string{v.Name, v.Spec.BackupTargetName, v.Spec.VolumeName}
			g.add("ankole_backup_volume_faults", float64(ver.FaultCount), labels...)
			g.add("ankole_backup_volume_verified_at", float64(ver.EndedAt.Unix()), labels...)
		}
	}
	for i := range g.targets.Items {
		t := &g.targets.Items[i]
		g.add("longhorn_backup_target_backup_volume_count", float64(volumes[t.Name]), t.Name)
	}
}

// gatherImages reports the copies of backing images, by the nodes that have them, and backups of
// backing images.
func (g *gathering) gatherImages() {
	nodes := map[string]string{} // by UUID of a disk
	for i := range g.nodes.Items {
		n := &g.nodes.Items[i]
		for _, d := range n.Status.DiskStatus {
			nodes[d.DiskUUID] = n.Name
		}
	}
	for i := range g.images.Items {
		b := &g.images.Items[i]
		bytes := b.Status.RealSize
		if bytes == 0 {
			bytes = b.Status.Size
		}
		for _, disk := range slices.Sorted(maps.Keys(b.Status.DiskFileStatusMap)) {
			node := g.owner(nodes[disk], b.Status.OwnerID)
			g.add("longhorn_backing_image_actual_size_bytes", float64(bytes), node, disk, b.Name)
			g.add("longhorn_backing_image_state",
				code(imageCodes, b.Status.DiskFileStatusMap[disk].State, lh.BackingImageStateUnknown), node, disk, b.Name)
		}
	}
	for i := range g.imageBackups.Items {
		b := &g.imageBackups.Items[i]
		g.add("longhorn_backup_backing_image_actual_size_bytes", float64(b.Status.Size), b.Name)
		g.add("longhorn_backup_backing_image_state", code(backupCodes, b.Status.State, lh.BackupStateUnknown), b.Name)
		if ver := b.Status.Verification; ver != nil && ver.Ended() && ver.Error == "" {
			labels := []string{b.Name, b.Spec.BackupTargetName, b.Spec.BackingImage}
			g.add("ankole_backup_backing_image_faults", float64(ver.FaultCount), labels...)
			g.add("ankole_backup_backing_image_verified_at", float64(ver.EndedAt.Unix()), labels...)
		}
	}
}
