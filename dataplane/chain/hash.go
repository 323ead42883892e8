package chain

import (
	"crypto/sha256"
	"fmt"

	"ankole.storage/dataplane/disk"
)

// hashChunk is how much HashAt and ReadAt read at a time.
const hashChunk = 1 << 20

// ReadAt reads the head's content the blocking way, for tools and tests.
func (b *Blocks) ReadAt(p []byte, off int64) (int, error) {
	files := map[int32]disk.File{}
	for _, l := range b.layers[1:] {
		files[l.file.Handle()] = l.file
	}
	for _, e := range b.ReadPlan(off, int64(len(p)), nil) {
		part := p[e.Off-off:][:e.Len]
		if e.Handle == NoHandle {
			clear(part)
			continue
		}
		if err := readFull(files[e.Handle], part, e.Off); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// HashAt returns the SHA-256 of the content as seen at a snapshot, or at the head for HeadName:
// what a reader would see, whatever files it comes from. A snapshot has the size its file had when
// it was made.
func (c *Files) HashAt(snapshot string) ([sha256.Size]byte, error) {
	view, err := c.at(snapshot)
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	defer view.Abandon() // it was only read
	h, buf := sha256.New(), make([]byte, min(hashChunk, view.meta.vm.Size))
	for off := int64(0); off < view.meta.vm.Size; off += hashChunk {
		p := buf[:min(hashChunk, view.meta.vm.Size-off)]
		if _, err := view.ReadAt(p, off); err != nil {
			return [sha256.Size]byte{}, fmt.Errorf("hash of %s in %s: %w", snapshot, c.dir, err)
		}
		h.Write(p)
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// at returns a read-only chain whose head is the given snapshot of any branch. It holds no lock.
func (c *Files) at(snapshot string) (*Chain, error) {
	file := snapshotFile(snapshot)
	if snapshot == HeadName {
		file = c.meta.vm.Head
	}
	if c.meta.disks[file] == nil {
		return nil, fmt.Errorf("%w: there is no snapshot %q in %s", ErrNotFound, snapshot, c.dir)
	}
	info, err := c.fs.Stat(c.path(file))
	if err != nil {
		return nil, err
	}
	d := c.directory.another(true)
	v := &Chain{newFiles(d, c.meta.beside(d, file, c.meta.disks), c.opts), noSidecars(), &Blocks{}}
	v.openFiles.skipUnwritten = c.openFiles.skipUnwritten && snapshot == HeadName
	if snapshot != HeadName { // the head's file may have been cut short; the volume has the size volume.meta says
		v.meta.vm.Size = info.Size / blockSize * blockSize
	}
	if v.meta.vm.Size == 0 {
		return nil, fmt.Errorf("%w: %s is empty", ErrCorrupt, file)
	}
	if err = v.openFiles.open(); err == nil {
		err = v.buildMap(v.Sidecars, v.Blocks)
	}
	if err != nil {
		_ = v.Abandon() // reading leaves nothing that could fail to be written
		return nil, err
	}
	return v, nil
}
