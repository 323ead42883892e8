package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ankole.storage/backup/format"
	"ankole.storage/backup/lock"
	"ankole.storage/backup/object"
)

// Deleted is what a deletion did.
type Deleted struct {
	// Blocks is how many blocks were deleted that no backup lists any more.
	Blocks int
	// Kept is why no block was deleted: a backup that is in progress or damaged, whose blocks are not
	// known. "" if blocks were collected.
	Kept string
}

// Delete deletes a backup, whatever its state, and the blocks of the volume that no other backup
// lists. It waits for running backups and restores of the volume, of every client of the store. It
// returns ErrNotFound if there is no such backup; the blocks are collected all the same, so a
// deletion that crashed is completed by its repetition.
func Delete(ctx context.Context, store object.Store, volume, backup string) (*Deleted, error) {
	if err := checkNames(volume, backup); err != nil {
		return nil, err
	}
	l, err := lock.Acquire(ctx, store, volume, format.LockDelete)
	if err != nil {
		return nil, err
	}
	defer l.Release()
	d, err := deleteBackup(l.Context(), store, volume, backup)
	if err = whyEnded(l.Context(), err); err != nil {
		return d, fmt.Errorf("deleting backup %s of volume %s from %s: %w", backup, volume, store, err)
	}
	return d, nil
}

func deleteBackup(ctx context.Context, store object.Store, volume, backup string) (*Deleted, error) {
	return removeRecord(ctx, store, format.BackupRecord(volume, backup), func() (*Deleted, error) {
		return collect(ctx, store, volume)
	})
}

// removeRecord deletes a record, and then what collect finds that no record lists.
func removeRecord(ctx context.Context, store object.Store, record string, collect func() (*Deleted, error)) (*Deleted,
	error) {
	_, found := store.Stat(ctx, record)
	if found != nil && !errors.Is(found, object.ErrNotFound) {
		return nil, found
	}
	if err := store.Delete(ctx, record); err != nil {
		return nil, err
	}
	d, err := collect()
	if err == nil && found != nil {
		err = fmt.Errorf("cannot find it: %w", ErrNotFound) // callers of the engine binary go by these words
	}
	return d, err
}

// newestOf returns the records of a volume, and sets newest to the complete backup with the newest
// snapshot when they are read; it stays nil if there is none.
func newestOf(store object.Store, volume string, newest **format.Backup) *records {
	return &records{kind: "backup", pool: format.PoolOf(volume), store: store,
		names: func(ctx context.Context) ([]string, error) { return Backups(ctx, store, volume) },
		load: func(ctx context.Context, name string) ([]format.Block, bool, error) {
			b, err := LoadBackup(ctx, store, volume, name)
			if err != nil || b.InProgress() {
				return nil, false, err
			}
			blocks := b.Blocks
			if b.Blocks = nil; *newest == nil || (*newest).SnapshotCreated.Before(b.SnapshotCreated.Time) {
				*newest = b
			}
			return blocks, true, nil
		}}
}

// collect deletes the blocks of a volume that no backup lists, and corrects its record.
func collect(ctx context.Context, store object.Store, volume string) (*Deleted, error) {
	var newest *format.Backup
	all := newestOf(store, volume, &newest)
	found, err := all.take(ctx)
	if err != nil {
		return nil, err
	}
	switch v, err := LoadVolume(ctx, store, volume); {
	case errors.Is(err, ErrNotFound) || errors.Is(err, format.ErrCorrupt):
		// Another backup makes it again, or a person: nothing here depends on it.
	case err != nil:
		return nil, err
	default:
		if !slices.Contains(found.names, v.LastBackup) {
			v.LastBackup, v.LastBackupAt = "", format.Time{}
		}
		if found.unknown == "" && newest != nil {
			v.LastBackup, v.LastBackupAt = newest.Name, newest.SnapshotCreated
		}
		v.BlockCount = int64(len(found.present) - len(found.unlisted))
		if err := storeVolume(ctx, store, v); err != nil {
			return nil, err
		}
	}
	return all.clear(ctx, found)
}

// DeleteVolume deletes all backups of a volume, and everything else that the store holds of it. It
// is no error that there is nothing. One that crashed is completed by its repetition.
func DeleteVolume(ctx context.Context, store object.Store, volume string) error {
	if err := checkNames(volume); err != nil {
		return err
	}
	l, err := lock.Acquire(ctx, store, volume, format.LockDelete)
	if err != nil {
		return err
	}
	defer l.Release()
	// Backups first: without a record nothing is taken for whole. The record of the volume last: as
	// long as it is there the volume is seen. Locks expire or are their clients'.
	parts := []string{format.BackupsFolder(volume), format.BlocksFolder(volume), format.VolumeFolder(volume)}
	for _, folder := range parts {
		if err := deleteBelow(l.Context(), store, volume, folder); err != nil {
			return fmt.Errorf("deleting volume %s from %s: %w", volume, store, whyEnded(l.Context(), err))
		}
	}
	if err := store.Delete(l.Context(), format.VolumeRecord(volume)); err != nil {
		return fmt.Errorf("deleting volume %s from %s: %w", volume, store, whyEnded(l.Context(), err))
	}
	return nil
}

// deleteBelow deletes all objects of a folder but locks and the record of the volume.
func deleteBelow(ctx context.Context, store object.Store, volume, folder string) error {
	var names []string
	for info, err := range store.List(ctx, folder, true) {
		if err != nil {
			return err
		}
		if info.Name != format.VolumeRecord(volume) && !strings.HasPrefix(info.Name, format.LocksFolder(volume)) {
			names = append(names, info.Name)
		}
	}
	for _, name := range names {
		if err := store.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
