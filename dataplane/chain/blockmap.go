package chain

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/block"
)

const blockSize = block.Size

// Values of the block map: where the newest data of a block is. Anything else is an index into
// table.layers.
const (
	// inNone: in no file of the chain: the backing file, or zeroes.
	inNone = 0
	// inHeadOnly: in the head, and certainly in nothing below it, so that punching it reads as
	// zeroes. Blocks in the head of which that is not known have the head's index instead.
	inHeadOnly = 255
	// inVoid: hidden by whiteouts, in the topmost file or above it: zeroes. Something below may
	// hold the block.
	inVoid = 254
)

// mapPage is how many blocks one page of the map covers: 16 MiB of volume.
const mapPage = 4096

// blockMap holds one byte per 4 KiB block of a volume: 256 KiB per GiB. It lives in anonymous
// memory that costs nothing where nothing was ever written, so an idle sparse volume of any size is
// cheap.
type blockMap struct {
	b      []byte // one per block
	mapped []byte // the mapping, whole pages
	// used has a bit per page of the map that may hold anything, only per page that may hold
	// inHeadOnly values, so that passes over the map visit nothing else.
	used, only []uint64
}

// resize grows the map to cover size bytes.
func (m *blockMap) resize(size int64) error {
	err := m.reserve(size)
	if err == nil {
		m.extend(int(size / blockSize))
	}
	return err
}

// pagesOf is how many bytes of map, whole pages, cover a number of blocks.
func pagesOf(blocks int) int { return (blocks + mapPage - 1) / mapPage * mapPage }

// reserve makes room for size bytes.
func (m *blockMap) reserve(size int64) error {
	need := pagesOf(int(size / blockSize))
	if need <= len(m.mapped) {
		return nil
	}
	if err := m.remap(need); err != nil {
		return fmt.Errorf("%w: no memory for the block map of %d bytes: %v", ErrNoMemory, need, err)
	}
	m.b = m.mapped[:len(m.b):len(m.b)] // it may lie elsewhere now
	return nil
}

// extend makes the map cover a number of blocks for which there is room.
func (m *blockMap) extend(blocks int) {
	m.b = m.mapped[:blocks:blocks]
	if words := (pagesOf(blocks)/mapPage + 63) / 64; words > len(m.only) {
		m.only = append(m.only, make([]uint64, words-len(m.only))...)
		m.used = append(m.used, make([]uint64, words-len(m.used))...)
	}
}

func (m *blockMap) remap(need int) error {
	var mem []byte
	var err error
	if m.mapped == nil {
		mem, err = unix.Mmap(-1, 0, need, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	} else {
		mem, err = unix.Mremap(m.mapped, need, unix.MREMAP_MAYMOVE)
	}
	if err != nil {
		return err
	}
	// Huge pages would make one written block cost 2 MiB of map. Kernels without them refuse; that
	// is fine too.
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
	m.mapped = mem
	return nil
}

func (m *blockMap) free() {
	if m.mapped != nil {
		_ = unix.Munmap(m.mapped)
	}
	*m = blockMap{}
}

// setLower records that a layer below the head has the blocks [first, last). Layers are added
// bottom-up.
func (m *blockMap) setLower(first, last int64, index byte) {
	fill(m.b[first:last], index)
	note(m.used, first, last)
}

// raise records that the layer has the blocks [first, last), unless something above it has them
// already.
func (m *blockMap) raise(first, last int64, index, head byte) {
	s := m.b[first:last]
	note(m.used, first, last)
	for i := range s {
		switch {
		case s[i] == inHeadOnly:
			s[i] = head
		case s[i] < index:
			s[i] = index
		}
	}
}

// setHead records that the head has the blocks [first, last). below tells whether something below
// the chain (a backing file) may hold data there.
func (m *blockMap) setHead(first, last int64, head byte, below bool) {
	s := m.b[first:last]
	note(m.used, first, last)
	if head == 1 && !below {
		// Nothing is below the head: no block can be anything but free or the head's alone.
		fill(s, inHeadOnly)
		note(m.only, first, last)
		return
	}
	noted := false
	for i := range s {
		switch {
		case s[i] == inHeadOnly || s[i] == head:
		case s[i] == inNone && !below:
			s[i] = inHeadOnly
			noted = true
		default:
			s[i] = head
		}
	}
	if noted {
		note(m.only, first, last)
	}
}

// note sets the bits of the map's pages that hold the blocks [first, last).
func note(set []uint64, first, last int64) {
	for p := first / mapPage; p <= (last-1)/mapPage; p++ {
		set[p/64] |= 1 << (p % 64)
	}
}

// pages calls fn with the blocks of every page in set.
func (m *blockMap) pages(set []uint64, fn func(s []byte)) {
	for w, word := range set {
		for ; word != 0; word &= word - 1 {
			p := w*64 + bits.TrailingZeros64(word)
			fn(m.b[min(p*mapPage, len(m.b)):min((p+1)*mapPage, len(m.b))])
		}
	}
}

// freezeHead turns the head's own values into its index, so that another layer can be put on top.
func (m *blockMap) freezeHead(head byte) {
	m.pages(m.only, func(s []byte) { replace(s, inHeadOnly, head) })
	clear(m.only)
}

// merge gives the layer at index and the one above it the same index, and everything above that one
// less. The loop waits for it, so it goes by words: the map of a terabyte has 256 MiB.
func (m *blockMap) merge(index byte) {
	m.pages(m.used, func(s []byte) {
		for ; len(s) >= 8; s = s[8:] {
			x := binary.LittleEndian.Uint64(s)
			if down := atLeast(x, index+1) &^ atLeast(x, inVoid); down != 0 {
				binary.LittleEndian.PutUint64(s, x-down)
			}
		}
		for i, v := range s {
			if v > index && v < inVoid {
				s[i] = v - 1
			}
		}
	})
}

// Constants of words that are taken for eight bytes.
const (
	everyByte = 0x0101010101010101
	everyTop  = 0x80 * everyByte
)

// atLeast returns a word that has 1 in every byte in which x has n or more, and 0 in all others.
func atLeast(x uint64, n byte) uint64 {
	low := (x | everyTop) - uint64(n&0x7f)*everyByte // the top bit stays where the seven bits below suffice
	if n < 0x80 {
		low |= x
	} else {
		low &= x
	}
	return low & everyTop >> 7
}

// clear records that nothing in the chain has the blocks [first, last).
func (m *blockMap) clear(first, last int64) {
	s := m.b[first:last]
	// Do not touch pages that are clear already: writing would make them cost memory.
	for i := range s {
		if s[i] != inNone {
			s[i] = inNone
		}
	}
}

func fill(s []byte, v byte) {
	for i := range s {
		s[i] = v
	}
}

func replace(s []byte, from, to byte) {
	for {
		i := bytes.IndexByte(s, from)
		if i < 0 {
			return
		}
		for i < len(s) && s[i] == from {
			s[i] = to
			i++
		}
		s = s[i:]
	}
}

// check asserts that every page that holds something is noted.
func (m *blockMap) check() error {
	for p := range m.pageCount() {
		for _, v := range m.b[p*mapPage : min((p+1)*mapPage, len(m.b))] {
			if v != inNone && !m.isUsed(p) || v == inHeadOnly && m.only[p/64]>>(p%64)&1 == 0 {
				return fmt.Errorf("%w: page %d of the block map holds a block in layer %d and is not noted", ErrCorrupt, p, v)
			}
		}
	}
	return nil
}
