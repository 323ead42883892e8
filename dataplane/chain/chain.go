package chain

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"ankole.storage/dataplane/disk"
)

// maxChain bounds the live chain and the number of disks in a directory, head included.
const maxChain = 250

// UUID identifies a volume.
type UUID = [16]byte

// Options say how a directory is opened.
type Options struct {
	// Size is the volume's size in bytes; it is needed only where volume.meta was lost.
	Size int64
	// VolumeUUID, unless zero, must equal the one in the member record if there is a valid record.
	VolumeUUID UUID
	// BackingFile is an image, raw or qcow2, below the bottom layer, "" for none. It overrides the
	// path in volume.meta.
	BackingFile string
	// SnapshotMaxCount (2 to 250, 0 means 250) and SnapshotMaxSize (bytes, 0 means no limit) bound
	// Snapshot.
	SnapshotMaxCount int
	SnapshotMaxSize  int64
	// RecoverHead names the head to use where volume.meta was lost and several heads hold data.
	RecoverHead string
	// ReadOnly changes nothing in the directory and takes no lock: for tools over a stopped replica.
	ReadOnly bool
	// Boot names the machine's run, zero where it is not known.
	Boot Boot
	// Map returns the block map that the process which had the directory before has handed over
	// (CloseFor), nil if there is none. It is called once the lock is held; the result is not kept.
	// nil: none is ever handed over.
	Map func() []byte
	// AsItIs: a directory that was changed since it was closed is not refused for that, for tools
	// that look at damage or repair it.
	AsItIs bool
	// Rand is where stamps come from; nil means the system's random source.
	Rand io.Reader
	// Log receives what was found and repaired; nil means nowhere.
	Log *slog.Logger
}

func (o *Options) setDefaults() error {
	if o.SnapshotMaxCount == 0 {
		o.SnapshotMaxCount = maxChain
	}
	if o.SnapshotMaxCount < 2 || o.SnapshotMaxCount > maxChain {
		return fmt.Errorf("%w: snapshot-max-count %d is outside 2 to %d", ErrInvalid, o.SnapshotMaxCount, maxChain)
	}
	if o.SnapshotMaxSize < 0 {
		return fmt.Errorf("%w: snapshot-max-size %d is negative", ErrInvalid, o.SnapshotMaxSize)
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Chain is an open replica directory as one thread has it: a tool, a test, or whoever opens it and
// then gives the two parts to their owners.
type Chain struct {
	*Files
	*Sidecars
	*Blocks
}

// Files are the files of an open replica directory and what is in them but for the blocks: what
// metadata operations work on. They block, so a core runs them away from its loop's thread, one at
// a time. Nothing here says where a block is read from; an operation that changes that returns a
// Change, for the owner of Blocks.
type Files struct {
	*directory
	*meta
	*checksums
	*whiteoutFiles
	*openFiles
	*merges
	*readers
	*removal
	*mapHandover
	revision
	opts Options
	// lock is held on the directory from Open until the end, unless it is only read.
	lock disk.Lock

	// wasClosed: whoever had the directory before has closed it.
	wasClosed bool
}

// newFiles are the files of a directory of which none is open yet.
func newFiles(d *directory, m *meta, opts Options) *Files {
	c := &Files{directory: d, meta: m, opts: opts, checksums: newChecksums(d, m),
		whiteoutFiles: &whiteoutFiles{directory: d, meta: m}, revision: revision{d}}
	c.openFiles = &openFiles{directory: d, meta: m, checksums: c.checksums, whiteoutFiles: c.whiteoutFiles,
		table: table{layers: make([]layer, 1)}}
	c.merges = &merges{directory: d, meta: m, checksums: c.checksums, whiteoutFiles: c.whiteoutFiles}
	c.readers = &readers{directory: d, meta: m, checksums: c.checksums, openFiles: c.openFiles, merges: c.merges,
		pins: map[string]int{}}
	c.removal = &removal{directory: d, meta: m, checksums: c.checksums, whiteoutFiles: c.whiteoutFiles,
		openFiles: c.openFiles, merges: c.merges, readers: c.readers}
	c.mapHandover = &mapHandover{directory: d, meta: m, openFiles: c.openFiles, left: opts.Map}
	return c
}

// lookAround are the files for a tool that only looks and opens none of them.
func lookAround(fs disk.Meta, dir string) *Files {
	d := lookingAt(fs, dir)
	return newFiles(d, newMeta(d, nil, ""), Options{})
}

// State is the condition of a replica directory, by the names other engines use.
type State string

// States.
const (
	// StateInitial: no directory, or nothing in it yet.
	StateInitial State = "initial"
	// StateClosed: well-formed and not open, whether it was closed cleanly or not.
	StateClosed State = "closed"
	// StateOpen and StateDirty: open; dirty when volume.meta says so, as it does from Open to Close.
	StateOpen  State = "open"
	StateDirty State = "dirty"
	// StateRebuilding: an incomplete rebuild target.
	StateRebuilding State = "rebuilding"
	// StateError: unreadable metadata or a failed disk.
	StateError State = "error"
)

// WasClosed tells whether whoever had the directory before closed it, so that it holds all that was
// written there.
func (c *Files) WasClosed() bool { return c.wasClosed }

// State is the condition of the open chain.
func (c *Files) State() State {
	switch {
	case c.broken != nil || c.meta.vm.Error != "":
		return StateError
	case c.closed:
		return StateClosed
	case c.meta.vm.Rebuilding:
		return StateRebuilding
	case c.meta.vm.Dirty:
		return StateDirty
	}
	return StateOpen
}

// Sync makes every completed write durable: the blocking form of a flush, for tools and tests.
func (c *Files) Sync() error {
	if err := c.usable(); err != nil {
		return err
	}
	return c.syncFile(c.openFiles.head().file)
}

// Sync is Files.Sync with the head's whiteouts.
func (c *Chain) Sync() error {
	if err := c.Files.usable(); err != nil {
		return err
	}
	return errors.Join(c.writeWhiteouts(true), c.Files.Sync())
}

// WriteAllowed tells whether writes may be sent to the head: the directory is open for writing and
// no sync has failed.
func (c *Files) WriteAllowed() bool { return c.broken == nil && !c.readOnly && !c.closed }

// Close syncs the head, records the clean stop and closes every file. All I/O on the chain's
// handles must have completed. It releases everything even when it fails; the directory then counts
// as not cleanly stopped.
func (c *Files) Close() error { return c.close(nil) }

// close is Close; after a failed sync of another part of the directory nothing is recorded.
func (c *Files) close(broken error) error {
	if c.closed {
		return nil
	}
	var err error
	if !c.readOnly && c.broken == nil && broken == nil {
		if err = errors.Join(c.merges.end(), c.syncFile(c.openFiles.head().file)); err == nil {
			vm := c.meta.vm
			vm.Dirty, vm.AnkoleMap, vm.AnkoleFilling = false, c.mapHandover.handed, nil
			err = c.meta.writeVolumeMeta(&vm)
		}
		if err == nil && c.mapHandover.handed == "" { // the next process copies it soon
			c.meta.copyAtEnd()
		}
	}
	return errors.Join(err, c.release())
}

// LockHandle is the handle of the file whose lock says that the directory is this process's;
// NoHandle where it is only read.
func (c *Files) LockHandle() int32 {
	if c.lock == nil {
		return NoHandle
	}
	return c.lock.Handle()
}

// release gives back handles, memory and the lock.
func (c *Files) release() error {
	c.closed = true
	var err error
	for _, l := range c.openFiles.layers {
		err = errors.Join(err, l.close())
	}
	err = errors.Join(err, c.openFiles.closeBranches(), c.merges.end(), c.removal.unlinked.close())
	err = errors.Join(err, c.checksums.unlock())
	if c.lock != nil {
		err = errors.Join(err, c.lock.Close())
	}
	return err
}

// Abandon closes files and lock without writing anything: the directory stays as a crash would
// leave it.
func (c *Files) Abandon() error {
	if c.closed {
		return nil
	}
	return c.release()
}

// Close closes all parts.
func (c *Chain) Close() error {
	err := c.settle()
	c.Free()
	return errors.Join(err, c.Files.close(c.Sidecars.broken), c.Sidecars.Close())
}

// settle makes the head's whiteouts durable, as whoever has the parts does before an operation for
// which I/O is held back.
func (c *Chain) settle() error {
	if c.Files.usable() != nil {
		return nil // the operation says why
	}
	return c.carryOut(c.LastWhiteouts())
}

// Abandon closes all parts and writes nothing: the directory stays as a crash would leave it.
func (c *Chain) Abandon() error {
	c.Free()
	return errors.Join(c.Files.Abandon(), c.Sidecars.Close())
}

// State is the condition of the open chain.
func (c *Chain) State() State {
	if c.Sidecars.broken != nil {
		return StateError
	}
	return c.Files.State()
}

// WriteAllowed tells whether writes may be sent to the head.
func (c *Chain) WriteAllowed() bool { return c.Files.WriteAllowed() && c.Sidecars.broken == nil }

// Broken reports that a sync has failed: what the directory holds is not known any more.
func (c *Chain) Broken() bool { return c.Files.Broken() || c.Sidecars.Broken() }
