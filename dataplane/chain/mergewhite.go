package chain

import (
	"errors"
	"maps"
	"slices"

	"ankole.storage/dataplane/disk"
)

// In a merge the child's whiteouts hide what the source holds, and go on hiding what is below the
// source. So the source's blocks under them are punched, before its file takes the child's place,
// and the merged layer has the whiteouts of both: if both have some, the source gets those of both
// before its file takes that place, in a new file, while I/O is held back. Nobody reads what the
// source shows but through the child, which hides it.
// When the child's metadata is replaced it names the source's whiteouts, or its own where the
// source has none; at the bottom of the chain there is nothing to hide.

// mergingWhiteouts is the part of a merge that is about whiteouts.
type mergingWhiteouts struct {
	source, child map[int64]*whiteoutBits
	// punch is not set where an interrupted purge has made both names one file: it is punched
	// already, and has the child's blocks.
	punch bool
	// left are pages that are not done.
	left []int64
	// out has those of both, nil where one has none; number is for the source's .meta.
	out    *whiteoutFile
	number string
}

// mergePages is how many pages one piece of a merge does: the blocks of 1 GiB at most.
const mergePages = 16

func (c *merges) beginWhiteouts(s *PurgeStep, source, child disk.File) (m mergingWhiteouts, err error) {
	if m.source, err = c.whiteoutFiles.read(s.Source); err == nil {
		m.child, err = c.whiteoutFiles.read(s.Target)
	}
	if err != nil {
		return m, err
	}
	from, to := c.meta.disks[s.Source], c.meta.disks[s.Target]
	if from.whiteouts != "" && to.whiteouts != "" && !c.meta.atBottom(from) {
		if m.out, m.number, err = c.whiteoutFiles.create(); err != nil {
			return m, err
		}
	}
	pages := maps.Clone(m.child)
	if m.out != nil {
		maps.Copy(pages, m.source)
	}
	m.left = slices.Sorted(maps.Keys(pages))
	a, err := source.Stat()
	if err != nil {
		return m, err
	}
	b, err := child.Stat()
	m.punch = a.Inode != b.Inode
	return m, err
}

// read returns the pages of a layer that have bits. disk.ErrIO if one of them is damaged:
// a merge without it would make readable what it hid.
func (h *whiteoutFiles) read(layer string) (map[int64]*whiteoutBits, error) {
	pages := map[int64]*whiteoutBits{}
	w, err := h.open(layer, disk.ReadOnly)
	if err != nil {
		return nil, err
	}
	err = w.each(0, func(number int64, p *whiteoutsOf) error {
		if !p.bits.empty() {
			pages[number] = &p.bits
		}
		return p.known(w, number)
	})
	return pages, errors.Join(err, w.close())
}

// piece does some pages and reports whether there are more.
func (m *mergingWhiteouts) piece(source disk.File) (more bool, err error) {
	for range min(mergePages, len(m.left)) {
		n := m.left[0]
		if err := m.page(source, n); err != nil {
			return false, err
		}
		m.left = m.left[1:]
	}
	return len(m.left) > 0, nil
}

func (m *mergingWhiteouts) page(source disk.File, n int64) error {
	child := m.child[n]
	if child != nil && m.punch {
		var err error
		child.runs(func(first, last int64) {
			if err == nil {
				err = source.Punch(n*whiteoutSpan+first*blockSize, (last-first)*blockSize)
			}
		})
		if err != nil {
			return err
		}
	}
	if m.out == nil {
		return nil
	}
	var both whiteoutBits
	for _, b := range []*whiteoutBits{m.source[n], child} {
		for i := range both {
			if b != nil {
				both[i] |= b[i]
			}
		}
	}
	return m.out.writeNew(n, &both)
}

// hides reports whether the child's whiteouts cover blocks of a piece (SumPiece): what the source's
// sum was of is not there.
func (m *mergingWhiteouts) hides(piece uint32) bool {
	first := int64(piece) * (SumPiece / blockSize)
	b := m.child[first/whiteoutBlocks]
	return b != nil && b[first%whiteoutBlocks/64] != 0
}

// sync makes the whiteouts of both durable. Nobody names them yet.
func (m *mergingWhiteouts) sync(c *merges) error {
	if m.out == nil {
		return nil
	}
	return c.syncFile(m.out.file)
}

// nameWhiteouts durably gives the source the whiteouts of both. The chain has them open from then
// on: the file that goes would be taken for one that was lost.
func (c *removal) nameWhiteouts(source string) error {
	m := &c.merges.now.whiteouts
	if m.out == nil {
		return nil
	}
	d, own := *c.meta.disks[source], c.meta.disks[source].whiteouts
	d.whiteouts = m.number
	if err := c.meta.change(source, d); err != nil {
		return err
	}
	if i := c.openFiles.layerIndex(source); i != 0 {
		if err := c.openFiles.reopenWhiteouts(i); err != nil {
			return err
		}
	}
	return errors.Join(m.close(c.merges), c.whiteoutFiles.drop(own))
}

// close gives back what the merge holds, and a file that no layer names.
func (m *mergingWhiteouts) close(c *merges) error {
	if m.out == nil {
		return nil
	}
	err := m.out.close()
	m.out = nil
	if c.broken == nil && !c.closed {
		err = errors.Join(err, c.whiteoutFiles.drop(m.number))
	}
	return err
}
