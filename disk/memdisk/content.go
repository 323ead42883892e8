package memdisk

import (
	"maps"
	"math/rand/v2"
	"slices"

	"ankole.storage/disk"
)

const (
	pageSize   = 4096
	sectorSize = 512
)

// page is an allocated piece of a file. Pages are replaced, never changed, once they may be on the medium too.
type page struct {
	b [pageSize]byte
	// written is false for space that was only preallocated.
	written bool
}

// content is a file's data as programs see it, and what is needed to say what the medium has.
type content struct {
	size  int64
	pages map[int64]*page
	// durableSize and undo are the state of the last sync, the latter for pages changed since: nil was a hole.
	durableSize int64
	undo        map[int64]*page
}

func newContent() *content {
	return &content{pages: map[int64]*page{}, undo: map[int64]*page{}}
}

// own returns page i for changing, allocated if it was not.
func (c *content) own(i int64) *page {
	old := c.pages[i]
	if _, changed := c.undo[i]; !changed {
		c.undo[i] = old
		p := &page{}
		if old != nil {
			*p = *old
		}
		c.pages[i] = p
		return p
	}
	if old == nil {
		c.pages[i] = &page{}
	}
	return c.pages[i]
}

// drop makes page i a hole.
func (c *content) drop(i int64) {
	if _, changed := c.undo[i]; !changed {
		c.undo[i] = c.pages[i]
	}
	delete(c.pages, i)
}

func (c *content) read(p []byte, off int64) {
	for len(p) > 0 {
		i, at := off/pageSize, off%pageSize
		n := min(int64(len(p)), pageSize-at)
		if pg := c.pages[i]; pg != nil {
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
		if c.pages[i] == nil {
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
		pg := c.own(i)
		pg.written = true
		copy(pg.b[at:], p[:n])
		p, off = p[n:], off+n
	}
}

// zero makes the part [from, to) of an allocated page zero.
func (c *content) zero(i, from, to int64) {
	if c.pages[i] != nil && from < to {
		clear(c.own(i).b[from:to])
	}
}

// punch makes a range a hole, in whole pages; parts of pages become zeroes.
func (c *content) punch(off, n int64) {
	first, last := off/pageSize, (off+n-1)/pageSize
	for _, i := range c.pagesIn(first, last) {
		from, to := max(off-i*pageSize, 0), min(off+n-i*pageSize, pageSize)
		if from == 0 && to == pageSize {
			c.drop(i)
		} else {
			c.zero(i, from, to)
		}
	}
}

// pagesIn returns the numbers of the allocated pages in [first, last], in order.
func (c *content) pagesIn(first, last int64) []int64 {
	var out []int64
	for i := range c.pages {
		if i >= first && i <= last {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out
}

func (c *content) truncate(size int64) {
	if size < c.size {
		c.punch(size, (c.size+pageSize-1)/pageSize*pageSize-size)
	}
	c.size = size
}

func (c *content) preallocate(off, n int64) {
	for i := off / pageSize; i*pageSize < off+n; i++ {
		if c.pages[i] == nil {
			c.own(i)
		}
	}
	c.size = max(c.size, off+n)
}

func (c *content) sync() {
	c.durableSize = c.size
	c.undo = map[int64]*page{}
}

// extents returns what is allocated in [off, size), at most max pieces.
func (c *content) extents(off int64, out []disk.Extent, limit int) ([]disk.Extent, bool) {
	start := len(out)
	for _, i := range c.pagesIn(off/pageSize, (c.size-1)/pageSize) {
		e := disk.Extent{Off: max(i*pageSize, off), Unwritten: !c.pages[i].written}
		e.Len = min((i+1)*pageSize, c.size) - e.Off
		if e.Len <= 0 {
			continue
		}
		if k := len(out) - 1; k >= start && out[k].Off+out[k].Len == e.Off && out[k].Unwritten == e.Unwritten {
			out[k].Len += e.Len
			continue
		}
		if len(out)-start == limit {
			return out, true
		}
		out = append(out, e)
	}
	return out, false
}

// afterCrash returns what the medium may hold.
func (c *content) afterCrash(r *rand.Rand) *content {
	n := newContent()
	n.size = c.durableSize
	if r.IntN(2) == 0 {
		n.size = c.size
	}
	for _, i := range slices.Sorted(maps.Keys(c.pages)) {
		if _, changed := c.undo[i]; !changed {
			n.pages[i] = c.pages[i]
		}
	}
	for _, i := range slices.Sorted(maps.Keys(c.undo)) {
		if p := survivor(r, c.undo[i], c.pages[i]); p != nil {
			n.pages[i] = p
		}
	}
	for i := range n.pages {
		if i*pageSize >= n.size {
			delete(n.pages, i)
		}
	}
	n.durableSize = n.size
	return n
}

// survivor chooses what became of a page that was before at the last sync and is now; nil is a hole.
func survivor(r *rand.Rand, before, now *page) *page {
	choice := r.IntN(3)
	switch {
	case choice == 0:
		return before
	case choice == 1 && now != nil:
		kept := *now // now may still be changed by who goes on with the old file system
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
	for s := 0; s < pageSize; s += sectorSize {
		if r.IntN(2) == 0 {
			copy(torn.b[s:s+sectorSize], before.b[s:s+sectorSize])
		}
	}
	return &torn
}
