package memdisk

import (
	"math/rand/v2"
	"slices"

	"ankole.storage/dataplane/disk"
)

const (
	pageSize   = 4096
	sectorSize = 512
	// leafPages is how many pages one leaf of a file's table covers: 1 MiB, so that a sparse file
	// costs little.
	leafPages = 256
)

// page is an allocated piece of a file. Pages are replaced, never changed, once they may be on the
// medium too.
type page struct {
	b [pageSize]byte
	// written is false for space that was only preallocated.
	written bool
	// shared pages belong to more than one file system, since a crash was looked at: they are not
	// used again.
	shared bool
	// held counts the syncs under way that will make this page durable as it is.
	held int
}

// leaf is the part of a file's table for leafPages pages.
type leaf struct {
	pages [leafPages]*page
	// undo has what was there at the last sync, for the pages marked in changed; nil was a hole.
	undo    [leafPages]*page
	changed [leafPages / 64]uint64
	// lost marks changes that a failed sync has forgotten: the next one does not make them durable.
	lost [leafPages / 64]uint64
}

// content is a file's data as programs see it, and what is needed to say what the medium has.
type content struct {
	size   int64
	leaves []*leaf // nil is a hole that has not changed
	count  int64   // pages allocated
	// durableSize is the size at the last sync; dirty lists the pages changed since.
	durableSize int64
	dirty       []int64
	// syncs are under way, in the order of their submission.
	syncs []*Syncing
	spare *pool
}

// pool keeps pages for use again: most of a simulation's memory.
type pool struct{ pages []*page }

// maxSpare bounds a pool.
const maxSpare = 4096

func (p *pool) get() *page {
	if n := len(p.pages); n > 0 {
		pg := p.pages[n-1]
		p.pages = p.pages[:n-1]
		return pg
	}
	return &page{}
}

// put takes a page back that nobody can see any more.
func (p *pool) put(pg *page) {
	if pg != nil && !pg.shared && pg.held == 0 && len(p.pages) < maxSpare {
		p.pages = append(p.pages, pg)
	}
}

func newContent(spare *pool) *content { return &content{spare: spare} }

func (c *content) leaf(i int64) (*leaf, int) {
	n := int(i / leafPages)
	if n >= len(c.leaves) {
		c.leaves = append(c.leaves, make([]*leaf, n+1-len(c.leaves))...)
	}
	if c.leaves[n] == nil {
		c.leaves[n] = &leaf{}
	}
	return c.leaves[n], int(i % leafPages)
}

// page returns page i, nil for a hole.
func (c *content) page(i int64) *page {
	if n := int(i / leafPages); n < len(c.leaves) && c.leaves[n] != nil {
		return c.leaves[n].pages[i%leafPages]
	}
	return nil
}

// change notes that page i is about to differ from the medium and returns whether it already did.
func (c *content) change(l *leaf, at int, i int64) bool {
	w, bit := at/64, uint64(1)<<(at%64)
	l.lost[w] &^= bit
	if l.changed[w]&bit != 0 {
		return true
	}
	l.changed[w] |= bit
	l.undo[at] = l.pages[at]
	c.dirty = append(c.dirty, i)
	return false
}

// own returns page i for changing, allocated if it was not. With all set its content does not
// matter.
func (c *content) own(i int64, all bool) *page {
	l, at := c.leaf(i)
	old := l.pages[at]
	if c.change(l, at, i) && old != nil && old.held == 0 {
		return old
	}
	p := c.spare.get()
	p.written = false
	switch {
	case old == nil:
		c.count++
		if !all {
			clear(p.b[:])
		}
	case all:
		p.written = old.written
	default:
		p.b, p.written = old.b, old.written
	}
	l.pages[at] = p
	return p
}

// drop makes page i a hole.
func (c *content) drop(i int64) {
	l, at := c.leaf(i)
	old := l.pages[at]
	if old == nil {
		return
	}
	if c.change(l, at, i) && old != l.undo[at] {
		c.spare.put(old)
	}
	l.pages[at] = nil
	c.count--
}

func (c *content) read(p []byte, off int64) {
	for len(p) > 0 {
		i, at := off/pageSize, off%pageSize
		n := min(int64(len(p)), pageSize-at)
		if pg := c.page(i); pg != nil {
			copy(p[:n], pg.b[at:at+n])
		} else {
			clear(p[:n])
		}
		p, off = p[n:], off+n
	}
}

// missing counts the pages of a range that are not allocated.
func (c *content) missing(off, n int64) int64 {
	var count int64
	for i := off / pageSize; i*pageSize < off+n; i++ {
		if c.page(i) == nil {
			count++
		}
	}
	return count
}

func (c *content) write(p []byte, off int64) {
	c.size = max(c.size, off+int64(len(p)))
	for len(p) > 0 {
		i, at := off/pageSize, off%pageSize
		n := min(int64(len(p)), pageSize-at)
		pg := c.own(i, n == pageSize)
		pg.written = true
		copy(pg.b[at:], p[:n])
		p, off = p[n:], off+n
	}
}

// hit is for a write that fails after n bytes: it returns what of p is still written. The page that
// the failure hits keeps its space and no content if it was a hole; pages after it stay as they
// were.
func (c *content) hit(p []byte, off, n int64) []byte {
	if n < int64(len(p)) && c.page((off+n)/pageSize) == nil {
		c.own((off+n)/pageSize, false)
		n = max((off+n)/pageSize*pageSize-off, 0)
	}
	return p[:n]
}

// zero makes the part [from, to) of an allocated page zero.
func (c *content) zero(i, from, to int64) {
	if c.page(i) != nil && from < to {
		clear(c.own(i, false).b[from:to])
	}
}

// punch makes a range a hole, in whole pages; parts of pages become zeroes.
func (c *content) punch(off, n int64) {
	c.each(off/pageSize, (off+n-1)/pageSize, func(i int64, _ *page) bool {
		from, to := max(off-i*pageSize, 0), min(off+n-i*pageSize, pageSize)
		if from == 0 && to == pageSize {
			c.drop(i)
		} else {
			c.zero(i, from, to)
		}
		return true
	})
}

// each calls fn for the allocated pages in [first, last], in order, until it returns false.
func (c *content) each(first, last int64, fn func(i int64, p *page) bool) {
	for n := first / leafPages; n <= last/leafPages && n < int64(len(c.leaves)); n++ {
		l := c.leaves[n]
		if l == nil {
			continue
		}
		for at := max(first-n*leafPages, 0); at < leafPages && n*leafPages+at <= last; at++ {
			if p := l.pages[at]; p != nil && !fn(n*leafPages+at, p) {
				return
			}
		}
	}
}

func (c *content) truncate(size int64) {
	if size < c.size {
		c.punch(size, (c.size+pageSize-1)/pageSize*pageSize-size)
	}
	c.size = size
}

func (c *content) preallocate(off, n int64) {
	for i := off / pageSize; i*pageSize < off+n; i++ {
		if c.page(i) == nil {
			c.own(i, false)
		}
	}
	c.size = max(c.size, off+n)
}

// sync makes the content durable, but for what an earlier failed sync has forgotten.
func (c *content) sync() {
	c.supersede(len(c.syncs))
	c.durableSize = c.size
	left := c.dirty[:0]
	for _, i := range c.dirty {
		l, at := c.leaf(i)
		w, bit := at/64, uint64(1)<<(at%64)
		if l.lost[w]&bit != 0 {
			left = append(left, i)
			continue
		}
		if l.changed[w] &^= bit; l.undo[at] != l.pages[at] {
			c.spare.put(l.undo[at])
		}
		l.undo[at] = nil
	}
	c.dirty = left
}

// forget is what a failed sync does: the system takes everything for written, and it is not.
func (c *content) forget() {
	c.supersede(len(c.syncs))
	for n, l := range c.leaves {
		if l != nil {
			c.leaves[n].lost = l.changed
		}
	}
}

// extents returns what is allocated in [off, size), at most max pieces.
func (c *content) extents(off int64, out []disk.Extent, limit int) (_ []disk.Extent, more bool) {
	start := len(out)
	c.each(off/pageSize, (c.size-1)/pageSize, func(i int64, p *page) bool {
		e := disk.Extent{Off: max(i*pageSize, off), Unwritten: !p.written}
		e.Len = min((i+1)*pageSize, c.size) - e.Off
		if e.Len <= 0 {
			return true
		}
		if k := len(out) - 1; k >= start && out[k].Off+out[k].Len == e.Off && out[k].Unwritten == e.Unwritten {
			out[k].Len += e.Len
			return true
		}
		if len(out)-start == limit {
			more = true
			return false
		}
		out = append(out, e)
		return true
	})
	return out, more
}

// afterCrash returns what the medium may hold.
func (c *content) afterCrash(r *rand.Rand, spare *pool) *content {
	n := newContent(spare)
	n.size = c.durableSize
	if r.IntN(2) == 0 {
		n.size = c.size
	}
	last := (n.size - 1) / pageSize // pages beyond the end are gone
	keep := func(i int64, p *page) {
		if p != nil && n.size > 0 && i <= last {
			l, at := n.leaf(i)
			l.pages[at] = p
			n.count++
		}
	}
	for k, l := range c.leaves {
		if l == nil {
			continue
		}
		for at, p := range l.pages {
			if p != nil && l.changed[at/64]>>(at%64)&1 == 0 {
				p.shared = true
				keep(int64(k*leafPages+at), p)
			}
		}
	}
	changed := slices.Clone(c.dirty)
	slices.Sort(changed)
	for _, i := range changed {
		l, at := c.leaf(i)
		if l.undo[at] != nil {
			l.undo[at].shared = true
		}
		keep(i, survivor(r, l.undo[at], l.pages[at]))
	}
	n.durableSize = n.size
	return n
}

// survivor chooses what became of a page that was before at the last sync and is now; nil is a
// hole.
func survivor(r *rand.Rand, before, now *page) *page {
	choice := r.IntN(3)
	switch {
	case choice == 0:
		return before
	case choice == 1 && now != nil:
		kept := *now // now may still be changed by who goes on with the old file system
		kept.held = 0
		return &kept
	case choice == 1:
		return nil
	case now == nil || !now.written:
		return before
	case before == nil || !before.written:
		// Space was allocated, but the data's transaction did not make it.
		return &page{}
	}
	torn := *now
	torn.held = 0
	for s := 0; s < pageSize; s += sectorSize {
		if r.IntN(2) == 0 {
			copy(torn.b[s:s+sectorSize], before.b[s:s+sectorSize])
		}
	}
	return &torn
}
