package directory

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"ankole.storage/backup/object"
)

// syncsAtATime bounds the files and folders that one commit syncs side by side: the file system
// makes them durable together.
const syncsAtATime = 8

// temporaryFile is the content of an object that is not under its name yet.
type temporaryFile struct {
	// f is open, so that an error of writing it back is told to whoever syncs it.
	f *os.File
	// file is where it belongs, name that of the object.
	file, name string
}

// Put is that of object.Store.
func (s *Store) Put(ctx context.Context, name string, data []byte) error {
	t, err := s.write(ctx, name, data)
	if err != nil {
		return err
	}
	return s.place([]temporaryFile{t})
}

// Stage is that of object.Store. The kernel begins to write the file.
func (s *Store) Stage(ctx context.Context, name string, data []byte) error {
	t, err := s.write(ctx, name, data)
	if err != nil {
		return err
	}
	// Who commits waits for it, and is told what failed.
	_ = unix.SyncFileRange(int(t.f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	s.staging.Lock()
	defer s.staging.Unlock()
	s.staged = append(s.staged, t)
	return nil
}

// Commit is that of object.Store.
func (s *Store) Commit(ctx context.Context) error {
	s.committing.Lock() // it returns when the files of another commit are durable too
	defer s.committing.Unlock()
	s.staging.Lock()
	files := s.staged
	s.staged = nil
	s.staging.Unlock()
	if ctx.Err() != nil {
		for _, t := range files {
			t.remove()
		}
		return context.Cause(ctx)
	}
	return s.place(files)
}

// write writes the temporary file of an object, of which nothing stays if that fails.
func (s *Store) write(ctx context.Context, name string, data []byte) (temporaryFile, error) {
	file, err := s.begin(ctx, name)
	if err != nil {
		return temporaryFile{}, err
	}
	dir := s.dir
	if top, _, nested := strings.Cut(name, "/"); nested {
		dir = filepath.Join(dir, top)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	f, err := create(dir)
	if errors.Is(err, fs.ErrNotExist) && dir != s.dir {
		if err = os.Mkdir(dir, folderMode); err == nil || errors.Is(err, fs.ErrExist) {
			f, err = create(dir)
		}
	}
	if err != nil {
		return temporaryFile{}, notAbsent(s.wrap(err, "writing", name))
	}
	t := temporaryFile{f, file, name}
	if err := s.fill(f, data); err != nil {
		t.remove()
		return temporaryFile{}, s.wrap(err, "writing", name)
	}
	return t, nil
}

// sectorBytes is a multiple of what direct writes have to be a multiple of, in length and in
// memory.
const sectorBytes = 4096

// fill writes content to a new file. Blocks go past the cache of a file system of this machine:
// nobody reads them soon, and the cache is of more use to others.
func (s *Store) fill(f *os.File, data []byte) error {
	direct := len(data) &^ (sectorBytes - 1)
	if s.local && direct > 0 && uintptr(unsafe.Pointer(&data[0]))%sectorBytes == 0 && setDirect(f, true) == nil {
		_, err := f.WriteAt(data[:direct], 0)
		if err != nil && !errors.Is(err, syscall.EINVAL) {
			return err
		}
		if err := setDirect(f, false); err != nil {
			return err
		}
		if err == nil {
			_, err = f.WriteAt(data[direct:], int64(direct))
			return err
		}
	}
	_, err := f.Write(data)
	return err
}

// setDirect has writes go past the cache, or not.
func setDirect(f *os.File, yes bool) error {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if flags &^= unix.O_DIRECT; yes {
		flags |= unix.O_DIRECT
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags)
	return err
}

// create makes a temporary file in a folder.
func create(dir string) (*os.File, error) {
	var random [8]byte
	rand.Read(random[:])
	name := filepath.Join(dir, temporary+hex.EncodeToString(random[:]))
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
}

// remove removes a temporary file; what stays is a leftover.
func (t temporaryFile) remove() {
	_ = t.f.Close()
	_ = os.Remove(t.f.Name())
}

// notAbsent takes the mark ErrNotFound from an error, which callers do not expect of a write.
func notAbsent(err error) error {
	if errors.Is(err, object.ErrNotFound) {
		return errors.New(err.Error())
	}
	return err
}

// place makes temporary files durable under their names, or removes them.
func (s *Store) place(files []temporaryFile) error {
	err := sideBySide(files, func(t temporaryFile) error { return s.wrap(t.f.Sync(), "writing", t.name) })
	changed := folders{sync: map[string]bool{}, made: map[string]bool{}}
	for _, t := range files {
		if err == nil {
			err = t.f.Close()
		}
		if err == nil {
			err = notAbsent(s.wrap(s.rename(t, changed), "writing", t.name))
		}
		if err != nil {
			t.remove()
		}
	}
	if err != nil {
		return err
	}
	if err := sideBySide(slices.Collect(maps.Keys(changed.sync)), syncFolder); err != nil {
		return s.wrap(err, "syncing the folders of", files[0].name)
	}
	for dir := range changed.made {
		s.known.Store(dir, true)
	}
	return nil
}

// sideBySide calls do for each, some at a time, and returns the first error.
func sideBySide[T any](all []T, do func(T) error) error {
	var group errgroup.Group
	group.SetLimit(syncsAtATime)
	for _, x := range all {
		group.Go(func() error { return do(x) })
	}
	return group.Wait()
}

// folders are what files were moved to: those that have to be synced, and those that exist durably
// then.
type folders struct{ sync, made map[string]bool }

// rename moves a file to its folder, which it makes if need be.
func (s *Store) rename(t temporaryFile, changed folders) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	dir := filepath.Dir(t.file)
	changed.sync[dir] = true
	if err := s.makeFolders(dir, changed); err != nil {
		return err
	}
	err := os.Rename(t.f.Name(), t.file)
	if errors.Is(err, fs.ErrNotExist) { // another process has removed the folder
		s.known.Clear()
		clear(changed.made)
		if err = s.makeFolders(dir, changed); err == nil {
			err = os.Rename(t.f.Name(), t.file)
		}
	}
	return err
}

// syncFolder makes what happened in a folder durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil // its file system keeps nothing of a folder back: older kernels say so for cifs
}

// makeFolders makes a folder of the store and those above it.
func (s *Store) makeFolders(dir string, changed folders) error {
	if _, ok := s.known.Load(dir); ok || dir == s.dir || changed.made[dir] {
		return nil
	}
	above := filepath.Dir(dir)
	if err := s.makeFolders(above, changed); err != nil {
		return err
	}
	if err := os.Mkdir(dir, folderMode); errors.Is(err, fs.ErrExist) {
		if err := removeLeftovers(dir); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	// Also if it was there: whoever made it may have crashed before it was durable.
	changed.sync[above], changed.made[dir] = true, true
	return nil
}

// removeLeftovers removes temporary files of crashed processes from a folder. Their age is told by
// the clock of the file system against that of this machine, hence the long time.
func removeLeftovers(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.Contains(e.Name(), temporary) {
			continue
		}
		fi, err := e.Info()
		if err == nil && fi.Mode().IsRegular() && time.Since(fi.ModTime()) > leftoverAge {
			err = os.Remove(filepath.Join(dir, e.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
