package work

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"ankole.storage/backup"
	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
	"ankole.storage/backup/target"
	"ankole.storage/backup/worker"
)

// Results of orders, in the form in which clients of the reference read them.
type (
	// VolumeInfo describes a volume of a store.
	VolumeInfo struct {
		Name                 string
		Size                 int64 `json:",string"`
		Labels               map[string]string
		Created              format.Time
		LastBackupName       string
		LastBackupAt         format.Time
		DataStored           int64 `json:",string"`
		Messages             map[string]string
		Backups              map[string]*BackupInfo `json:",omitempty"`
		BackingImageName     string
		BackingImageChecksum string
		StorageClassname     string
		DataEngine           string
		// ModificationTime is when the record of the volume was written, in lists of volumes only.
		ModificationTime *format.Time `json:",omitempty"`
	}
	// BackupInfo describes a backup.
	BackupInfo struct {
		Name                   string
		URL                    string
		SnapshotName           string
		SnapshotCreated        format.Time
		Created                format.Time
		Size                   int64 `json:",string"`
		Labels                 map[string]string
		Parameters             map[string]string
		IsIncremental          bool
		CompressionMethod      string
		NewlyUploadedDataSize  int64 `json:",string"`
		ReUploadedDataSize     int64 `json:",string"`
		VolumeName             string
		VolumeSize             int64 `json:",string"`
		VolumeCreated          format.Time
		VolumeBackingImageName string
		Messages               map[string]string
	}
	// HeadInfo is when the record of a volume or a backup was written, by the clock of the store.
	HeadInfo struct{ ModificationTime format.Time }
)

// keyLabel is the label under which the id of a backup's key is shown; records have it elsewhere.
const keyLabel = "ankole.storage/encryption-key"

// errorMessage is the key of Messages under which an error stands.
const errorMessage = "error"

// browse carries out an order that concerns the store alone.
func browse(ctx context.Context, store object.Store, t *target.Target, o *worker.Order) (any, error) {
	switch o.Do {
	case worker.List:
		return list(ctx, store, o)
	case worker.Inspect:
		return inspect(ctx, store, t, o)
	case worker.InspectOf:
		v, err := backup.LoadVolume(ctx, store, o.Volume)
		if err != nil {
			return nil, err
		}
		return volumeInfo(v), nil
	case worker.Head:
		name := format.VolumeRecord(o.Volume)
		if o.Backup != "" {
			name = format.BackupRecord(o.Volume, o.Backup)
		}
		info, err := store.Stat(ctx, name)
		if errors.Is(err, object.ErrNotFound) {
			err = fmt.Errorf("cannot find %s in %s: %w", name, t, backup.ErrNotFound)
		}
		return HeadInfo{format.Time{Time: info.Modified}}, err
	case worker.Delete:
		d, err := backup.Delete(ctx, store, o.Volume, o.Backup)
		return d, err
	case worker.DeleteVolume:
		return nil, backup.DeleteVolume(ctx, store, o.Volume)
	case worker.Verify:
		verify, of := backup.Verify, o.Volume
		if o.Image != "" {
			verify, of = backup.VerifyImage, o.Image
		}
		v, err := verify(ctx, store, of, o.Verify)
		if err != nil {
			return nil, err
		}
		return verifyInfo(v), nil
	case worker.ListImages:
		return backup.Images(ctx, store)
	case worker.InspectImage:
		i, err := backup.LoadImage(ctx, store, o.Image)
		return imageInfo(t, i), err
	case worker.DeleteImage:
		return backup.DeleteImage(ctx, store, o.Image)
	}
	return nil, fmt.Errorf("a backup worker does not know the order %q", o.Do)
}

// list names volumes and backups. Of their records it says nothing but that one is missing.
func list(ctx context.Context, store object.Store, o *worker.Order) (map[string]*VolumeInfo, error) {
	volumes, err := listed(ctx, store, o.Volume)
	if err != nil {
		return nil, err
	}
	all := map[string]*VolumeInfo{}
	for _, listed := range volumes {
		v := &VolumeInfo{Messages: map[string]string{}}
		if listed.Modified.IsZero() {
			v.Messages[errorMessage] = fmt.Sprintf("cannot find %s in backupstore", format.VolumeRecord(listed.Name))
		} else if o.VolumeOnly {
			v.ModificationTime = &format.Time{Time: listed.Modified}
		}
		if !o.VolumeOnly {
			backups, err := backup.Backups(ctx, store, listed.Name)
			if err != nil {
				return nil, err
			}
			v.Backups = map[string]*BackupInfo{}
			for _, b := range backups {
				v.Backups[b] = &BackupInfo{Messages: map[string]string{}}
			}
		}
		all[listed.Name] = v
	}
	return all, nil
}

// listed is one volume, or with "" all of the store.
func listed(ctx context.Context, store object.Store, volume string) ([]backup.Listed, error) {
	if volume == "" {
		return backup.Volumes(ctx, store)
	}
	if err := format.CheckName(volume); err != nil {
		return nil, err
	}
	record, err := store.Stat(ctx, format.VolumeRecord(volume))
	if err != nil && !errors.Is(err, object.ErrNotFound) {
		return nil, err
	}
	return []backup.Listed{{Name: volume, Modified: record.Modified}}, nil
}

func volumeInfo(v *format.Volume) *VolumeInfo {
	return &VolumeInfo{Name: v.Name, Size: v.SizeBytes, Labels: v.Labels, Created: v.Created,
		LastBackupName: v.LastBackup, LastBackupAt: v.LastBackupAt, Messages: map[string]string{},
		DataStored: v.BlockCount * format.DefaultBlockBytes, BackingImageName: v.BackingImage,
		BackingImageChecksum: v.BackingImageChecksum, StorageClassname: v.StorageClass, DataEngine: v.DataEngine}
}

// shown are the labels and the compression of a backup, as they are shown with the key of blocks
// that are encrypted.
func shown(labels map[string]string, c format.Compression, key encryption.ID) (map[string]string, format.Compression) {
	if key == (encryption.ID{}) {
		return labels, c
	}
	if labels = maps.Clone(labels); labels == nil {
		labels = map[string]string{}
	}
	labels[keyLabel] = key.String()
	return labels, c.Encrypted()
}

// imageInfo describes the backup of an image; nil for none.
func imageInfo(t *target.Target, i *format.Image) *worker.Image {
	if i == nil {
		return nil
	}
	labels, method := shown(i.Labels, i.Compression, i.Key)
	return &worker.Image{Name: i.Name, URL: target.Image{Target: t, Name: i.Name}.URL(), Size: i.SizeBytes,
		Checksum: i.Checksum, Created: i.Completed, Labels: labels, CompressionMethod: string(method), Secret: i.Secret,
		SecretNamespace: i.SecretNamespace, Messages: map[string]string{}}
}

func inspect(ctx context.Context, store object.Store, t *target.Target, o *worker.Order) (*BackupInfo, error) {
	b, err := backup.LoadBackup(ctx, store, o.Volume, o.Backup)
	if err != nil {
		return nil, err
	}
	v, err := backup.LoadVolume(ctx, store, o.Volume)
	if err != nil {
		return nil, err
	}
	parameters := map[string]string{format.BlockSizeParameter: strconv.FormatInt(b.BlockBytes, 10)}
	maps.Copy(parameters, b.Parameters)
	labels, method := shown(b.Labels, b.Compression, b.Key)
	return &BackupInfo{Name: b.Name, URL: target.Object{Target: t, Volume: o.Volume, Backup: o.Backup}.URL(),
		SnapshotName: b.Snapshot, SnapshotCreated: b.SnapshotCreated, Created: b.Created,
		Size: int64(len(b.Blocks)) * b.BlockBytes, Labels: labels, Parameters: parameters, IsIncremental: b.Incremental,
		CompressionMethod: string(method), NewlyUploadedDataSize: b.NewBytes,
		ReUploadedDataSize: b.RewrittenBytes, VolumeName: v.Name, VolumeSize: v.SizeBytes, VolumeCreated: v.Created,
		VolumeBackingImageName: v.BackingImage, Messages: map[string]string{}}, nil
}
