package client

import (
	"context"
	"net/http"
	"slices"

	"ankole.storage/rest/resource"
)

// BackupTargets lists the backup targets by name.
func (c *Client) BackupTargets(ctx context.Context) ([]resource.BackupTarget, error) {
	return list[resource.BackupTarget](ctx, c, resource.TypeBackupTarget)
}

// UpdateBackupTarget changes where a target is, by its name. PollInterval is a number of seconds.
func (c *Client) UpdateBackupTarget(ctx context.Context, in resource.BackupTarget) (*resource.BackupTarget, error) {
	return action[resource.BackupTarget](ctx, c, resource.TypeBackupTarget, in.Name, resource.ActionBackupTargetUpdate, in)
}

// SyncBackupTarget has a target compared with its store now.
func (c *Client) SyncBackupTarget(ctx context.Context, name string) (*resource.BackupTarget, error) {
	return action[resource.BackupTarget](ctx, c, resource.TypeBackupTarget, name, resource.ActionBackupTargetSync,
		resource.SyncBackupResource{SyncBackupTarget: true})
}

// BackupVolumes lists the volumes that stores have backups of.
func (c *Client) BackupVolumes(ctx context.Context) ([]resource.BackupVolume, error) {
	return list[resource.BackupVolume](ctx, c, resource.TypeBackupVolume)
}

// DeleteBackupVolume deletes all backups of a volume, in the store too.
func (c *Client) DeleteBackupVolume(ctx context.Context, name string) error {
	u, err := c.object(resource.TypeBackupVolume, name)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, u, nil, nil)
}

// Backups lists the backups of a volume, by the volume's own name, on the target of a backup
// volume; where that does not exist, on the volume's.
func (c *Client) Backups(ctx context.Context, backupVolume, volume string) ([]resource.Backup, error) {
	out, err := action[resource.Collection[resource.Backup]](ctx, c, resource.TypeBackupVolume, backupVolume,
		resource.ActionBackupListByVolume, resource.Volume{VolumeSpec: resource.VolumeSpec{Name: volume}})
	if err != nil {
		return nil, err
	}
	return out.Data, nil
}

// AllBackups lists the backups of a volume on all targets, of all volumes that have some if volume
// is empty. The volume need not be there any more.
func (c *Client) AllBackups(ctx context.Context, volume string) (all []resource.Backup, err error) {
	backedUp, err := c.BackupVolumes(ctx)
	if err != nil {
		return nil, err
	}
	if volume != "" {
		backedUp = slices.DeleteFunc(backedUp, func(v resource.BackupVolume) bool { return v.VolumeName != volume })
		if len(backedUp) == 0 { // its first backup may be under way
			return c.Backups(ctx, volume, volume)
		}
	}
	for i := range backedUp {
		some, err := c.Backups(ctx, backedUp[i].Name, backedUp[i].VolumeName)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// Backup returns one backup.
func (c *Client) Backup(ctx context.Context, name string) (*resource.Backup, error) {
	return action[resource.Backup](ctx, c, resource.TypeBackupVolume, name, resource.ActionBackupGet,
		resource.BackupInput{Name: name})
}

// DeleteBackup deletes a backup, in the store too; it returns before that.
func (c *Client) DeleteBackup(ctx context.Context, name string) error {
	_, err := action[resource.BackupVolume](ctx, c, resource.TypeBackupVolume, name, resource.ActionBackupDelete,
		resource.BackupInput{Name: name})
	return err
}

// BackUp orders a backup of a snapshot; it returns before that. The volume's backupStatus has the
// progress.
func (c *Client) BackUp(ctx context.Context, volume string, in resource.SnapshotInput) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c, resource.TypeVolume, volume, resource.ActionSnapshotBackup, in)
}

// VerifyBackups has all verified that a store has of a volume, by the name of the backup volume; it
// returns before that. One that is under way is taken for it.
func (c *Client) VerifyBackups(ctx context.Context, backupVolume string, in resource.VerifyBackupsInput) (
	*resource.BackupVerification, error) {
	var out resource.BackupVerification
	if err := c.call(ctx, http.MethodPost, c.url("backupverifications", backupVolume), in, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// VerifyBackupImage has the backup of a backing image verified; it returns before that.
func VerifyBackupImage(ctx context.Context, c *Client, name string, in resource.VerifyBackupsInput) (
	*resource.BackupVerification, error) {
	var out resource.BackupVerification
	if err := c.call(ctx, http.MethodPost, c.url("backupimageverifications", name), in, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// BackupImageVerification tells of its latest verification.
func BackupImageVerification(ctx context.Context, c *Client, name string) (*resource.BackupVerification, error) {
	var out resource.BackupVerification
	if err := c.call(ctx, http.MethodGet, c.url("backupimageverifications", name), nil, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// BackupVerification tells of the latest verification of a backup volume.
func (c *Client) BackupVerification(ctx context.Context, backupVolume string) (*resource.BackupVerification, error) {
	var out resource.BackupVerification
	if err := c.call(ctx, http.MethodGet, c.url("backupverifications", backupVolume), nil, &out); err != nil {
		return nil, err
	}
	return &out, nil
}
