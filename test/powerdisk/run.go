package powerdisk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/device/blockdev"
)

// Variable is the environment variable by which the processes of a run are found when the run
// itself was killed.
const Variable = "ANKOLE_POWERDISK"

// pidName is the file with the owner's process number.
const pidName = "pid"

// labelPrefix begins the name of every mount and loop device.
const labelPrefix = "powerdisk:"

// Run is the directory in which a process keeps its disks.
type Run struct {
	dir  string
	lock *os.File
}

func top() string { return filepath.Join(os.TempDir(), "ankole-powerdisk") }

// Available says what is missing here to make disks, nil if nothing is.
func Available() error { return blockdev.Available() }

// Begin removes what dead processes left and makes a directory for this one. Processes it starts
// inherit its name.
func Begin() (*Run, error) {
	if err := os.MkdirAll(top(), 0o700); err != nil {
		return nil, err
	}
	if err := Sweep(); err != nil {
		return nil, err
	}
	// Locked before it has a name that a sweep looks for.
	dir, err := os.MkdirTemp(top(), "new-")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, pidName), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return nil, err
	}
	r := &Run{}
	if r.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	r.dir = filepath.Join(top(), "run-"+strings.TrimPrefix(filepath.Base(dir), "new-"))
	if err := os.Rename(dir, r.dir); err != nil {
		return nil, err
	}
	for _, sub := range []string{"fuse", "mnt", "dev"} {
		if err := os.Mkdir(filepath.Join(r.dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	return r, os.Setenv(Variable, r.dir)
}

// Main is what a TestMain does: it begins a run, lets the tests run and ends it, and returns what
// to exit with. Before the tests begin is told the run, or nil and why there can be no disks here.
func Main(tests interface{ Run() int }, begin func(r *Run, unavailable error) error) int {
	if dir := os.Getenv(watchVariable); dir != "" {
		if err := watch(dir); err != nil {
			return 1
		}
		return 0
	}
	var r *Run
	unavailable := Available()
	if unavailable == nil {
		var err error
		if r, err = Begin(); err == nil {
			err = watchOver(r.dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	status := 1
	if err := begin(r, unavailable); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		status = tests.Run()
	}
	if r == nil {
		return status
	}
	if err := r.End(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = max(status, 1)
	}
	return status
}

// Dir is the run's directory. Below "dev" there may be nodes of volumes; what is mounted anywhere
// below it is unmounted at the end.
func (r *Run) Dir() string { return r.dir }

func (r *Run) label(name string) string { return labelPrefix + filepath.Base(r.dir) + "/" + name }

// End removes the directory and whatever is left in it.
func (r *Run) End() error {
	defer r.lock.Close()
	return removeRun(r.dir, os.Getpid())
}

func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Sweep removes what processes that live no more left behind.
func Sweep() error {
	runs, err := filepath.Glob(filepath.Join(top(), "run-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range runs {
		lock, err := lockDir(dir)
		if errors.Is(err, unix.EWOULDBLOCK) && dying(dir) {
			lock, err = abandon(dir)
		}
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, removeRun(dir, 0))
		lock.Close()
	}
	return errors.Join(errs...)
}

// removeRun ends the processes of a run but self, and removes its mounts, loop devices and files.
func removeRun(dir string, self int) error {
	if err := endProcesses(dir, self); err != nil {
		return err
	}
	// In this order: a loop device is known by its file, which has a path as long as it is mounted.
	if err := unmountBelow(filepath.Join(dir, "mnt")); err != nil {
		return err
	}
	loops, err := loopsBelow(dir)
	if err != nil {
		return err
	}
	for _, n := range loops {
		if err := detach(n); err != nil {
			return err
		}
	}
	if err := unmountBelow(dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := blockdev.Sweep(ctx, filepath.Join(dir, "dev")); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// endProcesses kills the processes that carry the run's name, and waits until they are gone.
func endProcesses(dir string, self int) error {
	mark := []byte(Variable + "=" + dir + "\x00")
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		alive := 0
		found, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			return err
		}
		for _, f := range found {
			pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
			env, err := os.ReadFile(f)
			if err != nil || pid == self || !bytes.Contains(append(env, 0), mark) {
				continue
			}
			alive++
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended meanwhile
		}
		if alive == 0 {
			return nil
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("%s: %d processes do not end", dir, alive)
		case <-tick.C:
		}
	}
}

// Waits of Unmount.
const (
	busyFor = 20 * time.Second
	busyTry = 5 * time.Millisecond
)

// Unmount takes a file system in which nothing is open any more off a directory. A program that
// this process is just starting has copies of all its descriptors until it executes, also of files
// that were closed here meanwhile; so a file system that is busy is tried again. One in which
// something has been left open is busy for ever, and that is the error.
func Unmount(dir string) error {
	tick := time.NewTicker(busyTry)
	defer tick.Stop()
	for deadline := time.Now().Add(busyFor); ; <-tick.C {
		err := unix.Unmount(dir, 0)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
}

// maxStacked bounds how many mounts lie on one another.
const maxStacked = 8

// unmountBelow takes everything that is mounted below a directory out of sight, whether it is in
// use or not.
func unmountBelow(dir string) error {
	for range maxStacked {
		mounts, err := mountsBelow(dir)
		if err != nil || len(mounts) == 0 {
			return err
		}
		for i := len(mounts) - 1; i >= 0; i-- {
			if err := unix.Unmount(mounts[i], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("unmount %s: %w", mounts[i], err)
			}
		}
	}
	return fmt.Errorf("%s: something is still mounted there", dir)
}

// mountsBelow lists mount points below a directory in the order they were made.
func mountsBelow(dir string) ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var list []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			list = append(list, f[4])
		}
	}
	return list, nil
}
