package rest

import (
	"errors"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/resource"
)

var (
	backupTargets = kind[lh.BackupTarget, *lh.BackupTarget, resource.BackupTarget]{
		typeID: resource.TypeBackupTarget, what: "backup target", view: backupTargetView,
		list: func() (client.ObjectList, *[]lh.BackupTarget) {
			l := &lh.BackupTargetList{}
			return l, &l.Items
		},
	}
	backupVolumes = kind[lh.BackupVolume, *lh.BackupVolume, resource.BackupVolume]{
		typeID: resource.TypeBackupVolume, what: "backup volume", view: backupVolumeView,
		list: func() (client.ObjectList, *[]lh.BackupVolume) {
			l := &lh.BackupVolumeList{}
			return l, &l.Items
		},
	}
	// backups have no route of their own: actions of a backup volume list them, and a stream.
	backups = kind[lh.Backup, *lh.Backup, resource.Backup]{
		typeID: resource.TypeBackup, what: "backup", view: backupView,
		list: func() (client.ObjectList, *[]lh.Backup) {
			l := &lh.BackupList{}
			return l, &l.Items
		},
	}
	backupBackingImages = kind[lh.BackupBackingImage, *lh.BackupBackingImage, resource.BackupBackingImage]{
		typeID: resource.TypeBackupBackingImage, what: "backup backing image", view: backupBackingImageView,
		list: func() (client.ObjectList, *[]lh.BackupBackingImage) {
			l := &lh.BackupBackingImageList{}
			return l, &l.Items
		},
	}
)

// backupTargetView shows the poll interval as a duration is written: "5m0s".
func backupTargetView(q *request, t *lh.BackupTarget) resource.BackupTarget {
	interval := t.Spec.PollInterval
	if d, err := time.ParseDuration(orText(interval, "0s")); err == nil {
		interval = d.String()
	}
	return resource.BackupTarget{Resource: q.envelope(resource.TypeBackupTarget, t.Name, resource.WhenAlways),
		Name: t.Name, BackupTargetURL: t.Spec.BackupTargetURL, CredentialSecret: t.Spec.CredentialSecret,
		PollInterval: interval, Available: t.Status.Available,
		Message: lh.FindCondition(t.Status.Conditions, lh.BackupTargetConditionUnavailable).Message}
}

func backupVolumeView(q *request, v *lh.BackupVolume) resource.BackupVolume {
	s := &v.Status
	return resource.BackupVolume{Resource: q.envelope(resource.TypeBackupVolume, v.Name, resource.WhenAlways),
		Name: v.Name, VolumeName: v.Spec.VolumeName, BackupTargetName: v.Spec.BackupTargetName, Size: s.Size,
		Labels: s.Labels, Created: s.CreatedAt, LastBackupName: s.LastBackupName, LastBackupAt: s.LastBackupAt,
		DataStored: s.DataStored, Messages: s.Messages, BackingImageName: s.BackingImageName,
		BackingImageChecksum: s.BackingImageChecksum, StorageClassName: s.StorageClassName}
}

// getBackupVolume answers with an empty one for a name that does not exist: clients that provision
// volumes look before there is a backup.
func getBackupVolume(q *request) (any, error) {
	answer, err := backupVolumes.one(q)
	if apierrors.IsNotFound(err) {
		empty := &lh.BackupVolume{}
		empty.Name = q.params["name"]
		return backupVolumeView(q, empty), nil
	}
	return answer, err
}

// backupView takes from the spec and the labels what the status has only when the backup is done.
func backupView(q *request, b *lh.Backup) resource.Backup {
	s := &b.Status
	return resource.Backup{Resource: q.envelope(resource.TypeBackup, b.Name, resource.WhenAlways), Name: b.Name,
		State: string(s.State), Progress: s.Progress, Error: s.Error, URL: s.URL,
		SnapshotName:    orText(s.SnapshotName, b.Spec.SnapshotName),
		SnapshotCreated: s.SnapshotCreatedAt, Created: s.BackupCreatedAt, Size: s.Size, Labels: s.Labels,
		BackupMode: string(b.Spec.BackupMode), Messages: backupMessages(s),
		VolumeName: orText(s.VolumeName, b.Labels[naming.LabelBackupVolume]), VolumeSize: s.VolumeSize,
		VolumeCreated: s.VolumeCreated, VolumeBackingImageName: s.VolumeBackingImageName,
		CompressionMethod: s.CompressionMethod, NewlyUploadedDataSize: s.NewlyUploadDataSize,
		ReUploadedDataSize: s.ReUploadedDataSize,
		BackupTargetName:   orText(s.BackupTargetName, b.Labels[naming.LabelBackupTarget]),
		BlockSize:          decimal(b.Spec.BackupBlockSize)}
}

// backupMessages are those of a backup, and what a verification has found wrong with it.
func backupMessages(s *lh.BackupStatus) map[string]string {
	c := lh.FindCondition(s.Conditions, lh.BackupConditionVerified)
	if c.Status != lh.ConditionFalse || s.Messages[lh.BackupMessageError] != "" {
		return s.Messages
	}
	out := map[string]string{lh.BackupMessageError: c.Message}
	maps.Copy(out, s.Messages)
	return out
}

func backupBackingImageView(q *request, b *lh.BackupBackingImage) resource.BackupBackingImage {
	s := &b.Status
	return resource.BackupBackingImage{
		Resource: q.envelope(resource.TypeBackupBackingImage, b.Name, resource.WhenAlways), Name: b.Name,
		BackingImageName: orText(s.BackingImage, b.Spec.BackingImage), BackupTargetName: b.Spec.BackupTargetName,
		State: string(s.State), Progress: s.Progress, Error: s.Error, URL: s.URL, Created: s.BackupCreatedAt, Size: s.Size,
		Labels: s.Labels, Messages: s.Messages, CompressionMethod: s.CompressionMethod, Secret: s.Secret,
		SecretNamespace: s.SecretNamespace}
}

// listBackups lists the backups that a backup volume stands for; of one that does not exist there
// are none.
func listBackups(q *request) (any, error) {
	var v lh.BackupVolume
	err := q.server.get(q.Context(), q.params["name"], &v)
	if apierrors.IsNotFound(err) {
		return collection[resource.Backup](q, resource.TypeBackup, nil), nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to get backup volume %s: %w", q.params["name"], err)
	}
	return q.backupsOf(v.Spec.VolumeName, v.Spec.BackupTargetName)
}

// listBackupsByVolume lists the backups of a volume, by its own name, on the target of the backup
// volume; where that does not exist, on the volume's.
func listBackupsByVolume(q *request) (any, error) {
	var in resource.Volume
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if in.Name == "" {
		return nil, errors.New("no volume named")
	}
	var of lh.BackupVolume
	err := q.server.get(q.Context(), q.params["name"], &of)
	target := of.Spec.BackupTargetName
	if apierrors.IsNotFound(err) {
		var v lh.Volume
		err = q.server.get(q.Context(), in.Name, &v)
		target = v.Spec.BackupTargetName
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("failed to find the backup target of volume %s: %w", in.Name, err)
	}
	return q.backupsOf(in.Name, target)
}

// backupsOf lists the backups of a volume on a target, by name.
func (q *request) backupsOf(volume, target string) (any, error) {
	var all lh.BackupList
	if err := q.server.list(q.Context(), &all); err != nil {
		return nil, fmt.Errorf("listing backups: %w", err)
	}
	byName(all.Items)
	var views []resource.Backup
	for i := range all.Items {
		b := &all.Items[i]
		if b.Labels[naming.LabelBackupVolume] == volume && b.Labels[naming.LabelBackupTarget] == target {
			views = append(views, backupView(q, b))
		}
	}
	return collection(q, resource.TypeBackup, views), nil
}

func getBackup(q *request) (any, error) {
	var in resource.BackupInput
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if in.Name == "" {
		return nil, errors.New("empty backup name is not allowed")
	}
	return backups.named(q, in.Name)
}
