// Package directory takes the lock of a replica's directory, for those who remove one: a process
// that uses a directory holds its lock, so that nobody removes files under it, and none takes a
// directory into use that is being removed.
package directory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrInUse: a process has the directory open as a replica's.
var ErrInUse = errors.New("the directory is used by a process")

// Is is an error unless name is a directory in root, and no link to one.
func Is(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", filepath.Join(root.Name(), name))
	}
	return nil
}

// Hold opens a directory and takes its lock, or fails with ErrInUse. The lock ends with the file.
func Hold(root *os.Root, name string) (*os.File, error) {
	if err := Is(root, name); err != nil {
		return nil, err
	}
	dir, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%s: %w", dir.Name(), ErrInUse)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}
