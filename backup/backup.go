// Package backup makes backups of volumes in a backup store, restores, deletes and verifies them.
//
// A backup is a record that lists blocks, and blocks are objects named by the checksum of their
// content, which the backups of a volume share. An incremental backup reads what changed since the
// last one and lists the rest again; every backup can be restored by itself. What an operation
// leaves when it crashes, and why no operation loses another's blocks, is in
// docs/design/backup-store.md.
//
// The package knows nothing of engines and clusters: a Source is read, a Target is written.
package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
)

// Errors, marked where they arise.
var (
	// ErrNotFound: the store has no such volume or backup.
	ErrNotFound = errors.New("not in the backup store")
	// ErrExists: there is another backup of that name.
	ErrExists = errors.New("there is a backup of this name already: choose another name")
	// ErrInProgress: the backup is not complete, and has no content yet.
	ErrInProgress = errors.New("the backup is not complete: wait for it, or delete it if its process is gone")
	// ErrNoBase: there is nothing that what is asked for could be an increment of.
	ErrNoBase = errors.New("no base for an increment: do it in full")
)

// Extent is a range of a volume, in bytes.
type Extent struct{ Offset, Length int64 }

// Base is a snapshot that a backup was made of. Its name alone does not tell it: a name can be
// given again.
type Base struct {
	Snapshot string
	Created  time.Time
}

// Source is a snapshot that is backed up. Its methods may be called concurrently.
type Source interface {
	// SizeBytes is the size of the volume at the snapshot.
	SizeBytes() int64
	// Changed yields the ranges that were written after the snapshot since and up to this one, those
	// written at all if since is zero. Ranges may overlap and come in any order. An error is the last
	// thing that is yielded; it is ErrNoBase if the volume has no such snapshot below this one, or one
	// of its name that was made at another time.
	Changed(ctx context.Context, since Base) iter.Seq2[Extent, error]
	// ReadAt fills p with the content of the volume at the snapshot. What was never written is zero.
	ReadAt(ctx context.Context, p []byte, offset int64) error
}

// Target is what a backup is restored to. Its methods may be called concurrently, for ranges that
// do not overlap.
type Target interface {
	io.WriterAt
	// ZeroAt makes a range read zero, whatever lies below it.
	ZeroAt(offset, length int64) error
}

// arenaBytes bounds the buffers of one operation. Two blocks of the larger size, each with its
// compressed form, do not fit twice into the 64 MiB that a process may take for a backup.
const arenaBytes = 48 << 20

// codecBytes is what a worker needs for the state of compression and decompression.
const codecBytes = 2 << 20

// workersFor returns how many workers have room, at least one, when each has buffers of so many
// bytes. A limit of 0 means two for each processor: one computes while another waits.
func workersFor(limit int, bufferBytes int64) int {
	if limit <= 0 {
		limit = 2 * runtime.GOMAXPROCS(0)
	}
	return max(1, min(limit, int(arenaBytes/(bufferBytes+codecBytes))))
}

// turns bound what workers do at a time.
type turns chan struct{}

// do calls f in its turn.
func (t turns) do(ctx context.Context, f func() error) error {
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-t }()
	return f()
}

// steps bound how many workers compute, and how many ask the store. Others read or write the volume
// meanwhile.
type steps struct{ compute, store turns }

// stepsFor returns how many workers there are for a limit of each step. More than twice as many
// have more buffers than the cache of the processor.
func stepsFor(limit int, bufferBytes int64) (workers int, s steps) {
	if limit <= 0 {
		limit = 2 * runtime.GOMAXPROCS(0)
	}
	workers = workersFor(2*limit, bufferBytes)
	limit = min(limit, workers)
	return workers, steps{make(turns, limit), make(turns, limit)}
}

// each calls do for 0 … n-1 in that many workers, each with what begin made for it, and returns the
// first error, after all have ended.
func each[W any](ctx context.Context, workers, n int, begin func() W,
	do func(ctx context.Context, w W, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(workers, n) {
		group.Go(func() error {
			w := begin()
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return context.Cause(ctx)
				}
				if err := do(ctx, w, i); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// whyEnded replaces the error of an operation whose context ended by the reason for that.
func whyEnded(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// checkNames checks the names that a caller gives, before they become names of objects.
func checkNames(volume string, backups ...string) error {
	if err := format.CheckName(volume); err != nil {
		return fmt.Errorf("volume %w", err)
	}
	if volume == format.ImageLocks {
		return fmt.Errorf("volume %q: the store has the locks of backing images under this name: choose another one", volume)
	}
	for _, b := range backups {
		if err := format.CheckName(b); err != nil {
			return fmt.Errorf("backup %w", err)
		}
	}
	return nil
}

// LoadVolume reads the record of a volume. It returns ErrNotFound or format.ErrCorrupt, or an error
// of the store.
func LoadVolume(ctx context.Context, store object.Store, volume string) (*format.Volume, error) {
	if err := checkNames(volume); err != nil {
		return nil, err
	}
	data, err := store.Get(ctx, format.VolumeRecord(volume), nil, format.MaxVolumeRecordBytes)
	if errors.Is(err, object.ErrNotFound) {
		return nil, fmt.Errorf("cannot find volume %s in %s: %w", volume, store, ErrNotFound)
	} else if err != nil {
		return nil, err
	}
	return format.ParseVolume(data, volume)
}

func storeVolume(ctx context.Context, store object.Store, v *format.Volume) error {
	data, err := v.Marshal()
	if err != nil {
		return err
	}
	return store.Put(ctx, format.VolumeRecord(v.Name), data)
}

// LoadBackup reads the record of a backup, complete or not. It returns ErrNotFound or
// format.ErrCorrupt, or an error of the store.
func LoadBackup(ctx context.Context, store object.Store, volume, backup string) (*format.Backup, error) {
	if err := checkNames(volume, backup); err != nil {
		return nil, err
	}
	data, err := store.Get(ctx, format.BackupRecord(volume, backup), nil, format.MaxBackupRecordBytes)
	if errors.Is(err, object.ErrNotFound) {
		return nil, fmt.Errorf("cannot find backup %s of volume %s in %s: %w", backup, volume, store, ErrNotFound)
	} else if err != nil {
		return nil, err
	}
	return format.ParseBackup(data, volume, backup)
}

// loadComplete reads the record of a backup that must be complete.
func loadComplete(ctx context.Context, store object.Store, volume, backup string) (*format.Backup, error) {
	b, err := LoadBackup(ctx, store, volume, backup)
	if err == nil && b.InProgress() {
		return nil, fmt.Errorf("backup %s of volume %s in %s: %w", backup, volume, store, ErrInProgress)
	}
	return b, err
}

// formOf returns how the blocks of a complete backup are stored. It returns encryption.ErrNoKey if
// they are encrypted with a key that is not there, format.ErrCorrupt if somebody without the key
// has changed the record.
func formOf(keys encryption.Keys, b *format.Backup) (format.Form, error) {
	f := format.Form{Compression: b.Compression}
	if !b.Encrypted() {
		return f, nil
	}
	key, err := keys.Of(b.Key)
	if err != nil {
		return f, fmt.Errorf("backup %s of volume %s is %w", b.Name, b.Volume, err)
	}
	f.Key = key.ForVolume(b.Volume)
	return f, b.CheckAuthentic(f.Key)
}

// storeBackup stores a record, authenticated if its blocks are encrypted.
func storeBackup(ctx context.Context, store object.Store, b *format.Backup, f format.Form) error {
	marshal := b.Marshal
	if f.Key != nil {
		marshal = func() ([]byte, error) { return b.MarshalAuthentic(f.Key) }
	}
	data, err := marshal()
	if err != nil {
		return err
	}
	return store.Put(ctx, format.BackupRecord(b.Volume, b.Name), data)
}

// Listed is a volume that a store has.
type Listed struct {
	Name string
	// Modified is when its record was written, zero where it has none.
	Modified time.Time
}

// Volumes returns the volumes in a store, sorted by their names, for a request each and one more:
// that for a volume begins just before its record, and has the first object of the next one too.
func Volumes(ctx context.Context, store object.Store) ([]Listed, error) {
	var all []Listed
	name, after := "", format.VolumesFolder() // of no volume yet
	for {
		found, err := store.After(ctx, format.VolumesFolder(), after, 2)
		if err != nil {
			return nil, err
		}
		if name != "" {
			v := Listed{Name: name}
			if len(found) > 0 && found[0].Name == format.VolumeRecord(name) {
				v.Modified, found = found[0].Modified, found[1:]
			}
			all = append(all, v)
		}
		if len(found) == 0 {
			slices.SortFunc(all, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
			return all, nil
		}
		before := after
		if name, after = volumeOf(found[0].Name, name); after <= before {
			return nil, fmt.Errorf("%s: its list does not go on after %s", store, before)
		}
	}
}

// volumeOf returns the volume that has an object, and a name before its record. If the object is
// none of a volume's, or another one of the last volume, it returns a name after all of its kind.
func volumeOf(object, last string) (volume, after string) {
	parts := strings.SplitN(strings.TrimPrefix(object, format.VolumesFolder()), "/", 4)
	if len(parts) < 4 {
		return "", object
	}
	folder := format.VolumesFolder() + strings.Join(parts[:3], "/") + "/"
	volume = parts[2]
	// Folders that no volume has are another program's.
	if checkNames(volume) != nil || format.VolumeFolder(volume) != folder || volume == last {
		return "", strings.TrimSuffix(folder, "/") + "0" // 0 is behind the slash
	}
	record := format.VolumeRecord(volume)
	return volume, record[:len(record)-1]
}

// Backups returns the names of the backups of a volume, complete or not, sorted.
func Backups(ctx context.Context, store object.Store, volume string) ([]string, error) {
	if err := checkNames(volume); err != nil {
		return nil, err
	}
	var names []string
	for info, err := range store.List(ctx, format.BackupsFolder(volume), false) {
		if err != nil {
			return nil, err
		}
		if name, ok := format.BackupOf(info.Name); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// listBlocks returns the blocks of a pool that are in the store, sorted; at most limit of them
// unless that is 0. whole reports whether these are all.
func listBlocks(ctx context.Context, store object.Store, pool format.Pool, limit int) (all checksums, whole bool,
	err error) {
	for info, err := range store.List(ctx, string(pool), true) {
		if err != nil {
			return nil, false, err
		}
		if c, ok := format.BlockOf(info.Name); ok && pool.Object(c) == info.Name {
			all = append(all, c)
		}
		if limit > 0 && len(all) == limit {
			return all.sorted(), false, nil
		}
	}
	return all.sorted(), true, nil
}

// listMarks returns the blocks of a pool that are marked as damaged or missing, sorted.
func listMarks(ctx context.Context, store object.Store, pool format.Pool) (all checksums, err error) {
	for info, err := range store.List(ctx, pool.Marks(), false) {
		if err != nil {
			return nil, err
		}
		if c, ok := format.MarkOf(info.Name); ok {
			all = append(all, c)
		}
	}
	return all.sorted(), nil
}

// checksums is a set of them, sorted and each once after sorted.
type checksums []format.Checksum

func compare(a, b format.Checksum) int { return bytes.Compare(a[:], b[:]) }

func (s checksums) sorted() checksums {
	slices.SortFunc(s, compare)
	return slices.Compact(s)
}

func (s checksums) has(c format.Checksum) bool {
	_, ok := slices.BinarySearchFunc(s, c, compare)
	return ok
}
