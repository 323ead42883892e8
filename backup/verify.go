package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"ankole.storage/backup/encryption"
	"ankole.storage/backup/format"
	"ankole.storage/backup/lock"
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
	Kind FaultKind
	// Object is the name of the object.
	Object string
	// Checksum is that of the block; zero for records.
	Checksum format.Checksum
	// Backups are those that cannot be restored whole because of it, sorted: of the volume, or of
	// backing images, by their names. None for a block that no backup lists.
	Backups []string
	// Err says what was found.
	Err error
}

// VerifyOptions say how a store is verified.
type VerifyOptions struct {
	// BytesPerSecond bounds what is read of blocks; 0 is no bound.
	BytesPerSecond int64
	// Workers bounds how many blocks are read at a time, as for a backup.
	Workers int
	// Keys are those of the target.
	Keys encryption.Keys
	// After is the block behind which the verification goes on, as Verified.Next of an earlier part
	// says; zero: at the beginning.
	After format.Checksum
	// For is how long a part takes, about: longer where records and lists take long to read, so that
	// these, which each part reads, are a tenth of it at most. 0: there is one part.
	For time.Duration
	// Progress is called, one call at a time, with the number of blocks that are done; nil: nobody
	// wants to know.
	Progress func(done, total int)
}

// Verified is what a verification, or a part of one, looked at and found.
type Verified struct {
	// Backups are the complete ones, sorted.
	Backups []string
	// Blocks is how many were read, ReadBytes how long these were, as stored.
	Blocks    int
	ReadBytes int64
	// Done of Total blocks are behind it, those of earlier parts too.
	Done, Total int
	// Next is the last block that was read if there are more; zero: this was the last part.
	Next format.Checksum
	// Faults are sorted by object.
	Faults []Fault
}

const (
	// maxFaults is how many faults end a part: they are kept in memory.
	maxFaults = 1000
	// listShare is how much longer a part lasts than the reading of records and lists before it.
	listShare = 10
)

// verifiable is what is verified: what a store has of a volume, or the backup of a backing image.
type verifiable struct {
	// pool has its blocks, locks are of this volume.
	pool  format.Pool
	locks string
	// whole: all blocks of the pool are verified; else those that are listed.
	whole bool
	// records are all that may list a block of the pool.
	records *records
	// key derives the key of a block.
	key func(k encryption.Key) *encryption.Volume
	// listing reads the records that are verified, and returns the blocks that they list. It notes
	// what is wrong with them.
	listing func(ctx context.Context, v *verification) (listed checksums, err error)
}

// verification is that of one verifiable.
type verification struct {
	VerifyOptions
	verifiable
	store   object.Store
	limiter *rate.Limiter
	method  format.Compression // a hint; the first bytes of a block tell
	// sizes are those that blocks may have, the largest first.
	sizes []int64
	// keys are those of blocks.
	keys map[encryption.ID]*encryption.Volume
	// nothing is the error if nothing is found that could be verified.
	nothing error
	// marked are the blocks that were marked at the beginning, unlisted those that no backup lists.
	marked, unlisted checksums
	// todo are the blocks of this part and of later ones; until is when this part ends, zero for
	// never.
	todo  checksums
	until time.Time

	mu     sync.Mutex
	stop   int // how many of todo are of this part
	result Verified
}

// burstBytes is what a verification may read at once: the longest stored block.
var burstBytes = int(format.MaxStoredBytes(format.LargeBlockBytes))

// Verify reads every record and every block of a volume, and returns what is wrong with them. A
// block that a backup lists and that is damaged or missing is marked in the store, so that the next
// backup writes it again if the volume still holds it; a mark of a block that is sound, or that no
// backup lists, is removed. While it reads it holds no lock, and what is deleted meanwhile is no
// fault. An error means that the store did not answer, that there is no such volume, or that the
// key of a backup is not there (encryption.ErrNoKey).
func Verify(ctx context.Context, store object.Store, volume string, o VerifyOptions) (*Verified, error) {
	if err := checkNames(volume); err != nil {
		return nil, err
	}
	var newest *format.Backup
	of := verifiable{pool: format.PoolOf(volume), locks: volume, whole: true, records: newestOf(store, volume, &newest),
		key: func(k encryption.Key) *encryption.Volume { return k.ForVolume(volume) },
		listing: func(ctx context.Context, v *verification) (checksums, error) {
			return v.backupsOf(ctx, volume)
		}}
	v, err := verify(ctx, store, of, o)
	if err != nil {
		return nil, fmt.Errorf("verifying volume %s in %s: %w", volume, store, err)
	}
	return v, nil
}

func verify(ctx context.Context, store object.Store, of verifiable, o VerifyOptions) (*Verified, error) {
	limit := rate.Inf
	if o.BytesPerSecond > 0 {
		limit = rate.Limit(o.BytesPerSecond)
	}
	v := &verification{VerifyOptions: o, verifiable: of, store: store, limiter: rate.NewLimiter(limit, burstBytes),
		method: format.CompressionLZ4, sizes: []int64{format.DefaultBlockBytes},
		keys: map[encryption.ID]*encryption.Volume{}}
	v.limiter.ReserveN(time.Now(), burstBytes) // the rate holds from the first byte on
	for _, k := range o.Keys.All() {
		v.keys[k.ID()] = of.key(k)
	}
	if err := v.run(ctx); err != nil {
		return nil, err
	}
	return &v.result, nil
}

func (v *verification) run(ctx context.Context) error {
	began := time.Now()
	if err := v.list(ctx); err != nil {
		return err
	}
	if v.For > 0 {
		v.until = time.Now().Add(max(v.For, listShare*time.Since(began)))
	}
	stored := format.MaxStoredBytes(v.sizes[0])
	begin := func() *copier { return &copier{stored: make([]byte, 0, stored)} }
	v.stop = len(v.todo)
	before := v.result.Total - len(v.todo)
	err := each(ctx, workersFor(v.Workers, stored), len(v.todo), begin,
		func(ctx context.Context, w *copier, i int) error {
			if v.over(i) {
				return nil
			}
			return v.block(ctx, w, v.todo[i], before)
		})
	if err != nil {
		return err
	}
	if v.result.Done = before + v.stop; v.stop < len(v.todo) {
		v.result.Next = v.todo[v.stop-1]
	}
	if err := v.confirm(ctx, begin()); err != nil {
		return err
	}
	return v.settle(ctx)
}

// list reads what there is: records, and names of blocks.
func (v *verification) list(ctx context.Context) error {
	listed, err := v.listing(ctx, v)
	if err != nil {
		return err
	}
	if v.marked, err = listMarks(ctx, v.store, v.pool); err != nil {
		return err
	}
	all := listed
	if v.whole {
		present, _, err := listBlocks(ctx, v.store, v.pool, 0)
		if err != nil {
			return err
		}
		v.unlisted = slices.DeleteFunc(slices.Clone(present), listed.has)
		all = append(listed, present...).sorted()
	} else {
		v.marked = slices.DeleteFunc(v.marked, func(c format.Checksum) bool { return !listed.has(c) })
	}
	if len(all) == 0 && len(v.result.Backups) == 0 && len(v.result.Faults) == 0 && v.nothing != nil {
		return v.nothing
	}
	first := 0
	if v.After != (format.Checksum{}) {
		found := false
		if first, found = slices.BinarySearchFunc(all, v.After, compare); found {
			first++
		}
	}
	v.result.Total, v.todo = len(all), all[first:]
	return nil
}

// backupsOf reads the records of a volume. What is wrong with records is told by the first part.
func (v *verification) backupsOf(ctx context.Context, volume string) (listed checksums, err error) {
	of, wrong := LoadVolume(ctx, v.store, volume)
	switch {
	case wrong == nil:
		v.method = of.Compression
	case errors.Is(wrong, ErrNotFound):
		v.nothing = wrong
	case !errors.Is(wrong, format.ErrCorrupt):
		return nil, wrong
	}
	names, err := v.records.names(ctx)
	if err != nil {
		return nil, err
	}
	if wrong != nil && (errors.Is(wrong, format.ErrCorrupt) || len(names) > 0) {
		v.badRecord(format.VolumeRecord(volume), wrong, names)
	}
	for _, name := range names {
		b, err := LoadBackup(ctx, v.store, volume, name)
		if err == nil && !b.InProgress() {
			_, err = formOf(v.Keys, b)
		}
		switch {
		case err == nil && !b.InProgress():
			v.result.Backups = append(v.result.Backups, name)
			v.sizes = append(v.sizes, b.BlockBytes)
			for _, at := range b.Blocks {
				listed = append(listed, at.Checksum)
			}
			listed = listed.sorted() // backups share most of their blocks
		case errors.Is(err, format.ErrCorrupt):
			v.badRecord(format.BackupRecord(volume, name), err, []string{name})
		case err != nil && !errors.Is(err, ErrNotFound):
			return nil, err
		}
	}
	slices.Sort(v.sizes)
	slices.Reverse(v.sizes)
	v.sizes = slices.Compact(v.sizes)
	return listed, nil
}

func (v *verification) badRecord(object string, err error, backups []string) {
	if v.After == (format.Checksum{}) {
		v.result.Faults = append(v.result.Faults, Fault{Kind: FaultRecord, Object: object, Backups: backups,
			Err: err})
	}
}

// over says whether block i is of a later part. The first one never is: each part gets on.
func (v *verification) over(i int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	late := !v.until.IsZero() && !time.Now().Before(v.until)
	if i > 0 && (i >= v.stop || late || len(v.result.Faults) >= maxFaults) {
		v.stop = min(v.stop, i)
		return true
	}
	return false
}

// read reads a block, and returns what is wrong with it: kind is "" if nothing is. An error is one
// of the store.
func (v *verification) read(ctx context.Context, w *copier, sum format.Checksum) (kind FaultKind, why, err error) {
	data, err := v.store.Get(ctx, v.pool.Object(sum), w.stored[:0], int64(cap(w.stored)))
	if err == nil {
		// All keys that backups name are there: where one is missing no backup lists the block, or its
		// header is damaged.
		id, encrypted := encryption.KeyOf(data)
		form := format.Form{Compression: v.method, Key: v.keys[id]}
		if !encrypted || form.Key != nil || !v.unlisted.has(sum) {
			err = w.codec.Check(form, data, sum, v.sizes...)
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, object.ErrNotFound):
		kind, why = FaultMissing, err
	case errors.Is(err, format.ErrCorrupt), errors.Is(err, object.ErrTooLong):
		kind, why = FaultDamaged, err
	default:
		return "", nil, err
	}
	if len(data) > 0 {
		if err := v.limiter.WaitN(ctx, len(data)); err != nil {
			return "", nil, err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.result.ReadBytes += int64(len(data))
	return kind, why, nil
}

// block verifies one block.
func (v *verification) block(ctx context.Context, w *copier, sum format.Checksum, before int) error {
	kind, why, err := v.read(ctx, w, sum)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if kind != "" {
		v.result.Faults = append(v.result.Faults, Fault{Kind: kind, Object: v.pool.Object(sum), Checksum: sum,
			Err: why})
	}
	if v.result.Blocks++; v.Progress != nil {
		v.Progress(before+v.result.Blocks, v.result.Total)
	}
	return nil
}

// confirm reads the blocks of faults once more, so that an error of the way is none. What is of the
// next part that finds it again is left out.
func (v *verification) confirm(ctx context.Context, w *copier) (err error) {
	var faults []Fault
	for _, f := range v.result.Faults {
		if v.result.Next != (format.Checksum{}) && compare(f.Checksum, v.result.Next) > 0 {
			continue
		}
		if f.Kind != FaultRecord {
			if f.Kind, f.Err, err = v.read(ctx, w, f.Checksum); err != nil {
				return err
			}
		}
		if f.Kind != "" {
			faults = append(faults, f)
		}
	}
	v.result.Faults = faults
	return nil
}

// settle finds out which backups the faults hurt, and marks blocks. The lock holds deletions off:
// nothing is marked of a volume that is deleted meanwhile.
func (v *verification) settle(ctx context.Context) error {
	if len(v.result.Faults) == 0 && len(v.marked) == 0 {
		return nil
	}
	l, err := lock.Acquire(ctx, v.store, v.locks, format.LockShared)
	if err != nil {
		return err
	}
	defer l.Release()
	if err = v.hurt(l.Context()); err == nil {
		err = v.mark(l.Context())
	}
	return whyEnded(l.Context(), err)
}

// hurt finds the backups that are there now and that faults hurt. What hurts none and is not there
// any more was deleted with its backups.
func (v *verification) hurt(ctx context.Context) error {
	names, err := v.records.names(ctx)
	if err != nil {
		return err
	}
	faults, at := v.result.Faults, map[format.Checksum]int{}
	for i := range faults {
		if faults[i].Kind != FaultRecord {
			at[faults[i].Checksum] = i
		}
		faults[i].Backups = slices.DeleteFunc(faults[i].Backups, func(b string) bool { return !slices.Contains(names, b) })
	}
	for _, name := range names {
		if len(at) == 0 {
			break
		}
		listed, _, err := v.records.load(ctx, name)
		if errors.Is(err, format.ErrCorrupt) || errors.Is(err, ErrNotFound) {
			continue
		} else if err != nil {
			return err
		}
		for _, block := range listed {
			i, bad := at[block.Checksum]
			if bad && !slices.Contains(faults[i].Backups, name) {
				faults[i].Backups = append(faults[i].Backups, name)
			}
		}
	}
	v.result.Faults = nil
	for _, f := range faults {
		gone := f.Kind == FaultMissing
		if f.Kind == FaultRecord {
			_, err := v.store.Stat(ctx, f.Object)
			if gone = errors.Is(err, object.ErrNotFound); err != nil && !gone {
				return err
			}
		}
		if !gone || len(f.Backups) > 0 {
			v.result.Faults = append(v.result.Faults, f)
		}
	}
	slices.SortFunc(v.result.Faults, func(a, b Fault) int { return strings.Compare(a.Object, b.Object) })
	return nil
}

// mark has the next backup know of blocks that are damaged or missing, and of those only. A backup
// that writes one meanwhile leaves a mark too many: the block is written once more.
func (v *verification) mark(ctx context.Context) error {
	var bad checksums
	for _, f := range v.result.Faults {
		if f.Kind != FaultRecord && len(f.Backups) > 0 {
			bad = append(bad, f.Checksum)
		}
	}
	bad = bad.sorted()
	for _, c := range bad {
		if err := v.store.Put(ctx, v.pool.Mark(c), []byte("damaged or missing\n")); err != nil {
			return err
		}
	}
	for _, c := range v.marked {
		here := compare(c, v.After) > 0 && (v.result.Next == (format.Checksum{}) || compare(c, v.result.Next) <= 0)
		if here && !bad.has(c) {
			if err := v.store.Delete(ctx, v.pool.Mark(c)); err != nil {
				return err
			}
		}
	}
	return nil
}
