package memdisk

import "slices"

// Syncing is a sync that has been submitted and has not completed. It makes durable what the file
// held when it was submitted, and nothing that was written since: a system may have looked at each
// page by then.
type Syncing struct {
	f *file
	// pages are those that were to be written, size is the file's, both at the time of submission.
	pages []syncingPage
	size  int64
	// over: the sync has ended, or another one that was submitted later has made its part durable.
	over bool
}

// syncingPage is a page of a file as it was when a sync was submitted; nil is a hole.
type syncingPage struct {
	i int64
	p *page
}

// BeginSync submits a sync of the open file that has the handle; ok is false if there is none. The
// sync has to end with Complete or Abandon.
func (fs *FS) BeginSync(handle int32) (s *Syncing, ok bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f, ok := fs.files[handle]
	if !ok {
		return nil, false
	}
	c := f.n.data
	s = &Syncing{f: f, pages: c.hold(), size: c.size}
	c.syncs = append(c.syncs, s)
	return s, true
}

// Complete ends the sync. If it returns nil, what the file held when the sync was submitted is
// durable. The file must still be open.
func (s *Syncing) Complete() error {
	fs := s.f.fs
	fs.mu.Lock()
	defer fs.mu.Unlock()
	err := s.f.maySync()
	c := s.f.n.data
	if err == nil && !s.over {
		c.supersede(slices.Index(c.syncs, s))
		c.made(s.pages, s.size)
	}
	c.letGo(s)
	return err
}

// Abandon ends the sync without any effect, as the end of its process may do.
func (s *Syncing) Abandon() {
	s.f.fs.mu.Lock()
	defer s.f.fs.mu.Unlock()
	s.f.n.data.letGo(s)
}

// hold returns the pages that differ from the medium and keeps them as they are until they are let
// go: a change makes a copy. What a failed sync has forgotten is left out.
func (c *content) hold() []syncingPage {
	held := make([]syncingPage, 0, len(c.dirty))
	for _, i := range c.dirty {
		l, at := c.leaf(i)
		if l.lost[at/64]>>(at%64)&1 != 0 {
			continue
		}
		if p := l.pages[at]; p != nil {
			p.held++
		}
		held = append(held, syncingPage{i, l.pages[at]})
	}
	return held
}

// supersede takes away the effect of the first n syncs under way: one that was submitted later has
// made their part durable, or has failed and made the system forget it.
func (c *content) supersede(n int) {
	for _, s := range c.syncs[:n] {
		s.over = true
	}
}

// made notes that the medium has these pages and this size.
func (c *content) made(pages []syncingPage, size int64) {
	c.durableSize = size
	for _, x := range pages {
		l, at := c.leaf(x.i)
		old := l.undo[at]
		if l.undo[at] = x.p; l.pages[at] == x.p {
			l.changed[at/64] &^= 1 << (at % 64)
			l.undo[at] = nil
		}
		if old != x.p && old != l.pages[at] {
			c.spare.put(old)
		}
	}
	c.dirty = slices.DeleteFunc(c.dirty, func(i int64) bool {
		l, at := c.leaf(i)
		return l.changed[at/64]>>(at%64)&1 == 0
	})
}

// letGo ends a sync: pages that only it has kept are used again.
func (c *content) letGo(s *Syncing) {
	c.syncs = slices.DeleteFunc(c.syncs, func(o *Syncing) bool { return o == s })
	for _, x := range s.pages {
		if x.p == nil {
			continue
		}
		x.p.held--
		if l, at := c.leaf(x.i); x.p != l.pages[at] && x.p != l.undo[at] {
			c.spare.put(x.p)
		}
	}
	s.pages = nil
}
