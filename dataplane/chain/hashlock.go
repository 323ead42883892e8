package chain

import (
	"errors"
	"fmt"
	"path"

	"ankole.storage/dataplane/disk"
)

// One file at a time is read for its checksums on a disk: several would take the disk from its
// users, and none would be done sooner. All replica directories of a disk lie in one folder, so
// whoever computes holds that folder's lock. It is not waited for: who does not get it tries again
// later, and it goes with the process that holds it.

// lock takes the disk's lock for the computation.
func (h *Hash) lock() error {
	folder := path.Dir(h.c.dir)
	l, err := h.c.fs.Lock(folder)
	if errors.Is(err, disk.ErrInUse) {
		return fmt.Errorf("another checksum is being computed on this disk (lock of %s): %w", folder, err)
	}
	if err != nil {
		return err
	}
	h.c.lock, h.locked = l, true
	return nil
}

func (k *checksums) unlock() error {
	l := k.lock
	if l == nil {
		return nil
	}
	k.lock = nil
	return l.Close()
}

// HashLocked tells whether a checksum is being computed on the directory's disk, by whomever.
func (k *checksums) HashLocked() (bool, error) {
	if k.lock != nil {
		return true, nil
	}
	l, err := k.fs.Lock(path.Dir(k.dir))
	switch {
	case errors.Is(err, disk.ErrInUse):
		return true, nil
	case err != nil:
		return false, err
	}
	return false, l.Close()
}
