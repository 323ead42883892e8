package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"ankole.storage/dataplane/disk"
)

// volume.meta and the layers' .meta are files of other engines' format: each is there once, and has
// no checksum. A bad sector in one of them would refuse the directory, and with the last replica
// the volume. ankole.meta has a copy of all of them, and says of which file each is one: by inode,
// size and time of the last change. A file that was replaced since is another one, so a copy never
// says anything about a later state, whoever has written it, and may be written at any time after.

const (
	copyName = "ankole.meta"
	// maxCopyBytes bounds the copy: ten times what 250 layers with the control plane's labels need.
	maxCopyBytes = 4 << 20
)

// copiedFile is what is known of one file: of a metadata file its content, of an image or a file of
// whiteouts when it was written to last.
type copiedFile struct {
	Name  string
	Inode uint64
	Size  int64
	// CTime, of the last change, and MTime, of the last write, in nanoseconds. MTime is 0 for
	// metadata, for what is written to while the directory is open, and where an earlier build has
	// written the copy.
	CTime   int64
	MTime   int64 `json:",omitempty"`
	Content []byte
	// Changing: an operation may have changed the file since.
	Changing bool `json:",omitempty"`
	// Grows: the length says nothing.
	Grows bool `json:",omitempty"`
	// Whiteouts is the file of whiteouts that a layer's metadata names, nil for none.
	Whiteouts *copiedFile `json:",omitempty"`
}

// isOf tells whether the copy is of this file, as it is.
func (e *copiedFile) isOf(info disk.Info) bool {
	return e.Inode == info.Inode && e.Size == info.Size && e.CTime == info.CTime.UnixNano()
}

// metaCopy is the content of ankole.meta, by name. nil: nothing is known.
type metaCopy map[string]copiedFile

// copies is the copy of a directory's metadata: it writes ankole.meta, says of each metadata file
// what it was where the disk cannot read it, and of images and whiteouts whether somebody else has
// changed them (seal.go). It reads vm and disks of the metadata it is of, and changes neither.
//
// Its own are held, which is what ankole.meta holds; mended; stale; and changing, of which mark and
// settled are the two ends.
type copies struct {
	*directory
	of   *meta
	held metaCopy
	// mended are files that were read from the copy.
	mended []string
	// stale: metadata has changed since it was copied.
	stale bool
	// changing are images that operations under way may have changed: see mark.
	changing map[string]bool
}

// encode renders the copy: a line with the SHA-256 of what follows, then JSON.
func (m metaCopy) encode() []byte {
	list := make([]copiedFile, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[name])
	}
	body := encodeJSON(list, nil)
	sum := sha256.Sum256(body)
	return append([]byte(hex.EncodeToString(sum[:])+"\n"), body...)
}

// readCopy reads the copy of a directory. One that is damaged is none.
func readCopy(fs disk.Meta, dir string) metaCopy {
	data, err := fs.ReadFile(dir+"/"+copyName, maxCopyBytes)
	if err != nil {
		return nil
	}
	line, body, _ := bytes.Cut(data, []byte("\n"))
	sum := sha256.Sum256(body)
	var list []copiedFile
	if hex.EncodeToString(sum[:]) != string(line) || json.Unmarshal(body, &list) != nil {
		return nil
	}
	m := metaCopy{}
	for _, e := range list {
		m[e.Name] = e
	}
	return m
}

// readFile reads a metadata file, or what the copy says of it where the disk cannot read it or has
// something else there: then mended is set.
func (m metaCopy) readFile(fs disk.Meta, dir, name string) (data []byte, mended bool, err error) {
	data, err = fs.ReadFile(dir+"/"+name, maxMetaBytes)
	e, ok := m[name]
	if !ok || err != nil && !errors.Is(err, disk.ErrIO) {
		return data, false, err
	}
	info, serr := fs.Stat(dir + "/" + name)
	if serr != nil || !e.isOf(info) || err == nil && bytes.Equal(data, e.Content) {
		return data, false, err
	}
	return e.Content, true, nil
}

// readMeta reads a metadata file of a directory that is being opened.
func (c *copies) readMeta(name string) ([]byte, error) {
	data, mended, err := c.held.readFile(c.fs, c.dir, name)
	if mended {
		c.log.Error("metadata file is damaged; its copy is used", "dir", c.dir, "file", name)
		c.mended = append(c.mended, name)
	}
	return data, err
}

// MetaStale reports that metadata has changed since it was copied: CopyMeta is wanted.
func (c *copies) MetaStale() bool { return c.stale && c.usable() == nil }

// CopyMeta copies the metadata files. It may run beside I/O, but not beside another metadata
// operation on the files. Without room the old copy stays, which is of what has not changed.
func (c *copies) CopyMeta() error { return c.copyMeta(false) }

// copyMeta copies the metadata files, with what the seal says of the others. closed: nothing is
// written to any more.
func (c *copies) copyMeta(closed bool) error {
	if err := c.usable(); err != nil {
		return err
	}
	c.stale = false
	next := metaCopy{}
	err := c.copyFile(next, volumeMetaName)
	for _, file := range slices.Sorted(maps.Keys(c.of.disks)) {
		if err == nil {
			err = c.copyLayer(next, file, closed)
		}
	}
	if err == nil && closed {
		err = c.copyLeft(next)
	}
	if err != nil {
		return err
	}
	data := next.encode()
	if maps.EqualFunc(next, c.held, copiedFile.same) || len(data) > maxCopyBytes {
		return nil
	}
	if err := c.fs.WriteFileAtomic(c.path(copyName), data); err != nil {
		return c.breaksUnlessFull(err)
	}
	c.held = next
	return nil
}

// same tells whether two entries say the same, without looking at content.
func (e copiedFile) same(o copiedFile) bool {
	if e.Whiteouts != nil && o.Whiteouts != nil && !e.Whiteouts.same(*o.Whiteouts) {
		return false
	}
	return e.Name == o.Name && e.Inode == o.Inode && e.Size == o.Size && e.CTime == o.CTime && e.MTime == o.MTime &&
		e.Changing == o.Changing && e.Grows == o.Grows && (e.Whiteouts == nil) == (o.Whiteouts == nil)
}

// copyFile takes a metadata file over.
func (c *copies) copyFile(next metaCopy, name string) error {
	info, err := c.fs.Stat(c.path(name))
	if err != nil {
		return err
	}
	if e, ok := c.held[name]; ok && e.isOf(info) {
		next[name] = copiedFile{Name: name, Inode: e.Inode, Size: e.Size, CTime: e.CTime, Content: e.Content}
		return nil
	}
	data, err := c.fs.ReadFile(c.path(name), maxMetaBytes)
	next[name] = copiedFile{Name: name, Inode: info.Inode, Size: info.Size, CTime: info.CTime.UnixNano(), Content: data}
	return err
}

// copyLayer takes over the metadata of a layer, and what is known of its image and whiteouts. Those
// of the head are written to until the directory is closed.
func (c *copies) copyLayer(next metaCopy, file string, closed bool) error {
	if err := c.copyFile(next, file+metaSuffix); err != nil {
		return err
	}
	inUse := file == c.of.vm.Head && !closed
	if c.changing[file] && !closed {
		next[file] = copiedFile{Name: file, Changing: true}
	} else {
		was := c.held[file]
		e, err := c.lookAt(file, inUse, &was)
		if err != nil {
			return err
		}
		next[file] = *e
	}
	number := c.of.disks[file].whiteouts
	if number == "" {
		return nil
	}
	m, was := next[file+metaSuffix], c.held[file+metaSuffix].Whiteouts
	e, err := c.lookAt(whiteoutName(number), inUse, was)
	if isNotFound(err) {
		return nil // damage has rules of its own
	}
	if e.Grows = inUse; inUse {
		e.Size = 0
	}
	m.Whiteouts = e
	next[file+metaSuffix] = m
	return err
}

// lookAt is what the file system says of a file. was is what the copy says, nil or empty if it says
// nothing: what is new in it is made durable first, so that no loss of power changes the length.
func (c *copies) lookAt(name string, inUse bool, was *copiedFile) (*copiedFile, error) {
	info, err := c.fs.Stat(c.path(name))
	e := &copiedFile{Name: name, Inode: info.Inode, Size: info.Size}
	if err != nil || inUse {
		return e, err
	}
	e.CTime, e.MTime = info.CTime.UnixNano(), info.MTime.UnixNano()
	if was != nil && was.same(*e) {
		return e, nil
	}
	f, err := c.fs.Open(c.path(name), disk.ReadOnly|disk.Direct)
	if err != nil {
		return e, err
	}
	return e, errors.Join(c.syncFile(f), f.Close())
}

// copyLeft takes over what an operation that failed has left.
func (c *copies) copyLeft(next metaCopy) error {
	names, err := c.fs.List(c.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, ok := next[name]; ok || !isLayerFile(strings.TrimSuffix(name, metaSuffix)) {
			continue
		}
		if !isLayerFile(name) {
			err = c.copyFile(next, name)
		} else if e, lerr := c.lookAt(name, false, nil); lerr != nil {
			err = lerr
		} else {
			next[name] = *e
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyAtEnd is CopyMeta for the end of a process.
func (c *copies) copyAtEnd() {
	if err := c.copyMeta(true); err != nil {
		c.log.Warn("metadata has no copy", "dir", c.dir, "error", err)
	}
}

// gone says that an image is gone, or has become another one.
func (c *copies) gone(image string) {
	delete(c.changing, image)
	c.stale = true
}

// settled says that all operations on an image are over, and their changes are durable.
func (c *copies) settled(image string) {
	if !c.changing[image] {
		return
	}
	delete(c.changing, image)
	c.stale = true
}

// What the copy of the metadata says of a file holds until the next copy, or until volume.meta is
// replaced. An operation that changes another file marks it in the copy first: a process that ends
// on the way leaves a file that is either as before or as after it, and nobody can tell which. The
// next copy takes the mark away; from an image only when the operation is over, which can have many
// pieces, since until then its length need not be durable.

// mark durably says in the copy that files may have changed.
func (c *copies) mark(names ...string) error {
	if c.readOnly || c.of.vm.Rebuilding && c.of.vm.Dirty {
		return nil
	}
	for _, name := range names {
		if isLayerFile(name) {
			c.changing[name] = true
		}
	}
	if !c.holds() {
		return nil
	}
	next := metaCopy{}
	marked := false
	for name, e := range c.held {
		for _, n := range names {
			if n == name && !e.Changing {
				e.Changing, marked = true, true
			}
		}
		next[name] = e
	}
	if !marked {
		return nil
	}
	err := c.fs.WriteFileAtomic(c.path(copyName), next.encode())
	if err == nil {
		c.held = next
		return nil
	}
	if !errors.Is(err, disk.ErrNoSpace) && !errors.Is(err, disk.ErrUnchanged) {
		return c.breaks(err)
	}
	// No room for another copy: none is better than one that is wrong.
	c.log.Warn("metadata has no copy", "dir", c.dir, "error", err)
	if err := removeIfThere(c.fs, c.path(copyName)); err != nil {
		return err
	}
	c.held = nil
	return c.syncDir()
}
