package chain

import (
	"errors"
	"fmt"
	"io"

	"ankole.storage/disk"
)

// reserveSize is the reserve file: one JSON file of any size the metadata of a healthy directory has.
const reserveSize = 4096

// createSidecars makes all sidecars of a stamp, durable but for their names. A nil record means one of state
// MemberUnknown without a volume.
func createSidecars(fs disk.Meta, dir string, stamp Stamp, r *Record, regions []Region, boot Boot) (member, dirty *slotFile, err error) {
	if member, err = createSlotFile(fs, dir+"/"+memberName, memberMagic, stamp, r.encode()); err != nil {
		return nil, nil, err
	}
	if dirty, err = createSlotFile(fs, dir+"/"+dirtyName, dirtyMagic, stamp, encodeRegions(regions, boot)); err != nil {
		_ = member.file.Close()
		return nil, nil, err
	}
	if err = createReserve(fs, dir); err != nil {
		_ = member.file.Close()
		_ = dirty.file.Close()
		return nil, nil, err
	}
	return member, dirty, nil
}

// createReserve makes the reserve file if it is not there.
func createReserve(fs disk.Meta, dir string) error {
	f, err := fs.Create(dir+"/"+reserveName, 0)
	if errors.Is(err, disk.ErrExists) {
		return nil
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

// writeJSON replaces a metadata file durably. On a full file system it writes into the reserve file, which has its
// space already, and swaps the two names; the old file is the next reserve.
func (c *Chain) writeJSON(name string, data []byte) error {
	err := c.fs.WriteFileAtomic(c.path(name), data)
	if err == nil {
		return nil
	}
	if !errors.Is(err, disk.ErrNoSpace) {
		return c.breaks(err) // old or new content: which of them is not known
	}
	if len(data) > reserveSize {
		return err
	}
	if rerr := c.writeThroughReserve(name, data); rerr != nil {
		c.opts.Log.Warn("reserve file could not be used", "dir", c.dir, "file", name, "error", rerr)
		return err
	}
	c.opts.Log.Warn("file system is full; metadata written through the reserve file", "dir", c.dir, "file", name)
	return nil
}

func (c *Chain) writeThroughReserve(name string, data []byte) error {
	if _, err := c.fs.Stat(c.path(name)); err != nil {
		return err
	}
	f, err := c.fs.Open(c.path(reserveName), 0)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(data, 0); err == nil {
		if err = f.Truncate(int64(len(data))); err == nil {
			err = c.syncFile(f)
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := c.fs.Exchange(c.path(reserveName), c.path(name)); err != nil {
		return err
	}
	return c.syncDir()
}

// openSidecars reads what carries volume.meta's stamp. Everything else is void.
func (c *Chain) openSidecars() error {
	stamp := c.vm.stamp()
	if stamp == (Stamp{}) {
		return nil
	}
	mode := disk.Mode(0)
	if c.opts.ReadOnly {
		mode = disk.ReadOnly
	}
	member, payload, err := openSlotFile(c.fs, c.path(memberName), memberMagic, stamp, mode)
	if err != nil {
		return err
	}
	c.member = member
	if member != nil {
		if c.record, err = decodeRecord(payload); err != nil {
			return err
		}
		c.recordValid = true
		if err := c.checkVolume(); err != nil {
			return err
		}
	}
	dirty, payload, err := openSlotFile(c.fs, c.path(dirtyName), dirtyMagic, stamp, mode)
	if err != nil {
		return err
	}
	c.dirty = dirty
	if dirty != nil {
		if c.regions, c.regionsKnown, c.regionsBoot, err = decodeRegions(payload); err != nil {
			return err
		}
	}
	if member == nil {
		return nil
	}
	c.noteAgreed()
	return c.openAbsent(stamp, mode)
}

// checkVolume refuses a directory whose valid record names another volume.
func (c *Chain) checkVolume() error {
	want, have := c.opts.VolumeUUID, c.record.VolumeUUID
	if want == (UUID{}) || have == (UUID{}) || want == have {
		return nil
	}
	return fmt.Errorf("%w: %s holds a replica of volume %x, not of %x; check the data directory's name",
		ErrForeign, c.dir, have, want)
}

func isNotFound(err error) bool { return errors.Is(err, disk.ErrNotFound) }

func removeIfThere(fs disk.Meta, path string) error {
	if err := fs.Remove(path); err != nil && !isNotFound(err) {
		return err
	}
	return nil
}

// readFull reads len(p) bytes; what lies behind the end of the file reads as zeroes.
func readFull(f disk.File, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		clear(p[n:])
		return nil
	}
	return err
}
