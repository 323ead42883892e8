package chain

import (
	"fmt"

	"ankole.storage/dataplane/disk"
)

// doubts are the parts of the head that need not be what they read as.
type doubts struct {
	unwritten []disk.Extent
	// partial are whole blocks of which only a part is allocated, as there can be on file systems
	// with smaller ones.
	partial []disk.Extent
}

func (c *Files) doubtful() (d doubts, err error) {
	block, have := int64(-1), int64(0) // the block that the last extent covers in part, and how much of it is there
	leave := func() {
		if whole := min(blockSize, c.size-block*blockSize); block >= 0 && have < whole {
			d.partial = append(d.partial, disk.Extent{Off: block * blockSize, Len: whole})
		}
		block, have = -1, 0
	}
	err = c.eachExtent(c.head(), func(e disk.Extent) error {
		if e.Unwritten {
			d.unwritten = append(d.unwritten, e)
		}
		for off, end := e.Off, e.Off+e.Len; off < end; {
			b, n := off/blockSize, min(end, (off/blockSize+1)*blockSize)-off
			if n == blockSize {
				off = end / blockSize * blockSize // all whole blocks at once
				continue
			}
			if b != block {
				leave()
				block = b
			}
			have += n
			off += n
		}
		return nil
	})
	leave()
	return d, err
}

// recoverWrites leaves nothing of unclear meaning in the head.
//
// A direct write into a hole becomes data in a later transaction of the file system, so a crash can
// leave an allocated piece that reads as zeroes and hides flushed data of the snapshot below; on a
// file system with smaller blocks also one that is there in part. In a head of our own nothing else
// makes such blocks, since whole ones are written, and after an unclean stop they are punched. In
// another engine's head they may be zeroes that somebody wrote: they become written ones before any
// write of ours, so that the head is like one of our own from then on.
func (c *Files) recoverWrites() error {
	own := c.interruptedWrites()
	if !own && (c.stamped || c.ownHead()) {
		return nil
	}
	d, err := c.doubtful()
	if err != nil || len(d.unwritten)+len(d.partial) == 0 {
		return err
	}
	h := c.head()
	for _, e := range d.unwritten {
		if own {
			first, end := c.blocksOf(e)
			err = h.file.Punch(first*blockSize, (end-first)*blockSize)
		} else {
			err = writeZeroes(h.file, e.Off, e.Len)
		}
		if err != nil {
			return err
		}
	}
	for _, e := range d.partial {
		if own {
			err = h.file.Punch(e.Off, e.Len)
		} else {
			err = completeBlock(h.file, e.Off, e.Len)
		}
		if err != nil {
			return err
		}
	}
	c.opts.Log.Info("parts of the head settled", "dir", c.dir, "unwritten", len(d.unwritten), "partial", len(d.partial),
		"own", own)
	return c.syncFile(h.file)
}

// syncLower makes durable what the snapshots below the head are seen to have, and not to have. A
// process that was killed may have left a hole there that is not on the disk yet (prune). The map
// would say that the head alone has the block, a hole in the head would make zeroes of it, and a
// loss of power would bring the old block back from below.
func (c *Files) syncLower() error {
	if c.opts.ReadOnly || !c.vm.Dirty {
		return nil
	}
	for i := c.bottomIndex(); i < len(c.layers)-1; i++ {
		if err := c.syncFile(c.layers[i].file); err != nil {
			return fmt.Errorf("settle %s: %w", c.layers[i].name, err)
		}
	}
	return nil
}

// completeBlock writes a block as it is read: what of it is a hole becomes zeroes.
func completeBlock(f disk.File, off, n int64) error {
	p := make([]byte, n)
	if err := readFull(f, p, off); err != nil {
		return err
	}
	_, err := f.WriteAt(p, off)
	return err
}

// interruptedWrites tells whether a doubtful block of the head can only be a write that an unclean
// stop cut short.
func (c *Files) interruptedWrites() bool { return c.vm.Dirty && c.ownHead() }

// ownHead tells whether no other engine has written to the head. One that has had the directory
// open has rewritten volume.meta without our keys; the sidecars, which may be lost, say no more.
func (c *Files) ownHead() bool { return c.vm.AnkoleStamp != "" && c.vm.AnkoleHead == c.vm.Head }

// zeroChunk is how much writeZeroes writes at a time.
const zeroChunk = 1 << 20

func writeZeroes(f disk.File, off, n int64) error {
	zeroes := make([]byte, min(n, zeroChunk))
	for n > 0 {
		k := min(n, zeroChunk)
		if _, err := f.WriteAt(zeroes[:k], off); err != nil {
			return err
		}
		off, n = off+k, n-k
	}
	return nil
}
