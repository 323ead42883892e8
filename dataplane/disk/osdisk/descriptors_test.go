package osdisk_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/test/descriptors"
)

// Without a free descriptor a metadata file stays as it was, and whoever has the directory's lock
// makes durable what has been done: that is what cannot be left half done.
func TestWithoutDescriptors(t *testing.T) {
	dir := t.TempDir()
	fs := osdisk.New(nil)
	name := filepath.Join(dir, "a")
	if err := fs.WriteFileAtomic(name, []byte("old")); err != nil {
		t.Fatal(err)
	}
	lock, err := fs.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	restore := descriptors.None(t)
	atomic := fs.WriteFileAtomic(name, []byte("new"))
	renamed := errors.Join(fs.Rename(name, name+"2"), fs.SyncDir(dir))
	restore()
	if !errors.Is(atomic, disk.ErrUnchanged) || !errors.Is(atomic, unix.EMFILE) {
		t.Errorf("another file: %v", atomic)
	}
	if renamed != nil {
		t.Errorf("another name: %v", renamed)
	}
	if data, err := os.ReadFile(name + "2"); err != nil || string(data) != "old" {
		t.Errorf("%q, %v", data, err)
	}
	if err := errors.Join(lock.Close(), fs.SyncDir(dir)); err != nil {
		t.Errorf("after the lock was given back: %v", err)
	}
}
