package memdisk

import "ankole.storage/dataplane/disk"

// Rot flips every bit of [off, off+n) of a file on the medium, as a bad disk does it: no time
// changes, nothing is unsynced. Holes stay holes.
func (fs *FS) Rot(name string, off, n int64) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	node, err := fs.walk(name)
	if err == nil && node.data == nil {
		err = disk.ErrNotFound
	}
	if err != nil {
		return place("rot", name, err)
	}
	for end := off + n; off < end; {
		i, at := off/pageSize, off%pageSize
		k := min(end-off, pageSize-at)
		if old := node.data.page(i); old != nil {
			p := &page{b: old.b, written: old.written}
			for j := at; j < at+k; j++ {
				p.b[j] = ^p.b[j]
			}
			l, slot := node.data.leaf(i)
			l.pages[slot] = p
		}
		off += k
	}
	return nil
}

// Lose makes whole pages of [off, off+n) of a file holes, as a file system does that has lost track
// of them: the file does not count as written to.
func (fs *FS) Lose(name string, off, n int64) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	node, err := fs.walk(name)
	if err == nil && node.data == nil {
		err = disk.ErrNotFound
	}
	if err != nil {
		return place("lose", name, err)
	}
	for i := off / pageSize; i < (off+n)/pageSize; i++ {
		if node.data.page(i) != nil {
			l, slot := node.data.leaf(i)
			l.pages[slot] = nil
			node.data.count--
		}
	}
	return nil
}

// Unreadable makes the pages of [off, off+n) of a file give errors until they are written.
func (fs *FS) Unreadable(name string, off, n int64) error {
	return fs.damage(name, off, n, func(n *node) *map[int64]bool { return &n.bad })
}

// Unwritable makes writes to the pages of [off, off+n) of a file give errors until a hole was made
// there: then other sectors are used.
func (fs *FS) Unwritable(name string, off, n int64) error {
	return fs.damage(name, off, n, func(n *node) *map[int64]bool { return &n.stuck })
}

func (fs *FS) damage(name string, off, n int64, set func(n *node) *map[int64]bool) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	node, err := fs.walk(name)
	if err != nil {
		return place("damage", name, err)
	}
	pages := set(node)
	if *pages == nil {
		*pages = map[int64]bool{}
	}
	for i := off / pageSize; i*pageSize < off+n; i++ {
		(*pages)[i] = true
	}
	return nil
}

// Readable ends every Unreadable and Unwritable.
func (fs *FS) Readable() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.root.readable()
}

func (n *node) readable() {
	n.bad, n.stuck = nil, nil
	if n.dir != nil {
		for _, k := range n.dir.entries {
			k.readable()
		}
	}
}

// Peek reads what the medium and the cache hold of a file, whatever faults are injected. Beyond the
// end are zeroes.
func (fs *FS) Peek(name string, p []byte, off int64) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	node, err := fs.walk(name)
	if err == nil && node.data == nil {
		err = disk.ErrNotFound
	}
	if err != nil {
		return place("peek", name, err)
	}
	node.data.read(p, off)
	return nil
}

// touches tells whether a page of [off, off+length) is in a set.
func touches(set map[int64]bool, off, length int64) bool {
	for i := off / pageSize; len(set) > 0 && i*pageSize < off+length; i++ {
		if set[i] {
			return true
		}
	}
	return false
}

// partly tells whether a range covers a page of a set in part.
func partly(set map[int64]bool, off, length int64) bool {
	if len(set) == 0 {
		return false
	}
	in := func(i int64) bool { return set[i] && (off > i*pageSize || off+length < (i+1)*pageSize) }
	return in(off/pageSize) || in((off+length-1)/pageSize)
}

// mend is what writing does to a bad page, and punching to one that cannot be written: the medium,
// or the file system, puts it elsewhere.
func mend(set map[int64]bool, off, length int64) {
	for i := off / pageSize; len(set) > 0 && i*pageSize < off+length; i++ {
		delete(set, i)
	}
}
