package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
)

// FaultKind is what is wrong in a store.
type FaultKind string

// Kinds of faults.
const (
	FaultMissing FaultKind = "missing" // a block that a backup lists is not there
	FaultDamaged FaultKind = "damaged" // a block has another content than its name says
	FaultRecord  FaultKind = "record"  // a record is damaged or missing
)

// Fault is something that is wrong in a store.
type Fault struct {
	Kind   FaultKind
	Volume string
	// Object is the name of the object.
	Object string
	// Checksum is that of the block; zero for records.
	Checksum format.Checksum
	// Backups are those that cannot be restored whole because of it, sorted. None for a block that no
	// backup lists.
	Backups []string
	// Err says what was found.
	Err error
}

// VerifyOptions say how a store is verified.
type VerifyOptions struct {
	// BytesPerSecond bounds what is read; 0 is no bound.
	BytesPerSecond int64
	// Workers bounds how many blocks are read at a time, as for a backup.
	Workers int
	// Progress is called, one call at a time, with the number of blocks that are done; nil: nobody
	// wants to know.
	Progress func(done, total int)
}

// Verified is what a verification looked at and found.
type Verified struct {
	Backups, Blocks int
	// ReadBytes is what was read of blocks, as stored.
	ReadBytes int64
	// Faults are sorted by object.
	Faults []Fault
}

// verification is that of one volume.
type verification struct {
	VerifyOptions
	store   object.Store
	volume  string
	limiter *rate.Limiter
	method  format.Compression

	backups []*format.Backup
	mu      sync.Mutex
	done    int
	result  Verified
}

// burstBytes is what a verification may read at once: the longest stored block.
var burstBytes = int(format.MaxStoredBytes(format.LargeBlockBytes))

// Verify reads every record and every block of a volume, and returns what is wrong with them. It
// holds no lock, and what is deleted meanwhile is no fault. An error means that the store did not
// answer, or that there is no such volume.
func Verify(ctx context.Context, store object.Store, volume string, o VerifyOptions) (*Verified, error) {
	if err := checkNames(volume); err != nil {
		return nil, err
	}
	limit := rate.Inf
	if o.BytesPerSecond > 0 {
		limit = rate.Limit(o.BytesPerSecond)
	}
	v := &verification{VerifyOptions: o, store: store, volume: volume, limiter: rate.NewLimiter(limit, burstBytes)}
	v.limiter.ReserveN(time.Now(), burstBytes) // the rate holds from the first byte on
	if err := v.run(ctx); err != nil {
		return nil, fmt.Errorf("verifying volume %s in %s: %w", volume, store, err)
	}
	return &v.result, nil
}

func (v *verification) run(ctx context.Context) error {
	if err := v.records(ctx); err != nil {
		return err
	}
	present, _, err := listBlocks(ctx, v.store, v.volume, 0)
	if err != nil {
		return err
	}
	var listed checksums
	for _, b := range v.backups {
		for _, at := range b.Blocks {
			listed = append(listed, at.Checksum)
		}
	}
	all := append(listed, present...).sorted()
	if len(all) == 0 && len(v.backups) == 0 && len(v.result.Faults) == 0 {
		if _, err := LoadVolume(ctx, v.store, v.volume); err != nil {
			return err
		}
	}
	v.result.Blocks, v.result.Backups = len(all), len(v.backups)
	sizes := v.blockSizes()
	begin := func() *copier { return &copier{stored: make([]byte, 0, format.MaxStoredBytes(sizes[0]))} }
	workers := workersFor(v.Workers, format.MaxStoredBytes(sizes[0]))
	err = each(ctx, workers, len(all), begin, func(ctx context.Context, w *copier, i int) error {
		return v.block(ctx, w, all[i], sizes, len(all))
	})
	if err != nil {
		return err
	}
	return v.confirm(ctx)
}

// records reads the records of the volume.
func (v *verification) records(ctx context.Context) error {
	volume, err := LoadVolume(ctx, v.store, v.volume)
	switch {
	case err == nil:
		v.method = volume.Compression
	case errors.Is(err, format.ErrCorrupt), errors.Is(err, ErrNotFound):
		v.method = format.CompressionLZ4 // a hint; the first bytes of a block tell
	default:
		return err
	}
	names, err2 := Backups(ctx, v.store, v.volume)
	if err2 != nil {
		return err2
	}
	if err != nil && (errors.Is(err, format.ErrCorrupt) || len(names) > 0) {
		v.fault(Fault{Kind: FaultRecord, Object: format.VolumeRecord(v.volume), Backups: names, Err: err})
	}
	for _, name := range names {
		b, err := LoadBackup(ctx, v.store, v.volume, name)
		switch {
		case err == nil && !b.InProgress():
			v.backups = append(v.backups, b)
		case errors.Is(err, format.ErrCorrupt):
			v.fault(Fault{Kind: FaultRecord, Object: format.BackupRecord(v.volume, name), Backups: []string{name}, Err: err})
		case err != nil && !errors.Is(err, ErrNotFound):
			return err
		}
	}
	return nil
}

func (v *verification) fault(f Fault) {
	f.Volume = v.volume
	v.result.Faults = append(v.result.Faults, f)
}

// blockSizes are the sizes that blocks of the volume may have, the largest first.
func (v *verification) blockSizes() []int64 {
	sizes := []int64{format.DefaultBlockBytes}
	for _, b := range v.backups {
		sizes = append(sizes, b.BlockBytes)
	}
	slices.Sort(sizes)
	slices.Reverse(sizes)
	return slices.Compact(sizes)
}

// block reads one block.
func (v *verification) block(ctx context.Context, w *copier, sum format.Checksum, sizes []int64, total int) error {
	name := format.BlockObject(v.volume, sum)
	data, err := v.store.Get(ctx, name, w.stored[:0], int64(cap(w.stored)))
	if err == nil {
		for _, size := range sizes {
			if err = w.codec.Check(v.method, data, size, sum); err == nil {
				break
			}
		}
	}
	kind := FaultDamaged
	switch {
	case errors.Is(err, object.ErrNotFound):
		kind = FaultMissing
	case err != nil && !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, object.ErrTooLong):
		return err
	}
	if len(data) > 0 {
		if err := v.limiter.WaitN(ctx, len(data)); err != nil {
			return err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.result.ReadBytes += int64(len(data))
	if err != nil {
		v.fault(Fault{Kind: kind, Object: name, Checksum: sum, Err: err})
	}
	if v.done++; v.Progress != nil {
		v.Progress(v.done, total)
	}
	return nil
}

// confirm looks at each fault again, and finds out which backups that are still there it hurts.
func (v *verification) confirm(ctx context.Context) error {
	names, err := Backups(ctx, v.store, v.volume)
	if err != nil {
		return err
	}
	var faults []Fault
	for _, f := range v.result.Faults {
		_, err := v.store.Stat(ctx, f.Object)
		gone := errors.Is(err, object.ErrNotFound)
		if err != nil && !gone {
			return err
		}
		for _, b := range v.backups {
			lists := func(at format.Block) bool { return at.Checksum == f.Checksum }
			if f.Kind != FaultRecord && slices.ContainsFunc(b.Blocks, lists) {
				f.Backups = append(f.Backups, b.Name)
			}
		}
		f.Backups = slices.DeleteFunc(f.Backups, func(b string) bool { return !slices.Contains(names, b) })
		mended := f.Kind == FaultMissing && !gone
		if mended || gone && len(f.Backups) == 0 {
			continue
		}
		if gone && f.Kind == FaultDamaged {
			f.Kind = FaultMissing
		}
		faults = append(faults, f)
	}
	slices.SortFunc(faults, func(a, b Fault) int {
		if a.Object < b.Object {
			return -1
		}
		return 1
	})
	v.result.Faults = faults
	return nil
}
