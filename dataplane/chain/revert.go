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
//
// PrepareRevert does the part of it that takes long, since it looks at the extents of every layer,
// and may run beside I/O; no other metadata operation on the files may come between.
func (c *Files) Revert(s *Sidecars, r *Reverting) (Change, error) {
	old, whiteouts := c.meta.vm.Head, c.meta.disks[c.meta.vm.Head].whiteouts
	err := errors.Join(s.usable(), c.CheckRevert(r.name))
	if err == nil {
		err = s.headGoes()
	}
	if err == nil {
		err = c.meta.commitHead(r.head, snapshotFile(r.name), c.meta.vm.Size, old)
	}
	if err != nil {
		c.undoRevert(r.next, r.head)
		return Change{}, err
	}
	return c.takeOver(r.next), c.removal.removeOldHead(old, whiteouts)
}

// Reverting is a revert for which everything is prepared.
type Reverting struct {
	// name is the snapshot's, head the file of the new head.
	name, head string
	next       *Chain
}

// PrepareRevert makes the new head and opens the chain below it. Who does not use the result gives
// it to DropRevert. The errors are those of Revert, and disk.ErrIO.
func (c *Files) PrepareRevert(name, created string) (*Reverting, error) {
	if err := c.CheckRevert(name); err != nil {
		return nil, err
	}
	names, err := c.fs.List(c.dir)
	if err != nil {
		return nil, err
	}
	head, err := nextHead(names)
	if err != nil {
		return nil, err
	}
	next, err := c.prepareRevert(snapshotFile(name), head, created)
	if err != nil {
		c.undoRevert(next, head)
		return nil, err
	}
	return &Reverting{name, head, next}, nil
}

// DropRevert gives back what PrepareRevert has made.
func (c *Files) DropRevert(r *Reverting) { c.undoRevert(r.next, r.head) }

// Revert is Files.PrepareRevert and Files.Revert with its Change applied.
func (c *Chain) Revert(name, created string) error {
	if err := c.Sidecars.usable(); err != nil {
		return err
	}
	r, err := c.PrepareRevert(name, created)
	if err != nil {
		return err
	}
	ch, err := c.Files.Revert(c.Sidecars, r)
	c.Apply(ch)
	return err
}

// prepareRevert makes the new head and opens the chain below it, all that could fail.
func (c *Files) prepareRevert(file, newHead, created string) (*Chain, error) {
	head := &DiskMeta{Name: newHead, Parent: file, Created: created}
	if err := createLayer(c.fs, c.dir, newHead, c.meta.vm.Size, head); err != nil {
		return nil, c.breaksUnlessFull(err)
	}
	d := c.directory.another(c.readOnly)
	n := &Chain{newFiles(d, c.meta.beside(d, newHead, maps.Clone(c.meta.disks)), c.opts), noSidecars(), &Blocks{}}
	n.meta.disks[newHead] = head
	delete(n.meta.disks, c.meta.vm.Head)
	// The new head has nothing to settle, and the clean flag keeps it from being looked at.
	n.meta.vm.Dirty = false
	if err := n.openFiles.open(); err != nil {
		return n, err
	}
	if err := n.buildMap(n.Sidecars, n.Blocks); err != nil {
		return n, err
	}
	return n, n.whiteoutFiles.Sound()
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
		c.log.Warn("files of a failed revert remain; the next open removes them", "dir", c.dir, "error", err)
	}
}

// takeOver replaces the files by those of next.
func (c *Files) takeOver(next *Chain) Change {
	c.removal.keepOpen(c.openFiles.replace(next.Files.openFiles))
	c.meta.disks = next.meta.disks
	return Change{fresh: next.Blocks}
}
