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
	record := format.BackupRecord(volume, backup)
	_, found := store.Stat(ctx, record)
	if found != nil && !errors.Is(found, object.ErrNotFound) {
		return nil, found
	}
	if err := store.Delete(ctx, record); err != nil {
		return nil, err
	}
	d, err := collect(ctx, store, volume)
	if err == nil && found != nil {
		err = fmt.Errorf("cannot find it: %w", ErrNotFound) // callers of the engine binary go by these words
	}
	return d, err
}

// references is what the backups of a volume list.
type references struct {
	names  []string
	blocks checksums
	// newest is the complete backup with the newest snapshot; nil if there is none.
	newest *format.Backup
	// unknown is why blocks is not all; "" if it is.
	unknown string
}

// loadReferences reads all backups of a volume.
func loadReferences(ctx context.Context, store object.Store, volume string) (*references, error) {
	r := &references{}
	var err error
	if r.names, err = Backups(ctx, store, volume); err != nil {
		return nil, err
	}
	for _, name := range r.names {
		b, err := LoadBackup(ctx, store, volume, name)
		switch {
		case errors.Is(err, format.ErrCorrupt):
			r.unknown = fmt.Sprintf("the record of backup %s is damaged: delete that backup", name)
			continue
		case errors.Is(err, ErrNotFound):
			r.unknown = fmt.Sprintf("backup %s was deleted meanwhile", name)
			continue
		case err != nil:
			return nil, err
		case b.InProgress():
			r.unknown = fmt.Sprintf("backup %s is not complete: delete it if its process is gone", name)
			continue
		}
		for _, at := range b.Blocks {
			r.blocks = append(r.blocks, at.Checksum)
		}
		r.blocks = r.blocks.sorted()
		if r.newest == nil || r.newest.SnapshotCreated.Before(b.SnapshotCreated.Time) {
			r.newest = b
		}
		r.newest.Blocks = nil
	}
	return r, nil
}

// collect deletes the blocks of a volume that no backup lists, and corrects its record.
func collect(ctx context.Context, store object.Store, volume string) (*Deleted, error) {
	refs, err := loadReferences(ctx, store, volume)
	if err != nil {
		return nil, err
	}
	present, _, err := listBlocks(ctx, store, volume, 0)
	if err != nil {
		return nil, err
	}
	names, err := Backups(ctx, store, volume)
	if err != nil {
		return nil, err
	}
	if refs.unknown == "" && !slices.Equal(names, refs.names) {
		refs.unknown = "the backups of the volume changed meanwhile: delete the next one later"
	}
	unlisted := slices.DeleteFunc(slices.Clone(present), refs.blocks.has)
	if refs.unknown != "" {
		unlisted = nil
	}
	switch v, err := LoadVolume(ctx, store, volume); {
	case errors.Is(err, ErrNotFound) || errors.Is(err, format.ErrCorrupt):
		// Another backup makes it again, or a person: nothing here depends on it.
	case err != nil:
		return nil, err
	default:
		if !slices.Contains(names, v.LastBackup) {
			v.LastBackup, v.LastBackupAt = "", format.Time{}
		}
		if refs.unknown == "" && refs.newest != nil {
			v.LastBackup, v.LastBackupAt = refs.newest.Name, refs.newest.SnapshotCreated
		}
		v.BlockCount = int64(len(present) - len(unlisted))
		if err := storeVolume(ctx, store, v); err != nil {
			return nil, err
		}
	}
	d := &Deleted{Kept: refs.unknown}
	for _, c := range unlisted {
		if err := store.Delete(ctx, format.BlockObject(volume, c)); err != nil {
			return d, err
		}
		d.Blocks++
	}
	return d, nil
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
