package filesystem

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/host/mountinfo"
)

// fitrim is the kernel's FITRIM of linux/fs.h, _IOWR('X', 121, struct fstrim_range).
const fitrim = 0xc0185879

// trimRange is struct fstrim_range: what to trim, in bytes, and after it how much was.
type trimRange struct{ start, len, minLen uint64 }

// Trim has the mounted file system of a volume discard the blocks that it does not use, and returns
// how many bytes it has discarded. It blocks until that is done; meanwhile there is none other for
// that volume (ErrBusy). ErrNotMounted; ErrRefused for a file system that cannot discard or is
// read-only.
func (n *Node) Trim(volume string) (bytes int64, err error) {
	r, err := n.trims.do(task{Do: workTrim, Volume: volume})
	return r.Bytes, err
}

// trimVolume is Trim, in the process that waits for the volume.
func trimVolume(volume string) (bytes int64, err error) {
	process := host()
	list, err := mounts(process, volume)
	if err != nil {
		return 0, err
	}
	if list, err = best(volume, list); err != nil {
		return 0, err
	}
	err = inNamespaceOf(process, func() (err error) {
		bytes, err = trim(list)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("volume %s: its file system at %s cannot be trimmed: %w", volume, list[0].Target, err)
	}
	return bytes, nil
}

func trim(list []mountinfo.Mount) (int64, error) {
	r := trimRange{len: math.MaxUint64}
	_, err := through(list, func(m *mountinfo.Mount, fd int) error {
		// Blocks of files that were just deleted are free when their deletion is on the disk.
		if err := unix.Syncfs(fd); err != nil {
			return fmt.Errorf("sync: %w", err)
		}
		_, _, no := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fitrim, uintptr(unsafe.Pointer(&r)))
		switch {
		case no == 0:
			return nil
		case errors.Is(no, unix.EOPNOTSUPP), errors.Is(no, unix.ENOTTY), errors.Is(no, unix.EROFS):
			return fmt.Errorf("%w: %w (%s)", ErrRefused, no, m.Source)
		}
		return no
	})
	return int64(r.len), err
}
