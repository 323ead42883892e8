package chain

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/zeebo/xxh3"

	"ankole.storage/dataplane/chain/twoslot"
	"ankole.storage/dataplane/disk"
)

// Sums of pieces. Beside a snapshot's image lies a file with a checksum for every piece of it that
// holds a block, so that a scrub can tell which of two replicas is the one that rotted, and where.
// docs/design/format-replica.md has the bytes.

const (
	// SumPiece is how much of a file one sum covers: 64 blocks, whose presence fits in a word.
	SumPiece = 256 << 10

	sumsMagic   = "ANKOSUMS"
	sumsVersion = 1
	// sumsPage is the unit of writing: number and sum of 204 pieces, or the header, and a checksum
	// of its own.
	sumsPage = 4096
	sumLen   = 16
	sealAt   = sumsPage - twoslot.SealSize
	entryLen = 4 + sumLen
	perPage  = sealAt / entryLen
)

// sum of a piece; the zero value says that nothing is known.
type sum [sumLen]byte

// pieceSum covers which blocks of the piece the file has, and what is in them.
type pieceSum struct{ h *xxh3.Hasher }

func newPieceSum(blocks uint64) pieceSum {
	s := pieceSum{xxh3.New()}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], blocks)
	_, _ = s.h.Write(b[:]) // never fails
	return s
}

func (s pieceSum) add(p []byte) { _, _ = s.h.Write(p) }

func (s pieceSum) sum() sum { return s.h.Sum128().Bytes() }

// sumsHeader is the first page.
type sumsHeader struct {
	size    int64
	entries int64
	stamp   Stamp
}

func (h *sumsHeader) encode() []byte {
	b := make([]byte, sumsPage)
	copy(b, sumsMagic)
	binary.LittleEndian.PutUint32(b[8:], sumsVersion)
	binary.LittleEndian.PutUint32(b[12:], SumPiece)
	binary.LittleEndian.PutUint64(b[16:], uint64(h.size))
	binary.LittleEndian.PutUint64(b[24:], uint64(h.entries))
	copy(b[32:], h.stamp[:])
	twoslot.Seal(b, 0)
	return b
}

// decodeSumsHeader returns the header of a file of fileSize bytes; ok is false for anything that is
// not a whole one.
func decodeSumsHeader(b []byte, fileSize int64) (h sumsHeader, ok bool) {
	if len(b) != sumsPage || string(b[:8]) != sumsMagic || !twoslot.Sealed(b, 0) ||
		binary.LittleEndian.Uint32(b[8:]) != sumsVersion || binary.LittleEndian.Uint32(b[12:]) != SumPiece {
		return h, false
	}
	h.size, h.entries = int64(binary.LittleEndian.Uint64(b[16:])), int64(binary.LittleEndian.Uint64(b[24:]))
	copy(h.stamp[:], b[32:])
	pieces := (h.size + SumPiece - 1) / SumPiece
	if h.size < 0 || h.size > maxVolumeSize || h.entries < 0 || h.entries > pieces {
		return h, false
	}
	return h, fileSize == (1+(h.entries+perPage-1)/perPage)*sumsPage
}

// sumsReader looks sums up.
type sumsReader struct {
	file disk.File
	sumsHeader
	// page is the last page that was looked at, number its number from 1, 0 for none.
	page   []byte
	number int64
}

// openSums opens the sums of an image of the given size. A nil reader without error means that they
// are void: missing, damaged, for another size, or of another stamp.
func (k *checksums) openSums(file string, size int64, mode disk.Mode) (*sumsReader, error) {
	stamp := k.meta.vm.stamp()
	if stamp == (Stamp{}) {
		return nil, nil
	}
	f, err := k.fs.Open(k.path(file+sumsSuffix), mode|disk.Direct)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &sumsReader{file: f, page: make([]byte, sumsPage)}
	info, err := f.Stat()
	if err == nil {
		err = readFull(f, s.page, 0)
	}
	ok := false
	if err == nil {
		s.sumsHeader, ok = decodeSumsHeader(s.page, info.Size)
	}
	if errors.Is(err, disk.ErrIO) {
		err = nil // what cannot be read is not known
	}
	if err != nil || !ok || s.stamp != stamp || s.size != size {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

func (s *sumsReader) close() error {
	if s == nil {
		return nil
	}
	return s.file.Close()
}

func (s *sumsReader) pages() int64 { return (s.entries + perPage - 1) / perPage }

// load makes page number, from 1, the one that is looked at; false if it is damaged.
func (s *sumsReader) load(number int64) (bool, error) {
	if number == s.number {
		return true, nil
	}
	s.number = 0
	err := readFull(s.file, s.page, number*sumsPage)
	if errors.Is(err, disk.ErrIO) || err == nil && !twoslot.Sealed(s.page, uint64(number)) {
		return false, nil
	}
	if err == nil {
		s.number = number
	}
	return err == nil, err
}

// count is the number of entries on the loaded page.
func (s *sumsReader) count() int64 { return min(perPage, s.entries-(s.number-1)*perPage) }

func (s *sumsReader) piece(i int64) uint32 { return binary.LittleEndian.Uint32(s.page[i*entryLen:]) }

// locate loads the page that would have the piece's entry and returns its place there, -1 if there
// is none.
func (s *sumsReader) locate(piece uint32) (at int64, err error) {
	// Whoever goes through a file in order finds the next piece on this page or the next one.
	near := s.number
	for step, lo, hi := int64(0), int64(1), s.pages(); lo <= hi; step++ {
		try := (lo + hi) / 2
		if n := near + step; near > 0 && step < 2 && n >= lo && n <= hi {
			try = n
		}
		ok, err := s.load(try)
		if err != nil || !ok {
			return -1, err
		}
		n := s.count()
		switch {
		case piece < s.piece(0):
			hi = try - 1
		case piece > s.piece(n-1):
			lo = try + 1
		default:
			i := int64(0)
			for k := int64(1) << (bits.Len64(uint64(n)) - 1); k > 0; k >>= 1 {
				if i+k < n && s.piece(i+k) <= piece {
					i += k
				}
			}
			if s.piece(i) != piece {
				i = -1
			}
			return i, nil
		}
	}
	return -1, nil
}

// find returns the sum of a piece; known is false where there is no entry, or one that was voided.
func (s *sumsReader) find(piece uint32) (v sum, known bool, err error) {
	if s == nil {
		return v, false, nil
	}
	i, err := s.locate(piece)
	if err != nil || i < 0 {
		return v, false, err
	}
	copy(v[:], s.page[i*entryLen+4:])
	return v, v != sum{}, nil
}

// set replaces the sum of a piece that has an entry. The zero sum makes it unknown. The caller
// syncs the file.
func (s *sumsReader) set(piece uint32, v sum) error {
	i, err := s.locate(piece)
	if err != nil || i < 0 {
		return err
	}
	copy(s.page[i*entryLen+4:], v[:])
	twoslot.Seal(s.page, uint64(s.number))
	_, err = s.file.WriteAt(s.page, s.number*sumsPage)
	return err
}

// sumsWriter makes a new file of sums, piece by piece in order.
type sumsWriter struct {
	file disk.File
	path string
	page []byte
	sumsHeader
}

func newSumsWriter(fs disk.Meta, path string, size int64, stamp Stamp) (*sumsWriter, error) {
	if err := removeIfThere(fs, path); err != nil {
		return nil, err
	}
	f, err := fs.Create(path, disk.Direct)
	if err != nil {
		return nil, err
	}
	return &sumsWriter{file: f, path: path, page: make([]byte, sumsPage),
		sumsHeader: sumsHeader{size: size, stamp: stamp}}, nil
}

func (w *sumsWriter) add(piece uint32, v sum) error {
	i := w.entries % perPage
	binary.LittleEndian.PutUint32(w.page[i*entryLen:], piece)
	copy(w.page[i*entryLen+4:], v[:])
	if w.entries++; i < perPage-1 {
		return nil
	}
	return w.flush()
}

func (w *sumsWriter) flush() error {
	number := (w.entries + perPage - 1) / perPage
	twoslot.Seal(w.page, uint64(number))
	_, err := w.file.WriteAt(w.page, number*sumsPage)
	clear(w.page)
	return err
}

// finish writes the rest. The caller syncs the file and gives it its name.
func (w *sumsWriter) finish() error {
	if w.entries%perPage != 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	_, err := w.file.WriteAt(w.encode(), 0)
	return err
}
