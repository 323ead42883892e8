package chain

import (
	"errors"
	"maps"
)

// Revert makes the volume's content what it was at a snapshot: a new, empty head is put on it and
// the old head is given up. Newer snapshots remain as a branch of their own; the size stays. It
// needs I/O to be held back, and every handle of the chain is another one afterwards. Errors:
// ErrNotFound, ErrInvalid for a snapshot marked removed or a chain being rebuilt, ErrNoSpace; after
// them the chain is as it was.
func (c *Files) Revert(s *Sidecars, name, created string) (Change, error) {
	if err := errors.Join(s.usable(), c.CheckRevert(name)); err != nil {
		return Change{}, err
	}
	file := snapshotFile(name)
	names, err := c.fs.List(c.dir)
	if err != nil {
		return Change{}, err
	}
	newHead, err := nextHead(names)
	if err != nil {
		return Change{}, err
	}
	old, whiteouts := c.vm.Head, c.disks[c.vm.Head].whiteouts
	next, err := c.prepareRevert(file, newHead, created)
	if err == nil {
		err = s.headGoes()
	}
	if err == nil {
		err = c.commitRotation(newHead, file, c.vm.Size)
	}
	if err != nil {
		c.undoRevert(next, newHead)
		return Change{}, err
	}
	return c.takeOver(next), c.removeOldHead(old, whiteouts)
}

// Revert is Files.Revert with its Change applied.
func (c *Chain) Revert(name, created string) error {
	ch, err := c.Files.Revert(c.Sidecars, name, created)
	c.Apply(ch)
	return err
}

// prepareRevert makes the new head and opens the chain below it, all that could fail.
func (c *Files) prepareRevert(file, newHead, created string) (*Chain, error) {
	head := &DiskMeta{Name: newHead, Parent: file, Created: created}
	if err := createLayer(c.fs, c.dir, newHead, c.vm.Size, head); err != nil {
		return nil, c.breaksUnlessFull(err)
	}
	n := &Chain{&Files{fs: c.fs, dir: c.dir, opts: c.opts, vm: c.vm, disks: maps.Clone(c.disks),
		table: table{layers: make([]layer, 1), size: c.size}}, &Sidecars{}, &Blocks{}}
	n.vm.Head = newHead
	n.disks[newHead] = head
	delete(n.disks, c.vm.Head)
	// The new head has nothing to settle, and the clean flag keeps it from being looked at.
	n.vm.Dirty = false
	if err := n.openLayers(); err != nil {
		return n, err
	}
	return n, n.buildMap(n.Sidecars, n.Blocks)
}

func (c *Files) undoRevert(next *Chain, newHead string) {
	if next != nil {
		_ = next.Abandon() // it was only read
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

// takeOver replaces the files by those of next.
func (c *Files) takeOver(next *Chain) Change {
	for _, l := range c.layers[1 : len(c.layers)-1] {
		_ = l.close() // only read
	}
	_ = c.head().whiteouts.close() // given up with the head
	c.unlinked = append(c.unlinked, c.head().file)
	c.layers, c.disks, c.backing = next.Files.layers, next.disks, next.Files.backing
	return Change{fresh: next.Blocks}
}
