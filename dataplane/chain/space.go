package chain

import (
	"errors"

	"ankole.storage/dataplane/disk"
)

// Removing a large file can take a file system seconds, since every extent is given back on its own
// (ext4: two for a million). Operations that remove images often hold I/O back, so they take only
// the name away, and keep a handle: the space comes back when that is closed, beside everything
// else. After a crash the file system does it by itself.

// removal takes snapshots out of the chain, by removing, merging, pruning and trimming them, and
// files that nobody refers to out of the directory. What a purge does step by step says purge.go;
// what one that was interrupted has left it finishes (samefile.go).
//
// Its own are what is left of that: unlinked and oldHeads.
type removal struct {
	*directory
	meta          *meta
	checksums     *checksums
	whiteoutFiles *whiteoutFiles
	openFiles     *openFiles
	merges        *merges
	readers       *readers
	// unlinked are files that have lost their name and whose space is not given back yet.
	unlinked unlinkedFiles
	// oldHeads are names of heads that could not be removed.
	oldHeads []string
}

// unlink removes an image's name, if it is there.
func (c *removal) unlink(file string) error {
	if err := c.removeOldHeads(); err != nil {
		return err
	}
	c.keep(file)
	return removeIfThere(c.fs, c.path(file))
}

// keep keeps an image that is about to lose this name. If it cannot, the space comes back
// with the name.
func (c *removal) keep(file string) {
	if f, err := c.fs.Open(c.path(file), disk.ReadOnly|disk.Direct); err == nil {
		c.keepOpen(f)
	}
}

// keepOpen keeps an open file that has lost its name.
func (c *removal) keepOpen(f disk.File) { c.unlinked = append(c.unlinked, f) }

// Unlinked returns what gives back the space of the images that were removed, nil if none was. That
// may take long, and may run beside everything else; whoever does not ask leaves it to Close.
func (c *removal) Unlinked() (giveBack func() error) {
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
