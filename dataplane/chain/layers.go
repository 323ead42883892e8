package chain

import (
	"fmt"
	"maps"
	"slices"

	"ankole.storage/disk"
)

// LayerInfo describes a file of the live chain, for a rebuild.
type LayerInfo struct {
	File   string
	Handle int32
	Size   int64
	Meta   DiskMeta
	Head   bool
}

// LayerList returns the live chain, bottom first, the head last, without the backing file. It copies the metadata and
// must not run beside a metadata operation; per I/O there is Layer.
func (c *Chain) LayerList() []LayerInfo {
	var out []LayerInfo
	for i := c.bottomIndex(); i < len(c.layers); i++ {
		l := c.layers[i]
		d := *c.disks[l.name]
		d.Labels, d.extra = maps.Clone(d.Labels), nil
		out = append(out, LayerInfo{File: l.name, Handle: l.file.Handle(), Size: l.size, Meta: d, Head: l.name == c.vm.Head})
	}
	return out
}

// Spec describes the chain as a rebuild target of it is to be made: its snapshots, and what is below the head.
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

func (c *Chain) layerIndex(file string) int {
	for i := c.bottomIndex(); i < len(c.layers); i++ {
		if c.layers[i].name == file {
			return i
		}
	}
	return 0
}

// LayerExtents calls fn for every extent of a file of the live chain, in order. It blocks; a snapshot's extents may
// be read while I/O goes on.
func (c *Chain) LayerExtents(file string, fn func(disk.Extent) error) error {
	i := c.layerIndex(file)
	if i == 0 {
		return fmt.Errorf("%w: no layer %q in the live chain", ErrNotFound, file)
	}
	return c.eachExtent(&c.layers[i], fn)
}

// Layers returns how many files the live chain has, without the backing file.
func (c *Chain) Layers() int { return len(c.layers) - c.bottomIndex() }

// Layer returns the file name, handle and size of layer i of the live chain, 0 being the bottom and Layers()-1 the
// head. It does not block or allocate.
func (c *Chain) Layer(i int) (file string, handle int32, size int64) {
	l := &c.layers[c.bottomIndex()+i]
	return l.name, l.file.Handle(), l.size
}

// Empty tells whether nothing was ever written to the volume: there is no snapshot, no backing file, and no block in
// the head, also none that was punched since Open. It does not block, and does not look at the whole map.
func (c *Chain) Empty() bool {
	return len(c.layers) == 2 && !c.backing && !slices.ContainsFunc(c.m.only, func(word uint64) bool { return word != 0 })
}

// LayerHandle returns the loop handle of a file of the live chain for a rebuild's writes. Snapshots can be written
// only while the chain is Rebuilding.
func (c *Chain) LayerHandle(file string) (int32, bool) {
	if i := c.layerIndex(file); i != 0 {
		return c.layers[i].file.Handle(), true
	}
	return NoHandle, false
}

// MarkLayerWritten records that a rebuild has written [off, off+n), whole blocks, of a layer. It does not block.
func (c *Chain) MarkLayerWritten(file string, off, n int64) {
	c.checkRange(off, n)
	i := c.layerIndex(file)
	if i == 0 || off%blockSize != 0 || n%blockSize != 0 {
		panic(fmt.Sprintf("chain: [%d,+%d) of layer %q was not written by a rebuild", off, n, file))
	}
	first, end := off/blockSize, (off+n)/blockSize
	if i == len(c.layers)-1 {
		c.m.setHead(first, end, byte(i), c.backing)
		return
	}
	c.m.raise(first, end, byte(i), c.headIndex())
}

// Rebuilding tells whether the chain is an incomplete rebuild target.
func (c *Chain) Rebuilding() bool { return c.rebuilding }

// SetRebuilding marks the chain as an incomplete rebuild target; durable when it returns nil.
func (c *Chain) SetRebuilding() error {
	if err := c.usable(); err != nil {
		return err
	}
	if c.vm.Rebuilding {
		return nil
	}
	if err := c.voidAllChecksums(); err != nil {
		return err
	}
	vm := c.vm
	vm.Rebuilding = true
	return c.writeVolumeMeta(&vm)
}

// FinishRebuild makes everything the rebuild wrote durable and then, durably, clears Rebuilding. The snapshots'
// handles stay writable until the chain is opened again; nobody may use them.
func (c *Chain) FinishRebuild() error {
	if err := c.usable(); err != nil {
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
	if err := c.closeBranches(); err != nil {
		return err
	}
	if err := c.syncDir(); err != nil {
		return err
	}
	c.regionsBoot = c.opts.Boot // whatever was lost before is there again; the next mark makes that durable
	vm := c.vm
	vm.Rebuilding = false
	return c.writeVolumeMeta(&vm)
}

// LayerFile returns the file of layer i of the live chain, for reading it beside I/O. It does not block.
func (c *Chain) LayerFile(i int) disk.File { return c.layers[c.bottomIndex()+i].file }

// Below prepares to find out which blocks of [off, off+n), whole blocks, the layers below the head have. It does not
// block; find does, and may run beside I/O but not beside metadata operations. SetBelow takes its result over.
func (c *Chain) Below(off, n int64) (find func() ([]byte, error)) {
	c.checkRange(off, n)
	lower := slices.Clone(c.layers[c.bottomIndex() : len(c.layers)-1])
	first := byte(c.bottomIndex())
	return func() ([]byte, error) {
		top := make([]byte, n/blockSize)
		for i := range lower {
			extents, _, err := lower[i].file.Extents(off, nil)
			if err != nil {
				return nil, err
			}
			for _, e := range extents {
				for b := max(e.Off, off) / blockSize; b*blockSize < min(e.Off+e.Len, off+n); b++ {
					top[b-off/blockSize] = first + byte(i)
				}
			}
		}
		return top, nil
	}
}

// SetBelow records which layer below the head is the topmost to have each block from off on, after a rebuild has punched
// one of them, or the head if punched is set. It does not block.
func (c *Chain) SetBelow(off int64, top []byte, punched bool) {
	at, head := off/blockSize, c.headIndex()
	for i, v := range top {
		b := at + int64(i)
		switch m := c.m.b[b]; {
		case !punched && (m == inHeadOnly || m == head):
			// Whether something is below decides how zeroes are made.
			c.m.b[b] = inNone
			if v != inNone {
				c.m.setLower(b, b+1, v)
			}
			c.m.setHead(b, b+1, head, c.backing)
		case v == inNone:
			c.m.clear(b, b+1)
		default:
			c.m.setLower(b, b+1, v)
		}
	}
}
