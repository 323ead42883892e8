package chain

import (
	"errors"

	"ankole.storage/dataplane/disk"
)

// Errors that callers tell apart with errors.Is. Those of package disk keep their identity.
var (
	// ErrCorrupt: the directory's content contradicts itself or the format. Nothing was changed.
	ErrCorrupt = errors.New("corrupt replica directory")
	// ErrLimit: a documented bound (snapshots, chain length, names) would be passed.
	ErrLimit = errors.New("limit reached")
	// ErrInvalid: an argument is wrong; nothing was changed.
	ErrInvalid = errors.New("invalid argument")
	// ErrBroken: an earlier sync of this chain failed, so nothing can be made durable any more.
	ErrBroken = errors.New("chain broken by an earlier failed sync")
	// ErrNoMemory: the block map could not be allocated.
	ErrNoMemory = errors.New("out of memory")
	// ErrForeign: the directory belongs to another volume.
	ErrForeign = errors.New("directory belongs to another volume")

	ErrNoSpace  = disk.ErrNoSpace
	ErrInUse    = disk.ErrInUse
	ErrNotFound = disk.ErrNotFound
	ErrExists   = disk.ErrExists
)
