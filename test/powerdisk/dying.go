package powerdisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A process that is killed while one of its threads waits for its own disk cannot end: the thread
// waits for an answer, and nobody is left to give it, but /dev/fuse stays open until the last
// thread has gone. Somebody else has to break the connection.

// dying reports whether the owner of a run has been killed and has threads left that do not end: it
// is a zombie with a lock, or its first thread is the one that waits and has a kill pending.
func dying(dir string) bool {
	pid, err := os.ReadFile(filepath.Join(dir, pidName))
	if err != nil {
		return false
	}
	status, err := os.ReadFile("/proc/" + string(pid) + "/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		switch key {
		case "State":
			if strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X") {
				return true
			}
		case "SigPnd", "ShdPnd":
			pending, err := strconv.ParseUint(value, 16, 64)
			if err == nil && pending&(1<<(unix.SIGKILL-1)) != 0 {
				return true
			}
		}
	}
	return false
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
	defer func() { err = errors.Join(err, Unmount(control)) }()
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
		if err := os.WriteFile(filepath.Join(control, minor, "abort"), []byte("1"), 0); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
