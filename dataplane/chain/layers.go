package chain

import (
	"errors"
	"fmt"
	"maps"
	"path"

	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/qcow2"
)

// openFiles are the files that blocks are read from and written to, as metadata operations have
// them: those of the live chain with their whiteouts, the branches that a rebuild has open, and the
// backing file. It opens them, says what is in them (extents, block map, layers for a rebuild), and
// settles what an unclean stop has left in them.
//
// Its own are table, of which Blocks has a copy: whoever changes it returns a Change (changed),
// which the owner of Blocks applies; and skipUnwritten.
type openFiles struct {
	*directory
	meta          *meta
	checksums     *checksums
	whiteoutFiles *whiteoutFiles
	table
	// skipUnwritten: read-only, and the head's unwritten extents are interrupted writes, which an
	// open for writing would punch: they count as holes.
	skipUnwritten bool
}

// LayerInfo describes a file of the live chain, for a rebuild.
type LayerInfo struct {
	File   string
	Handle int32
	Size   int64
	Meta   DiskMeta
	Head   bool
}

// LayerList returns the live chain, bottom first, the head last, without the backing file. It
// copies the metadata and must not run beside a metadata operation; per I/O there is Layer.
func (o *openFiles) LayerList() []LayerInfo {
	var out []LayerInfo
	for i := o.bottomIndex(); i < len(o.layers); i++ {
		l := o.layers[i]
		d := *o.meta.disks[l.name]
		d.Labels, d.extra, d.whiteouts = maps.Clone(d.Labels), nil, ""
		out = append(out, LayerInfo{File: l.name, Handle: l.file.Handle(), Size: l.size, Meta: d,
			Head: l.name == o.meta.vm.Head})
	}
	return out
}

// Spec describes the chain as a rebuild target of it is to be made: its snapshots, and what is
// below the head.
func (c *Chain) Spec() Spec {
	s := Spec{Size: c.meta.vm.Size, VolumeUUID: c.record.VolumeUUID, BackingFile: c.meta.backingFile,
		Created: c.meta.disks[c.meta.vm.Head].Created, HeadParent: c.meta.disks[c.meta.vm.Head].Parent,
		HeadLabels: maps.Clone(c.meta.disks[c.meta.vm.Head].Labels)}
	for _, l := range c.openFiles.LayerList() {
		if !l.Head {
			s.Layers = append(s.Layers, LayerSpec{File: l.File, Size: l.Size, Meta: l.Meta})
		}
	}
	return s
}

// LayerExtents calls fn for every extent of a file of the live chain, in order. It blocks; a
// snapshot's extents may be read while I/O goes on.
func (o *openFiles) LayerExtents(file string, fn func(disk.Extent) error) error {
	i := o.layerIndex(file)
	if i == 0 {
		return fmt.Errorf("%w: no layer %q in the live chain", ErrNotFound, file)
	}
	return o.eachExtent(&o.layers[i], fn)
}

// File returns a file by its number: those of the live chain, bottom first, then the branches that
// are open.
func (o *openFiles) File(number int) (disk.File, error) {
	live := o.layers[o.bottomIndex():]
	if k := number - len(live); k >= len(o.branches) {
		return nil, fmt.Errorf("%w: the chain has %d files, no file %d", ErrNotFound, len(live)+len(o.branches), number)
	} else if k >= 0 {
		return o.branches[k].file, nil
	}
	return live[number].file, nil
}

// SetRebuilding marks the chain as an incomplete rebuild target; durable when it returns nil. The
// head may be written to then: snapshots are by Reshape, which voids their checksums.
func (c *Chain) SetRebuilding() error {
	err := c.meta.setRebuilding()
	c.Apply(c.openFiles.changed())
	return err
}

// FinishRebuild makes everything the rebuild wrote durable and then, durably, clears Rebuilding.
// The snapshots' handles stay writable until the chain is opened again; nobody may use them.
func (c *Files) FinishRebuild(s *Sidecars) (Change, error) {
	err := c.finishRebuild(s)
	return c.openFiles.changed(), err
}

// FinishRebuild is Files.FinishRebuild with its Change applied.
func (c *Chain) FinishRebuild() error {
	ch, err := c.Files.FinishRebuild(c.Sidecars)
	c.Apply(ch)
	return err
}

func (c *Files) finishRebuild(s *Sidecars) error {
	if err := errors.Join(c.usable(), s.usable()); err != nil {
		return err
	}
	if !c.meta.vm.Rebuilding {
		return fmt.Errorf("%w: chain %s is not being rebuilt", ErrInvalid, c.dir)
	}
	for i := c.openFiles.bottomIndex(); i < len(c.openFiles.layers); i++ {
		if err := c.syncFile(c.openFiles.layers[i].file); err != nil {
			return err
		}
	}
	for _, l := range c.openFiles.branches {
		if err := c.syncFile(l.file); err != nil {
			return err
		}
	}
	if err := c.openFiles.syncWhiteouts(); err != nil {
		return err
	}
	if err := c.openFiles.closeBranches(); err != nil {
		return err
	}
	if err := c.syncDir(); err != nil {
		return err
	}
	s.regionsBoot = s.boot // whatever was lost before is there again; the next mark makes that durable
	vm := c.meta.vm
	vm.Rebuilding = false
	return c.meta.writeVolumeMeta(&vm)
}

// openBacking opens the backing file, or the only file in a directory.
func (o *openFiles) openBacking() error {
	name := o.meta.backingFile
	if name == "" {
		return nil
	}
	info, err := o.fs.Stat(name)
	if err != nil {
		return fmt.Errorf("backing file: %w", err)
	}
	if info.Dir {
		files, err := o.fs.List(name)
		if err != nil {
			return fmt.Errorf("backing file: %w", err)
		}
		if len(files) != 1 {
			return fmt.Errorf("%w: backing directory %s has %d entries instead of one", ErrCorrupt, name, len(files))
		}
		name = path.Join(name, files[0])
		if info, err = o.fs.Stat(name); err != nil {
			return fmt.Errorf("backing file: %w", err)
		}
	}
	l, err := o.openImage(name)
	if err != nil {
		return fmt.Errorf("backing file %s: %w", name, err)
	}
	l.inode = info.Inode
	if l.size > o.meta.vm.Size || l.size%metaSectorSize != 0 {
		return errors.Join(fmt.Errorf("%w: backing file %s of %d bytes: at most the volume's %d and a multiple of %d are possible",
			ErrInvalid, name, l.size, o.meta.vm.Size, metaSectorSize), l.file.Close())
	}
	o.backing = true
	o.layers = append(o.layers, l)
	return nil
}

// openImage opens a backing file by what it begins with: a qcow2 image, or the content itself.
func (o *openFiles) openImage(name string) (layer, error) {
	f, err := o.fs.Open(name, disk.ReadOnly|disk.Direct)
	if err != nil {
		return layer{}, err
	}
	head := make([]byte, blockSize) // a whole block: direct reads need it on devices with 4 KiB sectors
	info, err := f.Stat()
	if err == nil {
		err = readFull(f, head, 0)
	}
	if err == nil && !qcow2.IsImage(head) {
		return layer{name: name, file: f, size: info.Size}, nil
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return layer{}, err
	}
	// What is in the image begins anywhere, and all volumes of the node read the same.
	if f, err = o.fs.Open(name, disk.ReadOnly); err != nil {
		return layer{}, err
	}
	image, err := qcow2.Open(f, info.Size)
	if err != nil {
		return layer{}, errors.Join(fmt.Errorf("%w: %w", disk.ErrUnsupported, err), f.Close())
	}
	return layer{name: name, file: &packedFile{f, image}, size: image.Size}, nil
}

// packedFile is a qcow2 image: its content is at other offsets than in the file, and may be
// compressed.
type packedFile struct {
	disk.File
	image *qcow2.Image
}

// Handle implements disk.File.
func (p *packedFile) Handle() int32 { return PackedHandle }

// ReadAt implements disk.File. A damaged image is disk.ErrIO.
func (p *packedFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := p.image.ReadAt(b, off)
	if errors.Is(err, qcow2.ErrCorrupt) {
		err = fmt.Errorf("%w: %s: %w", disk.ErrIO, p.Path(), err)
	}
	return n, err
}

// Extents implements disk.File. Nobody asks where the file has space.
func (p *packedFile) Extents(int64, []disk.Extent) ([]disk.Extent, bool, error) {
	return nil, false, fmt.Errorf("%w: %s is a qcow2 image", disk.ErrUnsupported, p.Path())
}
