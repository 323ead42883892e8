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
	if c.disks[snapshotFile(name)] != nil {
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
	if newSize < c.vm.Size {
		return fmt.Errorf("%w: the volume has %d bytes and cannot shrink to %d", ErrInvalid, c.vm.Size, newSize)
	}
	if newSize > c.vm.Size && c.ImportMark() != "" {
		return fmt.Errorf("%w: the volume is being filled from outside (%s); expand it afterwards", ErrInvalid,
			c.ImportMark())
	}
	if file := expansionFile(newSize); newSize > c.vm.Size && c.disks[file] != nil {
		return fmt.Errorf("%w: there is a snapshot %s, whose name an expansion needs; delete it or choose another size",
			ErrExists, displayName(file))
	}
	if total := len(c.disks); newSize > c.vm.Size && total >= maxChain {
		return fmt.Errorf("%w: %d disks in the directory, the maximum is %d; purge removed snapshots", ErrLimit, total,
			maxChain)
	}
	return nil
}

// CheckRevert returns the error that Revert would return for the snapshot.
func (c *Files) CheckRevert(name string) error {
	if err := c.usable(); err != nil {
		return err
	}
	d := c.disks[snapshotFile(name)]
	switch {
	case d == nil:
		return fmt.Errorf("%w: there is no snapshot %q", ErrNotFound, name)
	case d.Removed:
		return fmt.Errorf("%w: snapshot %q is marked removed and may be purged at any time; choose another one",
			ErrInvalid, name)
	case c.rebuilding:
		return fmt.Errorf("%w: chain %s is being rebuilt", ErrInvalid, c.dir)
	case c.ImportMark() != "":
		return fmt.Errorf("%w: the volume is being filled from outside (%s); revert afterwards", ErrInvalid, c.ImportMark())
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
