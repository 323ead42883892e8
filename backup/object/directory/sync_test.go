package directory

import (
	"errors"
	"io/fs"
	"testing"
)

// TestFoldersThatAreNotSynced: a file system that does not sync folders is no error; /proc is one.
func TestFoldersThatAreNotSynced(t *testing.T) {
	if err := syncFolder("/proc/self"); err != nil {
		t.Error(err)
	}
	if err := syncFolder("/proc/self/absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
