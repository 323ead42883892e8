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
func (o *opening) checkHead(head disk.Info) error {
	if o.opts.RecoverHead == o.meta.vm.Head {
		return nil // a person has named it
	}
	own := ""
	if o.meta.stamped {
		own = o.meta.vm.AnkoleHead
	}
	if own != "" && own != o.meta.vm.Head && slices.Contains(o.names, own) {
		return fmt.Errorf("%w: %s names %s as the head, and the engine that wrote the directory used %s; put back "+
			"the one that is right, or move the other one away", ErrCorrupt, volumeMetaName, o.meta.vm.Head, own)
	}
	for _, name := range o.strays {
		if !isHeadFile(name) || slices.Contains(o.meta.vm.AnkoleGivenUp, name) {
			continue
		}
		full, err := o.onlyHolder(name)
		if err != nil {
			return err
		}
		if full {
			return fmt.Errorf("%w: %s and %s both hold data, and %s names the first one as the head; move the one that "+
				"is not the volume's away", ErrCorrupt, o.meta.vm.Head, name, volumeMetaName)
		}
	}
	if own == o.meta.vm.Head && head.Size != o.meta.vm.Size && !o.meta.vm.Rebuilding {
		return fmt.Errorf("%w: %s says that the volume has %d bytes, and its head %s has %d; an expansion changes both",
			ErrCorrupt, volumeMetaName, o.meta.vm.Size, o.meta.vm.Head, head.Size)
	}
	return nil
}

// checkHeadParent refuses a head that stands on another snapshot than volume.meta says: what names
// a head names its parent too, and nothing changes the one without the other but what makes a
// rebuild target, whose record is void by then.
func (o *opening) checkHeadParent(s *Sidecars) error {
	d := o.meta.disks[o.meta.vm.Head]
	if r, ok := s.Record(); !ok || len(r.Members) == 0 || o.meta.vm.Rebuilding {
		return nil
	}
	if d == nil || !o.meta.stamped || o.meta.vm.AnkoleHead != o.meta.vm.Head || d.Parent == o.meta.vm.Parent {
		return nil
	}
	return fmt.Errorf("%w: %s says that the head stands on %q, and %s%s on %q", ErrCorrupt, volumeMetaName,
		o.meta.vm.Parent, o.meta.vm.Head, metaSuffix, d.Parent)
}

// onlyHolder reports whether a head's file has data that no snapshot's name leads to.
func (o *opening) onlyHolder(head string) (bool, error) {
	info, err := o.fs.Stat(o.path(head))
	if isNotFound(err) || err == nil && info.Allocated == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, name := range o.names {
		if _, ok := snapshotName(name); !ok {
			continue
		}
		if snap, err := o.fs.Stat(o.path(name)); err == nil && snap.Inode == info.Inode {
			return false, nil
		}
	}
	return true, nil
}
