package store

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"

	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/content"
	"ankole.storage/dataplane/disk"
)

// grain is what is left out of a file where it is all zeroes, in bytes. A smaller one makes files
// of many extents, which copies have to list.
const grain = 64 << 10

// Making is a file that is being made. It is either appended to, or written at any place, and ends
// with Publish or Abort.
type Making struct {
	d     *Disk
	paths backingimage.Paths
	uuid  string
	file  disk.File
	// limit is the size of the disk.
	limit int64

	// Of ReadFrom: how much of the buffer to be filled is, the bytes before that, their checksum.
	used   int
	size   int64
	hasher *hasher
}

// Create begins a file; it removes what an earlier attempt has left. A complete file there is
// disk.ErrExists.
func (d *Disk) Create(p backingimage.Paths, uuid string) (*Making, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	if _, err := d.fs.Stat(p.File); !errors.Is(err, disk.ErrNotFound) {
		return nil, errors.Join(fmt.Errorf("%s: %w", p.File, disk.ErrExists), err)
	}
	space, err := d.fs.Statfs(d.root)
	if err != nil {
		return nil, err
	}
	if err := d.Erase(p); err != nil {
		return nil, err
	}
	if err := d.makeDir(p.Dir); err != nil {
		return nil, err
	}
	m := &Making{d: d, paths: p, uuid: uuid, limit: space.SizeBytes, hasher: newHasher()}
	if m.file, err = d.fs.Create(p.Tmp, disk.Direct); err != nil {
		return nil, errors.Join(err, d.Erase(p))
	}
	return m, nil
}

// Fits says whether a file of that size can be on the disk at all.
func (m *Making) Fits(size int64) error {
	if size > m.limit {
		return fmt.Errorf("%w: the image has more than %d bytes, and the disk has %d: choose a larger disk",
			content.ErrRefused,
			size-1, m.limit)
	}
	return nil
}

// ReadFrom appends all that comes from r; zeroes take no space. What has come is hashed and written
// while more comes.
func (m *Making) ReadFrom(r io.Reader) (done int64, err error) {
	for err == nil {
		var n int
		n, err = r.Read(m.hasher.room()[m.used:])
		done, m.used = done+int64(n), m.used+n
		if m.used == chunk {
			err = cmp.Or(m.flush(), err)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return done, err
}

// flush has what is pending hashed, and written except where it is zero.
func (m *Making) flush() error {
	if m.used == 0 {
		return nil
	}
	if err := m.Fits(m.size + int64(m.used)); err != nil {
		return err
	}
	used, at := m.used, m.size
	m.size, m.used = at+int64(used), 0
	return m.hasher.add(used, func(buffer []byte) error {
		n := (used + alignment - 1) / alignment * alignment // the end is cut off again
		clear(buffer[used:n])
		return runs(buffer[:n], func(begin, end int, zero bool) error {
			if zero {
				return nil // the file is new
			}
			_, err := m.file.WriteAt(buffer[begin:end], at+int64(begin))
			return noSpace(err)
		})
	})
}

func isZero(p []byte) bool {
	for len(p) >= len(zeroes) {
		if string(p[:len(zeroes)]) != string(zeroes[:]) {
			return false
		}
		p = p[len(zeroes):]
	}
	return string(p) == string(zeroes[:len(p)])
}

var zeroes [alignment]byte

func noSpace(err error) error {
	if errors.Is(err, disk.ErrNoSpace) {
		return fmt.Errorf("the disk has no room for the image: make room, or choose another disk: %w", err)
	}
	return err
}

// Resize sets the size of a file that is written at any place, before it is.
func (m *Making) Resize(size int64) error {
	if err := m.Fits(size); err != nil {
		return err
	}
	m.size = size
	return m.file.Truncate(size)
}

// WriteAt writes at any place that is a multiple of 4096 bytes, as many bytes as that or up to the
// end. It may be called from several goroutines, for different places.
func (m *Making) WriteAt(p []byte, off int64) error {
	if err := m.within(off, int64(len(p))); err != nil {
		return err
	}
	if rest := len(p) % alignment; rest > 0 {
		// The last block is padded, and cut when the file is whole.
		last := buffer()[:alignment]
		clear(last[copy(last, p[len(p)-rest:]):])
		if _, err := m.file.WriteAt(last, off+int64(len(p)-rest)); err != nil {
			return noSpace(err)
		}
		p = p[:len(p)-rest]
	}
	_, err := m.file.WriteAt(p, off)
	return noSpace(err)
}

// Punch makes a range a hole; places are as for WriteAt.
func (m *Making) Punch(off, n int64) error {
	if err := m.within(off, n); err != nil {
		return err
	}
	return m.file.Punch(off, n)
}

func (m *Making) within(off, n int64) error {
	if off < 0 || n < 0 || off > m.size || n > m.size-off || off%alignment != 0 || n%alignment != 0 && off+n != m.size {
		return fmt.Errorf("%w: %d bytes from %d on are no range of %d bytes in blocks of %d", content.ErrRefused, n, off,
			m.size,
			alignment)
	}
	return nil
}

// Publish ends an appended file: it becomes durable, is compared with the checksum that is
// expected, if any, and gets its name. After an error nothing of it is left.
func (m *Making) Publish(expected string, info content.Info) (backingimage.Record, error) {
	if err := cmp.Or(m.flush(), m.hasher.wait()); err != nil {
		return backingimage.Record{}, errors.Join(err, m.Abort())
	}
	if err := m.file.Truncate(m.size); err != nil {
		return backingimage.Record{}, errors.Join(err, m.Abort())
	}
	return m.publish(expected, m.hasher.text(), m.size, info)
}

// PublishRead ends a file that was written at any place: what is on the disk is read for its
// checksum. progress, unless nil, is told how much was read; an error of it ends the reading.
func (m *Making) PublishRead(expected string, progress func(done int64) error) (backingimage.Record, error) {
	sum, size, info, err := m.Inspect(progress)
	if err != nil {
		return backingimage.Record{}, errors.Join(err, m.Abort())
	}
	return m.publish(expected, sum, size, info)
}

func (m *Making) publish(expected, sum string, size int64, info content.Info) (backingimage.Record, error) {
	r, err := m.name(expected, sum, size, info)
	if err != nil {
		return r, errors.Join(err, m.Abort())
	}
	return r, m.file.Close()
}

// name has the steps of which the order is what a crash cannot hurt.
func (m *Making) name(expected, sum string, size int64, info content.Info) (r backingimage.Record, err error) {
	virtual, err := info.DiskSize(size)
	if err != nil {
		return r, err
	}
	if expected != "" && sum != expected {
		return r, fmt.Errorf("%w: the image has SHA-512 %s, and not %s as expected: the content was changed on the way, or the "+
			"checksum is not that of the unpacked image", ErrDamaged, sum, expected)
	}
	if err := m.file.Sync(); err != nil {
		return r, noSpace(err)
	}
	now, err := m.file.Stat()
	if err != nil {
		return r, err
	}
	r = backingimage.Record{FilePath: m.paths.File, UUID: m.uuid, Size: size, VirtualSize: virtual,
		RealSize:         now.Allocated,
		ExpectedChecksum: expected, CurrentChecksum: sum, ModificationTime: backingimage.ModificationTime(now.MTime)}
	if err := m.d.fs.WriteFileAtomic(m.paths.Record, r.Encode()); err != nil {
		return r, noSpace(err)
	}
	if err := m.d.fs.Rename(m.paths.Tmp, m.paths.File); err != nil {
		return r, err
	}
	return r, m.d.fs.SyncDir(path.Dir(m.paths.File))
}

// Abort ends the file, and removes all of it.
func (m *Making) Abort() error {
	_ = m.hasher.wait() // what it says was said, or is of no use any more
	return errors.Join(m.file.Close(), m.d.Erase(m.paths))
}
