package chain

import (
	"errors"
	"fmt"
	"slices"

	"ankole.storage/dataplane/disk"
)

// Open opens a replica directory, clears what a crash left behind, builds the block map from
// the files' extents without reading data, and durably marks the directory as in use (Dirty). It
// takes the directory's lock: ErrInUse if another process has it.
func Open(fs disk.Meta, dir string, opts Options) (_ *Chain, err error) {
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	d := openDirectory(fs, dir, &opts)
	c := newFiles(d, newMeta(d, opts.Rand, opts.BackingFile), opts)
	s, b := noSidecars(), &Blocks{}
	defer func() {
		if err != nil {
			b.Free()
			err = errors.Join(fmt.Errorf("open replica directory %s: %w", dir, err), c.release(), s.Close())
		}
	}()
	if err := c.lockDirectory(); err != nil {
		return nil, err
	}
	o := newOpening(c)
	if o.names, err = c.durableNames(); err != nil {
		return nil, err
	}
	c.meta.copies.held = readCopy(fs, dir)
	if err := o.loadVolumeMeta(); err != nil {
		return nil, err
	}
	c.wasClosed = !c.meta.vm.Dirty && !c.meta.vm.Rebuilding && c.meta.vm.Error == ""
	if s, err = c.openSidecars(); err != nil {
		return nil, err
	}
	c.openFiles.skipUnwritten = c.readOnly && c.meta.interruptedWrites()
	if err := o.loadDisks(s); err != nil {
		return nil, err
	}
	if err := c.openFiles.open(); err != nil {
		return nil, err
	}
	if err := errors.Join(o.recoverFilling(), c.openFiles.syncLower()); err != nil {
		return nil, err
	}
	if err := c.buildMap(s, b); err != nil {
		return nil, err
	}
	if err := o.removeStrays(); err != nil {
		return nil, err
	}
	if c.meta.stamped {
		if err := c.meta.reserve.provide(); err != nil {
			return nil, err
		}
	}
	if len(c.whiteoutFiles.damaged) > 0 && !c.readOnly {
		c.meta.stamped = false
		if err := s.forget(); err != nil {
			return nil, err
		}
	}
	if err := c.meta.rewriteMended(); err != nil {
		return nil, err
	}
	if err := o.markInUse(); err != nil {
		return nil, err // before damage is cleared: who opens this next has to find it
	}
	if err := s.copySlots(); err != nil {
		return nil, err
	}
	return &Chain{c, s, b}, c.whiteoutFiles.clearDamage()
}

func (c *Files) lockDirectory() error {
	if !c.readOnly {
		lock, err := c.fs.Lock(c.dir)
		if err != nil {
			return err
		}
		c.lock = lock
	}
	return checkFileSystem(c.fs, c.dir)
}

// checkFileSystem refuses directories whose files would not be what a chain takes them for.
func checkFileSystem(fs disk.Meta, dir string) error {
	info, err := fs.Statfs(dir)
	if err != nil {
		return err
	}
	if info.ExtentSizeHint != 0 {
		return fmt.Errorf("%w: directory %s has an extent size hint of %d bytes, which would hide snapshots behind "+
			"preallocated space; remove it with: xfs_io -c 'extsize 0' %s", disk.ErrUnsupported, dir, info.ExtentSizeHint, dir)
	}
	return nil
}

// markInUse is the last step of Open.
func (o *opening) markInUse() error {
	if o.readOnly {
		return nil
	}
	vm := o.meta.vm
	vm.Dirty, vm.Error, vm.AnkoleMap, vm.AnkoleGivenUp, vm.AnkoleFilling = true, "", "", nil, nil
	vm.Parent = o.meta.disks[vm.Head].Parent
	vm.BackingFilePath = o.meta.backingFile
	if o.meta.vm.AnkoleStamp != "" && !o.meta.stamped {
		// The stamp names sidecars that are gone or damaged: forget it rather than let it meet them
		// again.
		vm.AnkoleStamp, vm.AnkoleHead = "", ""
	}
	return o.meta.writeVolumeMeta(&vm)
}

func (o *opening) loadVolumeMeta() error {
	data, err := o.meta.readMeta(volumeMetaName)
	if err != nil && !isNotFound(err) {
		return err
	}
	if isNotFound(err) || len(data) == 0 {
		if err := o.notOurs(); err != nil {
			return err
		}
		return o.recover()
	}
	vm, err := parseVolumeMeta(data)
	if err != nil {
		return err
	}
	if vm.AnkoleIncomplete {
		return fmt.Errorf(
			"%w: the directory was being emptied or made into a rebuild target when it was left; create it again", ErrCorrupt)
	}
	o.meta.vm = *vm
	if !o.opts.AsItIs && o.opts.RecoverHead == "" {
		if err := o.meta.checkSeal(o.names); err != nil {
			return err
		}
	}
	if o.meta.backingFile == "" {
		o.meta.backingFile = vm.BackingFilePath
	}
	return nil
}

// notOurs refuses to make volume.meta anew beside a member record. An engine of this kind replaces
// the one by a file that is durable before it has the name, and makes the other only where there
// is, or is about to be, such a file: that it is empty or gone is damage and no crash, and the
// record, without which nobody knows what the copy is worth, would be void. A person who names the
// head has looked.
func (o *opening) notOurs() error {
	if o.readOnly || o.opts.RecoverHead != "" || !slices.Contains(o.names, memberName) {
		return nil
	}
	return lostMeta(o.dir)
}

func lostMeta(dir string) error {
	return fmt.Errorf("%w: %s/%s is missing or empty beside %s, as no crash leaves it; nothing is changed: see what is "+
		"there with: ankole replica inspect %s", ErrCorrupt, dir, volumeMetaName, memberName, dir)
}

// recover rebuilds volume.meta's content where a crash of an engine that does not sync it lost it.
// Nothing is written yet; Open's last step does that.
func (o *opening) recover() error {
	if err := validateSize(o.opts.Size); err != nil {
		return fmt.Errorf("%s is missing or empty and its size is not given: %w", volumeMetaName, err)
	}
	head, err := o.recoverHead()
	if err != nil {
		return err
	}
	o.log.Warn("volume.meta was lost; it is made anew", "dir", o.dir, "head", head, "size", o.opts.Size)
	o.meta.vm = volumeMeta{Size: o.opts.Size, Head: head, Dirty: true, SectorSize: metaSectorSize}
	return nil
}

// recoverHead chooses the head. Of several, one that is the same file as a snapshot is left from an
// unfinished rotation, and an empty one holds nothing; if more than one remains, the choice is a
// person's.
func (o *opening) recoverHead() (string, error) {
	if o.opts.RecoverHead != "" {
		if !isHeadFile(o.opts.RecoverHead) || !slices.Contains(o.names, o.opts.RecoverHead) {
			return "", fmt.Errorf("%w: there is no head %q", ErrNotFound, o.opts.RecoverHead)
		}
		return o.opts.RecoverHead, nil
	}
	var heads, full []string
	for _, name := range o.names {
		if !isHeadFile(name) {
			continue
		}
		heads = append(heads, name)
		info, err := o.fs.Stat(o.path(name))
		if err != nil {
			return "", err
		}
		if info.Allocated > 0 {
			full = append(full, name)
		}
	}
	switch {
	case len(heads) == 0:
		return "", fmt.Errorf("%w: neither %s nor a head file", ErrNotFound, volumeMetaName)
	case len(heads) == 1 || len(full) == 0:
		return heads[0], nil
	case len(full) == 1:
		return full[0], nil
	}
	return "", fmt.Errorf("%w: %s is missing and several heads hold data (%v); say which one to use", ErrCorrupt,
		volumeMetaName, full)
}

// open opens the live chain's files, bottom first.
func (o *openFiles) open() error {
	live, err := o.meta.liveChain()
	if err != nil {
		return err
	}
	if err := o.openBacking(); err != nil {
		return err
	}
	for _, name := range live {
		mode, err := o.layerMode(name)
		if err != nil {
			return err
		}
		f, err := o.fs.Open(o.path(name), mode)
		if isNotFound(err) {
			return fmt.Errorf("%w: %s of the chain is missing", ErrCorrupt, name)
		}
		if err != nil {
			return err
		}
		l, err := newLayer(name, f, o.meta.vm.Size)
		l.readOnly = mode&disk.ReadOnly != 0
		if err == nil {
			l.whiteouts, err = o.whiteoutFiles.open(name, mode)
		}
		o.layers = append(o.layers, l)
		if err != nil {
			return err
		}
	}
	return o.extendHead()
}

// layerMode is how a layer is opened: the head for writing, a snapshot if the chain is a rebuild
// target and nothing is recorded about the file's content, which Reshape has seen to where the
// rebuild writes.
func (o *openFiles) layerMode(file string) (disk.Mode, error) {
	switch {
	case o.readOnly, file != o.meta.vm.Head && !o.meta.vm.Rebuilding:
		return disk.Direct | disk.ReadOnly, nil
	case file == o.meta.vm.Head:
		return disk.Direct, nil
	}
	recorded, err := o.checksums.recorded(file)
	if recorded {
		return disk.Direct | disk.ReadOnly, err
	}
	return disk.Direct, err
}

// newLayer describes an open file, of which a volume has at most limit bytes.
func newLayer(name string, f disk.File, limit int64) (layer, error) {
	info, err := f.Stat()
	return layer{name: name, file: f, size: min(info.Size, limit), inode: info.Inode}, err
}

// extendHead gives the head the volume's size if it is shorter: writes must find it that long after
// a crash.
func (o *openFiles) extendHead() error {
	h := o.head()
	if h.size >= o.meta.vm.Size || o.readOnly {
		return nil
	}
	if err := h.file.Truncate(o.meta.vm.Size); err != nil {
		return err
	}
	h.size = o.meta.vm.Size
	return o.syncFile(h.file)
}

// buildMap makes b the blocks of the files: with what the process before has handed over, or from
// the files.
func (c *Files) buildMap(s *Sidecars, b *Blocks) error {
	b.table = c.openFiles.tableOfBlocks()
	if !c.mapHandover.take(s, b) {
		if err := c.openFiles.extentsMap(b); err != nil {
			return err
		}
	}
	return c.openFiles.openHeadWhiteouts(b)
}

// extentsMap fills the block map from the extents of every layer, bottom first.
func (o *openFiles) extentsMap(b *Blocks) error {
	if err := b.m.resize(o.meta.vm.Size); err != nil {
		return err
	}
	for i := o.bottomIndex(); i < len(o.layers); i++ {
		isHead := i == len(o.layers)-1
		if err := o.hideBy(b, i); err != nil {
			return fmt.Errorf("whiteouts of %s: %w", o.layers[i].name, err)
		}
		if isHead && !o.readOnly {
			if err := o.recoverWrites(); err != nil {
				return fmt.Errorf("settle %s: %w", o.layers[i].name, err)
			}
		}
		cut, err := o.interrupted(i)
		if err != nil {
			return fmt.Errorf("interrupted writes of %s: %w", o.layers[i].name, err)
		}
		enter := func(first, end int64) {
			if isHead {
				b.m.setHead(first, end, byte(i), o.backing)
			} else {
				b.m.setLower(first, end, byte(i))
			}
		}
		err = o.eachExtent(&o.layers[i], func(e disk.Extent) error {
			first, end := o.blocksOf(e)
			if len(cut) == 0 {
				enter(first, end)
				return nil
			}
			for at := first; at < end; at++ {
				if !cut[at] {
					enter(at, at+1)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("extents of %s: %w", o.layers[i].name, err)
		}
	}
	return nil
}

func (o *openFiles) blocksOf(e disk.Extent) (first, end int64) {
	return blocksOf(e, o.meta.vm.Size/blockSize)
}

// blocksOf returns the blocks that an extent touches, of as many as the volume has: file systems
// with smaller blocks may allocate less than 4 KiB.
func blocksOf(e disk.Extent, blocks int64) (first, end int64) {
	return e.Off / blockSize, min((e.Off+e.Len+blockSize-1)/blockSize, blocks)
}

// eachExtent calls fn for every extent of a layer within the volume, in order.
func (o *openFiles) eachExtent(l *layer, fn func(disk.Extent) error) error {
	limit := o.meta.vm.Size
	buf := make([]disk.Extent, 0, disk.ExtentsPerCall)
	for off, more := int64(0), true; more; {
		var err error
		if buf, more, err = l.file.Extents(off, buf[:0]); err != nil {
			return err
		}
		for _, e := range buf {
			off = e.Off + e.Len
			if e.Off >= limit {
				return nil
			}
			e.Len = min(e.Len, limit-e.Off)
			if err := fn(e); err != nil {
				return err
			}
		}
		if len(buf) == 0 {
			return nil
		}
	}
	return nil
}

// blockFound is what a file has of a block: space, and bytes written to it.
type blockFound struct {
	allocated bool
	written   int64
}

// foundIn looks up what a file has of the blocks [first, last).
func foundIn(f disk.File, first, last int64) ([]blockFound, error) {
	out := make([]blockFound, last-first)
	for off, more := first*blockSize, true; more && off < last*blockSize; {
		var found []disk.Extent
		var err error
		if found, more, err = f.Extents(off, nil); err != nil {
			return nil, err
		}
		for _, e := range found {
			for b := max(e.Off/blockSize, first); b < last && b*blockSize < e.Off+e.Len; b++ {
				x := &out[b-first]
				x.allocated = true
				if !e.Unwritten {
					x.written += min(e.Off+e.Len, (b+1)*blockSize) - max(e.Off, b*blockSize)
				}
			}
			off = max(off, e.Off+e.Len)
		}
		if len(found) == 0 {
			break
		}
	}
	return out, nil
}
