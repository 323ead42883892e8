package chain

import (
	"errors"
	"fmt"
	"hash/crc64"
	"slices"

	"ankole.storage/dataplane/disk"
)

// Computing a snapshot's checksums goes step by step beside I/O, as a purge does:
//
//	h, err := c.NewHash(name, rehash)
//	defer h.Close()
//	for done := false; !done; {
//		done, err = h.Work()  // beside I/O, in bounded pieces
//	}
//	result, err := h.Finish(now)
//
// A file that rotted is found and is never recorded as good: where what is read disagrees with a
// checksum that still holds, that checksum stays.

// Rot is a piece of a file that is not what it was.
type Rot struct {
	// Off and Len are in bytes of the image, Len at most SumPiece.
	Off, Len int64
	// Unreadable: the disk gave an error; otherwise it gave other bytes.
	Unreadable bool
}

// maxRot bounds the list of pieces in a result; a file with more is beyond listing.
const maxRot = 1024

// HashResult is what a computation found.
type HashResult struct {
	// Checksum is the CRC-64 of the file as it was read, "" where part of it could not be read.
	Checksum string
	// Reused: a checksum that still holds was found and nothing was read.
	Reused bool
	// Corrupted: the file disagrees with a checksum that still holds, or cannot be read. Rot lists
	// the pieces, as far as there are checksums for pieces, at most 1024.
	Corrupted bool
	Rot       []Rot
}

// Hash is a computation in progress.
type Hash struct {
	c    *checksums
	file string
	f    disk.File
	info disk.Info // of the image at the beginning
	// voids is how often the file's checksums had been voided by then.
	voids    int
	recorded Checksum
	holds    bool // recorded holds for the file
	reused   bool
	done     bool

	old *sumsReader
	new *sumsWriter
	crc uint64
	pos int64 // the CRC covers [0, pos)
	// next is where Work goes on: the beginning of a piece.
	next    int64
	zeroes  *zeroRun
	buf     []byte
	extents []disk.Extent
	bad     []Rot
	partial bool // something could not be read
	locked  bool // the disk's lock is held
}

// hashPiece is how much one Work call reads at most, so that it ends soon.
const hashPiece = 8 << 20

// NewHash begins to compute the checksums of a snapshot's file. Without rehash, checksums that
// still hold are the result at once, unless the file contradicted them when it was read last: it
// may have been put right. Otherwise the disk's lock is held until Close; ErrInUse if somebody else
// has it.
func (k *checksums) NewHash(snapshot string, rehash bool) (*Hash, error) {
	if err := k.usable(); err != nil {
		return nil, err
	}
	file := snapshotFile(snapshot)
	switch {
	case k.meta.disks[file] == nil:
		return nil, fmt.Errorf("%w: there is no snapshot %q", ErrNotFound, snapshot)
	case k.meta.vm.Rebuilding:
		return nil, fmt.Errorf("%w: chain %s is being rebuilt; hash it afterwards", ErrInvalid, k.dir)
	}
	h := &Hash{c: k, file: file, voids: k.voided[file]}
	if err := h.begin(rehash); err != nil {
		return nil, errors.Join(fmt.Errorf("hash snapshot %s in %s: %w", snapshot, k.dir, err), h.Close())
	}
	return h, nil
}

func (h *Hash) begin(rehash bool) (err error) {
	c := h.c
	if h.f, err = c.fs.Open(c.path(h.file), disk.Direct|disk.ReadOnly); err != nil {
		return err
	}
	if h.info, err = h.f.Stat(); err != nil {
		return err
	}
	if h.recorded, h.holds, err = c.read(h.file); err != nil {
		return err
	}
	if h.old, err = c.openSums(h.file, h.info.Size, disk.ReadOnly); err != nil {
		return err
	}
	stamp := c.meta.vm.stamp()
	if !rehash && h.holds && !h.recorded.SilentlyCorrupted && (h.old != nil || stamp == Stamp{}) {
		h.reused, h.done = true, true
		return nil
	}
	if err := h.lock(); err != nil {
		return err
	}
	h.zeroes, h.buf = newZeroRun(), make([]byte, SumPiece)
	if stamp != (Stamp{}) {
		// Without a stamp nothing would bind the sums to the directory.
		h.new, err = newSumsWriter(c.fs, c.path(h.file+sumsSuffix+tmpSuffix), h.info.Size, stamp)
	}
	return err
}

// Progress is how far the computation has come, in percent.
func (h *Hash) Progress() int {
	if h.done || h.info.Size == 0 {
		return 100
	}
	return int(100 * h.next / h.info.Size)
}

// Position is how much of the file was gone through, in bytes; holes count.
func (h *Hash) Position() int64 { return min(h.next, h.info.Size) }

// Work does a bounded piece and tells whether that was all. It may run beside I/O, but not beside
// another metadata operation.
func (h *Hash) Work() (done bool, err error) {
	if err := h.c.usable(); err != nil || h.done {
		return h.done, err
	}
	if err := h.unchanged(); err != nil {
		return false, err
	}
	if h.extents, _, err = h.f.Extents(h.next, h.extents[:0]); err != nil {
		return false, err
	}
	list, end := piecesOf(h.extents, h.next, h.info.Size, hashPiece/SumPiece)
	for _, p := range list {
		if err := h.piece(p); err != nil {
			return false, err
		}
	}
	h.next = end
	if h.next < h.info.Size {
		return false, nil
	}
	h.crc = h.zeroes.extend(h.crc, h.info.Size-h.pos)
	h.pos, h.done = h.info.Size, true
	return true, nil
}

// filePiece is one piece and a bit for each of its blocks that the file has.
type filePiece struct {
	number uint32
	blocks uint64
}

func (p filePiece) off() int64 { return int64(p.number) * SumPiece }

// piecesOf turns a list of extents from off on into pieces, so many at most: a terabyte in few
// extents is four million. end is how far the list goes: to the end of the file, to the next piece,
// or, of a full list of extents, to the piece whose blocks may not all be in it.
func piecesOf(extents []disk.Extent, off, size int64, most int) (list []filePiece, end int64) {
	for _, e := range extents {
		first, last := e.Off/blockSize, (e.Off+e.Len-1)/blockSize
		for b := first; b <= last; {
			number := uint32(b * blockSize / SumPiece)
			if n := len(list); n == 0 || list[n-1].number != number {
				if n == most {
					return list, int64(number) * SumPiece
				}
				list = append(list, filePiece{number: number})
			}
			p := &list[len(list)-1]
			for ; b <= last && uint32(b*blockSize/SumPiece) == number; b++ {
				p.blocks |= 1 << (b % (SumPiece / blockSize))
			}
		}
	}
	if len(extents) < disk.ExtentsPerCall {
		return list, size
	}
	last := list[len(list)-1]
	return list[:len(list)-1], max(last.off(), off)
}

// piece takes one piece into the CRC and the new sums, and compares it with its old sum.
func (h *Hash) piece(p filePiece) error {
	s, err := readPiece(h.f, p, h.buf, func(off int64, data []byte) {
		off, data = cut(off, data, h.info.Size)
		h.crc = h.zeroes.extend(h.crc, off-h.pos)
		h.crc = crc64.Update(h.crc, crcTable, data)
		h.pos = off + int64(len(data))
	})
	switch {
	case errors.Is(err, disk.ErrIO):
		h.partial = true
		h.rotten(p, true)
		return nil
	case err != nil:
		return err
	}
	was, known, err := h.old.find(p.number)
	if err != nil {
		return err
	}
	if known && was != s {
		h.rotten(p, false)
	}
	if h.new == nil {
		return nil
	}
	return h.new.add(p.number, s)
}

// cut limits data at off to the file's size: its last block may end behind it.
func cut(off int64, data []byte, size int64) (int64, []byte) {
	return off, data[:max(min(int64(len(data)), size-off), 0)]
}

// readPiece reads the blocks of a piece, hands them to each in order, and returns the piece's sum.
func readPiece(f disk.File, p filePiece, buf []byte, each func(off int64, data []byte)) (sum, error) {
	s := newPieceSum(p.blocks)
	for i := 0; i < 64; {
		if p.blocks>>i&1 == 0 {
			i++
			continue
		}
		n := i
		for n < 64 && p.blocks>>n&1 != 0 {
			n++
		}
		data, off := buf[:(n-i)*blockSize], p.off()+int64(i)*blockSize
		if err := readFull(f, data, off); err != nil {
			return sum{}, err
		}
		s.add(data)
		if each != nil {
			each(off, data)
		}
		i = n
	}
	return s.sum(), nil
}

func (h *Hash) rotten(p filePiece, unreadable bool) {
	if len(h.bad) < maxRot {
		h.bad = append(h.bad, Rot{Off: p.off(), Len: min(SumPiece, h.info.Size-p.off()), Unreadable: unreadable})
	}
}

// unchanged tells whether what was read so far is still of the same file.
func (h *Hash) unchanged() error {
	info, err := h.f.Stat()
	if err != nil {
		return err
	}
	if h.c.meta.disks[h.file] == nil || h.c.meta.vm.Rebuilding || h.c.voided[h.file] != h.voids ||
		!info.CTime.Equal(h.info.CTime) || info.Size != h.info.Size {
		return fmt.Errorf("%w: %s was changed while its checksum was computed; hash it again", ErrInvalid, h.file)
	}
	return nil
}

// Finish records what was found; hashedAt is RFC 3339, UTC. It may run beside I/O. Work must have
// said that all is done.
func (h *Hash) Finish(hashedAt string) (HashResult, error) {
	if err := h.c.usable(); err != nil {
		return HashResult{}, err
	}
	if h.reused {
		return HashResult{Checksum: h.recorded.Checksum, Reused: true}, nil
	}
	if !h.done {
		panic("chain: checksums are not complete")
	}
	if err := h.unchanged(); err != nil {
		return HashResult{}, err
	}
	r := HashResult{Rot: h.bad}
	if !h.partial {
		r.Checksum = fmt.Sprintf("%016x", h.crc)
	}
	r.Corrupted = len(h.bad) > 0 || h.holds && h.recorded.Checksum != r.Checksum
	if r.Corrupted {
		return r, h.recordRot(hashedAt)
	}
	return r, h.record(r.Checksum, hashedAt)
}

// recordRot leaves the checksums that the file disagrees with as they are, and says so beside them.
func (h *Hash) recordRot(hashedAt string) error {
	h.c.log.Error("snapshot file is not what it was", "dir", h.c.dir, "file", h.file, "pieces", len(h.bad))
	silent := !h.partial || slices.ContainsFunc(h.bad, func(r Rot) bool { return !r.Unreadable })
	if !h.holds || !silent {
		return nil // an error of the disk may pass, and is told by whoever reads
	}
	s := h.recorded
	s.SilentlyCorrupted, s.LastHashedAt = true, hashedAt
	return h.c.write(h.file, &s)
}

func (h *Hash) record(checksum, hashedAt string) error {
	c := h.c
	if h.new != nil {
		if err := h.new.finish(); err != nil {
			return err
		}
		if err := c.syncFile(h.new.file); err != nil {
			return err
		}
		if err := c.fs.Rename(h.new.path, c.path(h.file+sumsSuffix)); err != nil {
			return err
		}
		h.new.path = ""
	}
	// This syncs the directory, and with it the name of the sums.
	return c.write(h.file, &Checksum{Method: checksumMethod, Checksum: checksum,
		ChangeTime: changeTime(h.info.CTime), LastHashedAt: hashedAt})
}

// Close gives back what the computation holds, whether it was finished or not.
func (h *Hash) Close() error {
	var err error
	if h.f != nil {
		err = h.f.Close()
		h.f = nil
	}
	err = errors.Join(err, h.old.close())
	h.old = nil
	if h.new != nil {
		err = errors.Join(err, h.new.file.Close())
		if h.new.path != "" && h.c.broken == nil && !h.c.closed {
			err = errors.Join(err, removeIfThere(h.c.fs, h.new.path))
		}
		h.new = nil
	}
	if h.locked {
		h.locked = false
		err = errors.Join(err, h.c.unlock())
	}
	return err
}

// Hash computes a snapshot's checksums in one go, for tools and tests.
func (k *checksums) Hash(snapshot string, rehash bool, hashedAt string) (HashResult, error) {
	h, err := k.NewHash(snapshot, rehash)
	if err != nil {
		return HashResult{}, err
	}
	for done := false; !done && err == nil; {
		done, err = h.Work()
	}
	var r HashResult
	if err == nil {
		r, err = h.Finish(hashedAt)
	}
	return r, errors.Join(err, h.Close())
}
