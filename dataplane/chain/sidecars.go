package chain

import (
	"errors"
	"fmt"
	"io"

	"ankole.storage/dataplane/disk"
)

// createSidecars makes all sidecars of a stamp, durable but for their names. A nil record means one
// of state MemberUnknown without a volume.
func createSidecars(fs disk.Meta, dir string, stamp Stamp, r *Record, regions []Region, boot Boot) (member,
	dirty *slotFile, err error) {
	if member, err = createSlotFile(fs, dir+"/"+memberName, format(memberMagic), stamp, r.encode()); err != nil {
		return nil, nil, err
	}
	marks := encodeRegions(regions, boot)
	if dirty, err = createSlotFile(fs, dir+"/"+dirtyName, format(dirtyMagic), stamp, marks); err != nil {
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

// Sidecars are the member record, the dirty log, and the account of what absent members have
// missed. They are apart from Files so that a mark, for which writes wait, does not wait for a
// merge or a checksum: whoever has them works on nothing else, and operations that need both have
// both. What of Files they have to know is a copy.
type Sidecars struct {
	*directory
	boot Boot
	// stamp and size are volume.meta's.
	stamp Stamp
	size  int64

	member *slotFile
	dirty  *slotFile
	record Record
	// recordValid: record was read from, or written to, a sidecar that carries volume.meta's stamp.
	recordValid bool
	regions     []Region
	// regionsKnown: regions is what the log says; otherwise every region must be taken for dirty.
	regionsKnown bool
	// regionsBoot is when the first of them was marked.
	regionsBoot Boot
	// absentFile is nil where there is no valid sidecar; absent are its entries that count.
	absentFile *slotFile
	absent     []Absent
	// agreed is the last record written or read that had no competitor left.
	agreed RecordID
}

// noSidecars are those of a chain that is only read, or not one yet.
func noSidecars() *Sidecars { return &Sidecars{directory: &directory{}} }

// openSidecars reads what carries volume.meta's stamp. Everything else is void.
func (c *Files) openSidecars() (*Sidecars, error) {
	s := &Sidecars{directory: c.directory.another(c.readOnly), boot: c.opts.Boot, stamp: c.meta.vm.stamp(),
		size: c.meta.vm.Size}
	s.files = "sidecars"
	if s.stamp == (Stamp{}) {
		return s, nil
	}
	err := s.open(c.opts.VolumeUUID)
	c.meta.stamped = s.member != nil
	return s, err
}

func (c *Sidecars) open(volume UUID) error {
	mode := disk.Mode(0)
	if c.readOnly {
		mode = disk.ReadOnly
	}
	member, payload, err := openSlotFile(c.fs, c.path(memberName), format(memberMagic), c.stamp, mode)
	if err = c.unreadable(err, c.readOnly); err != nil {
		return err
	}
	c.member = member
	if member != nil {
		if c.record, err = decodeRecord(payload); err != nil {
			return err
		}
		c.recordValid = true
		if err := c.checkVolume(volume); err != nil {
			return err
		}
	}
	dirty, payload, err := openSlotFile(c.fs, c.path(dirtyName), format(dirtyMagic), c.stamp, mode)
	if err = c.unreadable(err, true); err != nil {
		return err
	}
	c.dirty = dirty
	if dirty != nil {
		if c.regions, c.regionsKnown, c.regionsBoot, err = decodeRegions(payload); err != nil {
			return err
		}
	}
	if member == nil {
		c.regions, c.regionsKnown, c.regionsBoot = nil, false, Boot{} // nothing says whose marks they are
		return nil
	}
	c.noteAgreed()
	return c.openAbsent(c.stamp, mode)
}

// unreadable takes a sidecar that the disk cannot read for void, if it may. The record is not given
// up for that where the directory is to be used: the next attempt may read it, and without it the
// replica is nobody's.
func (c *Sidecars) unreadable(err error, mayBeVoid bool) error {
	if !mayBeVoid || !errors.Is(err, errUnreadable) {
		return err
	}
	c.log.Warn("sidecar cannot be read and counts as void", "dir", c.dir, "error", err)
	return nil
}

// Close closes the files; what was written is durable already.
func (c *Sidecars) Close() error {
	var err error
	for _, s := range []*slotFile{c.member, c.dirty, c.absentFile} {
		if s != nil && !c.closed {
			err = errors.Join(err, s.file.Close())
		}
	}
	c.closed = true
	return err
}

// checkVolume refuses a directory whose valid record names another volume.
func (c *Sidecars) checkVolume(want UUID) error {
	have := c.record.VolumeUUID
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
