package directory_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"ankole.storage/backup/object"
	"ankole.storage/backup/object/directory"
	"ankole.storage/backup/object/objecttest"
	"ankole.storage/test/lack"
)

func open(t *testing.T, dir string) *directory.Store {
	t.Helper()
	s, err := directory.Open(dir, "vfs://"+dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// oneMiB is a file system of that size.
func oneMiB(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		lack.Skip(t, "mounting a file system of 1 MiB: "+err.Error())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestDirectoryConforms(t *testing.T) {
	t.Parallel()
	objecttest.Suite(t, func(t *testing.T) object.Store { return open(t, t.TempDir()) })
}

// A directory that is not there may be a share that is not mounted: it is not made.
func TestDirectoryMustExist(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "absent")
	if _, err := directory.Open(dir, "vfs://"+dir); err == nil {
		t.Error("an absent directory was opened")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made")
	}
}

// What a crash left is no object, and goes when it is old.
func TestLeftoversOfCrashes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	old, young := filepath.Join(dir, "a", "x.tmp.123"), filepath.Join(dir, "a", "y.tmp.456")
	for _, name := range []string{old, young} {
		if err := os.WriteFile(name, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(old, before, before); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	for info := range s.List(t.Context(), "", true) {
		t.Errorf("%s is listed", info.Name)
	}
	if err := s.Put(t.Context(), "a/z", []byte("z")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old one is still there: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("the young one may be in use: %v", err)
	}
}

// Two stores on one directory are two processes: one may remove a folder that the other knows.
func TestFolderRemovedByAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, other := open(t, dir), open(t, dir)
	for range 3 {
		if err := one.Put(t.Context(), "a/b/x", []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := other.Delete(t.Context(), "a/b/x"); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("empty folders stay: %v, %v", entries, err)
	}
}

// TestDirectoryFull: a full disk is told as such, leaves nothing of the object, and what was there
// stays.
func TestDirectoryFull(t *testing.T) {
	t.Parallel()
	dir := oneMiB(t)
	s := open(t, dir)
	if err := s.Put(t.Context(), "a/x", []byte("before")); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "a/x", make([]byte, 2<<20)); !errors.Is(err, object.ErrNoSpace) {
		t.Errorf("a full disk: %v", err)
	}
	if got, err := s.Get(t.Context(), "a/x", nil, 100); err != nil || string(got) != "before" {
		t.Errorf("%q, %v", got, err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "a")); err != nil || len(entries) != 1 {
		t.Errorf("something stays: %v, %v", entries, err)
	}
	if err := s.Put(t.Context(), "a/y", make([]byte, 1000)); err != nil {
		t.Errorf("the space was not given back: %v", err)
	}
}

// TestStagedFiles: what is staged is no object before the commit, takes a folder that another
// process has removed, and leaves nothing when its context has ended.
func TestStagedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, other := open(t, dir), open(t, dir)
	for _, s := range []*directory.Store{one, other} {
		if err := s.Put(t.Context(), "a/b/x", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.Stage(t.Context(), "a/b/y", []byte("y")); err != nil {
		t.Fatal(err)
	}
	if err := other.Delete(t.Context(), "a/b/x"); err != nil {
		t.Fatal(err)
	}
	for info := range other.List(t.Context(), "", true) {
		t.Errorf("%s is listed", info.Name)
	}
	if err := one.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := other.Get(t.Context(), "a/b/y", nil, 10); err != nil || string(got) != "y" {
		t.Errorf("%q, %v", got, err)
	}
	if err := one.Stage(t.Context(), "a/c/z", []byte("z")); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := one.Commit(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := one.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "a")); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestStageOnAFullDisk: none of what did not fit is there, and what fits is.
func TestStageOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := oneMiB(t)
	s := open(t, dir)
	if err := s.Stage(t.Context(), "a/x", make([]byte, 512<<10)); err != nil {
		t.Fatal(err)
	}
	if err := s.Stage(t.Context(), "a/y", make([]byte, 1<<20)); !errors.Is(err, object.ErrNoSpace) {
		t.Errorf("a full disk: %v", err)
	}
	if err := s.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "a")); err != nil || len(entries) != 1 || entries[0].Name() != "x" {
		t.Errorf("%v, %v", entries, err)
	}
}
