package filesystem

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ankole.storage/host/mountinfo"
)

// A path of the list of mounts leads to what is mounted on top there, which may be another volume's
// file system or the host's. So what was opened is compared with the mount that was meant.

// opened calls f with the descriptor of a mount's directory. ErrCovered: something else is there.
func opened(m *mountinfo.Mount, f func(fd int) error) error {
	return openedPath(m.Target, func(fd int) error {
		if err := isMount(fd, m); err != nil {
			return err
		}
		return f(fd)
	})
}

// through calls f with the directory of the first of a file system's mounts that can be reached. It
// did if reached; else the error says why not.
func through(list []mountinfo.Mount, f func(m *mountinfo.Mount, fd int) error) (reached bool, err error) {
	var errs error
	for i := range list {
		err := opened(&list[i], func(fd int) error {
			reached = true
			return f(&list[i], fd)
		})
		if reached {
			return true, err
		}
		errs = errors.Join(errs, err)
	}
	return false, errs
}

func openedPath(target string, f func(fd int) error) error {
	fd, err := unix.Open(target, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) { // a file may be mounted too
		fd, err = unix.Open(target, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", target, err)
	}
	defer unix.Close(fd)
	return f(fd)
}

// isMount compares what was opened with a mount. Kernels before 5.8 do not tell which mount it is;
// then the file system counts, and one without a device's numbers cannot be told from others.
func isMount(fd int, m *mountinfo.Mount) error {
	var s unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &s); err != nil {
		return fmt.Errorf("stat %s: %w", m.Target, err)
	}
	known := s.Mask&unix.STATX_MNT_ID != 0
	device := fmt.Sprintf("%d:%d", s.Dev_major, s.Dev_minor)
	switch {
	case known && s.Mnt_id != uint64(m.ID), !anonymous(m) && device != m.Device:
		return fmt.Errorf("%s (%s): it is %w, of device %s", m.Target, m.Source, ErrCovered, device)
	case !known && anonymous(m):
		return fmt.Errorf("%s (%s): the kernel does not tell which mount is there", m.Target, m.Source)
	}
	return nil
}
