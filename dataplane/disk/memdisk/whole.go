package memdisk

import (
	"errors"
	"fmt"
	"path"

	"ankole.storage/dataplane/disk"
)

// ReadFile implements disk.Meta.
func (fs *FS) ReadFile(name string, limit int64) ([]byte, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.look(OpRead, name); err != nil {
		return nil, err
	}
	n, err := fs.walk(name)
	if err == nil && n.data == nil {
		err = errors.New("is a directory")
	}
	if err != nil {
		return nil, place("read", name, err)
	}
	if touches(n.bad, 0, n.data.size) {
		return nil, place("read", name, disk.ErrIO)
	}
	if n.data.size > limit {
		return nil, fmt.Errorf("read %s: longer than the %d bytes it may have", name, limit)
	}
	p := make([]byte, n.data.size)
	n.data.read(p, 0)
	return p, nil
}

// WriteFileAtomic implements disk.Meta, step by step, so that crashes fall between the steps.
func (fs *FS) WriteFileAtomic(name string, data []byte) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	tmp := name + ".tmp"
	if d, base, err := fs.parent(tmp); err == nil && d.entries[base] != nil {
		d.apply(fs, nameChange{base: nil})
	}
	f, err := fs.create(tmp, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", place("write", name, err), disk.ErrUnchanged)
	}
	if _, err = f.writeAt(data, 0); err == nil {
		err = f.sync()
	}
	f.close()
	if err != nil {
		err = fmt.Errorf("%w: %w", err, disk.ErrUnchanged)
	} else {
		err = fs.rename(tmp, name)
	}
	if err != nil {
		if d, base, perr := fs.parent(tmp); perr == nil && fs.budget != 0 {
			d.apply(fs, nameChange{base: nil})
		}
		return place("write", name, err)
	}
	return fs.syncDir(path.Dir(name))
}

// lock is a held directory lock.
type lock struct {
	fs *FS
	d  *directory
}

// Handle implements disk.Lock.
func (l *lock) Handle() int32 { return -1 }

// Close implements disk.Lock.
func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	l.d.locked = false
	return nil
}

// Lock implements disk.Meta.
func (fs *FS) Lock(dir string) (disk.Lock, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.look(OpLock, dir); err != nil {
		return nil, err
	}
	n, err := fs.walk(dir)
	switch {
	case err != nil:
		return nil, place("lock", dir, err)
	case n.dir == nil:
		return nil, place("lock", dir, disk.ErrNotFound)
	case n.dir.locked:
		return nil, place("lock", dir, disk.ErrInUse)
	}
	n.dir.locked = true
	return &lock{fs: fs, d: n.dir}, nil
}

// Statfs implements disk.Meta.
func (fs *FS) Statfs(name string) (disk.FSInfo, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.look(OpStat, name); err != nil {
		return disk.FSInfo{}, err
	}
	if _, err := fs.walk(name); err != nil {
		return disk.FSInfo{}, place("statfs", name, err)
	}
	const unbounded = 1 << 50
	size := int64(unbounded)
	if fs.capacity > 0 {
		size = fs.capacity * pageSize
	}
	return disk.FSInfo{Type: "memdisk", SizeBytes: size, FreeBytes: size - fs.used*pageSize, BlockSize: pageSize}, nil
}
