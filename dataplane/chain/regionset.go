package chain

import "bytes"

// RegionSet is a set of regions as a bitmap: bit n stands for the n-th piece of RegionSize << Shift
// bytes. A set that would outgrow its bound is made coarser, so that it may say more than was put
// in, never less. The zero RegionSet is empty.
type RegionSet struct {
	Shift uint8
	Bits  []byte
}

// maxShift is far above what a volume of the largest size needs with the smallest bound.
const maxShift = 24

// Has reports whether the set covers r.
func (s *RegionSet) Has(r Region) bool {
	n := r >> s.Shift
	return int64(n)/8 < int64(len(s.Bits)) && s.Bits[n/8]&(1<<(n%8)) != 0
}

// Add puts r in and keeps the bitmap within limit bytes, at least 1.
func (s *RegionSet) Add(r Region, limit int) {
	for int64(r>>s.Shift)/8 >= int64(limit) {
		s.coarsen()
	}
	n := int(r >> s.Shift)
	if n/8 >= len(s.Bits) {
		s.Bits = append(s.Bits, make([]byte, n/8+1-len(s.Bits))...)
	}
	s.Bits[n/8] |= 1 << (n % 8)
}

// coarsen lets every bit stand for twice as much.
func (s *RegionSet) coarsen() {
	half := make([]byte, (len(s.Bits)+1)/2)
	for n := range len(s.Bits) * 8 {
		if s.Bits[n/8]&(1<<(n%8)) != 0 {
			half[n/16] |= 1 << (n / 2 % 8)
		}
	}
	s.Bits = half
	s.Shift++
}

// AddAll covers a volume of size bytes.
func (s *RegionSet) AddAll(size int64, limit int) {
	last := Region((size - 1) / RegionSize)
	s.Add(last, limit)
	for n := range int(last>>s.Shift) + 1 {
		s.Bits[n/8] |= 1 << (n % 8)
	}
}

// Ranges calls fn with the byte ranges that the set covers, in order, neighbours joined and cut at
// size.
func (s *RegionSet) Ranges(size int64, fn func(off, n int64)) {
	grain, beg := int64(RegionSize)<<s.Shift, int64(-1)
	end := min(int64(len(s.Bits))*8, (size+grain-1)/grain)
	for n := range end {
		in := s.Bits[n/8]&(1<<(n%8)) != 0
		switch {
		case in && beg < 0:
			beg = n * grain
		case !in && beg >= 0:
			fn(beg, n*grain-beg)
			beg = -1
		}
	}
	if beg >= 0 {
		fn(beg, min(end*grain, size)-beg)
	}
}

// Clone returns an independent copy.
func (s *RegionSet) Clone() RegionSet { return RegionSet{Shift: s.Shift, Bits: bytes.Clone(s.Bits)} }
