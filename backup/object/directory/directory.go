// Package directory keeps a backup store in a directory of a mounted file system (vfs://,
// nfs://, cifs://).
//
// An object is a file. It is written as a temporary file, which is synced and then renamed; the
// folder is synced after it. So a file under its own name is whole whatever crashes. Put does that
// for one file, Commit for all that are staged, side by side.
//
// Temporary files lie in the topmost folder of the object's name. One that a crash left is no
// object: lists leave it out, and a later process that writes below that folder removes it.
package directory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/backup/object"
)

// Modes of what is made here. What is backed up is nobody else's business.
const (
	folderMode = 0o700
	fileMode   = 0o600
)

// temporary marks names of files that are being written. The reference leaves files with the first
// of the two marks, and ignores both.
const temporary = ".tmp."

// leftoverAge is how old a temporary file is before it is taken for a leftover of a crash: longer
// than any object takes to be written.
const leftoverAge = time.Hour

// Store is a directory. Make one with Open.
type Store struct {
	dir, name string
	local     bool
	// mu guards made against the removal of folders by Delete.
	mu sync.RWMutex
	// known are folders that exist durably.
	known sync.Map

	// committing is held by who commits; staging guards staged.
	committing, staging sync.Mutex
	staged              []temporaryFile
}

var _ object.Store = (*Store)(nil)

// Open returns the store in a directory, which must exist: one that is not there may be a file
// system that is not mounted. name is what messages call it.
func Open(dir, name string) (*Store, error) {
	fi, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("backup store %s: %w: create the directory, or mount its file system", name, err)
	}
	if !fi.IsDir() {
		return nil, fmt.Errorf("backup store %s is not a directory", name)
	}
	var fs unix.Statfs_t
	err = unix.Statfs(dir, &fs)
	local := err == nil && slices.Contains(localTypes, int64(fs.Type))
	return &Store{dir: filepath.Clean(dir), name: name, local: local}, nil
}

// localTypes are file systems that this machine alone has mounted, so that nothing is done behind
// its back.
var localTypes = []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
	unix.TMPFS_MAGIC}

// ListsAtOnce is that of object.Store. A client of a share keeps lists for a while.
func (s *Store) ListsAtOnce() bool { return s.local }

func (s *Store) String() string { return s.name }

// begin checks name and context and returns the path of the file.
func (s *Store) begin(ctx context.Context, name string) (string, error) {
	if err := object.CheckName(name); err != nil {
		return "", err
	}
	return filepath.Join(s.dir, filepath.FromSlash(name)), ctx.Err()
}

// wrap marks the errors that callers tell apart.
func (s *Store) wrap(err error, doing, name string) error {
	var mark error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		mark = object.ErrNotFound
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		mark = object.ErrNoSpace
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		mark = object.ErrRefused
	default:
		return fmt.Errorf("%s: %s %s: %w", s, doing, name, err)
	}
	return fmt.Errorf("%s: %s %s: %w (%w)", s, doing, name, mark, err)
}

// Get is that of object.Store.
func (s *Store) Get(ctx context.Context, name string, buf []byte, limitBytes int64) ([]byte, error) {
	file, err := s.begin(ctx, name)
	if err != nil {
		return buf, err
	}
	f, err := os.Open(file)
	if err != nil {
		return buf, s.wrap(err, "reading", name)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return buf, s.wrap(err, "reading", name)
	}
	if fi.IsDir() {
		return buf, s.wrap(syscall.EISDIR, "reading", name)
	}
	if fi.Size() > limitBytes {
		return buf, fmt.Errorf("%s: %s has %d bytes, more than %d: %w", s, name, fi.Size(), limitBytes, object.ErrTooLong)
	}
	// A file never changes under its name, so its size is that of the content.
	start, size := len(buf), int(fi.Size())
	if cap(buf)-start < size {
		buf = append(make([]byte, 0, start+size), buf...)
	}
	buf = buf[:start+size]
	if _, err := io.ReadFull(f, buf[start:]); err != nil {
		return buf[:start], s.wrap(err, "reading", name)
	}
	return buf, nil
}

// Stat is that of object.Store.
func (s *Store) Stat(ctx context.Context, name string) (object.Info, error) {
	file, err := s.begin(ctx, name)
	if err != nil {
		return object.Info{}, err
	}
	fi, err := os.Stat(file)
	if err == nil && fi.IsDir() {
		err = syscall.EISDIR
	}
	if err != nil {
		return object.Info{}, s.wrap(err, "looking at", name)
	}
	return object.Info{Name: name, SizeBytes: fi.Size(), Modified: fi.ModTime()}, nil
}

// Delete is that of object.Store. It also removes the folders that become empty.
func (s *Store) Delete(ctx context.Context, name string) error {
	file, err := s.begin(ctx, name)
	if err != nil {
		return err
	}
	fi, err := os.Lstat(file)
	if err == nil && fi.IsDir() {
		return nil
	}
	if err == nil {
		err = os.Remove(file)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(file))
	}
	if err = s.wrap(err, "deleting", name); errors.Is(err, object.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	s.removeEmpty(path.Dir(name))
	return nil
}

// removeEmpty removes a folder, and those above it, as long as they are empty. A folder that stays
// is no object and does no harm, so nothing fails here.
func (s *Store) removeEmpty(folder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; folder != "."; folder = path.Dir(folder) {
		dir := filepath.Join(s.dir, filepath.FromSlash(folder))
		if os.Remove(dir) != nil {
			return
		}
		s.known.Delete(dir)
	}
}

// List is that of object.Store.
func (s *Store) List(ctx context.Context, folder string, deep bool) iter.Seq2[object.Info, error] {
	return func(yield func(object.Info, error) bool) {
		if err := object.CheckFolder(folder); err != nil {
			yield(object.Info{}, err)
			return
		}
		s.list(ctx, folder, deep, yield)
	}
}

func (s *Store) list(ctx context.Context, folder string, deep bool, yield func(object.Info, error) bool) bool {
	if err := ctx.Err(); err != nil {
		yield(object.Info{}, err)
		return false
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, filepath.FromSlash(folder)))
	if err = s.wrap(err, "listing", folder); errors.Is(err, object.ErrNotFound) {
		return true
	} else if err != nil {
		yield(object.Info{}, err)
		return false
	}
	for _, e := range entries {
		name := folder + e.Name()
		switch {
		case e.IsDir() && deep:
			if !s.list(ctx, name+"/", deep, yield) {
				return false
			}
			continue
		case e.IsDir():
			if !yield(object.Info{Name: name + "/"}, nil) {
				return false
			}
			continue
		}
		info, ok, err := s.describe(e, name)
		if (ok || err != nil) && !yield(info, err) || err != nil {
			return false
		}
	}
	return true
}

// describe describes an object of a list, if the entry is one.
func (s *Store) describe(e fs.DirEntry, name string) (info object.Info, ok bool, err error) {
	if !e.Type().IsRegular() || strings.Contains(e.Name(), temporary) {
		return info, false, nil
	}
	fi, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return info, false, nil // deleted meanwhile
	}
	if err != nil {
		return info, false, s.wrap(err, "listing", name)
	}
	return object.Info{Name: name, SizeBytes: fi.Size(), Modified: fi.ModTime()}, true, nil
}
