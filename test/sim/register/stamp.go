package register

import (
	"encoding/binary"

	"ankole.storage/dataplane/block"
)

// Stamp makes sector content: every sector of a write carries the write's number and its own.
func Stamp(p []byte, write uint64, first int64) {
	for i := 0; i+block.SectorSize <= len(p); i += block.SectorSize {
		s := p[i : i+block.SectorSize]
		for j := 0; j < len(s); j += 16 {
			binary.LittleEndian.PutUint64(s[j:], write)
			binary.LittleEndian.PutUint64(s[j+8:], uint64(first)+uint64(i/block.SectorSize))
		}
	}
}

// Unstamp returns which write a sector holds, 0 for zeroes; ok is false for content nobody wrote.
func Unstamp(s []byte, sector int64) (write uint64, ok bool) {
	write = binary.LittleEndian.Uint64(s)
	n := uint64(sector)
	if write == 0 {
		n = 0
	}
	s = s[:block.SectorSize]
	for j := 0; j < len(s); j += 16 {
		if binary.LittleEndian.Uint64(s[j:]) != write || binary.LittleEndian.Uint64(s[j+8:]) != n {
			return 0, false
		}
	}
	return write, true
}
