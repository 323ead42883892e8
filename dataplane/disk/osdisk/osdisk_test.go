package osdisk_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/disk"
	"ankole.storage/dataplane/disk/disktest"
	"ankole.storage/dataplane/disk/osdisk"
	"ankole.storage/test/lack"
)

func TestConformance(t *testing.T) {
	disktest.Run(t, func(t *testing.T) disktest.Target {
		dir := t.TempDir()
		return disktest.Target{FS: osdisk.New(nil), Dir: dir, NoUnwritten: fsType(t, dir) == "tmpfs"}
	})
}

func TestConformanceOnTmpfs(t *testing.T) {
	const shm = "/dev/shm"
	var st unix.Statfs_t
	if err := unix.Statfs(shm, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		lack.Skip(t, "there is no tmpfs at "+shm)
	}
	disktest.Run(t, func(t *testing.T) disktest.Target {
		dir, err := os.MkdirTemp(shm, "osdisk-test-")
		if err != nil {
			lack.Skip(t, fmt.Sprintf("%s cannot be written: %v", shm, err))
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		return disktest.Target{FS: osdisk.New(nil), Dir: dir, NoUnwritten: true}
	})
}

func fsType(t *testing.T, dir string) string {
	t.Helper()
	info, err := osdisk.New(nil).Statfs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return info.Type
}

// TestDirectoryIsNoFile: a directory in the place of a file is said to be one; the kernel's
// answer is about direct I/O.
func TestDirectoryIsNoFile(t *testing.T) {
	dir := t.TempDir()
	fs := osdisk.New(nil)
	for _, mode := range []disk.Mode{disk.ReadOnly | disk.Direct, disk.Direct, disk.ReadOnly} {
		f, err := fs.Open(dir, mode)
		if err == nil && mode&disk.Direct == 0 {
			_ = f.Close() // the kernel opens it
			continue
		}
		if err == nil || errors.Is(err, disk.ErrUnsupported) || !errors.Is(err, unix.EISDIR) {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
}

// Paths are the caller's in every message and turned into the real ones only to open.
func TestResolve(t *testing.T) {
	dir := t.TempDir()
	fs := osdisk.New(func(p string) string { return strings.Replace(p, "/host", dir, 1) })
	if err := fs.WriteFileAtomic("/host/a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(data) != "x" {
		t.Fatalf("%q, %v", data, err)
	}
	_, err := fs.Open("/host/none", 0)
	if !errors.Is(err, disk.ErrNotFound) || !strings.Contains(err.Error(), "/host/none") ||
		strings.Contains(err.Error(), dir) {
		t.Fatalf("error %v", err)
	}
}

// A lock that is given up is gone, whoever has the file open yet; one that is not stays as long as
// somebody has, for instance operations of a process that was killed.
func TestLockHandleKeepsLock(t *testing.T) {
	dir := t.TempDir()
	fs := osdisk.New(nil)
	l, err := fs.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := unix.Dup(int(l.Handle()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Lock(dir); !errors.Is(err, disk.ErrInUse) {
		t.Fatalf("a second lock: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = fs.Lock(dir); err != nil {
		t.Fatalf("after it was given up: %v", err)
	}
	unix.Close(kept)
	if kept, err = unix.Dup(int(l.Handle())); err != nil {
		t.Fatal(err)
	}
	// As a kill closes it: without a word.
	if err := unix.Close(int(l.Handle())); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Lock(dir); !errors.Is(err, disk.ErrInUse) {
		t.Fatalf("while the file is open: %v", err)
	}
	if err := unix.Close(kept); err != nil {
		t.Fatal(err)
	}
	if l, err = fs.Lock(dir); err != nil {
		t.Fatalf("when nobody has it open: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
