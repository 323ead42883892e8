package chain

import (
	"errors"
	"fmt"
	"log/slog"

	"ankole.storage/dataplane/disk"
)

// directory is the folder that a part of a replica's files lies in, and the word on whether what is
// written there can still be made durable: no other part keeps that. Files and Sidecars, which
// belong to different threads, have one each, with all their parts: after a failed sync of the one
// the other goes on until somebody asks Chain.Broken.
//
// Its own are fs and dir, which never change; broken, the first failure of a sync, after which
// usable refuses everything for good; and closed.
type directory struct {
	fs  disk.Meta
	dir string
	log *slog.Logger
	// files says in messages what lies there.
	files string
	// readOnly: nothing is changed, and no lock is taken.
	readOnly bool

	broken error
	closed bool
}

// openDirectory is the directory of what is opened with opts.
func openDirectory(fs disk.Meta, dir string, opts *Options) *directory {
	return &directory{fs: fs, dir: dir, log: opts.Log, files: "replica directory", readOnly: opts.ReadOnly}
}

// lookingAt is the directory of a tool that only looks.
func lookingAt(fs disk.Meta, dir string) *directory {
	return &directory{fs: fs, dir: dir, log: slog.New(slog.DiscardHandler), readOnly: true}
}

// another is the same folder for files that come to their end by themselves.
func (d *directory) another(readOnly bool) *directory {
	return &directory{fs: d.fs, dir: d.dir, log: d.log, files: d.files, readOnly: readOnly}
}

func (d *directory) path(name string) string { return d.dir + "/" + name }

// usable is the error of every operation that must leave something durable.
func (d *directory) usable() error {
	switch {
	case d.closed:
		return fmt.Errorf("%w: chain %s is closed", ErrInvalid, d.dir)
	case d.readOnly:
		return fmt.Errorf("%w: chain %s is open read-only", ErrInvalid, d.dir)
	case d.broken != nil:
		return fmt.Errorf("%w: %v", ErrBroken, d.broken)
	}
	return nil
}

// readable is the error of operations that only read: they work on a chain that is open read-only
// too.
func (d *directory) readable() error {
	if d.readOnly && !d.closed {
		return nil
	}
	return d.usable()
}

// breaks makes err, the failure of a sync, final.
func (d *directory) breaks(err error) error {
	if err != nil && d.broken == nil {
		d.broken = err
		d.log.Error(d.files+" can no longer be made durable", "dir", d.dir, "error", err)
	}
	return err
}

// breaksUnlessFull breaks the chain for any failure that may have been a sync's of what counts.
func (d *directory) breaksUnlessFull(err error) error {
	if err == nil || errors.Is(err, disk.ErrNoSpace) || errors.Is(err, disk.ErrExists) ||
		errors.Is(err, disk.ErrUnchanged) {
		return err
	}
	return d.breaks(err)
}

// syncFile syncs a file; a failure breaks the chain.
func (d *directory) syncFile(f disk.File) error { return d.breaks(f.Sync()) }

// syncDir syncs the directory; a failure breaks the chain.
func (d *directory) syncDir() error { return d.breaks(d.fs.SyncDir(d.dir)) }

// Broken reports that a sync has failed: what the files hold is not known any more.
func (d *directory) Broken() bool { return d.broken != nil }

// durableNames lists the directory. A process that was killed may have left names that only the
// system's memory has: what Open takes away because of them, a head that volume.meta no longer
// names above all, must not be what the disk still needs.
func (d *directory) durableNames() ([]string, error) {
	if !d.readOnly {
		if err := d.syncDir(); err != nil {
			return nil, err
		}
	}
	return d.fs.List(d.dir)
}
