package backup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
	"ankole.storage/backup/lock"
	"ankole.storage/backup/object"
)

// maxListed bounds the blocks that are listed before a backup: 8 requests of 1000 each to S3, so
// that a small change of a large volume does not pay for its size.
const maxListed = 8000

// CreateOptions say what is backed up, and how.
type CreateOptions struct {
	// Volume, Backup and Snapshot are names. Backup is unique within the volume.
	Volume, Backup, Snapshot string
	SnapshotCreated          time.Time
	Labels                   map[string]string
	// Parameters are recorded; those of package format for mode and size of blocks are set here.
	Parameters map[string]string
	// Full reads all that is used, and writes every block even if the store has it.
	Full bool
	// BlockBytes is the size of blocks: format.DefaultBlockBytes if 0, or format.LargeBlockBytes.
	// The size of the volume is a multiple of it.
	BlockBytes int64
	// Compression is that of a volume's first backup, format.CompressionLZ4 if "". Later ones use that
	// of the volume. An encrypted one is an error without a current key.
	Compression format.Compression
	// Keys are those of the target. With a current one the backup is encrypted.
	Keys encryption.Keys
	// Workers bounds how many blocks are compressed at a time, and how many are sent; 0 means two for
	// each processor. There are fewer if the buffers of twice as many would exceed 48 MiB.
	Workers int
	// BackingImage is what the volume lies on, "" for nothing.
	BackingImage, BackingImageChecksum string
	StorageClass                       string
	// Progress is called, one call at a time, with the number of blocks that are done. Nil: nobody
	// wants to know.
	Progress func(done, total int)
}

// creation is a backup that is being made.
type creation struct {
	CreateOptions
	store  object.Store
	source Source

	volume *format.Volume
	form   format.Form
	base   *format.Backup // nil: nothing is taken over
	last   []format.Block // those of the last backup, base or not
	record *format.Backup
	// present are blocks that the store had at the beginning, as far as is known; whole: that is all
	// of them.
	present checksums
	whole   bool
	// marked are blocks that a verification has found damaged or missing.
	marked checksums
	// read are the numbers of the blocks to read, as a bitmap.
	read bitmap
	// copied is what became of them.
	copied copied
}

// Create backs up a snapshot, and returns the record of the backup when it is complete in the
// store. If a run with the same options crashed, or was ended, the next one goes on: blocks that
// are in the store are not sent again. It returns ErrExists if there is another backup of that
// name, lock.ErrLost if the store did not answer for long, object.ErrNoSpace if it is full,
// encryption.ErrNoKey if the last backup is encrypted with a key that is not there.
func Create(ctx context.Context, store object.Store, source Source, o CreateOptions) (*format.Backup, error) {
	if o.BlockBytes == 0 {
		o.BlockBytes = format.DefaultBlockBytes
	}
	encrypted := false
	if o.Compression, encrypted = o.Compression.CutEncrypted(); o.Compression == "" {
		o.Compression = format.CompressionLZ4
	}
	if encrypted && o.Keys.Current == nil {
		return nil, fmt.Errorf("backup %s of volume %s is to be encrypted, and there is no key: set %s in the Secret of the "+
			"backup target", o.Backup, o.Volume, encryption.Variable)
	}
	c := &creation{CreateOptions: o, store: store, source: source}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("backup %s of volume %s: %w", o.Backup, o.Volume, err)
	}
	l, err := lock.Acquire(ctx, store, o.Volume, format.LockShared)
	if err != nil {
		return nil, err
	}
	defer l.Release()
	if err := whyEnded(l.Context(), c.run(l.Context())); err != nil {
		return nil, fmt.Errorf("backup %s of volume %s to %s: %w", o.Backup, o.Volume, store, err)
	}
	return c.record, nil
}

func (c *creation) check() error {
	if err := checkNames(c.Volume, c.Backup); err != nil {
		return err
	}
	if err := c.Compression.Check(); err != nil {
		return err
	}
	if _, err := format.ParseBlockBytes(strconv.FormatInt(c.BlockBytes, 10)); err != nil {
		return err
	}
	if size := c.source.SizeBytes(); size%c.BlockBytes != 0 {
		return fmt.Errorf("the size of the volume, %d bytes, is no multiple of %d: choose smaller blocks, or expand it", size,
			c.BlockBytes)
	}
	return nil
}

// run makes the backup under the lock. The steps are those of docs/design/backup-store.md.
func (c *creation) run(ctx context.Context) error {
	if err := c.openVolume(ctx); err != nil {
		return err
	}
	c.form.Compression = c.volume.Compression
	if k := c.Keys.Current; k != nil {
		c.form.Key = k.ForVolume(c.Volume)
	}
	earlier, err := LoadBackup(ctx, c.store, c.Volume, c.Backup)
	switch {
	case err == nil && !earlier.InProgress():
		if earlier.Snapshot != c.Snapshot {
			return ErrExists
		}
		c.record = earlier // a run crashed behind it, or did not
		if !c.volume.LastBackupAt.Before(earlier.SnapshotCreated.Time) {
			return nil
		}
		return c.finish(ctx)
	case err != nil && !errors.Is(err, ErrNotFound):
		return err
	}
	crashed := err == nil
	if err := c.chooseBase(ctx); err != nil {
		return err
	}
	if err := c.begin(ctx); err != nil {
		return err
	}
	limit := maxListed
	if crashed {
		limit = 0
	}
	if c.present, c.whole, err = listBlocks(ctx, c.store, format.PoolOf(c.Volume), limit); err != nil {
		return err
	}
	if c.marked, err = listMarks(ctx, c.store, format.PoolOf(c.Volume)); err != nil {
		return err
	}
	c.readAgain()
	if err := c.copyBlocks(ctx); err != nil {
		return err
	}
	c.record.Blocks = c.merge()
	c.record.Created = format.Time{Time: time.Now()}
	if err := storeBackup(ctx, c.store, c.record, c.form); err != nil {
		return err
	}
	return c.finish(ctx)
}

// openVolume reads the record of the volume, or makes it.
func (c *creation) openVolume(ctx context.Context) (err error) {
	c.volume, err = LoadVolume(ctx, c.store, c.Volume)
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	c.volume = &format.Volume{Name: c.Volume, SizeBytes: c.source.SizeBytes(), Labels: c.Labels,
		Created: format.Time{Time: time.Now()}, BackingImage: c.BackingImage,
		BackingImageChecksum: c.BackingImageChecksum, Compression: c.Compression, StorageClass: c.StorageClass,
		DataEngine: "v1"}
	return storeVolume(ctx, c.store, c.volume)
}

// chooseBase finds what is to be read, and the backup that the rest is taken from.
func (c *creation) chooseBase(ctx context.Context) error {
	base, err := c.lastBackup(ctx)
	if err != nil {
		return err
	}
	if base == nil || c.Full {
		return c.changed(ctx, Base{})
	}
	c.last = base.Blocks
	if base.Snapshot != c.Snapshot && base.BlockBytes == c.BlockBytes && base.Key == c.form.Key.ID() {
		err := c.changed(ctx, Base{base.Snapshot, base.SnapshotCreated.Time})
		if err == nil {
			c.base = base
			return nil
		}
		if !errors.Is(err, ErrNoBase) {
			return err
		}
	}
	return c.changed(ctx, Base{})
}

// lastBackup returns the last backup of the volume; nil if there is none that is complete and
// sound. One whose key is not there is an error: the Secret is another one than before, or has lost
// its key, and what comes next would be encrypted with a wrong key, or not at all.
func (c *creation) lastBackup(ctx context.Context) (*format.Backup, error) {
	if c.volume.LastBackup == "" {
		return nil, nil
	}
	b, err := loadComplete(ctx, c.store, c.Volume, c.volume.LastBackup)
	if err == nil {
		_, err = formOf(c.Keys, b)
	}
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrInProgress), errors.Is(err, format.ErrCorrupt):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return b, nil
}

// onImage says whether the volume stands on a backing image.
func (c *creation) onImage() bool { return c.volume.BackingImage != "" || c.BackingImage != "" }

// changed sets the blocks to read.
func (c *creation) changed(ctx context.Context, since Base) (err error) {
	c.read, err = changedBlocks(ctx, c.source, since, c.BlockBytes)
	return err
}

// begin writes the marker of a backup in progress, before anything is taken for present.
func (c *creation) begin(ctx context.Context) error {
	parameters := maps.Clone(c.Parameters)
	if parameters == nil {
		parameters = map[string]string{}
	}
	parameters[format.ModeParameter] = format.ModeIncremental
	if c.Full {
		parameters[format.ModeParameter] = format.ModeFull
	}
	if c.onImage() && (c.base == nil || c.base.Parameters[format.ImageParameter] != "") {
		parameters[format.ImageParameter] = format.ImageIncluded
	}
	c.record = &format.Backup{Name: c.Backup, Volume: c.Volume, Snapshot: c.Snapshot,
		SnapshotCreated: format.Time{Time: c.SnapshotCreated}, Labels: c.Labels, Parameters: parameters,
		Incremental: c.base != nil, Compression: c.form.Compression, Key: c.form.Key.ID(), BlockBytes: c.BlockBytes}
	return storeBackup(ctx, c.store, c.record, c.form)
}

// readAgain adds blocks of the base that the store has lost or that are marked, and
// takes blocks of the last backup for present if the list does not tell.
func (c *creation) readAgain() {
	if c.base != nil {
		for _, b := range c.base.Blocks {
			bad := c.marked.has(b.Checksum) || c.whole && !c.present.has(b.Checksum)
			if i := b.Offset / c.BlockBytes; bad && i < c.read.n {
				c.read.set(i)
			}
		}
	}
	if !c.whole {
		for _, b := range c.last {
			c.present = append(c.present, b.Checksum)
		}
		c.present = c.present.sorted()
	}
}

// copyBlocks reads the blocks and stores those that the store has not.
func (c *creation) copyBlocks(ctx context.Context) error {
	run := &copying{store: c.store, source: c.source, pool: format.PoolOf(c.Volume), form: c.form,
		blockBytes: c.BlockBytes, workers: c.Workers, present: c.present, marked: c.marked, rewrite: c.Full,
		keepZeroes: c.onImage(), progress: c.Progress}
	err := run.run(ctx, c.read.list())
	c.copied = run.copied
	c.record.NewBytes, c.record.RewrittenBytes = run.newBytes, run.rewrittenBytes
	return err
}

// merge returns the blocks of the backup: those that were read, and those of the base elsewhere.
func (c *creation) merge() []format.Block {
	all := c.copied.blocks
	if c.base != nil {
		for _, b := range c.base.Blocks {
			if i := b.Offset / c.BlockBytes; i < c.read.n && !c.read.has(i) {
				all = append(all, b)
			}
		}
	}
	return byOffset(all)
}

// finish names the backup in the record of the volume, which another backup may have changed.
func (c *creation) finish(ctx context.Context) error {
	v, err := LoadVolume(ctx, c.store, c.Volume)
	if err != nil {
		return err
	}
	v.LastBackup, v.LastBackupAt = c.record.Name, c.record.SnapshotCreated
	v.SizeBytes, v.Labels = c.source.SizeBytes(), c.record.Labels
	v.BlockCount += c.copied.newBlocks
	v.BackingImage, v.BackingImageChecksum = c.BackingImage, c.BackingImageChecksum
	if c.StorageClass != "" {
		v.StorageClass = c.StorageClass
	}
	return storeVolume(ctx, c.store, v)
}
