package sim

import (
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"time"

	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/memdisk"
)

// fiber is a blocking call of a process that takes simulated time: it stops before each change of
// the disk, and everything else goes on meanwhile. The process may die there; nothing of the call
// happens afterwards.
type fiber struct {
	p     *Process
	yield func(time.Duration) bool
	next  func() (time.Duration, bool)
	stop  func()
	done  func()
}

// begin makes a blocking call; done is called when it has returned, and not if the process dies
// before that.
func (p *Process) begin(call, done func()) {
	f := &fiber{p: p, done: done}
	f.next, f.stop = iter.Pull(func(yield func(time.Duration) bool) {
		f.yield = yield
		call()
	})
	p.fibers = append(p.fibers, f)
	f.goOn()
}

// goOn lets the call run until it stops again.
func (f *fiber) goOn() {
	p := f.p
	if !p.alive {
		return
	}
	if p.frozen > 0 {
		p.halted = append(p.halted, f)
		return
	}
	p.w.fiber = f
	d, more := f.next()
	p.w.fiber = nil
	if more {
		p.w.After(d+p.node.Disk.slow, f.goOn)
		if p.fuse--; p.fuse == 0 {
			p.w.After(0, p.blown)
		}
		return
	}
	p.fibers = slices.DeleteFunc(p.fibers, func(o *fiber) bool { return o == f })
	f.done()
}

// unwind ends the blocking calls of a process that has died: whatever they still try fails.
func (p *Process) unwind() {
	for _, f := range p.fibers {
		p.w.Midway++
		f.stop()
	}
	p.fibers = nil
}

// procFS is a node's file system as one process uses it.
type procFS struct {
	*memdisk.FS
	p *Process
	// held are files and locks, which end with the process.
	held map[*held]struct{}
}

// held is a file or a lock.
type held struct{ close func() error }

// errDead is what a process that has died is told. Nobody hears it.
var errDead = errors.New("the process has died")

func newProcFS(p *Process) *procFS {
	return &procFS{FS: p.node.Disk.FS, p: p, held: map[*held]struct{}{}}
}

// release gives back what the process held, as the kernel does it.
func (t *procFS) release() {
	for h := range t.held {
		_ = h.close() // what it was for is over
	}
	clear(t.held)
}

// readsPerPause is how many operations that change nothing there are to one that others are let in
// before.
const readsPerPause = 8

// look comes before an operation that changes nothing.
func (t *procFS) look() error {
	if !t.p.alive {
		return errDead
	}
	if t.p.w.fiber == nil || t.p.w.Rand.IntN(readsPerPause) > 0 {
		return nil
	}
	return t.pause(10*time.Microsecond, 200*time.Microsecond)
}

// change comes before an operation that changes something.
func (t *procFS) change() error { return t.pause(5*time.Microsecond, 100*time.Microsecond) }

// pause lets everything else go on for a while.
func (t *procFS) pause(lo, hi time.Duration) error {
	if f := t.p.w.fiber; t.p.alive && f != nil {
		f.yield(t.p.w.Between(lo, hi))
	}
	if !t.p.alive {
		return errDead
	}
	return nil
}

func (t *procFS) file(f disk.File, err error) (disk.File, error) {
	if err != nil {
		return nil, err
	}
	h := &held{f.Close}
	t.held[h] = struct{}{}
	return &procFile{File: f, fs: t, h: h}, nil
}

// Create implements disk.Meta.
func (t *procFS) Create(name string, mode disk.Mode) (disk.File, error) {
	if err := t.change(); err != nil {
		return nil, err
	}
	return t.file(t.FS.Create(name, mode))
}

// Open implements disk.Meta.
func (t *procFS) Open(name string, mode disk.Mode) (disk.File, error) {
	if err := t.look(); err != nil {
		return nil, err
	}
	return t.file(t.FS.Open(name, mode))
}

// Rename implements disk.Meta.
func (t *procFS) Rename(from, to string) error {
	if err := t.change(); err != nil {
		return err
	}
	return t.FS.Rename(from, to)
}

// Exchange implements disk.Meta.
func (t *procFS) Exchange(a, b string) error {
	if err := t.change(); err != nil {
		return err
	}
	return t.FS.Exchange(a, b)
}

// Link implements disk.Meta.
func (t *procFS) Link(from, to string) error {
	if err := t.change(); err != nil {
		return err
	}
	return t.FS.Link(from, to)
}

// Remove implements disk.Meta.
func (t *procFS) Remove(name string) error {
	if err := t.change(); err != nil {
		return err
	}
	return t.FS.Remove(name)
}

// Mkdir implements disk.Meta.
func (t *procFS) Mkdir(name string) error {
	if err := t.change(); err != nil {
		return err
	}
	return t.FS.Mkdir(name)
}

// List implements disk.Meta.
func (t *procFS) List(dir string) ([]string, error) {
	if err := t.look(); err != nil {
		return nil, err
	}
	return t.FS.List(dir)
}

// Stat implements disk.Meta.
func (t *procFS) Stat(name string) (disk.Info, error) {
	if err := t.look(); err != nil {
		return disk.Info{}, err
	}
	return t.FS.Stat(name)
}

// ReadFile implements disk.Meta.
func (t *procFS) ReadFile(name string, limit int64) ([]byte, error) {
	if err := t.look(); err != nil {
		return nil, err
	}
	return t.FS.ReadFile(name, limit)
}

// WriteFileAtomic implements disk.Meta, step by step: others are let in between.
func (t *procFS) WriteFileAtomic(name string, data []byte) error {
	tmp := name + ".tmp"
	f, err := t.Create(tmp, 0)
	if errors.Is(err, disk.ErrExists) {
		if f, err = t.Open(tmp, 0); err == nil {
			err = f.Truncate(0)
		}
	}
	if f != nil {
		if err == nil {
			_, err = f.WriteAt(data, 0)
		}
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", err, disk.ErrUnchanged)
	} else {
		err = t.Rename(tmp, name)
	}
	if err != nil {
		_ = t.Remove(tmp) // it is made anew the next time
		return err
	}
	return t.SyncDir(path.Dir(name))
}

// SyncDir implements disk.Meta.
func (t *procFS) SyncDir(dir string) error {
	if err := t.pause(50*time.Microsecond, time.Millisecond); err != nil {
		return err
	}
	return t.FS.SyncDir(dir)
}

// Lock implements disk.Meta.
func (t *procFS) Lock(dir string) (disk.Lock, error) {
	if err := t.look(); err != nil {
		return nil, err
	}
	l, err := t.FS.Lock(dir)
	if err != nil {
		return nil, err
	}
	h := &held{l.Close}
	t.held[h] = struct{}{}
	return &procLock{Lock: l, fs: t, h: h}, nil
}

// Statfs implements disk.Meta.
func (t *procFS) Statfs(name string) (disk.FSInfo, error) {
	if err := t.look(); err != nil {
		return disk.FSInfo{}, err
	}
	return t.FS.Statfs(name)
}

// procLock is a lock that ends with its process.
type procLock struct {
	disk.Lock
	fs *procFS
	h  *held
}

// Close implements disk.Lock.
func (l *procLock) Close() error {
	delete(l.fs.held, l.h)
	return l.Lock.Close()
}

// procFile is an open file that ends with its process.
type procFile struct {
	disk.File
	fs *procFS
	h  *held
}

// ReadAt implements disk.File.
func (f *procFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.look(); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

// WriteAt implements disk.File.
func (f *procFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.change(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

// Sync implements disk.File. It makes durable what was there when it began, not what comes
// meanwhile.
func (f *procFile) Sync() error {
	if !f.fs.p.alive {
		return errDead
	}
	if f.fs.p.w.fiber == nil {
		return f.File.Sync()
	}
	s, ok := f.fs.FS.BeginSync(f.File.Handle())
	if !ok {
		return f.File.Sync() // which says why not
	}
	if err := f.fs.pause(50*time.Microsecond, time.Millisecond); err != nil {
		s.Abandon()
		return err
	}
	return s.Complete()
}

// Truncate implements disk.File.
func (f *procFile) Truncate(size int64) error {
	if err := f.fs.change(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// Punch implements disk.File.
func (f *procFile) Punch(off, n int64) error {
	if err := f.fs.change(); err != nil {
		return err
	}
	return f.File.Punch(off, n)
}

// Preallocate implements disk.File.
func (f *procFile) Preallocate(off, n int64) error {
	if err := f.fs.change(); err != nil {
		return err
	}
	return f.File.Preallocate(off, n)
}

// Extents implements disk.File.
func (f *procFile) Extents(off int64, out []disk.Extent) ([]disk.Extent, bool, error) {
	if err := f.fs.look(); err != nil {
		return out, false, err
	}
	return f.File.Extents(off, out)
}

// Stat implements disk.File.
func (f *procFile) Stat() (disk.Info, error) {
	if err := f.fs.look(); err != nil {
		return disk.Info{}, err
	}
	return f.File.Stat()
}

// Close implements disk.File.
func (f *procFile) Close() error {
	long := f.fs.p.node.Disk.closing
	if o, ok := f.File.(interface{ Unnamed() bool }); long > 0 && ok && o.Unnamed() {
		_ = f.fs.pause(long, long) // who has died has closed it
	}
	delete(f.fs.held, f.h)
	return f.File.Close()
}
