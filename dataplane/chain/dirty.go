package chain

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// RegionSize is the unit of the dirty log: 4 MiB.
const RegionSize = 4 << 20

// MaxDirtyRegions is how many regions the log can name at once. A caller that wants more flushes first.
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

// encodeRegions renders a set; nil means all.
func encodeRegions(set []Region) []byte {
	b := binary.LittleEndian.AppendUint32(nil, RegionSize)
	if set == nil {
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, dirtyKindAll), 0)
	}
	b = binary.LittleEndian.AppendUint32(b, dirtyKindSet)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(set)))
	for _, r := range set {
		b = binary.LittleEndian.AppendUint32(b, uint32(r))
	}
	return b
}

// decodeRegions is the inverse of encodeRegions; known is false for "all".
func decodeRegions(b []byte) (set []Region, known bool, err error) {
	if len(b) < 12 || binary.LittleEndian.Uint32(b) != RegionSize {
		return nil, false, fmt.Errorf("%w: dirty log of %d bytes or of another region size", ErrCorrupt, len(b))
	}
	kind, n := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	b = b[12:]
	switch {
	case kind == dirtyKindAll && n == 0 && len(b) == 0:
		return nil, false, nil
	case kind != dirtyKindSet || n > MaxDirtyRegions || len(b) != int(n)*4:
		return nil, false, fmt.Errorf("%w: dirty log with a wrong length", ErrCorrupt)
	}
	set = make([]Region, n)
	for i := range set {
		set[i] = Region(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return set, true, nil
}

// Dirty returns the regions that the log names. known is false where nothing is known, as after another engine has
// used the directory: then every region must be taken for dirty.
func (c *Chain) Dirty() (set []Region, known bool) {
	return slices.Clone(c.regions), c.regionsKnown
}

// WriteDirty replaces the log by set, in any order, at most MaxDirtyRegions; durable when it returns nil. nil means
// that every region is dirty, an empty slice that none is. A region must be in the log before the first write to it
// goes to any replica, and may leave it only after a flush, begun after its last write completed, succeeded on all.
// It may run while I/O goes on, but not beside another metadata operation.
func (c *Chain) WriteDirty(set []Region) error {
	if err := c.usable(); err != nil {
		return err
	}
	if len(set) > MaxDirtyRegions {
		return fmt.Errorf("%w: %d dirty regions; the log holds %d", ErrLimit, len(set), MaxDirtyRegions)
	}
	if c.dirty == nil {
		return fmt.Errorf("%w: the directory has no stamp yet; write a record first", ErrInvalid)
	}
	if err := c.regionsLeave(set); err != nil {
		return err
	}
	set = slices.Clone(set) // keeps nil nil
	if err := c.breaks(c.dirty.write(encodeRegions(set))); err != nil {
		return err
	}
	c.regions, c.regionsKnown = set, set != nil
	return nil
}
