// Package osdisk implements disk.Meta on the machine's file systems. It needs what a replica
// directory needs of one: direct I/O, sparse files whose extents can be listed, hole punching and
// hard links, as ext4, XFS and Btrfs have. On tmpfs, for tests, extents are found by seeking, and
// kernels whose tmpfs has no direct I/O get buffered files.
package osdisk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/disk"
)

// FS is the machine's file system tree.
type FS struct {
	resolve func(string) string
	mu      sync.RWMutex
	// locked are the descriptors of directories that are locked here, by their real paths.
	locked map[string]int
}

var _ disk.Meta = (*FS)(nil)

// New returns the machine's file systems. resolve, unless nil, turns the paths that callers use
// into the ones to open; messages keep the callers' paths.
func New(resolve func(string) string) *FS {
	if resolve == nil {
		resolve = func(p string) string { return p }
	}
	return &FS{resolve: resolve, locked: map[string]int{}}
}

// Modes of new files and directories: a volume's content is nobody else's business.
const (
	fileMode = 0o600
	dirMode  = 0o700
)

// mediumErrors are what the kernel answers where a medium has failed, or the file system's own
// checksums say so. Direct I/O gives the error of the block layer as it is: a sector that an NVMe
// or SCSI disk cannot read is ENODATA. EIO is what the page cache makes of all of them, and what
// the other drivers say. What is wrong with the way to the disk, as ETIMEDOUT, says nothing about
// the sector.
var mediumErrors = []unix.Errno{unix.EIO, unix.ENODATA, unix.EILSEQ, unix.EREMOTEIO, unix.EBADMSG, unix.EUCLEAN}

// isMedium tells whether err is one of mediumErrors.
func isMedium(err error) bool {
	return slices.ContainsFunc(mediumErrors, func(e unix.Errno) bool { return errors.Is(err, e) })
}

// wrap gives an error its place and, by errors.Is, its disk sentinel.
func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	kind := disk.ErrIO
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		kind = disk.ErrNotFound
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY):
		kind = disk.ErrExists
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		kind = disk.ErrNoSpace
	case errors.Is(err, unix.EWOULDBLOCK):
		kind = disk.ErrInUse
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTTY), errors.Is(err, unix.ENOSYS):
		kind = disk.ErrUnsupported
	case !isMedium(err):
		return fmt.Errorf("%s %s: %w", op, path, err)
	}
	return fmt.Errorf("%s %s: %w (%w)", op, path, kind, err)
}

// retry repeats fn while a signal interrupts it.
func retry(fn func() error) error {
	for {
		if err := fn(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Create implements disk.Meta.
func (s *FS) Create(name string, mode disk.Mode) (disk.File, error) {
	return s.open("create", name, mode, unix.O_CREAT|unix.O_EXCL)
}

// Open implements disk.Meta.
func (s *FS) Open(name string, mode disk.Mode) (disk.File, error) {
	return s.open("open", name, mode, 0)
}

func (s *FS) open(op, name string, mode disk.Mode, flags int) (*file, error) {
	flags |= unix.O_CLOEXEC
	if mode&disk.ReadOnly != 0 {
		flags |= unix.O_RDONLY
	} else {
		flags |= unix.O_RDWR
	}
	direct := mode&disk.Direct != 0
	f := &file{name: name, direct: direct}
	real := s.resolve(name)
	try := func(extra int) error {
		return retry(func() (err error) {
			f.fd, err = unix.Open(real, flags|extra, fileMode)
			return err
		})
	}
	if !direct {
		return f, nilOnError(&f, wrap(op, name, try(0)))
	}
	err := try(unix.O_DIRECT)
	if errors.Is(err, unix.EINVAL) && isDirectory(real) {
		err = unix.EISDIR // the kernel's answer is about direct I/O
	}
	if errors.Is(err, unix.EINVAL) {
		// The kernel refuses only after it made the file.
		flags &^= unix.O_CREAT | unix.O_EXCL
		f.direct = false
		if !isTmpfs(real) {
			if op == "create" {
				_ = unix.Unlink(real)
			}
			return nil, fmt.Errorf("%s %s: %w: direct I/O; use ext4 or XFS", op, name, disk.ErrUnsupported)
		}
		err = try(0)
	}
	return f, nilOnError(&f, wrap(op, name, err))
}

func isDirectory(name string) bool {
	var s unix.Stat_t
	return retry(func() error { return unix.Stat(name, &s) }) == nil && s.Mode&unix.S_IFMT == unix.S_IFDIR
}

// nilOnError clears the file so that callers get no half-open one.
func nilOnError(f **file, err error) error {
	if err != nil {
		*f = nil
	}
	return err
}

// Rename implements disk.Meta.
func (s *FS) Rename(from, to string) error {
	return wrap("rename", from, unix.Rename(s.resolve(from), s.resolve(to)))
}

// Exchange implements disk.Meta.
func (s *FS) Exchange(a, b string) error {
	return wrap("exchange", a, unix.Renameat2(unix.AT_FDCWD, s.resolve(a), unix.AT_FDCWD, s.resolve(b),
		unix.RENAME_EXCHANGE))
}

// Link implements disk.Meta.
func (s *FS) Link(from, to string) error {
	return wrap("link", to, unix.Link(s.resolve(from), s.resolve(to)))
}

// Remove implements disk.Meta.
func (s *FS) Remove(name string) error {
	real := s.resolve(name)
	err := unix.Unlink(real)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		err = unix.Rmdir(real)
	}
	return wrap("remove", name, err)
}

// Mkdir implements disk.Meta.
func (s *FS) Mkdir(name string) error {
	return wrap("mkdir", name, unix.Mkdir(s.resolve(name), dirMode))
}

// List implements disk.Meta.
func (s *FS) List(dir string) ([]string, error) {
	d, err := os.Open(s.resolve(dir))
	if err != nil {
		return nil, wrap("list", dir, err)
	}
	defer d.Close() // read only
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, wrap("list", dir, err)
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements disk.Meta.
func (s *FS) Stat(name string) (disk.Info, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Stat(s.resolve(name), &st) }); err != nil {
		return disk.Info{}, wrap("stat", name, err)
	}
	return infoOf(&st), nil
}

// statBlock is the unit of st_blocks.
const statBlock = 512

func infoOf(st *unix.Stat_t) disk.Info {
	return disk.Info{
		Size:      st.Size,
		Allocated: st.Blocks * statBlock,
		Inode:     st.Ino,
		Dir:       st.Mode&unix.S_IFMT == unix.S_IFDIR,
		Mode:      fs.FileMode(st.Mode & 0o777),
		MTime:     time.Unix(st.Mtim.Unix()),
		CTime:     time.Unix(st.Ctim.Unix()),
	}
}

// ReadFile implements disk.Meta.
func (s *FS) ReadFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(s.resolve(name))
	if err != nil {
		return nil, wrap("read", name, err)
	}
	defer f.Close() // read only
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, wrap("read", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: longer than the %d bytes it may have", name, limit)
	}
	return data, nil
}

// WriteFileAtomic implements disk.Meta.
func (s *FS) WriteFileAtomic(name string, data []byte) error {
	tmp := s.resolve(name) + ".tmp"
	if err := writeSynced(tmp, data); err != nil {
		_ = unix.Unlink(tmp)
		return fmt.Errorf("%w: %w", wrap("write", name, err), disk.ErrUnchanged)
	}
	if err := unix.Rename(tmp, s.resolve(name)); err != nil {
		_ = unix.Unlink(tmp)
		return wrap("replace", name, err)
	}
	return s.SyncDir(path.Dir(name))
}

func writeSynced(real string, data []byte) error {
	f, err := os.OpenFile(real, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// SyncDir implements disk.Meta.
func (s *FS) SyncDir(dir string) error {
	real := s.resolve(dir)
	s.mu.RLock()
	defer s.mu.RUnlock()
	fd, locked := s.locked[real]
	if !locked {
		var err error
		if fd, err = openDir(real); err != nil {
			return wrap("sync directory", dir, err)
		}
	}
	err := unix.Fsync(fd)
	if !locked {
		err = errors.Join(err, unix.Close(fd))
	}
	return wrap("sync directory", dir, err)
}

func openDir(real string) (fd int, err error) {
	err = retry(func() (err error) {
		fd, err = unix.Open(real, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// lock is an flock on the directory itself: nothing to create or to leave behind.
type lock struct {
	fs   *FS
	real string
	fd   int
}

// Handle implements disk.Lock.
func (l *lock) Handle() int32 { return int32(l.fd) }

// Close implements disk.Lock.
func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locked, l.real)
	// Unlocked by name: others may have the file open yet (Loop.Hold).
	return wrap("unlock", l.real, errors.Join(unix.Flock(l.fd, unix.LOCK_UN), unix.Close(l.fd)))
}

// Lock implements disk.Meta.
func (s *FS) Lock(dir string) (disk.Lock, error) {
	real := s.resolve(dir)
	fd, err := openDir(real)
	if err != nil {
		return nil, wrap("lock", dir, err)
	}
	if err := retry(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) }); err != nil {
		_ = unix.Close(fd)
		return nil, wrap("lock", dir, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked[real] = fd
	return &lock{fs: s, real: real, fd: fd}, nil
}
