package admission

import (
	"context"
	"strconv"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/backup/target"
	"ankole.storage/controlplane/object/naming"
)

var backups = kind[*v1beta2.Backup]{
	plural:     "backups",
	create:     func() *v1beta2.Backup { return &v1beta2.Backup{} },
	onValidate: createUpdate,
	onMutate:   createUpdate,
	mutator:    mutateBackup,
	checker: func(ctx context.Context, w world, r request[*v1beta2.Backup]) error {
		if !r.created() {
			return CheckBackup(r.old, r.new, BackupFacts{})
		}
		facts, err := w.backupFacts(ctx, r.new)
		if err != nil {
			return err
		}
		return CheckBackup(nil, r.new, facts)
	},
}

// BackupFacts is what the cluster says about a new backup.
type BackupFacts struct {
	// Target is that of label backup-target; Snapshot and Volume are what is backed up. nil: there is
	// none of the name.
	Target   *v1beta2.BackupTarget
	Snapshot *v1beta2.Snapshot
	Volume   *v1beta2.Volume
}

// backupFacts reads what a new backup is judged by.
func (w world) backupFacts(ctx context.Context, b *v1beta2.Backup) (f BackupFacts, err error) {
	if f.Target, err = find(ctx, w, b.Labels[naming.LabelBackupTarget], &v1beta2.BackupTarget{}); err != nil {
		return f, err
	}
	if f.Snapshot, err = find(ctx, w, b.Spec.SnapshotName, &v1beta2.Snapshot{}); err != nil || f.Snapshot == nil {
		return f, err
	}
	f.Volume, err = w.volume(ctx, f.Snapshot.Spec.Volume)
	return f, err
}

// mutateBackup completes a backup of this cluster's from the volume that its snapshot is of.
func mutateBackup(ctx context.Context, w world, r request[*v1beta2.Backup]) error {
	b := r.new
	if b.DeletionTimestamp != nil {
		return nil
	}
	addFinalizer(b)
	if b.Spec.Labels == nil {
		b.Spec.Labels = map[string]string{}
	}
	orElse(&b.Spec.BackupMode, v1beta2.BackupModeIncremental)
	if !r.created() || b.Spec.SnapshotName == "" {
		return nil
	}
	f, err := w.backupFacts(ctx, b)
	if err != nil || f.Volume == nil {
		return err // which is refused
	}
	v := f.Volume
	if b.Spec.BackupBlockSize == 0 {
		b.Spec.BackupBlockSize = v.Spec.BackupBlockSize
	}
	if b.Spec.Labels[naming.LabelVolumeAccessMode] == "" {
		mode := v.Spec.AccessMode
		orElse(&mode, v1beta2.AccessModeReadWriteOnce)
		b.Spec.Labels[naming.LabelVolumeAccessMode] = string(mode)
	}
	labels := map[string]string{naming.LabelBackupVolume: v.Name}
	if b.Labels[naming.LabelBackupTarget] == "" {
		labels[naming.LabelBackupTarget] = v.Spec.BackupTargetName
	}
	addLabels(b, labels)
	return nil
}

// CheckBackup refuses a backup that cannot be (old nil: creation).
func CheckBackup(old, b *v1beta2.Backup, f BackupFacts) error {
	if b.DeletionTimestamp != nil {
		return nil
	}
	if old != nil {
		switch {
		case validBlockSize(old.Spec.BackupBlockSize) && old.Spec.BackupBlockSize != b.Spec.BackupBlockSize:
			return invalid("changing the block size of backup %s is not supported", b.Name)
		case old.Spec.SnapshotName != b.Spec.SnapshotName:
			return invalid("the snapshot of backup %s cannot be changed", b.Name)
		}
		return nil
	}
	return firstOf(
		func() error {
			if err := naming.CheckName(b.Name); err != nil {
				return invalid("invalid name %s for backup: %v", b.Name, err)
			}
			if m := b.Spec.BackupMode; m != v1beta2.BackupModeFull && m != v1beta2.BackupModeIncremental {
				return invalid("backup mode %q of backup %s is neither full nor incremental", m, b.Name)
			}
			return nil
		},
		func() error { return checkTargetOfBackup(b, f.Target) },
		func() error { return checkSnapshotOfBackup(b, f) },
	)
}

func checkTargetOfBackup(b *v1beta2.Backup, t *v1beta2.BackupTarget) error {
	name := b.Labels[naming.LabelBackupTarget]
	switch {
	case name == "":
		return invalid("backup %s has no label %s, which names its backup target", b.Name, naming.LabelBackupTarget)
	case t == nil:
		return invalid("backup target %s of backup %s does not exist", name, b.Name)
	case t.Spec.BackupTargetURL == "":
		return invalid("backup target %s of backup %s has no URL: set it first", name, b.Name)
	case b.Spec.SnapshotName != "" && !t.Status.Available:
		return invalid("backup target %s of backup %s is not available: %s", name, b.Name,
			v1beta2.FindCondition(t.Status.Conditions, v1beta2.BackupTargetConditionUnavailable).Message)
	}
	return nil
}

func checkSnapshotOfBackup(b *v1beta2.Backup, f BackupFacts) error {
	size, block := int64(0), b.Spec.BackupBlockSize
	if b.Spec.SnapshotName != "" {
		of, at := b.Labels[naming.LabelBackupVolume], b.Labels[naming.LabelBackupTarget]
		switch {
		case f.Snapshot == nil || f.Volume == nil:
			return invalid("snapshot %s of backup %s does not exist", b.Spec.SnapshotName, b.Name)
		case f.Volume.Name != of:
			return invalid("snapshot %s of backup %s is of volume %s, not of %s", f.Snapshot.Name, b.Name, f.Volume.Name, of)
		case f.Volume.Spec.BackupTargetName != at:
			return invalid("volume %s of backup %s has backup target %s, not %s", of, b.Name,
				f.Volume.Spec.BackupTargetName, at)
		case f.Volume.Spec.MigrationNodeID != "":
			return forbidden("volume %s cannot be backed up during its migration", of)
		case f.Volume.Spec.Standby:
			return forbidden("failed to create backup for standby volume %s", of)
		}
		size = f.Volume.Spec.Size
	}
	switch {
	case block == v1beta2.BackupBlockSizeInvalid:
		return nil
	case !validBlockSize(block):
		return invalid("unsupported block size %d of backup %s: should be %d or %d", block, b.Name,
			v1beta2.BackupBlockSize2Mi, v1beta2.BackupBlockSize16Mi)
	case size%block != 0:
		return invalid("unsupported block size %d of backup %s: the volume size %d is not a multiple of it", block, b.Name,
			size)
	}
	return nil
}

var backupVolumes = kind[*v1beta2.BackupVolume]{
	plural:     "backupvolumes",
	create:     func() *v1beta2.BackupVolume { return &v1beta2.BackupVolume{} },
	onValidate: createUpdate,
	onMutate:   createUpdate,
	mutator: func(_ context.Context, _ world, r request[*v1beta2.BackupVolume]) error {
		if r.new.DeletionTimestamp == nil {
			addFinalizer(r.new)
			addLabels(r.new, map[string]string{naming.LabelBackupVolume: r.new.Spec.VolumeName,
				naming.LabelBackupTarget: r.new.Spec.BackupTargetName})
		}
		return nil
	},
	checker: func(_ context.Context, _ world, r request[*v1beta2.BackupVolume]) error {
		v := r.new
		switch {
		case v.DeletionTimestamp != nil:
			return nil
		case v.Spec.BackupTargetName == "":
			return invalid("backup volume %s names no backup target: fill spec.backupTargetName", v.Name)
		case v.Spec.VolumeName == "":
			return invalid("backup volume %s names no volume: fill spec.volumeName", v.Name)
		}
		return nil
	},
}

// backupAt finds the Backup object that a URL names; nil if there is none.
func (w world) backupAt(ctx context.Context, url string) (*v1beta2.Backup, error) {
	o, err := target.ParseObject(url)
	if err != nil || o.Backup == "" {
		return nil, invalid("cannot get backup %q: write <backup target>?backup=<name>&volume=<name>", url)
	}
	b, err := find(ctx, w, o.Backup, &v1beta2.Backup{})
	if err != nil || b == nil {
		return nil, err
	}
	have, err := target.ParseObject(b.Status.URL)
	if err != nil || have.URL() != o.URL() {
		return nil, nil
	}
	return b, nil
}

// restoreFrom completes a new volume that is filled from a backup.
func (w world) restoreFrom(ctx context.Context, v *v1beta2.Volume) error {
	b, err := w.backupAt(ctx, v.Spec.FromBackup)
	switch {
	case err != nil:
		return err
	case b == nil:
		return invalid("cannot get backup %s of volume %s: no backup target that this cluster knows has it",
			v.Spec.FromBackup, v.Name)
	case b.Status.State != v1beta2.BackupStateCompleted || b.DeletionTimestamp != nil:
		return invalid("cannot get backup %s of volume %s: its state is %s", b.Name, v.Name, b.Status.State)
	case b.Spec.BackupBlockSize == v1beta2.BackupBlockSizeInvalid:
		return invalid("backup %s of volume %s has blocks of a size that is not known: it cannot be restored", b.Name, v.Name)
	}
	// The backup lacks what its volume read from the image.
	orElse(&v.Spec.BackingImage, b.Status.VolumeBackingImageName)
	if v.Spec.BackingImage != b.Status.VolumeBackingImageName {
		return invalid("backup %s is of a volume on backing image %q, and volume %s is to stand on %q: leave it out", b.Name,
			b.Status.VolumeBackingImageName, v.Name, v.Spec.BackingImage)
	}
	size, err := strconv.ParseInt(b.Status.VolumeSize, 10, 64)
	if err != nil {
		return invalid("cannot get backup %s of volume %s: it does not say how large its volume is", b.Name, v.Name)
	}
	// The backup is of the device.
	v.Spec.Size, v.Spec.BackupTargetName = v.UserBytes(size), b.Labels[naming.LabelBackupTarget]
	if v.Spec.BackupBlockSize == 0 {
		v.Spec.BackupBlockSize = b.Spec.BackupBlockSize
	}
	orElse(&v.Spec.AccessMode, v1beta2.AccessMode(b.Status.Labels[naming.LabelVolumeAccessMode]))
	addLabels(v, map[string]string{naming.LabelBackupVolume: b.Labels[naming.LabelBackupVolume]})
	return nil
}
