package chain

import (
	"hash/crc64"
	"math/bits"
)

var crcTable = crc64.MakeTable(crc64.ISO)

// zeroRun extends a CRC-64 by runs of zero bytes without going through them: a mostly empty
// snapshot of a large volume is a few bytes of data between holes of terabytes.
//
// What one zero byte does to the register is linear over GF(2), so a run of n is the n-th power of
// that map.
type zeroRun struct {
	// powers[k] is the map of 2^k zero bytes, as images of the unit vectors.
	powers [maxRunBits][64]uint64
}

// maxRunBits is enough for runs as long as the largest volume.
const maxRunBits = 47

func newZeroRun() *zeroRun {
	z := &zeroRun{}
	for i := range 64 {
		v := uint64(1) << i
		z.powers[0][i] = crcTable[byte(v)] ^ v>>8
	}
	for k := 1; k < maxRunBits; k++ {
		for i := range 64 {
			z.powers[k][i] = apply(&z.powers[k-1], z.powers[k-1][i])
		}
	}
	return z
}

func apply(m *[64]uint64, v uint64) uint64 {
	var out uint64
	for ; v != 0; v &= v - 1 {
		out ^= m[bits.TrailingZeros64(v)]
	}
	return out
}

// extend returns the CRC of what crc is of, followed by n zero bytes.
func (z *zeroRun) extend(crc uint64, n int64) uint64 {
	v := ^crc // the register between bytes is inverted in a finished CRC
	for k := 0; n != 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			v = apply(&z.powers[k], v)
		}
	}
	return ^v
}
