package helper

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestHelper: what the kernel says reaches the caller through another process, and nothing else
// looks like that.
func TestHelper(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what, path string
		want       error
	}{
		{look, dir, nil}, {look, filepath.Dir(dir), nil}, {look, filepath.Join(dir, "none"), syscall.ENOENT},
		{look, file, syscall.ENOTDIR}, {unmount, filepath.Join(dir, "none"), syscall.ENOENT},
	} {
		if err := run(tt.what, tt.path, 0); !errors.Is(err, tt.want) {
			t.Errorf("%s %s: %v", tt.what, tt.path, err)
		}
	}
	// A process cannot be started with such an argument; for an unmount EINVAL would mean that
	// nothing is mounted there.
	const unstartable = "a\x00b"
	for _, err := range []error{run("nonsense", dir, 0), Look(unstartable), Unmount(unstartable, 0)} {
		if errno := syscall.Errno(0); err == nil || errors.As(err, &errno) || !strings.HasPrefix(err.Error(), "helper: ") {
			t.Errorf("%v: that was not the kernel's word about a path", err)
		}
	}
}
