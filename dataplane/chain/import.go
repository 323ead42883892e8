package chain

import (
	"errors"
	"fmt"
	"maps"

	"ankole.storage/disk"
)

// Content from outside (a restored backup, a cloned volume) comes into a chain as a snapshot: it is written to a file that
// no reader sees, beside I/O, and then becomes the snapshot below a new, empty head in one step.
//
//	m, err := c.NewImport()
//	defer m.Close()
//	err = m.WriteAt(data, off)                   // as often as needed, beside I/O
//	err = m.Finish(name, user, created, labels)  // with I/O held back, short
//
// What is not written is read from the snapshot below, so an incremental restore writes only what has changed since, zeroes
// included. A crash leaves the chain from before it or from after it.

// importName is the file while it is written. Other engines know it as what an incremental restore leaves behind.
const importName = deltaPrefix + "import.img"

// Import is a snapshot that is being written from outside.
type Import struct {
	c *Chain
	f disk.File
}

// NewImport begins an import into a chain with an empty head: what was written to the head would be lost. Whatever an
// earlier import left is removed.
func (c *Chain) NewImport() (*Import, error) {
	if err := c.importable(); err != nil {
		return nil, err
	}
	if err := removeIfThere(c.fs, c.path(importName)); err != nil {
		return nil, err
	}
	f, err := c.fs.Create(c.path(importName), disk.Direct)
	if err != nil {
		return nil, err
	}
	m := &Import{c: c, f: f}
	if err = f.Truncate(c.size); err == nil {
		err = c.syncDir()
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (c *Chain) importable() error {
	if err := c.usable(); err != nil {
		return err
	}
	if c.rebuilding {
		return fmt.Errorf("%w: chain %s is being rebuilt", ErrInvalid, c.dir)
	}
	return c.headIsEmpty()
}

// headIsEmpty is an error where the head has a block.
func (c *Chain) headIsEmpty() error {
	extents, _, err := c.head().file.Extents(0, nil)
	if err == nil && len(extents) > 0 {
		err = fmt.Errorf("%w: the head of %s holds data; take a snapshot first", ErrInvalid, c.dir)
	}
	return err
}

// WriteAt writes whole blocks. Nothing is durable before Finish.
func (m *Import) WriteAt(p []byte, off int64) error {
	if err := m.c.usable(); err != nil {
		return err
	}
	n := int64(len(p))
	if m.f == nil || off < 0 || (off|n)%blockSize != 0 || off > m.c.size || n > m.c.size-off {
		return fmt.Errorf("%w: [%d,+%d) of an import into %d bytes", ErrInvalid, off, n, m.c.size)
	}
	_, err := m.f.WriteAt(p, off)
	return err
}

// Finish makes what was written the snapshot name, on top of what is the newest one, with an empty head above. It needs I/O
// to be held back, and every handle of the chain is another one afterwards. Errors are those of Chain.Snapshot; after them
// the chain is as it was.
func (m *Import) Finish(name string, userCreated bool, created string, labels map[string]string) error {
	c := m.c
	if err := c.importable(); err != nil {
		return err
	}
	if err := c.CheckSnapshot(name); err != nil {
		return err
	}
	if err := c.syncFile(m.f); err != nil {
		return err
	}
	names, err := c.fs.List(c.dir)
	if err != nil {
		return err
	}
	newHead, err := nextHead(names)
	if err != nil {
		return err
	}
	old, file := c.vm.Head, snapshotFile(name)
	snap := &DiskMeta{Name: file, Parent: c.disks[old].Parent, UserCreated: userCreated, Created: created, Labels: maps.Clone(labels)}
	next, err := m.prepare(file, snap, newHead, created)
	if err == nil {
		err = errors.Join(c.headGoes(), c.layersChange(file))
	}
	if err == nil {
		err = c.commitRotation(newHead, file, c.vm.Size)
	}
	if err != nil {
		m.undo(next, file, newHead)
		return err
	}
	c.takeOver(next)
	if err := removeIfThere(c.fs, c.path(importName)); err != nil {
		c.opts.Log.Warn("second name of an imported snapshot remains; the next open removes it", "dir", c.dir, "error", err)
	}
	return c.removeOldHead(old)
}

// prepare links the file to the snapshot's name and makes the new head. Until the commit the file keeps its own name, by
// which an open after a crash knows that the snapshot was not committed.
func (m *Import) prepare(file string, snap *DiskMeta, newHead, created string) (*Chain, error) {
	c := m.c
	for _, stale := range []string{file, file + metaSuffix, file + checksumSuffix, file + sumsSuffix} {
		if err := removeIfThere(c.fs, c.path(stale)); err != nil {
			return nil, err
		}
	}
	if err := c.fs.Link(c.path(importName), c.path(file)); err != nil {
		return nil, err
	}
	if err := c.fs.WriteFileAtomic(c.path(file+metaSuffix), snap.encode()); err != nil {
		return nil, c.breaksUnlessFull(err)
	}
	disks := c.disks
	c.disks = maps.Clone(disks)
	c.disks[file] = snap
	next, err := c.prepareRevert(file, newHead, created)
	c.disks = disks
	return next, err
}

func (m *Import) undo(next *Chain, file, newHead string) {
	c := m.c
	c.undoRevert(next, newHead)
	if c.broken != nil {
		return
	}
	err := errors.Join(removeIfThere(c.fs, c.path(file)), removeIfThere(c.fs, c.path(file+metaSuffix)))
	if err == nil {
		err = c.syncDir() // before the file's own name goes, which says that the snapshot was not committed
	}
	if err != nil {
		c.opts.Log.Warn("files of a failed import remain; the next open removes them", "dir", c.dir, "error", err)
	}
}

// Close gives the import up unless it was finished.
func (m *Import) Close() error {
	if m.f == nil {
		return nil
	}
	err := m.f.Close()
	m.f = nil
	if m.c.broken == nil && !m.c.closed {
		err = errors.Join(err, removeIfThere(m.c.fs, m.c.path(importName)))
	}
	return err
}
