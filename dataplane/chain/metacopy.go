package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"ankole.storage/disk"
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

// copiedFile is the content of one file.
type copiedFile struct {
	Name  string
	Inode uint64
	Size  int64
	// CTime, of the last change, and MTime, of the last write, in nanoseconds. MTime is of images
	// only, and 0 where an earlier build has written the copy.
	CTime   int64
	MTime   int64 `json:",omitempty"`
	Content []byte
}

// isOf tells whether the copy is of this file, as it is.
func (e *copiedFile) isOf(info disk.Info) bool {
	return e.Inode == info.Inode && e.Size == info.Size && e.CTime == info.CTime.UnixNano()
}

// metaCopy is the content of ankole.meta, by name. nil: nothing is known.
type metaCopy map[string]copiedFile

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
func (c *Files) readMeta(name string) ([]byte, error) {
	data, mended, err := c.copies.readFile(c.fs, c.dir, name)
	if mended {
		c.opts.Log.Error("metadata file is damaged; its copy is used", "dir", c.dir, "file", name)
		c.mended = append(c.mended, name)
	}
	return data, err
}

// rewriteMended puts whole files in the place of layers' metadata that was read from the copy.
// volume.meta is replaced by the end of Open anyway.
func (c *Files) rewriteMended() error {
	if c.opts.ReadOnly {
		return nil
	}
	for _, file := range slices.Sorted(maps.Keys(c.disks)) {
		if !slices.Contains(c.mended, file+metaSuffix) {
			continue
		}
		if err := c.writeDiskMeta(file, c.disks[file]); err != nil {
			return err
		}
	}
	return nil
}

// MetaStale reports that metadata has changed since it was copied: CopyMeta is wanted.
func (c *Files) MetaStale() bool { return c.stale && c.usable() == nil }

// CopyMeta copies the metadata files. It may run beside I/O, but not beside another metadata
// operation on the files. Without room the old copy stays, which is of what has not changed.
func (c *Files) CopyMeta() error { return c.copyMeta(func(metaCopy) error { return nil }) }

// copyMeta copies the metadata files, and what more adds.
func (c *Files) copyMeta(more func(metaCopy) error) error {
	if err := c.usable(); err != nil {
		return err
	}
	c.stale = false
	names := []string{volumeMetaName}
	for _, file := range slices.Sorted(maps.Keys(c.disks)) {
		names = append(names, file+metaSuffix)
	}
	next := metaCopy{}
	for _, name := range names {
		info, err := c.fs.Stat(c.path(name))
		if err != nil {
			return err
		}
		if e, ok := c.copies[name]; ok && e.isOf(info) {
			next[name] = e
			continue
		}
		data, err := c.fs.ReadFile(c.path(name), maxMetaBytes)
		if err != nil {
			return err
		}
		next[name] = copiedFile{Name: name, Inode: info.Inode, Size: info.Size, CTime: info.CTime.UnixNano(), Content: data}
	}
	if err := more(next); err != nil {
		return err
	}
	same := func(a, b copiedFile) bool { return a.Inode == b.Inode && a.Size == b.Size && a.CTime == b.CTime }
	data := next.encode()
	if maps.EqualFunc(next, c.copies, same) || len(data) > maxCopyBytes {
		return nil
	}
	if err := c.fs.WriteFileAtomic(c.path(copyName), data); err != nil {
		return c.breaksUnlessFull(err)
	}
	c.copies = next
	return nil
}

// copyAtEnd is CopyMeta for the end of a process, and what belongs to the seal.
func (c *Files) copyAtEnd() {
	if err := c.copyMeta(c.sealFiles); err != nil {
		c.opts.Log.Warn("metadata has no copy", "dir", c.dir, "error", err)
	}
}
