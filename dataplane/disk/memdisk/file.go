package memdisk

import (
	"errors"
	"fmt"
	"io"

	"ankole.storage/dataplane/disk"
)

// file is an open file.
type file struct {
	fs     *FS
	n      *node
	name   string
	mode   disk.Mode
	handle int32
	closed bool
}

// File returns the open file of a handle, for a simulated loop.
func (fs *FS) File(handle int32) (disk.File, bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f, ok := fs.files[handle]
	return f, ok
}

// OpenFiles counts the handles that were not closed, so that tests can find leaks.
func (fs *FS) OpenFiles() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.files)
}

// Handle implements disk.File.
func (f *file) Handle() int32 { return f.handle }

// Path implements disk.File.
func (f *file) Path() string { return f.name }

// check refuses what a real file would refuse.
func (f *file) check(off, n int64, write bool) error {
	switch {
	case f.closed:
		return fmt.Errorf("%s: file is closed", f.name)
	case off < 0:
		return fmt.Errorf("%s: negative offset %d", f.name, off)
	case write && f.mode&disk.ReadOnly != 0:
		return fmt.Errorf("%s: file is open read-only", f.name)
	case f.mode&disk.Direct != 0 && (off%sectorSize != 0 || n%sectorSize != 0):
		return fmt.Errorf("%s: direct access of [%d,+%d) is not aligned to sectors", f.name, off, n)
	}
	return nil
}

// ReadAt implements disk.File.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.look(OpRead, f.name); err != nil {
		return 0, err
	}
	if err := f.check(off, int64(len(p)), false); err != nil {
		return 0, err
	}
	if touches(f.n.bad, off, int64(len(p))) {
		return 0, place("read", f.name, disk.ErrIO)
	}
	n := max(min(int64(len(p)), f.n.data.size-off), 0)
	f.n.data.read(p[:n], off)
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// WriteAt implements disk.File.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.writeAt(p, off)
}

func (f *file) writeAt(p []byte, off int64) (int, error) {
	fault := f.fs.change(OpWrite, f.name)
	var midway *partialError
	if fault != nil && !errors.As(fault, &midway) {
		return 0, fault
	}
	if err := f.check(off, int64(len(p)), true); err != nil {
		return 0, err
	}
	if touches(f.n.stuck, off, int64(len(p))) {
		return 0, place("write", f.name, disk.ErrIO)
	}
	if f.mode&disk.Direct == 0 && partly(f.n.bad, off, int64(len(p))) {
		return 0, place("write", f.name, disk.ErrIO) // the page cache reads the rest of a page first
	}
	if err := f.allocate(off, int64(len(p))); err != nil {
		return 0, err
	}
	if midway != nil {
		whole := int64(len(p))
		p = f.n.data.hit(p, off, midway.at%(whole/sectorSize+1)*sectorSize)
		defer func() { f.fs.used -= f.n.data.missing(off, whole) }() // what was not reached needs no space
	}
	f.n.data.write(p, off)
	mend(f.n.bad, off, int64(len(p)))
	f.fs.touch(f.n, true)
	return len(p), fault
}

// allocate takes the space a range still needs.
func (f *file) allocate(off, n int64) error {
	need := f.n.data.missing(off, n)
	if f.fs.capacity > 0 && f.fs.used+need > f.fs.capacity {
		return place("write", f.name, disk.ErrNoSpace)
	}
	f.fs.used += need
	return nil
}

// Sync implements disk.File.
func (f *file) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.sync()
}

func (f *file) sync() error {
	if err := f.maySync(); err != nil {
		return err
	}
	f.n.data.sync()
	return nil
}

// maySync tells whether a sync succeeds.
func (f *file) maySync() error {
	if err := f.fs.change(OpSync, f.name); err != nil {
		if errors.Is(err, errForgotten) {
			f.n.data.forget()
		}
		return err
	}
	return f.check(0, 0, false)
}

// resize runs fn, which may change how much is allocated.
func (f *file) resize(op Op, fn func()) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.change(op, f.name); err != nil {
		return err
	}
	if err := f.check(0, 0, true); err != nil {
		return err
	}
	before := f.n.data.count
	fn()
	f.fs.used += f.n.data.count - before
	f.fs.touch(f.n, true)
	return nil
}

// Truncate implements disk.File.
func (f *file) Truncate(size int64) error {
	return f.resize(OpTruncate, func() { f.n.data.truncate(size) })
}

// Punch implements disk.File.
func (f *file) Punch(off, n int64) error {
	return f.resize(OpPunch, func() {
		f.n.data.punch(off, n)
		mend(f.n.stuck, off, n)
	})
}

// Preallocate implements disk.File.
func (f *file) Preallocate(off, n int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.change(OpPreallocate, f.name); err != nil {
		return err
	}
	if err := f.check(0, 0, true); err != nil {
		return err
	}
	if err := f.allocate(off, n); err != nil {
		return err
	}
	f.n.data.preallocate(off, n)
	f.fs.touch(f.n, true)
	return nil
}

// Extents implements disk.File.
func (f *file) Extents(off int64, out []disk.Extent) ([]disk.Extent, bool, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.look(OpExtents, f.name); err != nil {
		return out, false, err
	}
	if err := f.check(0, 0, false); err != nil {
		return out, false, err
	}
	out, more := f.n.data.extents(off, out, disk.ExtentsPerCall)
	return out, more, nil
}

// Stat implements disk.File.
func (f *file) Stat() (disk.Info, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.look(OpStat, f.name); err != nil {
		return disk.Info{}, err
	}
	return f.n.info(), f.check(0, 0, false)
}

// Close implements disk.File. It succeeds after a crash too.
func (f *file) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.close()
}

func (f *file) close() error {
	if f.closed {
		return fmt.Errorf("close %s: file is closed", f.name)
	}
	f.closed = true
	f.n.opened--
	delete(f.fs.files, f.handle)
	f.fs.release(f.n)
	return nil
}

// Unnamed tells that the file has no name any more and is not open elsewhere: its space comes back
// when it is closed.
func (f *file) Unnamed() bool { return f.n.links == 0 && f.n.opened == 1 }
