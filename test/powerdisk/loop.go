package powerdisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// attachTries bounds the race for a free loop device with other programs.
const attachTries = 64

// attach puts a loop device in direct mode on a file.
func attach(path, label string) (int, error) {
	file, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_DIRECT, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(file)
	ctl, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ctl)
	cfg := unix.LoopConfig{Fd: uint32(file), Size: SectorSize}
	cfg.Info.Flags = unix.LO_FLAGS_DIRECT_IO
	copy(cfg.Info.File_name[:len(cfg.Info.File_name)-1], label)
	for range attachTries {
		n, err := unix.IoctlRetInt(ctl, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return -1, fmt.Errorf("no free loop device: %w", err)
		}
		err = withLoop(n, func(fd int) error { return unix.IoctlLoopConfigure(fd, &cfg) })
		if errors.Is(err, unix.EBUSY) {
			continue
		}
		if err == nil {
			err = checkDirect(n)
		}
		return n, err
	}
	return -1, errors.New("free loop devices were always taken by others")
}

// checkDirect refuses a loop device that caches: then flushes would not say what has reached the
// disk.
func checkDirect(n int) error {
	return withLoop(n, func(fd int) error {
		info, err := unix.IoctlLoopGetStatus64(fd)
		if err == nil && info.Flags&unix.LO_FLAGS_DIRECT_IO == 0 {
			err = errors.New("the kernel refuses direct I/O on the loop device")
		}
		return err
	})
}

// detach lets go of a loop device; one in use goes when its last user has gone.
func detach(n int) error {
	err := withLoop(n, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0) })
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	return err
}

func withLoop(n int, f func(fd int) error) error {
	path := "/dev/loop" + strconv.Itoa(n)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) { // /dev is not the kernel's own
		if err = unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(n)))); err == nil ||
			errors.Is(err, unix.EEXIST) {
			fd, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		}
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	return f(fd)
}

// loopsBelow lists the loop devices that lie on files below a directory. It asks nothing of a
// device: one whose server is dead does not answer.
func loopsBelow(dir string) ([]int, error) {
	found, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var list []int
	for _, f := range found {
		text, err := os.ReadFile(f)
		if err != nil || !strings.HasPrefix(string(text), dir+"/") {
			continue // detached meanwhile, or somebody else's
		}
		n, err := strconv.Atoi(strings.TrimPrefix(strings.Split(f, "/")[3], "loop"))
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}
