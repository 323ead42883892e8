package chain

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// RegionSize is the unit of the dirty log: 4 MiB.
const RegionSize = 4 << 20

// MaxDirtyRegions is how many regions the log can name at once. A caller that wants more flushes
// first.
const MaxDirtyRegions = 1024

// Region is the number of a region: volume offset / RegionSize.
type Region uint32

const dirtyMagic = "ANKDIRTY"

// allDirty, as a set of regions, means that every region must be taken for dirty.
var allDirty []Region

const (
	dirtyKindSet = 0
	dirtyKindAll = 1
)

// Boot names the run of a machine, from power on to power off. The zero value is an unknown one.
type Boot [16]byte

// encodeRegions renders a set; nil means all. The boot is left out if it is not known.
func encodeRegions(set []Region, boot Boot) []byte {
	b := binary.LittleEndian.AppendUint32(nil, RegionSize)
	kind := uint32(dirtyKindSet)
	if set == nil {
		kind = dirtyKindAll
	}
	b = binary.LittleEndian.AppendUint32(b, kind)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(set)))
	for _, r := range set {
		b = binary.LittleEndian.AppendUint32(b, uint32(r))
	}
	if boot == (Boot{}) {
		return b
	}
	return append(b, boot[:]...)
}

// decodeRegions is the inverse of encodeRegions; known is false for "all".
func decodeRegions(b []byte) (set []Region, known bool, boot Boot, err error) {
	if len(b) < 12 || binary.LittleEndian.Uint32(b) != RegionSize {
		return nil, false, boot, fmt.Errorf("%w: dirty log of %d bytes or of another region size", ErrCorrupt, len(b))
	}
	kind, n := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	b = b[12:]
	wrong := kind > dirtyKindAll || n > MaxDirtyRegions || kind == dirtyKindAll && n > 0
	if at := int(n) * 4; !wrong && len(b) == at+len(boot) {
		boot, b = Boot(b[at:]), b[:at]
		wrong = boot == Boot{}
	}
	switch {
	case wrong || len(b) != int(n)*4:
		return nil, false, Boot{}, fmt.Errorf("%w: dirty log with a wrong length", ErrCorrupt)
	case kind == dirtyKindAll:
		return nil, false, boot, nil
	}
	set = make([]Region, n)
	for i := range set {
		set[i] = Region(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return set, true, boot, nil
}

// PowerLost reports that the machine has lost power since the regions in the log were marked. What
// was written there and not flushed may be gone, though other replicas may have it. It may say so
// of regions that lost nothing; where the log or the machine does not tell its boot it says no.
func (c *Sidecars) PowerLost() bool {
	return (len(c.regions) > 0 || !c.regionsKnown) && c.regionsBoot != Boot{} && c.boot != Boot{} &&
		c.regionsBoot != c.boot
}

// Dirty returns the regions that the log names. known is false where nothing is known, as after
// another engine has used the directory: then every region must be taken for dirty.
func (c *Sidecars) Dirty() (set []Region, known bool) {
	return slices.Clone(c.regions), c.regionsKnown
}

// AddDirty adds regions to the log; durable when it returns nil. Where every region is dirty there
// is nothing to add, and more than it can name become every region. The rules are those of
// WriteDirty.
func (c *Sidecars) AddDirty(add []Region) error {
	have := func(n Region) bool { _, ok := slices.BinarySearch(c.regions, n); return ok }
	add = slices.DeleteFunc(slices.Clone(add), have)
	if !c.regionsKnown || len(add) == 0 {
		return c.usable()
	}
	set := append(add, c.regions...)
	if len(set) > MaxDirtyRegions {
		set = allDirty
	}
	return c.WriteDirty(set)
}

// WriteDirty replaces the log by set, in any order, at most MaxDirtyRegions; durable when it
// returns nil. nil means that every region is dirty, an empty slice that none is. A region must be
// in the log before the first write to it goes to any replica, and may leave it only after a flush,
// begun after its last write completed, succeeded on all. It may run while I/O goes on, but not
// beside another metadata operation.
func (c *Sidecars) WriteDirty(set []Region) error {
	if err := c.usable(); err != nil {
		return err
	}
	set = slices.Clone(set) // keeps nil nil
	slices.Sort(set)
	set = slices.Compact(set)
	if len(set) > MaxDirtyRegions {
		return fmt.Errorf("%w: %d dirty regions; the log holds %d", ErrLimit, len(set), MaxDirtyRegions)
	}
	if c.member == nil {
		return fmt.Errorf("%w: the directory has no stamp yet; write a record first", ErrInvalid)
	}
	if err := c.regionsLeave(set); err != nil {
		return err
	}
	boot := c.regionsBoot
	if len(c.regions) == 0 && c.regionsKnown {
		boot = c.boot // what was lost before was put right, or nothing was
	}
	if err := c.writeLog(encodeRegions(set, boot)); err != nil {
		return err
	}
	c.regions, c.regionsKnown, c.regionsBoot = set, set != nil, boot
	return nil
}

// writeLog makes a payload the durable log. One that was lost is made anew, for which there must be
// room.
func (c *Sidecars) writeLog(payload []byte) error {
	if c.dirty != nil {
		return c.breaks(c.dirty.write(payload))
	}
	path := c.path(dirtyName)
	f, err := createSlotFile(c.fs, path+tmpSuffix, format(dirtyMagic), c.stamp, payload)
	if err != nil {
		return err // nothing is known, as before
	}
	f.path, c.dirty = path, f
	if err := c.breaks(c.fs.Rename(path+tmpSuffix, path)); err != nil {
		return err
	}
	return c.syncDir()
}

// CopyLog writes the log that is durable to its other slot too, so that damage to the newer one
// does not bring back an older log that names less. A mark is answered before that, since a write
// waits for it. The copy is not durable: it guards against damage, not against crashes.
func (c *Sidecars) CopyLog() error {
	if err := c.usable(); err != nil || c.dirty == nil {
		return err
	}
	return c.dirty.copy(encodeRegions(c.regions, c.regionsBoot))
}

// copySlots brings what Open has found in one slot only into the other one. A log or an account
// that is void is void for good: another time its sectors may be read, and it would not know of
// what happens from now on.
func (c *Sidecars) copySlots() error {
	if c.readOnly || c.member == nil {
		return nil
	}
	if err := c.removeVoid(); err != nil {
		return err
	}
	if !c.member.twice {
		if err := c.breaks(c.member.writeTwice(c.record.encode())); err != nil {
			return err
		}
	}
	if err := c.CopyLog(); err != nil {
		c.log.Warn("marks are in one slot only", "dir", c.dir, "error", err)
	}
	return nil
}

// removeVoid durably removes the log and the account if they are void.
func (c *Sidecars) removeVoid() error {
	removed := false
	for _, slot := range []struct {
		name string
		file *slotFile
	}{{dirtyName, c.dirty}, {absentName, c.absentFile}} {
		if slot.file != nil {
			continue
		}
		err := c.fs.Remove(c.path(slot.name))
		if err != nil && !isNotFound(err) {
			return err
		}
		removed = removed || err == nil
	}
	if !removed {
		return nil
	}
	return c.syncDir()
}
