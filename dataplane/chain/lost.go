package chain

import (
	"errors"
	"fmt"
	"slices"

	"ankole.storage/dataplane/disk"
)

// A file that somebody removes while the directory is open, or in whose place he puts another one,
// is there as long as it is open, and gone with the process. Lost finds such files. They are
// written anew while they can still be read (Restoring), beside I/O, or, where other replicas have
// what they hold, made empty ones at the end (Blank), so that the directory can be rebuilt.

// replacedSuffix is added to the name of a file that has taken the place of one in use.
const replacedSuffix = ".replaced"

// usedFile is an open file of the live chain.
type usedFile struct {
	name  string
	layer int
	// whiteouts: it is the layer's file of whiteouts.
	whiteouts bool
	file      disk.File
}

func (o *openFiles) usedFiles() []usedFile {
	var out []usedFile
	for i := o.bottomIndex(); i < len(o.layers); i++ {
		l := &o.layers[i]
		out = append(out, usedFile{name: l.name, layer: i, file: l.file})
		if l.whiteouts != nil && o.meta.disks[l.name].whiteouts != "" {
			out = append(out, usedFile{whiteoutName(o.meta.disks[l.name].whiteouts), i, true, l.whiteouts.file})
		}
	}
	return out
}

// exchange puts another file with the same content in the place of an open one, which stays open.
func (o *openFiles) exchange(u usedFile, by disk.File, inode uint64) {
	t := o.table.clone()
	l := &t.layers[u.layer]
	if u.whiteouts {
		w := *l.whiteouts
		w.file = by
		l.whiteouts = &w
	} else {
		l.file, l.inode = by, inode
	}
	o.table = t
}

// hasName tells whether an open file still has its name. An error says nothing about it.
func hasName(fs disk.Meta, path string, f disk.File) bool {
	info, err := f.Stat()
	if err != nil {
		return true
	}
	named, err := fs.Stat(path)
	return err == nil && named.Inode == info.Inode || err != nil && !isNotFound(err)
}

// Lost names the open files that have lost their name, bottom first. Metadata that is gone is
// written again: what it says is in memory.
func (o *openFiles) Lost() ([]string, error) {
	if o.usable() != nil {
		return nil, nil
	}
	var lost []string
	for _, u := range o.usedFiles() {
		if !hasName(o.fs, o.path(u.name), u.file) {
			lost = append(lost, u.name)
		}
	}
	return lost, o.meta.mendMeta()
}

// Mend makes sidecars anew that have lost their names: what they say is in memory.
func (c *Sidecars) Mend() error {
	if c.usable() != nil {
		return nil
	}
	for _, s := range []struct {
		file    *slotFile
		payload func() []byte
	}{
		{c.member, c.record.encode},
		{c.dirty, func() []byte { return encodeRegions(c.regions, c.regionsBoot) }},
		{c.absentFile, func() []byte { return encodeAbsent(c.absent) }},
	} {
		if s.file == nil || hasName(c.fs, s.file.path, s.file.file) {
			continue
		}
		c.log.Error("sidecar was removed; it is written again", "dir", c.dir, "file", s.file.path)
		if err := s.file.renew(s.payload()); err != nil {
			return err
		}
	}
	return nil
}

// Range is a part of a file, in bytes.
type Range struct{ Off, Len int64 }

// Restoring is a lost file that is being written anew. Nothing may change the chain meanwhile.
type Restoring struct {
	c    *Files
	used usedFile
	to   disk.File
	size int64
	// left is what is to be copied.
	left []Range
}

// BeginRestore begins to write a lost file anew. Whatever merge was under way is given up.
func (c *Files) BeginRestore(name string) (*Restoring, error) {
	if err := errors.Join(c.usable(), c.merges.end()); err != nil {
		return nil, err
	}
	used := c.openFiles.usedFiles()
	i := slices.IndexFunc(used, func(u usedFile) bool { return u.name == name })
	if i < 0 {
		return nil, fmt.Errorf("%w: %s is not in use in %s", ErrNotFound, name, c.dir)
	}
	info, err := used[i].file.Stat()
	if err != nil {
		return nil, err
	}
	tmp := c.path(name) + tmpSuffix
	if err := removeIfThere(c.fs, tmp); err != nil {
		return nil, err
	}
	f, err := c.fs.Create(tmp, disk.Direct)
	if err != nil {
		return nil, err
	}
	r := &Restoring{c: c, used: used[i], to: f, size: info.Size, left: []Range{{0, info.Size}}}
	if err := f.Truncate(info.Size); err != nil {
		return nil, errors.Join(err, r.Drop())
	}
	return r, nil
}

// Drop gives up.
func (r *Restoring) Drop() error {
	return errors.Join(r.to.Close(), removeIfThere(r.c.fs, r.c.path(r.used.name)+tmpSuffix))
}

// Again has ranges copied again, to which something was written since they were.
func (r *Restoring) Again(ranges []Range) { r.left = append(r.left, ranges...) }

// restorePiece is what Copy copies at most.
const restorePiece = 8 << 20

// Copy copies a piece and tells whether there is more. It may run beside I/O; whatever is written
// there meanwhile has to be copied again. What was copied is durable when there is no more.
func (r *Restoring) Copy() (more bool, err error) {
	for room := int64(restorePiece); room > 0; {
		if len(r.left) == 0 {
			return false, r.to.Sync()
		}
		at := &r.left[0]
		if room, err = r.copyExtents(at, room); err != nil {
			return false, err
		}
		if at.Len <= 0 {
			r.left = r.left[1:]
		}
	}
	return true, nil
}

// copyExtents copies what the file has at the beginning of a range, at most room bytes, and takes
// that off the range. What was copied before and is a hole now becomes one.
func (r *Restoring) copyExtents(at *Range, room int64) (int64, error) {
	end := min(at.Off+at.Len, r.size)
	extents, more, err := r.used.file.Extents(at.Off, nil)
	if err != nil {
		return 0, err
	}
	stop := end
	if n := len(extents); more && n > 0 {
		stop = min(end, extents[n-1].Off+extents[n-1].Len)
	}
	from := at.Off
	for _, e := range extents {
		beg, fin := max(e.Off, at.Off), min(e.Off+e.Len, stop)
		if beg >= fin || e.Unwritten && r.used.name == r.c.meta.vm.AnkoleHead {
			continue // there it can only be a write that is under way
		}
		if room <= 0 {
			stop = beg
			break
		}
		if fin > beg+room {
			fin, stop = beg+room, beg+room
		}
		if err := r.copyBytes(from, beg, fin); err != nil {
			return 0, err
		}
		room -= fin - beg
		from = fin
	}
	if err := r.hole(from, stop); err != nil {
		return 0, err
	}
	at.Off, at.Len = stop, end-stop
	return room - blockSize, nil // an empty piece is work too
}

// copyBytes copies [beg, end), after a hole from hole on.
func (r *Restoring) copyBytes(hole, beg, end int64) error {
	if err := r.hole(hole, beg); err != nil {
		return err
	}
	p := make([]byte, min(end-beg, 1<<20))
	for ; beg < end; beg += int64(len(p)) {
		p = p[:min(int64(len(p)), end-beg)]
		if err := readFull(r.used.file, p, beg); err != nil {
			return err
		}
		if _, err := r.to.WriteAt(p, beg); err != nil {
			return err
		}
	}
	return nil
}

func (r *Restoring) hole(from, to int64) error {
	if from >= to {
		return nil
	}
	return r.to.Punch(from, to-from)
}

// Finish copies the rest, gives the copy the name, durably, and puts it in the place of the lost
// file. No I/O is under way. A file that has the name is kept under another one: somebody may want
// it.
func (r *Restoring) Finish(rest []Range) (Change, error) {
	c, u := r.c, r.used
	r.Again(rest)
	for more := true; more; {
		var err error
		if more, err = r.Copy(); err != nil {
			return Change{}, err
		}
	}
	path := c.path(u.name)
	marked := u.name
	if u.whiteouts {
		marked = c.openFiles.layers[u.layer].name + metaSuffix // which says what is known of them
	}
	err := c.setAside(u.name) // before the mark, which says that what has the name may be another file
	if err == nil {
		err = c.meta.mark(marked)
	}
	if err == nil {
		err = c.fs.Rename(path+tmpSuffix, path)
	}
	if err == nil {
		err = c.syncDir()
	}
	if err != nil {
		return Change{}, err
	}
	info, err := r.to.Stat()
	if err != nil {
		return Change{}, c.breaks(err)
	}
	c.openFiles.exchange(u, r.to, info.Inode)
	c.meta.copies.stale = true
	c.merges.settled(u.name)
	c.removal.keepOpen(u.file)
	return c.openFiles.changed(), nil
}

// setAside gives another name, durably, to a file that has taken the place of one in use.
func (c *Files) setAside(name string) error {
	err := c.fs.Rename(c.path(name), c.path(name)+replacedSuffix)
	if isNotFound(err) {
		return nil
	}
	if err == nil {
		err = c.syncDir()
	}
	return err
}

// Restore is BeginRestore and all that follows, with I/O held back. begun may be what was begun
// already, with rest to be copied again.
func (c *Files) Restore(name string, begun *Restoring, rest []Range) (Change, error) {
	if begun == nil || begun.used.name != name {
		var err error
		if begun, err = c.BeginRestore(name); err != nil {
			return Change{}, err
		}
		rest = nil
	}
	return begun.Finish(rest)
}

// Blank makes the directory a rebuild target, durably, in which the lost files are empty ones.
// Nothing can be done with it afterwards but closing it.
func (c *Files) Blank(s *Sidecars, lost []string) error {
	if err := c.usable(); err != nil {
		return err
	}
	var made []string
	for _, u := range c.openFiles.usedFiles() {
		if !slices.Contains(lost, u.name) || u.whiteouts {
			continue // whiteouts that are missing are known as damage to the next open
		}
		if err := c.makeEmpty(u.name, c.openFiles.layers[u.layer].size); err != nil {
			return err
		}
		made = append(made, u.name)
	}
	vm := c.meta.vm
	vm.Rebuilding, vm.AnkoleStamp, vm.AnkoleHead = true, "", ""
	if err := errors.Join(c.meta.writeVolumeMeta(&vm), s.forget()); err != nil {
		return err
	}
	c.meta.stamped = false
	for _, name := range made {
		path := c.path(name)
		if err := c.checksums.remove(name); err != nil {
			return err
		}
		if err := c.setAside(name); err != nil {
			return err
		}
		if err := c.fs.Rename(path+tmpSuffix, path); err != nil {
			return err
		}
	}
	return c.syncDir()
}

// makeEmpty makes an empty file of a size beside the name it is for.
func (c *Files) makeEmpty(name string, size int64) error {
	tmp := c.path(name) + tmpSuffix
	if err := removeIfThere(c.fs, tmp); err != nil {
		return err
	}
	f, err := c.fs.Create(tmp, disk.Direct)
	if err != nil {
		return err
	}
	if err = f.Truncate(size); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
