package host

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ankole.storage/host/mountinfo"
)

// AbortUnmounted ends the FUSE connections of file systems that no process of the machine sees:
// requests that wait in them fail. A node that was killed can leave one: the end of its manager
// unmounts a volume's file system, which waits for an answer of the device, and the descriptor
// through which the kernel would learn that nobody answers is closed later in that same end.
func AbortUnmounted() error {
	mounted := map[string]bool{}
	err := eachTable(func(table []mountinfo.Mount) {
		for _, m := range table {
			mounted[connection(m)] = true
		}
	})
	if err != nil {
		return fmt.Errorf("FUSE connections: %w", err)
	}
	return abort(func(c string) bool { return !mounted[c] })
}

// MountedBy lists the FUSE connections of engines whose file systems processes of a control group
// or of one below it see, and this process does not.
func MountedBy(cgroup string) ([]string, error) {
	pids, err := Processes(cgroup)
	if err != nil {
		return nil, err
	}
	of := func(pid string) (map[string]bool, error) {
		table, err := mountinfo.Table(func() ([]byte, error) { return os.ReadFile("/proc/" + pid + "/mountinfo") })
		seen := map[string]bool{}
		for _, m := range table {
			if m.Type == engineMount {
				seen[connection(m)] = true
			}
		}
		return seen, err
	}
	own, err := of("self")
	if err != nil {
		return nil, fmt.Errorf("FUSE connections: %w", err)
	}
	all := map[string]bool{}
	for _, pid := range pids {
		if seen, err := of(strconv.Itoa(pid)); err == nil { // else it has ended
			maps.Copy(all, seen)
		}
	}
	maps.DeleteFunc(all, func(c string, _ bool) bool { return own[c] })
	return slices.Sorted(maps.Keys(all)), nil
}

// Abort ends FUSE connections, those that are left of a list.
func Abort(connections []string) error {
	return abort(func(c string) bool { return slices.Contains(connections, c) })
}

// connection is the number of a file system's FUSE connection: that of its device, whose major
// number is 0.
func connection(m mountinfo.Mount) string { return strings.TrimPrefix(m.Device, "0:") }

// abort ends the FUSE connections that are wanted.
func abort(wanted func(connection string) bool) error {
	dir, err := os.MkdirTemp("", "connections-")
	if err != nil {
		return fmt.Errorf("FUSE connections: %w", err)
	}
	defer func() { _ = os.Remove(dir) }()
	if err := unix.Mount("none", dir, "fusectl", 0, ""); err != nil {
		return fmt.Errorf("FUSE connections: %w", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	files, err := filepath.Glob(filepath.Join(dir, "*", "abort"))
	if err != nil {
		return fmt.Errorf("FUSE connections: %w", err)
	}
	var errs []error
	for _, f := range files {
		if !wanted(filepath.Base(filepath.Dir(f))) {
			continue
		}
		if err := os.WriteFile(f, []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
