package chain

import (
	"errors"
	"maps"
)

// Revert makes the volume's content what it was at a snapshot: a new, empty head is put on it and the old head is
// given up. Newer snapshots remain as a branch of their own; the size stays. It needs I/O to be held back, and every
// handle of the chain is another one afterwards. Errors: ErrNotFound, ErrInvalid for a snapshot marked removed or a
// chain being rebuilt, ErrNoSpace; after them the chain is as it was.
func (c *Chain) Revert(name, created string) error {
	if err := c.CheckRevert(name); err != nil {
		return err
	}
	file := snapshotFile(name)
	names, err := c.fs.List(c.dir)
	if err != nil {
		return err
	}
	newHead, err := nextHead(names)
	if err != nil {
		return err
	}
	old := c.vm.Head
	next, err := c.prepareRevert(file, newHead, created)
	if err == nil {
		err = c.headGoes()
	}
	if err == nil {
		err = c.commitRotation(newHead, file, c.vm.Size)
	}
	if err != nil {
		c.undoRevert(next, newHead)
		return err
	}
	c.takeOver(next)
	return c.removeOldHead(old)
}

// prepareRevert makes the new head and opens the chain below it, all that could fail.
func (c *Chain) prepareRevert(file, newHead, created string) (*Chain, error) {
	head := &DiskMeta{Name: newHead, Parent: file, Created: created}
	if err := createLayer(c.fs, c.dir, newHead, c.vm.Size, head); err != nil {
		return nil, c.breaksUnlessFull(err)
	}
	n := &Chain{fs: c.fs, dir: c.dir, opts: c.opts, vm: c.vm, size: c.size, disks: maps.Clone(c.disks), layers: make([]layer, 1)}
	n.vm.Head = newHead
	n.disks[newHead] = head
	delete(n.disks, c.vm.Head)
	// The new head has nothing to settle, and the clean flag keeps it from being looked at.
	n.vm.Dirty = false
	if err := n.openLayers(); err != nil {
		return n, err
	}
	return n, n.buildMap()
}

func (c *Chain) undoRevert(next *Chain, newHead string) {
	if next != nil {
		next.closeView()
	}
	if c.broken != nil {
		return // which of the two states is on disk is not known; both are whole
	}
	var err error
	for _, name := range []string{newHead, newHead + metaSuffix} {
		err = errors.Join(err, removeIfThere(c.fs, c.path(name)))
	}
	if err != nil {
		c.opts.Log.Warn("files of a failed revert remain; the next open removes them", "dir", c.dir, "error", err)
	}
}

// takeOver replaces files and map by those of next.
func (c *Chain) takeOver(next *Chain) {
	for _, l := range c.layers[1 : len(c.layers)-1] {
		_ = l.file.Close() // only read
	}
	c.unlinked = append(c.unlinked, c.head().file)
	c.m.free()
	c.layers, c.disks, c.m, c.backing = next.layers, next.disks, next.m, next.backing
}
