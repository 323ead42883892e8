package chain

import (
	"errors"

	"ankole.storage/dataplane/disk"
)

// Removing a large file can take a file system seconds, since every extent is given back on its own
// (ext4: two for a million). Operations that remove images often hold I/O back, so they take only
// the name away, and keep a handle: the space comes back when that is closed, beside everything
// else. After a crash the file system does it by itself.

// unlink removes an image's name, if it is there.
func (c *Files) unlink(file string) error {
	if err := c.removeOldHeads(); err != nil {
		return err
	}
	c.keepUnlinked(file)
	return removeIfThere(c.fs, c.path(file))
}

// keepUnlinked keeps an image that is about to lose this name. If it cannot, the space comes back
// with the name.
func (c *Files) keepUnlinked(file string) {
	if f, err := c.fs.Open(c.path(file), disk.ReadOnly|disk.Direct); err == nil {
		c.unlinked = append(c.unlinked, f)
	}
}

// Unlinked returns what gives back the space of the images that were removed, nil if none was. That
// may take long, and may run beside everything else; whoever does not ask leaves it to Close.
func (c *Files) Unlinked() (giveBack func() error) {
	if len(c.unlinked) == 0 {
		return nil
	}
	files := c.unlinked
	c.unlinked = nil
	return files.close
}

// unlinkedFiles are open files that have lost their name.
type unlinkedFiles []disk.File

func (n *unlinkedFiles) close() (err error) {
	for _, f := range *n {
		err = errors.Join(err, f.Close())
	}
	*n = nil
	return err
}
