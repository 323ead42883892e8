package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
	"ankole.storage/backup/lock"
	"ankole.storage/backup/object"
)

// RestoreOptions say what is restored, and how.
type RestoreOptions struct {
	Volume, Backup string
	// From is the backup that the target holds already; "" if it is new and reads zero. FromCreated is
	// when that was made: another one may have its name by now.
	From        string
	FromCreated time.Time
	// Keys are those of the target.
	Keys encryption.Keys
	// Workers bounds how many blocks are worked on at a time, as for a backup.
	Workers int
	// AcceptDamage: ranges whose blocks are damaged or missing become zero, and the restore succeeds.
	AcceptDamage bool
	// Begin is called before anything is written; its error ends the restore. nil: nobody wants to
	// know.
	Begin func(Beginning) error
	// Progress is called, one call at a time, with the number of blocks that are done; nil: nobody
	// wants to know.
	Progress func(done, total int)
}

// Beginning is what is known of a restore before anything is written.
type Beginning struct {
	// SizeBytes is the size of the volume.
	SizeBytes int64
	// Created is when the backup was made.
	Created time.Time
	// Image is the backing image that shows where the backup has no blocks; "" where that is zero.
	Image string
}

// Damage is a range of a volume whose content the store does not have.
type Damage struct {
	Extent
	Checksum format.Checksum
	// Missing: there is no such block; otherwise there is one with another content.
	Missing bool
}

// DamageError says that ranges of a backup could not be restored; all others were.
type DamageError struct {
	// Volume and Backup, or Image, name what was restored.
	Volume, Backup, Image string
	Damage                []Damage // by offset
}

// shown bounds the ranges that the text of an error names.
const shown = 10

func (e *DamageError) Error() string {
	what, then := fmt.Sprintf("backup %s of volume %s", e.Backup, e.Volume),
		"restore another backup, or accept that these ranges become zero"
	if e.Image != "" {
		what, then = "backup of backing image "+e.Image, "delete it, and back the image up again where there is still one"
	}
	text := fmt.Sprintf("%s: %d blocks are damaged or missing in the store:", what, len(e.Damage))
	for i, d := range e.Damage {
		if i == shown {
			text += " …"
			break
		}
		text += fmt.Sprintf(" [%d, %d)", d.Offset, d.Offset+d.Length)
	}
	return text + ": " + then
}

// shownRanges bounds the ranges that RangesOf names.
const shownRanges = 200

// RangesOf names the ranges of damage, which is sorted by offset; neighbours are one range. Without
// damage it is "".
func RangesOf(damage []Damage) string {
	var ranges []Extent
	bytes := int64(0)
	for _, d := range damage {
		bytes += d.Length
		if n := len(ranges); n > 0 && ranges[n-1].Offset+ranges[n-1].Length == d.Offset {
			ranges[n-1].Length += d.Length
			continue
		}
		ranges = append(ranges, d.Extent)
	}
	if len(ranges) == 0 {
		return ""
	}
	text := fmt.Sprintf("%d bytes:", bytes)
	for i, r := range ranges {
		if i == shownRanges {
			text += fmt.Sprintf(" and %d ranges more", len(ranges)-i)
			break
		}
		text += fmt.Sprintf(" [%d, %d)", r.Offset, r.Offset+r.Length)
	}
	return text
}

// Restored is what a restore did.
type Restored struct {
	// SizeBytes is the size of the volume, which the target has at least.
	SizeBytes int64
	// Damage are the ranges that were zeroed because damage was accepted, by offset.
	Damage []Damage
}

// restoration is a restore under way.
type restoration struct {
	RestoreOptions
	store  object.Store
	target Target
	backup *format.Backup
	form   format.Form
	damage []Damage
}

// Restore writes a backup to a target. It returns a *DamageError if blocks are damaged or missing
// and that is not accepted, ErrNoBase if the step from From is not possible and nothing was
// written, encryption.ErrNoKey if the key of the backup is not there and nothing was written,
// ErrNotFound, ErrInProgress, lock.ErrLost, or an error of store or target. After any error but
// ErrNoBase and ErrNoKey the target holds neither backup, and the restore has to be repeated in
// full.
func Restore(ctx context.Context, store object.Store, target Target, o RestoreOptions) (*Restored, error) {
	if err := checkNames(o.Volume, o.Backup); err != nil {
		return nil, err
	}
	l, err := lock.Acquire(ctx, store, o.Volume, format.LockShared)
	if err != nil {
		return nil, err
	}
	defer l.Release()
	r := &restoration{RestoreOptions: o, store: store, target: target}
	size, err := r.run(l.Context())
	if err = whyEnded(l.Context(), err); err != nil {
		return nil, fmt.Errorf("restoring backup %s of volume %s from %s: %w", o.Backup, o.Volume, store, err)
	}
	if len(r.damage) > 0 && !o.AcceptDamage {
		return nil, &DamageError{Volume: o.Volume, Backup: o.Backup, Damage: r.damage}
	}
	return &Restored{size, r.damage}, nil
}

// run returns the size of the volume.
func (r *restoration) run(ctx context.Context) (int64, error) {
	volume, err := LoadVolume(ctx, r.store, r.Volume)
	if err != nil {
		return 0, err
	}
	if r.backup, err = loadComplete(ctx, r.store, r.Volume, r.Backup); err != nil {
		return 0, err
	}
	if r.form, err = formOf(r.Keys, r.backup); err != nil {
		return 0, err
	}
	size := volume.SizeBytes
	if n := len(r.backup.Blocks); n > 0 {
		size = max(size, r.backup.Blocks[n-1].Offset+r.backup.BlockBytes)
	}
	write, zero := r.backup.Blocks, []int64(nil)
	if r.From != "" {
		if write, zero, err = r.difference(ctx); err != nil {
			return 0, err
		}
	}
	if r.Begin != nil {
		begin := Beginning{SizeBytes: size, Created: r.backup.Created.Time}
		if r.backup.Parameters[format.ImageParameter] == "" {
			begin.Image = volume.BackingImage
		}
		if err := r.Begin(begin); err != nil {
			return 0, err
		}
	}
	for _, offset := range zero {
		if err := r.target.ZeroAt(offset, r.backup.BlockBytes); err != nil {
			return 0, fmt.Errorf("zeroing %d bytes at %d: %w", r.backup.BlockBytes, offset, err)
		}
	}
	w := &writing{store: r.store, target: r.target, pool: format.PoolOf(r.Volume), form: r.form, sizeBytes: size,
		blockBytes: r.backup.BlockBytes, workers: r.Workers, acceptDamage: r.AcceptDamage, progress: r.Progress}
	err = w.run(ctx, write)
	r.damage = w.damage
	return size, err
}

// difference returns what the backup has and From has not at the same offset, and the offsets that
// only From has.
func (r *restoration) difference(ctx context.Context) (write []format.Block, zero []int64, err error) {
	from, err := loadComplete(ctx, r.store, r.Volume, r.From)
	if err == nil {
		_, err = formOf(r.Keys, from)
	}
	for _, without := range []error{ErrNotFound, format.ErrCorrupt, ErrInProgress, encryption.ErrNoKey} {
		if errors.Is(err, without) {
			return nil, nil, fmt.Errorf("%w: %v", ErrNoBase, err) // it is nothing else to whoever asks what it is
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if !from.Created.Equal(r.FromCreated) {
		return nil, nil, fmt.Errorf("backup %s was made at %s, and the one that was restored at %s: %w", r.From,
			from.Created.UTC().Format(time.RFC3339Nano), r.FromCreated.UTC().Format(time.RFC3339Nano), ErrNoBase)
	}
	if from.BlockBytes != r.backup.BlockBytes {
		return nil, nil, fmt.Errorf("backup %s has blocks of %d bytes, not %d: %w", r.From, from.BlockBytes,
			r.backup.BlockBytes, ErrNoBase)
	}
	a, b := from.Blocks, r.backup.Blocks
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Offset < b[0].Offset:
			zero, a = append(zero, a[0].Offset), a[1:]
		case len(a) == 0 || b[0].Offset < a[0].Offset:
			write, b = append(write, b[0]), b[1:]
		default:
			if a[0].Checksum != b[0].Checksum {
				write = append(write, b[0])
			}
			a, b = a[1:], b[1:]
		}
	}
	return write, zero, nil
}
