package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
	"ankole.storage/backup/lock"
	"ankole.storage/backup/object"
)

// ImageCreateOptions say what is backed up of a backing image, and how.
type ImageCreateOptions struct {
	// Image is the name of the image, under which the store has one backup.
	Image string
	// Checksum is the SHA-512 of its file in hex.
	Checksum string
	Labels   map[string]string
	// Secret and SecretNamespace name the Secret that the image is encrypted with; "" for none.
	Secret, SecretNamespace string
	// Compression, Keys, Workers and Progress are as those of CreateOptions.
	Compression format.Compression
	Keys        encryption.Keys
	Workers     int
	Progress    func(done, total int)
}

// LoadImage reads the record of a backing image's backup, complete or not. It returns ErrNotFound
// or format.ErrCorrupt, or an error of the store.
func LoadImage(ctx context.Context, store object.Store, image string) (*format.Image, error) {
	if err := checkImage(image); err != nil {
		return nil, err
	}
	data, err := store.Get(ctx, format.ImageRecord(image), nil, format.MaxBackupRecordBytes)
	if errors.Is(err, object.ErrNotFound) {
		return nil, fmt.Errorf("cannot find a backup of backing image %s in %s: %w", image, store, ErrNotFound)
	} else if err != nil {
		return nil, err
	}
	return format.ParseImage(data, image)
}

func checkImage(image string) error {
	if err := format.CheckName(image); err != nil {
		return fmt.Errorf("backing image %w", err)
	}
	return nil
}

func storeImage(ctx context.Context, store object.Store, i *format.Image, key *encryption.Volume) error {
	data, err := i.Marshal(key)
	if err != nil {
		return err
	}
	return store.Put(ctx, format.ImageRecord(i.Name), data)
}

// Images returns the names of the backing images that have a backup in a store, complete or not,
// sorted.
func Images(ctx context.Context, store object.Store) ([]string, error) {
	var names []string
	for info, err := range store.List(ctx, format.ImagesFolder(), false) {
		if err != nil {
			return nil, err
		}
		if name, ok := format.ImageOf(info.Name); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// lockImages acquires the lock of all backing images.
func lockImages(ctx context.Context, store object.Store, kind int) (*lock.Lock, error) {
	return lock.Acquire(ctx, store, format.ImageLocks, kind)
}

// imageForm returns how the blocks of a complete backup are stored, or an error as formOf.
func imageForm(keys encryption.Keys, i *format.Image) (format.Form, error) {
	f := format.Form{Compression: i.Compression}
	if !i.Encrypted() {
		return f, nil
	}
	key, err := keys.Of(i.Key)
	if err != nil {
		return f, fmt.Errorf("the backup of backing image %s is %w", i.Name, err)
	}
	f.Key = format.ImageKey(&key)
	return f, i.CheckAuthentic(f.Key)
}

// CreateImage backs up a backing image, and returns the record when it is complete in the store.
// If a run crashed, or was ended, the next one goes on: blocks that are in the store are not sent
// again. Of a backup that is complete it writes again what VerifyImage has marked. It returns
// ErrExists if the store has a backup of another image of that name, otherwise errors as Create.
func CreateImage(ctx context.Context, store object.Store, source Source, o ImageCreateOptions) (*format.Image, error) {
	encrypted := false
	if o.Compression, encrypted = o.Compression.CutEncrypted(); o.Compression == "" {
		o.Compression = format.CompressionLZ4
	}
	err := checkImage(o.Image)
	if err == nil {
		err = o.Compression.Check()
	}
	if size := source.SizeBytes(); err == nil && (size <= 0 || size%512 != 0) {
		err = fmt.Errorf("it has %d bytes, which is no size of a disk", size)
	}
	if err == nil && encrypted && o.Keys.Current == nil {
		err = fmt.Errorf("it is to be encrypted, and there is no key: set %s in the Secret of the backup target",
			encryption.Variable)
	}
	if err != nil {
		return nil, fmt.Errorf("backup of backing image %s: %w", o.Image, err)
	}
	l, err := lockImages(ctx, store, format.LockShared)
	if err != nil {
		return nil, err
	}
	defer l.Release()
	record, err := createImage(l.Context(), store, source, o)
	if err = whyEnded(l.Context(), err); err != nil {
		return nil, fmt.Errorf("backup of backing image %s to %s: %w", o.Image, store, err)
	}
	return record, nil
}

// createImage makes the backup under the lock.
//
// Crash windows: behind the marker, behind blocks, and behind the record, which is all there is.
func createImage(ctx context.Context, store object.Store, source Source, o ImageCreateOptions) (*format.Image, error) {
	form := format.Form{Compression: o.Compression, Key: format.ImageKey(o.Keys.Current)}
	earlier, err := LoadImage(ctx, store, o.Image)
	switch {
	case err == nil && !earlier.InProgress():
		if earlier.Checksum != o.Checksum || earlier.SizeBytes != source.SizeBytes() {
			return nil, fmt.Errorf("the store has one of another image of this name, with checksum %s: delete that, or "+
				"choose another name: %w", earlier.Checksum, ErrExists)
		}
		return earlier, mendImage(ctx, store, source, earlier, o)
	case err != nil && !errors.Is(err, ErrNotFound):
		return nil, err
	}
	read, err := changedBlocks(ctx, source, Base{}, format.ImageBlockBytes)
	if err != nil {
		return nil, err
	}
	record := &format.Image{Name: o.Image, SizeBytes: source.SizeBytes(), Checksum: o.Checksum, Labels: o.Labels,
		Created: format.Time{Time: time.Now()}, Compression: o.Compression, Secret: o.Secret,
		SecretNamespace: o.SecretNamespace, Key: form.Key.ID()}
	if err := storeImage(ctx, store, record, form.Key); err != nil {
		return nil, err
	}
	limit := maxListed
	if earlier != nil {
		limit = 0 // a run crashed: what is not sent again pays for the requests
	}
	present, _, err := listBlocks(ctx, store, format.ImagePool, limit)
	if err != nil {
		return nil, err
	}
	marked, err := listMarks(ctx, store, format.ImagePool)
	if err != nil {
		return nil, err
	}
	run := imageCopying(store, source, form, o)
	run.present, run.marked = present, marked
	if err := run.run(ctx, read.list()); err != nil {
		return nil, err
	}
	record.Blocks = byOffset(run.blocks)
	record.Completed = format.Time{Time: time.Now()}
	return record, storeImage(ctx, store, record, form.Key)
}

func imageCopying(store object.Store, source Source, form format.Form, o ImageCreateOptions) *copying {
	return &copying{store: store, source: source, pool: format.ImagePool, form: form, workers: o.Workers,
		blockBytes: format.ImageBlockBytes, progress: o.Progress}
}

// mendImage writes those blocks of a complete backup again that a verification has marked. The
// others are not read. What cannot be restored for want of a key is no backup.
func mendImage(ctx context.Context, store object.Store, source Source, i *format.Image, o ImageCreateOptions) error {
	form, err := imageForm(o.Keys, i)
	if err != nil {
		return err
	}
	marked, err := listMarks(ctx, store, format.ImagePool)
	if err != nil || len(marked) == 0 {
		return err
	}
	var read []int64
	for _, at := range i.Blocks {
		if marked.has(at.Checksum) {
			read = append(read, at.Offset/format.ImageBlockBytes)
		}
	}
	run := imageCopying(store, source, form, o)
	run.marked = marked
	return run.run(ctx, read)
}

// ImageRestoreOptions say which backup of a backing image is restored, and how.
type ImageRestoreOptions struct {
	Image string
	// Keys and Workers are as those of RestoreOptions.
	Keys    encryption.Keys
	Workers int
	// Begin is called before anything is written, with the size of the image; its error ends the
	// restore. nil: nobody wants to know.
	Begin func(sizeBytes int64) error
	// Progress is as that of RestoreOptions.
	Progress func(done, total int)
}

// RestoreImage writes a backing image to a target that reads zero, and returns its record. Each
// block is compared with its own checksum; that of the whole is for the caller to compare, who
// reads what the target holds. It returns errors as Restore.
func RestoreImage(ctx context.Context, store object.Store, target Target, o ImageRestoreOptions) (*format.Image,
	error) {
	if err := checkImage(o.Image); err != nil {
		return nil, err
	}
	l, err := lockImages(ctx, store, format.LockShared)
	if err != nil {
		return nil, err
	}
	defer l.Release()
	record, damage, err := restoreImage(l.Context(), store, target, o)
	if err = whyEnded(l.Context(), err); err != nil {
		return nil, fmt.Errorf("restoring backing image %s from %s: %w", o.Image, store, err)
	}
	if len(damage) > 0 {
		return nil, &DamageError{Image: o.Image, Damage: damage}
	}
	return record, nil
}

func restoreImage(ctx context.Context, store object.Store, target Target, o ImageRestoreOptions) (*format.Image,
	[]Damage, error) {
	record, err := LoadImage(ctx, store, o.Image)
	if err != nil {
		return nil, nil, err
	}
	if record.InProgress() {
		return nil, nil, ErrInProgress
	}
	form, err := imageForm(o.Keys, record)
	if err == nil && o.Begin != nil {
		err = o.Begin(record.SizeBytes)
	}
	if err != nil {
		return nil, nil, err
	}
	w := &writing{store: store, target: target, pool: format.ImagePool, form: form, sizeBytes: record.SizeBytes,
		blockBytes: format.ImageBlockBytes, workers: o.Workers, progress: o.Progress}
	err = w.run(ctx, record.Blocks)
	return record, w.damage, err
}

// DeleteImage deletes the backup of a backing image, whatever its state, and the blocks that no
// other image lists. It waits for running backups and restores of images. It returns errors as
// Delete.
func DeleteImage(ctx context.Context, store object.Store, image string) (*Deleted, error) {
	if err := checkImage(image); err != nil {
		return nil, err
	}
	l, err := lockImages(ctx, store, format.LockDelete)
	if err != nil {
		return nil, err
	}
	defer l.Release()
	d, err := deleteImage(l.Context(), store, image)
	if err = whyEnded(l.Context(), err); err != nil {
		return d, fmt.Errorf("deleting the backup of backing image %s from %s: %w", image, store, err)
	}
	return d, nil
}

func deleteImage(ctx context.Context, store object.Store, image string) (*Deleted, error) {
	all := imagesOf(store)
	return removeRecord(ctx, store, format.ImageRecord(image), func() (*Deleted, error) {
		found, err := all.take(ctx)
		if err != nil {
			return nil, err
		}
		return all.clear(ctx, found)
	})
}

// imagesOf returns the records of all backing images.
func imagesOf(store object.Store) *records {
	return &records{kind: "backing image", pool: format.ImagePool, store: store,
		names: func(ctx context.Context) ([]string, error) { return Images(ctx, store) },
		load: func(ctx context.Context, name string) ([]format.Block, bool, error) {
			i, err := LoadImage(ctx, store, name)
			if err != nil {
				return nil, false, err
			}
			return i.Blocks, !i.InProgress(), nil
		}}
}

// VerifyImage reads the record and every block of a backing image's backup, as Verify does, and
// returns what is wrong with them, with all images that it hurts. It returns ErrInProgress if the
// backup is not complete. What it marks CreateImage writes again, of the same image or of another
// one that has the block.
func VerifyImage(ctx context.Context, store object.Store, image string, o VerifyOptions) (*Verified, error) {
	if err := checkImage(image); err != nil {
		return nil, err
	}
	of := verifiable{pool: format.ImagePool, locks: format.ImageLocks, records: imagesOf(store),
		key: func(k encryption.Key) *encryption.Volume { return format.ImageKey(&k) },
		listing: func(ctx context.Context, v *verification) (checksums, error) {
			return v.image(ctx, image)
		}}
	v, err := verify(ctx, store, of, o)
	if err != nil {
		return nil, fmt.Errorf("verifying backing image %s in %s: %w", image, store, err)
	}
	return v, nil
}

// image reads the record of a backing image's backup.
func (v *verification) image(ctx context.Context, image string) (listed checksums, err error) {
	i, err := LoadImage(ctx, v.store, image)
	if err == nil {
		if i.InProgress() {
			return nil, ErrInProgress
		}
		_, err = imageForm(v.Keys, i)
	}
	if errors.Is(err, format.ErrCorrupt) {
		v.badRecord(format.ImageRecord(image), err, []string{image})
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v.method, v.result.Backups = i.Compression, []string{image}
	for _, at := range i.Blocks {
		listed = append(listed, at.Checksum)
	}
	return listed.sorted(), nil
}
