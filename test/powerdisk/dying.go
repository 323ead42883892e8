package powerdisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A process that is killed while one of its threads waits for its own disk cannot end: the thread waits for an answer, and
// nobody is left to give it, but /dev/fuse stays open until the last thread has gone. Somebody else has to break the
// connection.

// dying reports whether the owner of a run has been killed and has threads left that do not end.
func dying(dir string) bool {
	pid, err := os.ReadFile(filepath.Join(dir, pidName))
	if err != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + string(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name is in parentheses and may hold anything
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// abandon breaks the connections of a run's disks and takes its lock when the owner has ended.
func abandon(dir string) (*os.File, error) {
	if err := abortBelow(filepath.Join(dir, "fuse")); err != nil {
		return nil, err
	}
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		lock, err := lockDir(dir)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return lock, err
		}
		select {
		case <-deadline.C:
			return nil, fmt.Errorf("%s: its owner was killed and does not end", dir)
		case <-tick.C:
		}
	}
}

// abortBelow breaks the connections of the FUSE mounts below a directory.
func abortBelow(dir string) (err error) {
	control, err := os.MkdirTemp(top(), "control-")
	if err != nil {
		return err
	}
	defer os.Remove(control)
	if err := unix.Mount("none", control, "fusectl", 0, ""); err != nil {
		return fmt.Errorf("mount fusectl: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(control, 0)) }()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 5 || !strings.HasPrefix(f[4], dir+"/") {
			continue
		}
		_, minor, _ := strings.Cut(f[2], ":") // a connection is called after its device number
		if err := os.WriteFile(filepath.Join(control, minor, "abort"), []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
