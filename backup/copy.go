package backup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	"ankole.storage/backup/format"
	"ankole.storage/backup/lock"
	"ankole.storage/backup/object"
)

// commitBytes and commitEvery bound what is staged without being committed, which a run that
// crashes has to send again.
const (
	commitBytes = 64 << 20
	commitEvery = 10 * time.Second
)

// copying reads blocks of a source, and stores those that a store has not.
type copying struct {
	store      object.Store
	source     Source
	pool       format.Pool
	form       format.Form
	blockBytes int64
	// workers is a limit as of CreateOptions.
	workers int
	// present are blocks that the store is asked for before they are written, unless they are
	// marked as damaged or missing.
	present, marked checksums
	// rewrite: every block is written, even if the store has it.
	rewrite bool
	// keepZeroes: blocks of zeroes are stored too.
	keepZeroes bool
	progress   func(done, total int)

	mu        sync.Mutex
	stored    map[format.Checksum]bool // taken by a worker in this run
	staged    int64                    // bytes since the last commit, at
	committed time.Time
	done      int
	copied
}

// copied is what became of blocks that were read.
type copied struct {
	// blocks are those to list, in no order.
	blocks []format.Block
	// cured are those that were marked, and are written again.
	cured []format.Checksum
	// newBlocks were not there; their bytes, and those of blocks that were, as stored.
	newBlocks, newBytes, rewrittenBytes int64
}

// run copies blocks, given by their numbers, and returns when those that are new are durable.
func (c *copying) run(ctx context.Context, list []int64) error {
	c.stored, c.committed = map[format.Checksum]bool{}, time.Now()
	if err := c.copyBlocks(ctx, list); err != nil {
		keep := context.WithoutCancel(ctx)
		if errors.Is(context.Cause(ctx), lock.ErrLost) {
			keep = ctx // the volume may be deleted by now: nothing more is written
		}
		_ = c.store.Commit(keep) // the next run goes on behind it
		return err
	}
	if err := c.store.Commit(ctx); err != nil {
		return err
	}
	return c.unmark(ctx)
}

// unmark removes the marks of blocks that were written again.
//
// Crash window: such a block keeps its mark, and is written once more.
func (c *copying) unmark(ctx context.Context) error {
	for _, sum := range c.cured {
		if err := c.store.Delete(ctx, c.pool.Mark(sum)); err != nil {
			return err
		}
	}
	return nil
}

// copier is what one worker owns.
type copier struct {
	block, stored []byte
	codec         format.Codec
}

func newCopier(blockBytes int64) *copier {
	return &copier{block: make([]byte, blockBytes), stored: make([]byte, 0, format.MaxStoredBytes(blockBytes))}
}

// prepared is a block of a worker that has its checksum.
type prepared struct {
	sum format.Checksum
	// kept: it is listed. mine: this worker sees to it that the store has it.
	kept, mine bool
	// encoded is what is stored; nil if the store may have it.
	encoded []byte
}

func (c *copying) copyBlocks(ctx context.Context, list []int64) error {
	workers, steps := stepsFor(c.workers, c.blockBytes+format.MaxStoredBytes(c.blockBytes))
	begin := func() *copier { return newCopier(c.blockBytes) }
	return each(ctx, workers, len(list), begin, func(ctx context.Context, w *copier, i int) error {
		offset := list[i] * c.blockBytes
		if err := c.read(ctx, w.block, offset); err != nil {
			return fmt.Errorf("reading %d bytes at %d: %w", c.blockBytes, offset, err)
		}
		var b prepared
		err := steps.compute.do(ctx, func() (err error) {
			b, err = c.prepare(w)
			return err
		})
		if err == nil && b.mine {
			err = steps.store.do(ctx, func() error { return c.storeBlock(ctx, w, b) })
		}
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if b.kept {
			c.blocks = append(c.blocks, format.Block{Offset: offset, Checksum: b.sum})
		}
		if c.done++; c.progress != nil {
			c.progress(c.done, len(list))
		}
		return nil
	})
}

// read fills a block; behind the end of the source it is zero.
func (c *copying) read(ctx context.Context, block []byte, offset int64) error {
	n := min(c.blockBytes, c.source.SizeBytes()-offset)
	clear(block[n:])
	return c.source.ReadAt(ctx, block[:n], offset)
}

// prepare does what takes the processor.
func (c *copying) prepare(w *copier) (b prepared, err error) {
	if b.kept = c.keepZeroes || !isZero(w.block); !b.kept {
		return b, nil
	}
	b.sum = c.form.Sum(w.block)
	c.mu.Lock()
	b.mine = !c.stored[b.sum] // if the worker whose it is fails the backup does
	c.stored[b.sum] = true
	c.mu.Unlock()
	if b.mine && !c.mayBePresent(b.sum) {
		b.encoded, err = w.codec.Encode(c.form, w.block, w.stored, b.sum)
	}
	return b, err
}

// mayBePresent reports whether the store is asked for a block before it is written.
func (c *copying) mayBePresent(sum format.Checksum) bool {
	return c.present.has(sum) && !c.rewrite && !c.marked.has(sum)
}

// zeroes is compared with; long enough that a comparison costs nothing but the reading.
var zeroes [64 << 10]byte

func isZero(p []byte) bool {
	for len(p) > 0 {
		n := min(len(p), len(zeroes))
		if !bytes.Equal(p[:n], zeroes[:n]) {
			return false
		}
		p = p[n:]
	}
	return true
}

// storeBlock sees to it that the store has the worker's block when it is committed.
func (c *copying) storeBlock(ctx context.Context, w *copier, b prepared) error {
	name, present := c.pool.Object(b.sum), c.present.has(b.sum)
	if b.encoded == nil {
		data, err := c.store.Get(ctx, name, w.stored[:0], int64(cap(w.stored)))
		if err == nil {
			err = w.codec.Check(c.form, data, b.sum, c.blockBytes)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, object.ErrNotFound):
			present = false
		case !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, object.ErrTooLong):
			return err
		}
		if b.encoded, err = w.codec.Encode(c.form, w.block, w.stored, b.sum); err != nil {
			return err
		}
	}
	if err := c.store.Stage(ctx, name, b.encoded); err != nil {
		return err
	}
	if !c.noteStaged(b.sum, int64(len(b.encoded)), present) {
		return nil
	}
	return c.store.Commit(ctx)
}

// noteStaged counts a block, and tells whether it is time to commit.
func (c *copying) noteStaged(sum format.Checksum, stored int64, present bool) (due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.marked.has(sum) {
		c.cured = append(c.cured, sum)
	}
	if present {
		c.rewrittenBytes += stored
	} else {
		c.newBytes += stored
		c.newBlocks++
	}
	if c.staged += stored; c.staged < commitBytes && time.Since(c.committed) < commitEvery {
		return false
	}
	c.staged, c.committed = 0, time.Now()
	return true
}

// byOffset sorts blocks.
func byOffset(blocks []format.Block) []format.Block {
	slices.SortFunc(blocks, func(a, b format.Block) int { return cmp.Compare(a.Offset, b.Offset) })
	return blocks
}

// changedBlocks returns the blocks of a source with a changed extent.
func changedBlocks(ctx context.Context, source Source, since Base, blockBytes int64) (bitmap, error) {
	size := source.SizeBytes()
	b := newBitmap((size + blockBytes - 1) / blockBytes)
	for e, err := range source.Changed(ctx, since) {
		if err != nil {
			return b, err
		}
		if e.Offset < 0 || e.Length < 0 || e.Length > size-e.Offset {
			return b, fmt.Errorf("extent of %d bytes at %d of %d bytes", e.Length, e.Offset, size)
		}
		if e.Length == 0 {
			continue
		}
		for i := e.Offset / blockBytes; i <= (e.Offset+e.Length-1)/blockBytes; i++ {
			b.set(i)
		}
	}
	return b, nil
}

// bitmap is a set of the numbers below n.
type bitmap struct {
	n    int64
	bits []uint64
}

func newBitmap(n int64) bitmap { return bitmap{n, make([]uint64, (n+63)/64)} }

func (b bitmap) set(i int64)      { b.bits[i/64] |= 1 << (i % 64) }
func (b bitmap) has(i int64) bool { return b.bits[i/64]&(1<<(i%64)) != 0 }

func (b bitmap) list() (all []int64) {
	for i, word := range b.bits {
		for ; word != 0; word &= word - 1 {
			all = append(all, int64(i)*64+int64(bits.TrailingZeros64(word)))
		}
	}
	return all
}
