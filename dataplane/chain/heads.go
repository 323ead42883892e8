package chain

import (
	"fmt"
	"slices"

	"ankole.storage/dataplane/disk"
)

// checkHead refuses a directory whose files do not agree on which head is the volume's, or how long
// it is. No step of an operation and no crash leaves that: a new head is empty and has its length
// before volume.meta names it, and one that is left is by then a snapshot, or is named as given up.
// Only the head of a rebuild target gets its length first. So a file was changed from outside, and
// what is right is a person's to say. Nothing is removed.
func (c *Files) checkHead(head disk.Info, names, strays []string) error {
	if c.opts.RecoverHead == c.meta.vm.Head {
		return nil // a person has named it
	}
	own := ""
	if c.meta.stamped {
		own = c.meta.vm.AnkoleHead
	}
	if own != "" && own != c.meta.vm.Head && slices.Contains(names, own) {
		return fmt.Errorf("%w: %s names %s as the head, and the engine that wrote the directory used %s; put back "+
			"the one that is right, or move the other one away", ErrCorrupt, volumeMetaName, c.meta.vm.Head, own)
	}
	for _, name := range strays {
		if !isHeadFile(name) || slices.Contains(c.meta.vm.AnkoleGivenUp, name) {
			continue
		}
		full, err := c.onlyHolder(name, names)
		if err != nil {
			return err
		}
		if full {
			return fmt.Errorf("%w: %s and %s both hold data, and %s names the first one as the head; move the one that "+
				"is not the volume's away", ErrCorrupt, c.meta.vm.Head, name, volumeMetaName)
		}
	}
	if own == c.meta.vm.Head && head.Size != c.meta.vm.Size && !c.meta.vm.Rebuilding {
		return fmt.Errorf("%w: %s says that the volume has %d bytes, and its head %s has %d; an expansion changes both",
			ErrCorrupt, volumeMetaName, c.meta.vm.Size, c.meta.vm.Head, head.Size)
	}
	return nil
}

// checkHeadParent refuses a head that stands on another snapshot than volume.meta says: what names
// a head names its parent too, and nothing changes the one without the other but what makes a
// rebuild target, whose record is void by then.
func (c *Files) checkHeadParent(s *Sidecars) error {
	d := c.meta.disks[c.meta.vm.Head]
	if r, ok := s.Record(); !ok || len(r.Members) == 0 || c.meta.vm.Rebuilding {
		return nil
	}
	if d == nil || !c.meta.stamped || c.meta.vm.AnkoleHead != c.meta.vm.Head || d.Parent == c.meta.vm.Parent {
		return nil
	}
	return fmt.Errorf("%w: %s says that the head stands on %q, and %s%s on %q", ErrCorrupt, volumeMetaName,
		c.meta.vm.Parent, c.meta.vm.Head, metaSuffix, d.Parent)
}

// onlyHolder reports whether a head's file has data that no snapshot's name leads to.
func (c *Files) onlyHolder(head string, names []string) (bool, error) {
	info, err := c.fs.Stat(c.path(head))
	if isNotFound(err) || err == nil && info.Allocated == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if _, ok := snapshotName(name); !ok {
			continue
		}
		if snap, err := c.fs.Stat(c.path(name)); err == nil && snap.Inode == info.Inode {
			return false, nil
		}
	}
	return true, nil
}
