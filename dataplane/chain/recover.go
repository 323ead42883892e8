package chain

import (
	"errors"
	"fmt"
	"slices"

	"ankole.storage/dataplane/disk"
)

// doubts are the parts of the head that need not be what they read as.
type doubts struct {
	unwritten []disk.Extent
	// partial are whole blocks of which only a part is allocated, as there can be on file systems
	// with smaller ones.
	partial []disk.Extent
}

func (o *openFiles) doubtful() (d doubts, err error) {
	block, have := int64(-1), int64(0) // the block that the last extent covers in part, and how much of it is there
	leave := func() {
		if whole := min(blockSize, o.meta.vm.Size-block*blockSize); block >= 0 && have < whole {
			d.partial = append(d.partial, disk.Extent{Off: block * blockSize, Len: whole})
		}
		block, have = -1, 0
	}
	err = o.eachExtent(o.head(), func(e disk.Extent) error {
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
func (o *openFiles) recoverWrites() error {
	own := o.meta.interruptedWrites()
	if !own && (o.meta.stamped || o.meta.ownHead()) {
		return nil
	}
	d, err := o.doubtful()
	if err != nil || len(d.unwritten)+len(d.partial) == 0 {
		return err
	}
	h := o.head()
	for _, e := range d.unwritten {
		if own {
			first, end := o.blocksOf(e)
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
	o.log.Info("parts of the head settled", "dir", o.dir, "unwritten", len(d.unwritten), "partial", len(d.partial),
		"own", own)
	return o.syncFile(h.file)
}

// syncLower makes durable what the snapshots below the head are seen to have, and not to have. A
// process that was killed may have left a hole there that is not on the disk yet (prune). The map
// would say that the head alone has the block, a hole in the head would make zeroes of it, and a
// loss of power would bring the old block back from below.
func (o *openFiles) syncLower() error {
	if o.readOnly || !o.meta.vm.Dirty {
		return nil
	}
	for i := o.bottomIndex(); i < len(o.layers)-1; i++ {
		if err := o.syncFile(o.layers[i].file); err != nil {
			return fmt.Errorf("settle %s: %w", o.layers[i].name, err)
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

// filling says which holes of a snapshot's image a view's write is about to fill. It is in
// volume.meta, durably, before the write begins, and from then on until the directory is opened
// again or closed: of these blocks one that is not written whole can only be a write that an
// unclean stop has cut short. Of others that is not known: an older engine may have made them.
type filling struct {
	Image string
	Inode uint64
	// Off is where the first block of Blocks is, which has a bit for each: the lowest one in the
	// lowest bit of the first byte.
	Off    int64
	Blocks []byte
}

// maxFilling bounds the blocks of a filling, and with them what one write of a view may cover: what
// is added to volume.meta stays below the size of the reserve file.
const maxFilling = 64 << 20

func (w *filling) valid() bool {
	_, ok := snapshotName(w.Image)
	return ok && w.Off >= 0 && w.Off%blockSize == 0 && w.Off <= maxVolumeSize &&
		int64(len(w.Blocks))*8*blockSize <= maxFilling
}

// fill durably says that the blocks of runs which the view's own file does not have are about to be
// written to it.
func (v *ViewFiles) fill(runs []Rot, where Where) error {
	w := filling{Image: v.file, Inode: v.inode, Off: runs[0].Off}
	for _, r := range runs {
		for at := r.Off; at < r.Off+r.Len; at += blockSize {
			if where.at(at/blockSize) == v.at.openFiles.headIndex() {
				continue
			}
			bit := (at - w.Off) / blockSize
			w.Blocks = append(w.Blocks, make([]byte, max(bit/8+1-int64(len(w.Blocks)), 0))...)
			w.Blocks[bit/8] |= 1 << (bit % 8)
		}
	}
	if w.Blocks == nil {
		return nil
	}
	vm := v.c.meta.vm
	vm.AnkoleFilling = &w
	return v.c.meta.writeVolumeMeta(&vm)
}

// cutShort returns those of the blocks that a file has, and has not whole.
func (w *filling) cutShort(f disk.File) (out []disk.Extent, err error) {
	first := w.Off / blockSize
	found, err := foundIn(f, first, first+int64(len(w.Blocks))*8)
	for i, x := range found {
		if w.Blocks[i/8]>>(i%8)&1 != 0 && x.allocated && x.written < blockSize {
			out = append(out, disk.Extent{Off: (first + int64(i)) * blockSize, Len: blockSize})
		}
	}
	return out, err
}

// recoverFilling punches what an unclean stop has left of a write to a snapshot's image: it would
// read as zeroes, and what is below is what was there.
func (o *opening) recoverFilling() error {
	w := o.meta.vm.AnkoleFilling
	if w == nil || o.readOnly {
		return nil
	}
	info, err := o.fs.Stat(o.path(w.Image))
	if isNotFound(err) || err == nil && info.Inode != w.Inode {
		return nil // it is gone since
	}
	if err != nil {
		return err
	}
	f, err := o.fs.Open(o.path(w.Image), disk.Direct)
	if err != nil {
		return err
	}
	cut, err := w.cutShort(f)
	for _, e := range cut {
		err = errors.Join(err, f.Punch(e.Off, e.Len))
	}
	if err == nil && len(cut) > 0 {
		o.log.Info("interrupted writes to a snapshot taken back", "dir", o.dir, "file", w.Image, "blocks", len(cut))
		err = o.syncFile(f)
	}
	return errors.Join(err, f.Close())
}

// interrupted returns the blocks of a layer that the next open for writing will punch, for whoever
// only reads: they count as not there.
func (o *openFiles) interrupted(i int) (map[int64]bool, error) {
	if !o.readOnly {
		return nil, nil
	}
	var cut []disk.Extent
	var err error
	l, w := &o.layers[i], o.meta.vm.AnkoleFilling
	if w != nil && w.Image == l.name && w.Inode == l.inode {
		cut, err = w.cutShort(l.file)
	} else if o.skipUnwritten && i == len(o.layers)-1 {
		var d doubts
		d, err = o.doubtful()
		cut = slices.Concat(d.unwritten, d.partial)
	}
	blocks := map[int64]bool{}
	for _, e := range cut {
		first, end := o.blocksOf(e)
		for at := first; at < end; at++ {
			blocks[at] = true
		}
	}
	return blocks, err
}
