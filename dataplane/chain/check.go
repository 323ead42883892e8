package chain

import "fmt"

// The Check functions tell whether an operation would be refused for what the chain is, without
// doing any of it. An engine asks all replicas before it lets any of them begin.

// CheckSnapshot returns the error that Snapshot would return for its name or a limit.
func (c *Files) CheckSnapshot(name string) error {
	if err := c.usable(); err != nil {
		return err
	}
	if err := ValidateSnapshotName(name); err != nil {
		return err
	}
	if c.meta.disks[snapshotFile(name)] != nil {
		return fmt.Errorf("%w: snapshot %s is already existing", ErrExists, name)
	}
	return c.checkLimits()
}

// CheckExpand returns the error that Expand would return for the size or a limit.
func (c *Files) CheckExpand(newSize int64) error {
	if err := c.usable(); err != nil {
		return err
	}
	if err := validateSize(newSize); err != nil {
		return err
	}
	if newSize < c.meta.vm.Size {
		return fmt.Errorf("%w: the volume has %d bytes and cannot shrink to %d", ErrInvalid, c.meta.vm.Size, newSize)
	}
	if newSize > c.meta.vm.Size && c.meta.ImportMark() != "" {
		return fmt.Errorf("%w: the volume is being filled from outside (%s); expand it afterwards", ErrInvalid,
			c.meta.ImportMark())
	}
	if file := expansionFile(newSize); newSize > c.meta.vm.Size && c.meta.disks[file] != nil {
		return fmt.Errorf("%w: there is a snapshot %s, whose name an expansion needs; delete it or choose another size",
			ErrExists, displayName(file))
	}
	if total := len(c.meta.disks); newSize > c.meta.vm.Size && total >= maxChain {
		return fmt.Errorf("%w: %d disks in the directory, the maximum is %d; purge removed snapshots", ErrLimit, total,
			maxChain)
	}
	return nil
}

// CheckRevert returns the error that Revert would return for the snapshot. What is being filled
// from outside can be given up, whoever has marked the snapshot removed that it stands on.
func (c *Files) CheckRevert(name string) error {
	if err := c.usable(); err != nil {
		return err
	}
	d, head := c.meta.disks[snapshotFile(name)], c.meta.disks[c.meta.vm.Head]
	filling := c.meta.ImportMark() != ""
	back := filling && head.Parent == snapshotFile(name)
	switch {
	case d == nil:
		return fmt.Errorf("%w: there is no snapshot %q", ErrNotFound, name)
	case d.Removed && !back:
		return fmt.Errorf("%w: snapshot %q is marked removed and may be purged at any time; choose another one",
			ErrInvalid, name)
	case c.meta.vm.Rebuilding:
		return fmt.Errorf("%w: chain %s is being rebuilt", ErrInvalid, c.dir)
	case filling && !back:
		return fmt.Errorf("%w: the volume is being filled from outside (%s); revert afterwards", ErrInvalid,
			c.meta.ImportMark())
	}
	return nil
}

// SetLimits replaces SnapshotMaxCount and SnapshotMaxSize. What is there already stays, even beyond
// a lower limit.
func (c *Files) SetLimits(maxCount int, maxSize int64) error {
	o := c.opts
	o.SnapshotMaxCount, o.SnapshotMaxSize = maxCount, maxSize
	if err := o.setDefaults(); err != nil {
		return err
	}
	c.opts.SnapshotMaxCount, c.opts.SnapshotMaxSize = o.SnapshotMaxCount, o.SnapshotMaxSize
	return nil
}
