package chain

import (
	"errors"
	"fmt"

	"ankole.storage/dataplane/disk"
)

// reserve is the file ankole.reserve, and how a metadata file is replaced with its help. It keeps
// nothing in memory: what the reserve has is asked of the disk when it is needed.
type reserve struct{ *directory }

// reserveSize is the reserve file: one JSON file of any size the metadata of a healthy directory
// has.
const reserveSize = 4096

// createReserve makes the reserve file. One that is there may be what a crash has left, which has
// no space.
func createReserve(fs disk.Meta, dir string) error {
	f, err := fs.Create(dir+"/"+reserveName, 0)
	if errors.Is(err, disk.ErrExists) {
		f, err = fs.Open(dir+"/"+reserveName, 0)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, reserveSize), 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// provide makes the reserve file of a directory that has lost it, or one that has too little
// space, if there is room for it.
func (r *reserve) provide() error {
	if r.readOnly {
		return nil
	}
	info, err := r.fs.Stat(r.path(reserveName))
	if err == nil && info.Allocated >= reserveSize {
		return nil
	}
	if err == nil || isNotFound(err) {
		err = createReserve(r.fs, r.dir)
	}
	if errors.Is(err, disk.ErrIO) && removeIfThere(r.fs, r.path(reserveName)) == nil {
		err = createReserve(r.fs, r.dir) // elsewhere
	}
	if errors.Is(err, disk.ErrNoSpace) || errors.Is(err, disk.ErrIO) {
		r.log.Warn("no reserve file: on a full disk metadata cannot be written", "dir", r.dir, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	return r.syncDir()
}

// replace replaces a metadata file durably. Where another file cannot be written, on a full file
// system or for a bad sector, it writes into the reserve file, which has its space already, and
// swaps the two names; the old file is the next reserve. A reserve that the disk does not write to
// is given up for its space.
func (r *reserve) replace(name string, data []byte) error {
	err := r.fs.WriteFileAtomic(r.path(name), data)
	if err == nil {
		return nil
	}
	if !errors.Is(err, disk.ErrNoSpace) && !errors.Is(err, disk.ErrUnchanged) {
		return r.breaks(err) // old or new content: which of them is not known
	}
	if len(data) > reserveSize {
		return err
	}
	if rerr := r.through(name, data); rerr != nil {
		r.log.Warn("reserve file could not be used", "dir", r.dir, "file", name, "error", rerr)
		return r.without(name, data, errors.Is(rerr, errBadReserve), err)
	}
	r.log.Warn("metadata written through the reserve file", "dir", r.dir, "file", name, "why", err)
	return nil
}

// errBadReserve: the disk has refused to write the reserve file; nothing has been replaced.
var errBadReserve = errors.New("reserve file cannot be written")

// without removes a reserve that the disk does not write to, and uses the space that is
// free then. failed is the error otherwise.
func (r *reserve) without(name string, data []byte, bad bool, failed error) error {
	if !bad || removeIfThere(r.fs, r.path(reserveName)) != nil {
		return failed
	}
	err := r.fs.WriteFileAtomic(r.path(name), data)
	if errors.Is(err, disk.ErrNoSpace) || errors.Is(err, disk.ErrUnchanged) {
		return failed
	}
	return r.breaks(err)
}

// through writes all the space that the reserve has: whole blocks need not be read, and
// of one that cannot be read the disk puts another sector in its place.
func (r *reserve) through(name string, data []byte) error {
	if _, err := r.fs.Stat(r.path(name)); err != nil {
		return err
	}
	f, err := r.fs.Open(r.path(reserveName), 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		whole := make([]byte, max(int64(len(data)), min(info.Allocated, reserveSize)))
		copy(whole, data)
		_, err = f.WriteAt(whole, 0)
	}
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if err == nil {
		err = f.Sync() // not yet in anybody's place: that it fails says nothing of what is
	}
	if err = errors.Join(err, f.Close()); errors.Is(err, disk.ErrIO) {
		return fmt.Errorf("%w: %w", errBadReserve, err)
	}
	if err != nil {
		return err
	}
	if err := r.fs.Exchange(r.path(reserveName), r.path(name)); err != nil {
		return err
	}
	return r.syncDir()
}
