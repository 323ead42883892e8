package chain

import (
	"errors"
	"math"

	"ankole.storage/dataplane/disk"
)

// A merge copies a child's blocks into its parent's file, piece by piece, and carries the sums
// over. What a file no longer holds as it was when it was hashed stays that way: its piece gets a
// sum that it contradicts, so that the next scrub finds it and repairs it from another replica. A
// merge that stopped there would keep the space for as long as nobody looks.

// mergedSumsSuffix is where the sums of the merged file are until it has its name. Hash uses
// another name.
const mergedSumsSuffix = sumsSuffix + ".new" + tmpSuffix

// merging is a merge under way. It ends, and is begun again, where anybody else writes to one of
// the two files (merges.endOf): what it has copied of the child is not what the child holds then.
type merging struct {
	c             *merges
	source, child string
	// complete: the source holds what the child does, durably.
	complete bool
	// sourceSums and childSums say what the files are to hold, nil: nothing is known. The source's
	// were removed when the merge began.
	sourceSums, childSums *sumsReader
	// entry is the next one of sourceSums that was not carried over.
	entry int64
	// out are the merged file's sums, nil if nothing will be known of it.
	out *sumsWriter
	// has are pieces of the source as they were before the merge reached them.
	has       piecesAhead
	whiteouts mergingWhiteouts
	// image is the merged piece, buf a run of it.
	image, buf []byte
}

// merges is the merge of two files of a purge that is under way: at most one. It reads and writes
// the two by handles of its own, and changes nothing of the chain: the source takes the child's
// place when the merge is complete (removal.replaceChild).
//
// Its own is now. Whoever writes to one of the two files ends it before (endOf).
type merges struct {
	*directory
	meta          *meta
	checksums     *checksums
	whiteoutFiles *whiteoutFiles
	// now is nil while there is none.
	now *merging
}

// begin opens the sums of the two files, durably removes the source's, and begins those of the
// merged file.
func (c *merges) begin(s *PurgeStep, source, child disk.File) (err error) {
	if err := c.end(); err != nil {
		return err
	}
	m := &merging{c: c, source: s.Source, child: s.Target, image: make([]byte, SumPiece), buf: make([]byte, SumPiece)}
	c.now = m
	if m.sourceSums, err = c.checksums.openSumsOf(s.Source, source); err != nil {
		return err
	}
	if m.childSums, err = c.checksums.openSumsOf(s.Target, child); err != nil {
		return err
	}
	if err := c.checksums.void(s.Source); err != nil {
		return err
	}
	if m.whiteouts, err = c.beginWhiteouts(s, source, child); err != nil {
		return err
	}
	if err := matchSize(source, child); err != nil || (m.sourceSums == nil && m.childSums == nil) {
		return err
	}
	info, err := source.Stat()
	if err != nil {
		return err
	}
	return m.unlessFull(func() (err error) {
		m.out, err = newSumsWriter(c.fs, c.path(s.Source+mergedSumsSuffix), info.Size, c.meta.vm.stamp())
		return err
	})
}

func (k *checksums) openSumsOf(file string, f disk.File) (*sumsReader, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return k.openSums(file, info.Size, disk.ReadOnly)
}

// endOf ends the merge that is under way if the file is one of the two, before that is
// changed.
func (c *merges) endOf(file string) error {
	if m := c.now; m == nil || m.source != file && m.child != file {
		return nil
	}
	return c.end()
}

// end gives back what a merge holds, whether it came to its end or not.
func (c *merges) end() error {
	m := c.now
	if m == nil {
		return nil
	}
	c.now = nil
	return errors.Join(m.sourceSums.close(), m.childSums.close(), m.drop(), m.whiteouts.close(c))
}

// drop leaves the merged file without sums.
func (m *merging) drop() error {
	if m.out == nil {
		return nil
	}
	w := m.out
	m.out = nil
	err := w.file.Close()
	if m.c.broken == nil && !m.c.closed {
		err = errors.Join(err, removeIfThere(m.c.fs, w.path))
	}
	return err
}

// unlessFull does something for the sums: where there is no room for them the merge, which makes
// room, goes on without.
func (m *merging) unlessFull(f func() error) error {
	err := f()
	if errors.Is(err, disk.ErrNoSpace) {
		m.c.log.Warn("no room for checksums of a merged snapshot: they are not known", "dir", m.c.dir, "file", m.source)
		err = m.drop()
	}
	return err
}

// piece copies what the child has into the source. Until the source takes the child's place
// the child still hides what is copied, so a crash does no harm.
func (c *merges) piece(s *PurgeStep) (done bool, err error) {
	source, child, err := c.openPair(s.Source, s.Target)
	if err != nil {
		return false, err
	}
	defer source.Close() // synced below
	defer child.Close()  // read only
	if c.now == nil || c.now.source != s.Source || c.now.child != s.Target {
		s.next, s.begun, s.measured, s.need = 0, false, 0, 0
	}
	if !s.begun {
		if err := c.begin(s, source, child); err != nil {
			return false, err
		}
		s.begun = true
	} else if err := c.checksums.void(s.Source); err != nil { // somebody may have computed it since the last piece
		return false, err
	}
	if more, err := c.now.whiteouts.piece(source); err != nil || more {
		return false, err
	}
	info, err := child.Stat()
	if err != nil {
		return false, err
	}
	if s.measured < info.Size {
		if err := c.measure(s, source, child, info); err != nil || s.measured < info.Size {
			return false, err
		}
	}
	extents, _, err := child.Extents(s.next, nil)
	if err != nil {
		return false, err
	}
	list, end := piecesOf(extents, s.next, info.Size, purgePiece/SumPiece)
	if s.need > 0 {
		taken, err := missing(source, list, info.Size)
		if err == nil {
			err = c.roomFor(s, taken)
		}
		if err != nil {
			return false, err
		}
	}
	for _, p := range list {
		if err := c.now.piece(source, child, p); err != nil {
			return false, err
		}
	}
	s.next = end
	if s.next < info.Size {
		return false, nil
	}
	if err := c.now.finish(); err != nil {
		return false, err
	}
	if err := c.syncFile(source); err != nil {
		return false, err
	}
	if err := c.now.whiteouts.sync(c); err != nil {
		return false, err
	}
	// Finish changes these: here nobody waits for the mark.
	if err := c.meta.mark(s.Target, s.Target+metaSuffix, s.Source+metaSuffix); err != nil {
		return false, err
	}
	c.now.complete = true
	return true, nil
}

// piece copies one piece of the child and says what is known of the merged one.
func (m *merging) piece(source, child disk.File, p filePiece) error {
	if err := m.carry(p.number); err != nil {
		return err
	}
	if m.out == nil { // nothing is to be known, or there was no room for what was carried over
		_, _, err := m.look(child, p, nil, source)
		return err
	}
	has, err := m.has.of(source, p, m.out.size) // before the merge
	if err != nil {
		return err
	}
	mixed := has&^p.blocks != 0
	hidden := m.whiteouts.hides(p.number)
	lower, lowerKnown := sum{}, !hidden
	if mixed && !hidden {
		lower, lowerKnown, err = m.look(source, filePiece{p.number, has}, m.sourceSums, nil)
		if errors.Is(err, disk.ErrIO) {
			err, lowerKnown = nil, false // it stays as it is, and whoever reads it is told
		}
		if err != nil {
			return err
		}
	}
	v, known, err := m.look(child, p, m.childSums, source)
	switch {
	case err != nil:
		return err
	case v != sum{}:
	case lower != sum{}:
		v = lower
	case known && lowerKnown:
		v = sumOfData(has|p.blocks, m.image)
	default:
		return nil
	}
	return m.add(p.number, v)
}

// look reads a piece of a file, writes it to another one, and compares it with its sum: rot is the
// sum it should have and does not.
func (m *merging) look(f disk.File, p filePiece, sums *sumsReader, to disk.File) (rot sum, known bool, err error) {
	want, known, err := sums.find(p.number)
	if err != nil {
		return sum{}, false, err
	}
	var failed error
	got, err := readPiece(f, p, m.buf, func(off int64, data []byte) {
		copy(m.image[off-p.off():], data)
		if to != nil && failed == nil {
			_, failed = to.WriteAt(data, off)
		}
	})
	if failed != nil {
		return sum{}, false, failed
	}
	if known && err == nil && got != want {
		m.c.log.Error("snapshot file is not what it was: what it is merged into will be scrubbed", "file",
			f.Path(), "offset", p.off())
		rot = want
	}
	return rot, known, err
}

// carry takes over the source's sums of pieces before the given one, which the child does not have,
// and passes over that one's.
func (m *merging) carry(before uint32) error {
	s := m.sourceSums
	for s != nil && m.out != nil && m.entry < s.entries {
		whole, err := s.load(m.entry/perPage + 1)
		if err != nil {
			return err
		}
		if !whole {
			m.entry = (m.entry/perPage + 1) * perPage
			continue
		}
		i := m.entry % perPage
		if s.piece(i) > before {
			return nil
		}
		m.entry++
		if s.piece(i) == before {
			return nil
		}
		if m.whiteouts.hides(s.piece(i)) {
			continue
		}
		if err := m.add(s.piece(i), sum(s.page[i*entryLen+4:][:sumLen])); err != nil {
			return err
		}
	}
	return nil
}

func (m *merging) add(number uint32, v sum) error {
	return m.unlessFull(func() error { return m.out.add(number, v) })
}

// finish completes the sums. They are durable when it returns nil, but for their name.
func (m *merging) finish() error {
	if err := m.carry(math.MaxUint32); err != nil || m.out == nil {
		return err
	}
	if err := m.unlessFull(m.out.finish); err != nil || m.out == nil {
		return err
	}
	return m.c.syncFile(m.out.file)
}

// nameSums gives the sums of the merged file their name, after the file has its own for good. The
// caller syncs the directory.
func (c *merges) nameSums(source, child string) error {
	m := c.now
	if m.out == nil {
		return c.end()
	}
	err := errors.Join(m.out.file.Close(), c.fs.Rename(m.out.path, c.path(child+sumsSuffix)))
	m.out = nil
	return errors.Join(err, c.end())
}

// settled says that an operation on an image is over, and its changes are durable. While a merge
// writes to it, another one on it is under way.
func (c *merges) settled(image string) {
	if m := c.now; m == nil || m.source != image {
		c.meta.settled(image)
	}
}
