package chain

import (
	"errors"
	"fmt"
	"maps"

	"ankole.storage/dataplane/disk"
)

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
func (c *Files) LayerList() []LayerInfo {
	var out []LayerInfo
	for i := c.bottomIndex(); i < len(c.layers); i++ {
		l := c.layers[i]
		d := *c.disks[l.name]
		d.Labels, d.extra, d.whiteouts = maps.Clone(d.Labels), nil, ""
		out = append(out, LayerInfo{File: l.name, Handle: l.file.Handle(), Size: l.size, Meta: d, Head: l.name == c.vm.Head})
	}
	return out
}

// Spec describes the chain as a rebuild target of it is to be made: its snapshots, and what is
// below the head.
func (c *Chain) Spec() Spec {
	s := Spec{Size: c.vm.Size, VolumeUUID: c.record.VolumeUUID, BackingFile: c.opts.BackingFile,
		Created: c.disks[c.vm.Head].Created, HeadParent: c.disks[c.vm.Head].Parent,
		HeadLabels: maps.Clone(c.disks[c.vm.Head].Labels)}
	for _, l := range c.LayerList() {
		if !l.Head {
			s.Layers = append(s.Layers, LayerSpec{File: l.File, Size: l.Size, Meta: l.Meta})
		}
	}
	return s
}

// LayerExtents calls fn for every extent of a file of the live chain, in order. It blocks; a
// snapshot's extents may be read while I/O goes on.
func (c *Files) LayerExtents(file string, fn func(disk.Extent) error) error {
	i := c.layerIndex(file)
	if i == 0 {
		return fmt.Errorf("%w: no layer %q in the live chain", ErrNotFound, file)
	}
	return c.eachExtent(&c.layers[i], fn)
}

// File returns a file by its number: those of the live chain, bottom first, then the branches that
// are open.
func (c *Files) File(number int) (disk.File, error) {
	live := c.layers[c.bottomIndex():]
	if k := number - len(live); k >= len(c.branches) {
		return nil, fmt.Errorf("%w: the chain has %d files, no file %d", ErrNotFound, len(live)+len(c.branches), number)
	} else if k >= 0 {
		return c.branches[k].file, nil
	}
	return live[number].file, nil
}

// SizeBytes is the volume's size, a multiple of 4096.
func (c *Files) SizeBytes() int64 { return c.vm.Size }

// SetRebuilding marks the chain as an incomplete rebuild target; durable when it returns nil. The
// head may be written to then: snapshots are by Reshape, which voids their checksums.
func (c *Chain) SetRebuilding() error {
	err := c.setRebuilding()
	c.Apply(c.changed())
	return err
}

func (c *Files) setRebuilding() error {
	if err := c.usable(); err != nil {
		return err
	}
	if c.vm.Rebuilding {
		return nil
	}
	vm := c.vm
	vm.Rebuilding = true
	return c.writeVolumeMeta(&vm)
}

// FinishRebuild makes everything the rebuild wrote durable and then, durably, clears Rebuilding.
// The snapshots' handles stay writable until the chain is opened again; nobody may use them.
func (c *Files) FinishRebuild(s *Sidecars) (Change, error) {
	err := c.finishRebuild(s)
	return c.changed(), err
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
	if !c.vm.Rebuilding {
		return fmt.Errorf("%w: chain %s is not being rebuilt", ErrInvalid, c.dir)
	}
	for i := c.bottomIndex(); i < len(c.layers); i++ {
		if err := c.syncFile(c.layers[i].file); err != nil {
			return err
		}
	}
	for _, l := range c.branches {
		if err := c.syncFile(l.file); err != nil {
			return err
		}
	}
	if err := c.syncWhiteouts(); err != nil {
		return err
	}
	if err := c.closeBranches(); err != nil {
		return err
	}
	if err := c.syncDir(); err != nil {
		return err
	}
	s.regionsBoot = s.boot // whatever was lost before is there again; the next mark makes that durable
	vm := c.vm
	vm.Rebuilding = false
	return c.writeVolumeMeta(&vm)
}
