package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ankole.storage/mountinfo"
)

// AbortUnmounted ends the FUSE connections of file systems that no process of the machine sees:
// requests that wait in them fail. A node that was killed can leave one: the end of its manager
// unmounts a volume's file system, which waits for an answer of the device, and the descriptor
// through which the kernel would learn that nobody answers is closed later in that same end.
func AbortUnmounted() error {
	dir, err := os.MkdirTemp("", "connections-")
	if err != nil {
		return fmt.Errorf("FUSE connections: %w", err)
	}
	defer func() { _ = os.Remove(dir) }()
	if err := unix.Mount("none", dir, "fusectl", 0, ""); err != nil {
		return fmt.Errorf("FUSE connections: %w", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	// A connection is named as the device number of its file system, whose major number is 0.
	connections, err := filepath.Glob(filepath.Join(dir, "*", "abort"))
	if err != nil {
		return fmt.Errorf("FUSE connections: %w", err)
	}
	mounted := map[string]bool{}
	err = eachTable(func(table []mountinfo.Mount) {
		for _, m := range table {
			mounted[strings.TrimPrefix(m.Device, "0:")] = true
		}
	})
	if err != nil {
		return fmt.Errorf("FUSE connections: %w", err)
	}
	var errs []error
	for _, c := range connections {
		if mounted[filepath.Base(filepath.Dir(c))] {
			continue
		}
		if err := os.WriteFile(c, []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
