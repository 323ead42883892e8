package chain

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"ankole.storage/dataplane/disk"
)

// A merged file has two names for a moment: the child's, whose place it takes, and the source's. A
// process that ends then leaves two layers that are one file, S and its child X:
//
//	X's parent | S            | left by                                  | what is done
//	S          | marked       | renamed, X's metadata not replaced       | it is replaced (commit), then S is removed
//	another    | marked, leaf | committed, S not removed yet             | S is removed
//	anything else                                                        | ErrCorrupt: no operation leaves it
//
// Reading is the same in all of them, but not writing: a rebuild that compares S and X one after
// the other would punch out of the one what belongs to the other. So Open finishes what was begun,
// and Reshape, before it keeps files, what Open had no room to finish. The head under a snapshot's
// name is a rotation that was not committed: findStrays.

// finishSameFiles leaves no two layers that are one file. Blocks must be made anew afterwards.
func (c *removal) finishSameFiles(s *Sidecars) error {
	for {
		x, y, err := c.sameFile()
		if err != nil || x == "" {
			return err
		}
		if err := c.finishSameFile(s, x, y); err != nil {
			return err
		}
	}
}

// sameFile returns two layers that are one file, "" if there are none.
func (c *removal) sameFile() (x, y string, err error) {
	seen := map[uint64]string{}
	for _, file := range slices.Sorted(maps.Keys(c.meta.disks)) {
		info, err := c.fs.Stat(c.path(file))
		if isNotFound(err) {
			continue // Open refuses it, or forgets it
		}
		if err != nil {
			return "", "", err
		}
		if other := seen[info.Inode]; other != "" {
			return other, file, nil
		}
		seen[info.Inode] = file
	}
	return "", "", nil
}

// finishSameFile finishes what was begun with two layers that are one file.
func (c *removal) finishSameFile(s *Sidecars, x, y string) error {
	if c.meta.disks[x].Parent == y {
		x, y = y, x
	}
	leaf := func(file string) bool { return c.meta.disks[file].Removed && len(c.meta.children(file)) == 0 }
	switch {
	case c.meta.disks[y].Parent == x && c.meta.disks[x].Removed && len(c.meta.children(x)) == 1:
		return c.finishReplacement(s, x, y)
	case c.meta.disks[y].Parent != x && leaf(x):
		return c.dropName(s, x)
	case c.meta.disks[y].Parent != x && leaf(y):
		return c.dropName(s, y)
	}
	return fmt.Errorf(
		"%w: %s and %s are one file, and no purge can have left them so; give the one that is wrong a copy of its own",
		ErrCorrupt, x, y)
}

// finishReplacement finishes a replaceChild that was interrupted after the rename.
func (c *removal) finishReplacement(s *Sidecars, source, child string) error {
	c.log.Info("interrupted purge finished", "dir", c.dir, "merged", source, "into", child)
	if c.readOnly {
		d := *c.meta.disks[child]
		d.Parent, d.whiteouts = c.meta.disks[source].Parent, c.meta.mergedWhiteouts(source, child)
		c.meta.disks[child] = &d
		return c.dropName(s, source)
	}
	if err := c.syncDir(); err != nil { // the name may be in the system's memory only
		return err
	}
	if err := c.commitReplacement(source, child); err != nil {
		return err
	}
	if i := c.openFiles.layerIndex(source); i != 0 {
		if err := c.openFiles.mergeLayers(i); err != nil {
			return err
		}
	}
	return c.dropName(s, source)
}

// dropName removes the second name of a merged file.
func (c *removal) dropName(s *Sidecars, file string) error {
	if c.readOnly {
		delete(c.meta.disks, file)
		return nil
	}
	return c.removeLeaf(s, file)
}

// finishMerges is finishSameFiles for Open, which a full file system must not keep from reading.
func (c *removal) finishMerges(s *Sidecars) error {
	err := c.finishSameFiles(s)
	if errors.Is(err, disk.ErrNoSpace) {
		c.log.Warn("no room to finish an interrupted purge: two snapshots remain one file, which reads the same",
			"dir", c.dir, "error", err)
		return nil
	}
	return err
}
