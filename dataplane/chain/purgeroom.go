package chain

import (
	"errors"
	"fmt"
	"math/bits"

	"ankole.storage/dataplane/disk"
)

// A merge takes space before it gives any back: the child's blocks are there twice until the source
// has taken its place. Everybody on the disk needs space too, so a merge for which there is not
// enough is not begun, and one that fails on the way gives back what it took.

// measurePieces is how many pieces of the child one Work call looks at, to see what the source
// lacks: 16 GiB of blocks.
const measurePieces = 64 << 10

// A merge leaves a hundredth of the disk to others, 1 GiB at most.
const (
	spareShare = 100
	mostSpare  = 1 << 30
)

// work does a piece of a merge, or gives back a piece of one that has failed: err says why
// when that is done.
func (c *merges) work(s *PurgeStep) (done bool, err error) {
	if s.failed == nil {
		done, err = c.piece(s)
		if c.broken != nil || !givesUp(err) {
			return done, err
		}
		s.failed, s.next = err, 0
	}
	return false, c.unmerge(s)
}

// measure adds up what the merge takes that the source has not, piece by piece, and finds whether
// there is room for it. A child that fits whole is not looked at.
func (c *merges) measure(s *PurgeStep, source, child disk.File, info disk.Info) error {
	if s.measured == 0 && c.roomFor(s, info.Allocated) == nil {
		s.measured, s.need = info.Size, info.Allocated
		return nil
	}
	extents, _, err := child.Extents(s.measured, nil)
	if err != nil {
		return err
	}
	list, end := piecesOf(extents, s.measured, info.Size, measurePieces)
	n, err := missing(source, list, info.Size)
	if err != nil {
		return err
	}
	s.measured, s.need = end, s.need+n
	return c.roomFor(s, s.need)
}

// roomFor is disk.ErrNoSpace if the disk has no room for n more bytes of a merge.
func (c *merges) roomFor(s *PurgeStep, n int64) error {
	if n == 0 {
		return nil
	}
	fs, err := c.fs.Statfs(c.dir)
	if err != nil {
		return err
	}
	if spare := min(fs.SizeBytes/spareShare, mostSpare); fs.FreeBytes-spare < n {
		return fmt.Errorf("%w: to merge %s into %s takes %d bytes or more, and %d are free, of which %d are left to others",
			disk.ErrNoSpace, s.Target, s.Source, n, fs.FreeBytes, spare)
	}
	return nil
}

// missing is how many bytes of some pieces a file does not have.
func missing(f disk.File, list []filePiece, size int64) (n int64, err error) {
	var has piecesAhead
	for _, p := range list {
		blocks, err := has.of(f, p, size)
		if err != nil {
			return 0, err
		}
		n += int64(bits.OnesCount64(p.blocks&^blocks)) * blockSize
	}
	return n, nil
}

// piecesAhead are the next pieces of a file that is asked for them in order.
type piecesAhead struct {
	list []filePiece
	upTo int64
}

// of tells which blocks of a piece the file has, or had when it was first asked for one near it.
func (a *piecesAhead) of(f disk.File, p filePiece, size int64) (blocks uint64, err error) {
	if p.off() >= a.upTo {
		extents, _, err := f.Extents(p.off(), nil)
		if err != nil {
			return 0, err
		}
		a.list, a.upTo = piecesOf(extents, p.off(), size, purgePiece/SumPiece)
	}
	for len(a.list) > 0 && a.list[0].number < p.number {
		a.list = a.list[1:]
	}
	if len(a.list) == 0 || a.list[0].number != p.number {
		return 0, nil
	}
	return a.list[0].blocks, nil
}

// unmerge gives back the space of what the source has under blocks of the child: what the
// merge has copied, and what was there before. Only the child's readers would come to it, and they
// read the child's. It returns nil while there is more, then why the merge was given up.
func (c *merges) unmerge(s *PurgeStep) error {
	all, err := c.punchUnderChild(s)
	if err != nil || all {
		return errors.Join(s.failed, err)
	}
	return nil
}

func (c *merges) punchUnderChild(s *PurgeStep) (all bool, err error) {
	if err := errors.Join(c.end(), c.checksums.void(s.Source)); err != nil {
		return false, err
	}
	source, child, err := c.openPair(s.Source, s.Target)
	if err != nil {
		return false, err
	}
	defer source.Close() // synced below
	defer child.Close()  // read only
	a, err := source.Stat()
	if err != nil {
		return false, err
	}
	b, err := child.Stat()
	if err != nil || a.Inode == b.Inode { // an interrupted purge has made them one file already
		return true, err
	}
	extents, more, err := child.Extents(s.next, nil)
	if err != nil {
		return false, err
	}
	if err := c.syncFile(child); err != nil { // a crash must not take away what hides the holes
		return false, err
	}
	all, err = s.punchUnder(source, extents, more)
	return all, errors.Join(err, c.syncFile(source))
}
