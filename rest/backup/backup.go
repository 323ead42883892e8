package backup

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

var (
	backupTargets = serve.Kind[lh.BackupTarget, *lh.BackupTarget, resource.BackupTarget]{
		TypeID: resource.TypeBackupTarget, What: "backup target", View: backupTargetView,
		List: func() (client.ObjectList, *[]lh.BackupTarget) {
			l := &lh.BackupTargetList{}
			return l, &l.Items
		},
	}
	backupVolumes = serve.Kind[lh.BackupVolume, *lh.BackupVolume, resource.BackupVolume]{
		TypeID: resource.TypeBackupVolume, What: "backup volume", View: backupVolumeView,
		List: func() (client.ObjectList, *[]lh.BackupVolume) {
			l := &lh.BackupVolumeList{}
			return l, &l.Items
		},
	}
	// backups have no route of their own: actions of a backup volume list them, and a stream.
	backups = serve.Kind[lh.Backup, *lh.Backup, resource.Backup]{
		TypeID: resource.TypeBackup, What: "backup", View: backupView,
		List: func() (client.ObjectList, *[]lh.Backup) {
			l := &lh.BackupList{}
			return l, &l.Items
		},
	}
	backupBackingImages = serve.Kind[lh.BackupBackingImage, *lh.BackupBackingImage, resource.BackupBackingImage]{
		TypeID: resource.TypeBackupBackingImage, What: "backup backing image", View: backupBackingImageView,
		List: func() (client.ObjectList, *[]lh.BackupBackingImage) {
			l := &lh.BackupBackingImageList{}
			return l, &l.Items
		},
	}
)

// backupTargetView shows the poll interval as a duration is written: "5m0s".
func backupTargetView(q *serve.Request, t *lh.BackupTarget) resource.BackupTarget {
	interval := t.Spec.PollInterval
	if d, err := time.ParseDuration(cmp.Or(interval, "0s")); err == nil {
		interval = d.String()
	}
	return resource.BackupTarget{Resource: q.Envelope(resource.TypeBackupTarget, t.Name, resource.WhenAlways),
		Name: t.Name, BackupTargetURL: t.Spec.BackupTargetURL, CredentialSecret: t.Spec.CredentialSecret,
		PollInterval: interval, Available: t.Status.Available,
		Message: lh.FindCondition(t.Status.Conditions, lh.BackupTargetConditionUnavailable).Message}
}

func backupVolumeView(q *serve.Request, v *lh.BackupVolume) resource.BackupVolume {
	s := &v.Status
	return resource.BackupVolume{Resource: q.Envelope(resource.TypeBackupVolume, v.Name, resource.WhenAlways),
		Name: v.Name, VolumeName: v.Spec.VolumeName, BackupTargetName: v.Spec.BackupTargetName, Size: s.Size,
		Labels: s.Labels, Created: s.CreatedAt, LastBackupName: s.LastBackupName, LastBackupAt: s.LastBackupAt,
		DataStored: s.DataStored, Messages: s.Messages, BackingImageName: s.BackingImageName,
		BackingImageChecksum: s.BackingImageChecksum, StorageClassName: s.StorageClassName}
}

// getBackupVolume answers with an empty one for a name that does not exist: clients that provision
// volumes look before there is a backup.
func getBackupVolume(q *serve.Request) (any, error) {
	answer, err := backupVolumes.One(q)
	if apierrors.IsNotFound(err) {
		empty := &lh.BackupVolume{}
		empty.Name = q.Params["name"]
		return backupVolumeView(q, empty), nil
	}
	return answer, err
}

// backupView takes from the spec and the labels what the status has only when the backup is done.
func backupView(q *serve.Request, b *lh.Backup) resource.Backup {
	s := &b.Status
	return resource.Backup{Resource: q.Envelope(resource.TypeBackup, b.Name, resource.WhenAlways), Name: b.Name,
		State: string(s.State), Progress: s.Progress, Error: s.Error, URL: s.URL,
		SnapshotName:    cmp.Or(s.SnapshotName, b.Spec.SnapshotName),
		SnapshotCreated: s.SnapshotCreatedAt, Created: s.BackupCreatedAt, Size: s.Size, Labels: s.Labels,
		BackupMode: string(b.Spec.BackupMode), Messages: backupMessages(s),
		VolumeName: cmp.Or(s.VolumeName, b.Labels[naming.LabelBackupVolume]), VolumeSize: s.VolumeSize,
		VolumeCreated: s.VolumeCreated, VolumeBackingImageName: s.VolumeBackingImageName,
		CompressionMethod: s.CompressionMethod, NewlyUploadedDataSize: s.NewlyUploadDataSize,
		ReUploadedDataSize: s.ReUploadedDataSize,
		BackupTargetName:   cmp.Or(s.BackupTargetName, b.Labels[naming.LabelBackupTarget]),
		BlockSize:          strconv.FormatInt(b.Spec.BackupBlockSize, 10)}
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

// imageMessages are those of the backup of a backing image, and what a verification has found wrong
// with it, until that is written again.
func imageMessages(b *lh.BackupBackingImage) map[string]string {
	s := &b.Status
	ver := s.Verification
	if ver == nil || !ver.Ended() || s.Messages[lh.BackupMessageError] != "" || ver.EndedAt.Before(&s.LastSyncedAt) {
		return s.Messages
	}
	i := slices.IndexFunc(ver.Backups, func(v lh.VerifiedBackup) bool { return v.Name == b.Spec.BackingImage })
	if i < 0 || ver.Backups[i].Faults == 0 {
		return s.Messages
	}
	why := fmt.Sprintf("%d of its blocks or records were damaged or missing at %s", ver.Backups[i].Faults,
		rfc3339(ver.EndedAt))
	out := map[string]string{lh.BackupMessageError: why}
	maps.Copy(out, s.Messages)
	return out
}

func backupBackingImageView(q *serve.Request, b *lh.BackupBackingImage) resource.BackupBackingImage {
	s := &b.Status
	return resource.BackupBackingImage{
		Resource: q.Envelope(resource.TypeBackupBackingImage, b.Name, resource.WhenAlways), Name: b.Name,
		BackingImageName: cmp.Or(s.BackingImage, b.Spec.BackingImage), BackupTargetName: b.Spec.BackupTargetName,
		State: string(s.State), Progress: s.Progress, Error: s.Error, URL: s.URL, Created: s.BackupCreatedAt, Size: s.Size,
		Labels: s.Labels, Messages: imageMessages(b), CompressionMethod: s.CompressionMethod, Secret: s.Secret,
		SecretNamespace: s.SecretNamespace}
}

// listBackups lists the backups that a backup volume stands for; of one that does not exist there
// are none.
func listBackups(q *serve.Request) (any, error) {
	var v lh.BackupVolume
	err := q.Objects.Get(q.Context(), q.Params["name"], &v)
	if apierrors.IsNotFound(err) {
		return serve.Collection[resource.Backup](q, resource.TypeBackup, nil), nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to get backup volume %s: %w", q.Params["name"], err)
	}
	return backupsOf(q, v.Spec.VolumeName, v.Spec.BackupTargetName)
}

// listBackupsByVolume lists the backups of a volume, by its own name, on the target of the backup
// volume; where that does not exist, on the volume's.
func listBackupsByVolume(q *serve.Request) (any, error) {
	var in resource.Volume
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	if in.Name == "" {
		return nil, errors.New("no volume named")
	}
	var of lh.BackupVolume
	err := q.Objects.Get(q.Context(), q.Params["name"], &of)
	target := of.Spec.BackupTargetName
	if apierrors.IsNotFound(err) {
		var v lh.Volume
		err = q.Objects.Get(q.Context(), in.Name, &v)
		target = v.Spec.BackupTargetName
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("failed to find the backup target of volume %s: %w", in.Name, err)
	}
	return backupsOf(q, in.Name, target)
}

// backupsOf lists the backups of a volume on a target, by name.
func backupsOf(q *serve.Request, volume, target string) (any, error) {
	var all lh.BackupList
	if err := q.Objects.List(q.Context(), &all); err != nil {
		return nil, fmt.Errorf("listing backups: %w", err)
	}
	serve.SortByName(all.Items)
	var views []resource.Backup
	for i := range all.Items {
		b := &all.Items[i]
		if b.Labels[naming.LabelBackupVolume] == volume && b.Labels[naming.LabelBackupTarget] == target {
			views = append(views, backupView(q, b))
		}
	}
	return serve.Collection(q, resource.TypeBackup, views), nil
}

func getBackup(q *serve.Request) (any, error) {
	var in resource.BackupInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	if in.Name == "" {
		return nil, errors.New("empty backup name is not allowed")
	}
	return backups.Named(q, in.Name)
}
