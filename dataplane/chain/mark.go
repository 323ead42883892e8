package chain

import (
	"errors"

	"ankole.storage/dataplane/disk"
)

// What the copy of the metadata says of a file holds until the next copy, or until volume.meta is
// replaced. An operation that changes another file marks it in the copy first: a process that ends
// on the way leaves a file that is either as before or as after it, and nobody can tell which. The
// next copy takes the mark away; from an image only when the operation is over, which can have many
// pieces, since until then its length need not be durable.

// mark durably says in the copy that files may have changed.
func (c *Files) mark(names ...string) error {
	if c.readOnly || c.vm.Rebuilding && c.vm.Dirty {
		return nil
	}
	for _, name := range names {
		if isLayerFile(name) {
			c.changing[name] = true
		}
	}
	if !c.copyHolds() {
		return nil
	}
	next := metaCopy{}
	marked := false
	for name, e := range c.copies {
		for _, n := range names {
			if n == name && !e.Changing {
				e.Changing, marked = true, true
			}
		}
		next[name] = e
	}
	if !marked {
		return nil
	}
	err := c.fs.WriteFileAtomic(c.path(copyName), next.encode())
	if err == nil {
		c.copies = next
		return nil
	}
	if !errors.Is(err, disk.ErrNoSpace) && !errors.Is(err, disk.ErrUnchanged) {
		return c.breaks(err)
	}
	// No room for another copy: none is better than one that is wrong.
	c.log.Warn("metadata has no copy", "dir", c.dir, "error", err)
	if err := removeIfThere(c.fs, c.path(copyName)); err != nil {
		return err
	}
	c.copies = nil
	return c.syncDir()
}

// settled says that an operation on an image is over, and its changes are durable.
func (c *Files) settled(image string) {
	if m := c.merge; m != nil && m.source == image || !c.changing[image] {
		return
	}
	delete(c.changing, image)
	c.stale = true
}
