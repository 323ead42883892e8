package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
)

// writing reads blocks of a store, and writes them to a target.
type writing struct {
	store                 object.Store
	target                Target
	pool                  format.Pool
	form                  format.Form
	sizeBytes, blockBytes int64
	// workers is a limit as of RestoreOptions.
	workers      int
	acceptDamage bool
	progress     func(done, total int)

	mu     sync.Mutex
	damage []Damage // by offset when run has returned
	done   int
}

// run writes blocks. What is damaged or missing in the store is in damage.
func (r *writing) run(ctx context.Context, blocks []format.Block) error {
	groups := sameContent(blocks)
	workers, steps := stepsFor(r.workers, r.blockBytes+format.MaxStoredBytes(r.blockBytes))
	begin := func() *copier { return newCopier(r.blockBytes) }
	err := each(ctx, workers, len(groups), begin, func(ctx context.Context, w *copier, i int) error {
		sum := groups[i][0].Checksum
		var data []byte
		err := steps.store.do(ctx, func() (err error) {
			data, err = r.store.Get(ctx, r.pool.Object(sum), w.stored[:0], int64(cap(w.stored)))
			return err
		})
		if err == nil {
			err = steps.compute.do(ctx, func() error { return w.codec.Decode(r.form, data, w.block, sum) })
		}
		missing := errors.Is(err, object.ErrNotFound)
		damaged := missing || errors.Is(err, format.ErrCorrupt) || errors.Is(err, object.ErrTooLong)
		if err != nil && !damaged {
			return err
		}
		for _, b := range groups[i] {
			size := r.length(b)
			switch {
			case !damaged:
				_, err = r.target.WriteAt(w.block[:size], b.Offset)
			case r.acceptDamage:
				err = r.target.ZeroAt(b.Offset, size)
			default:
				err = nil
			}
			if err != nil {
				return fmt.Errorf("writing %d bytes at %d: %w", size, b.Offset, err)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, b := range groups[i] {
			if damaged {
				r.damage = append(r.damage, Damage{Extent{b.Offset, r.length(b)}, sum, missing})
			}
		}
		if r.done += len(groups[i]); r.progress != nil {
			r.progress(r.done, len(blocks))
		}
		return nil
	})
	slices.SortFunc(r.damage, func(a, b Damage) int { return int((a.Offset - b.Offset) / r.blockBytes) })
	return err
}

// length is that of a block in the target: the last one may reach behind the end.
func (r *writing) length(b format.Block) int64 { return min(r.blockBytes, r.sizeBytes-b.Offset) }

// sameContent returns the blocks in groups of the same content, each sorted by offset; the groups
// are sorted by their first offset.
func sameContent(blocks []format.Block) [][]format.Block {
	sorted := slices.Clone(blocks)
	slices.SortStableFunc(sorted, func(a, b format.Block) int { return compare(a.Checksum, b.Checksum) })
	var groups [][]format.Block
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n].Checksum == sorted[0].Checksum {
			n++
		}
		groups, sorted = append(groups, sorted[:n]), sorted[n:]
	}
	slices.SortFunc(groups, func(a, b []format.Block) int {
		if a[0].Offset < b[0].Offset {
			return -1
		}
		return 1
	})
	return groups
}
