package memdisk

import "ankole.storage/disk"

// Rot flips every bit of [off, off+n) of a file on the medium, as a bad disk does it: no time changes, nothing is
// unsynced. Holes stay holes.
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
		if old := node.data.pages[i]; old != nil {
			p := *old
			for j := at; j < at+k; j++ {
				p.b[j] = ^p.b[j]
			}
			node.data.pages[i] = &p
		}
		off += k
	}
	return nil
}
