package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"ankole.storage/backup/format"
	"ankole.storage/backup/object"
)

// commitBytes and commitEvery bound what is staged without being committed, which a run that
// crashes has to send again.
const (
	commitBytes = 64 << 20
	commitEvery = 10 * time.Second
)

// copier is what one worker owns.
type copier struct {
	block, stored []byte
	codec         format.Codec
}

// prepared is a block of a worker that has its checksum.
type prepared struct {
	sum format.Checksum
	// kept: it is listed. mine: this worker sees to it that the store has it.
	kept, mine bool
	// encoded is what is stored; nil if the store may have it.
	encoded []byte
}

// copyBlocks reads the blocks and stores those that the store has not.
func (c *creation) copyBlocks(ctx context.Context) error {
	list := c.read.list()
	workers, steps := stepsFor(c.Workers, c.BlockBytes+format.MaxStoredBytes(c.BlockBytes))
	begin := func() *copier {
		return &copier{block: make([]byte, c.BlockBytes), stored: make([]byte, 0, format.MaxStoredBytes(c.BlockBytes))}
	}
	return each(ctx, workers, len(list), begin, func(ctx context.Context, w *copier, i int) error {
		offset := list[i] * c.BlockBytes
		if err := c.source.ReadAt(ctx, w.block, offset); err != nil {
			return fmt.Errorf("reading %d bytes at %d: %w", c.BlockBytes, offset, err)
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
			c.fresh = append(c.fresh, format.Block{Offset: offset, Checksum: b.sum})
		}
		if c.done++; c.Progress != nil {
			c.Progress(c.done, len(list))
		}
		return nil
	})
}

// prepare does what takes the processor.
func (c *creation) prepare(w *copier) (b prepared, err error) {
	if b.kept = c.volume.BackingImage != "" || c.BackingImage != "" || !isZero(w.block); !b.kept {
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
func (c *creation) mayBePresent(sum format.Checksum) bool {
	return c.present.has(sum) && !c.Full && !c.marked.has(sum)
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
func (c *creation) storeBlock(ctx context.Context, w *copier, b prepared) error {
	name, present := format.BlockObject(c.Volume, b.sum), c.present.has(b.sum)
	if b.encoded == nil {
		data, err := c.store.Get(ctx, name, w.stored[:0], int64(cap(w.stored)))
		if err == nil {
			err = w.codec.Check(c.form, data, b.sum, c.BlockBytes)
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
func (c *creation) noteStaged(sum format.Checksum, stored int64, present bool) (due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.marked.has(sum) {
		c.cured = append(c.cured, sum)
	}
	if present {
		c.record.RewrittenBytes += stored
	} else {
		c.record.NewBytes += stored
		c.newBlocks++
	}
	if c.staged += stored; c.staged < commitBytes && time.Since(c.committed) < commitEvery {
		return false
	}
	c.staged, c.committed = 0, time.Now()
	return true
}

// unmark removes the marks of blocks that were written again.
//
// Crash window: such a block keeps its mark, and is written once more.
func (c *creation) unmark(ctx context.Context) error {
	for _, sum := range c.cured {
		if err := c.store.Delete(ctx, format.MarkObject(c.Volume, sum)); err != nil {
			return err
		}
	}
	return nil
}
