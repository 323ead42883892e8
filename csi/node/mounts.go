package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/mount-utils"

	"ankole.storage/csi/helper"
	"ankole.storage/host/mountinfo"
)

// maxStacked bounds how many mounts of one path are taken away: one after another that was cut
// short, twice over.
const maxStacked = 8

// table reads the mounts of this process's mount namespace, the newest last.
func table() ([]mountinfo.Mount, error) {
	return mountinfo.Table(func() ([]byte, error) { return os.ReadFile("/proc/self/mountinfo") })
}

// real is a path without symbolic links in its directories, as the table has it. The last element
// is left alone: a look at it would fail where what is mounted there is broken.
func real(path string) (string, error) {
	path = filepath.Clean(path)
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return path, nil // nothing is mounted there
	}
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// mounted returns the mounts at a path, the one that is seen last.
func mounted(path string) (at []mountinfo.Mount, err error) {
	path, err = real(path)
	if err != nil {
		return nil, err
	}
	all, err := table()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(m mountinfo.Mount) bool { return m.Target != path }), nil
}

// deviceText is a device number as the table has it.
func deviceText(n uint64) string { return fmt.Sprintf("%d:%d", unix.Major(n), unix.Minor(n)) }

// holds reports whether a mount is of the volume: of a file system on the device, or, for a path
// that is a block device, of the device itself.
func (d device) holds(path string, m *mountinfo.Mount) bool {
	if m.Device == deviceText(d.number) {
		return true
	}
	return d.isAt(path)
}

// isAt reports whether a path is the device itself.
func (d device) isAt(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev == d.number
}

// broken reports whether what is mounted at a path does not answer any more: its file system was
// shut down, has ended after an error, as when there was no space for its journal, or the device
// under it is gone. Nothing of such a file system can be written any more. An error: that is not
// known.
func broken(path string, m *mountinfo.Mount) (bool, error) {
	if why := m.Refuses(); why == "shutdown" || why == "emergency_ro" {
		return true, nil
	}
	err := helper.Look(path)
	if said := unix.Errno(0); err != nil && !errors.As(err, &said) {
		return false, err
	}
	return mount.IsCorruptedMnt(err), nil
}

// unmountAll takes away everything that is mounted at a path. What is busy is left, with an error,
// unless it is broken: that is taken out of the tree and ends when its users do (left).
func unmountAll(path string) (left bool, err error) {
	for range maxStacked {
		at, err := mounted(path)
		if err != nil || len(at) == 0 {
			return left, err
		}
		last := &at[len(at)-1]
		err = unmount(last.Target)
		if errors.Is(err, unix.EBUSY) {
			dead, unknown := broken(last.Target, last)
			switch {
			case unknown != nil:
				err = fmt.Errorf("%w; whether it answers is not known: %v", err, unknown)
			case dead:
				left = true
				err = helper.Unmount(last.Target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
			}
		}
		if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: somebody else was faster
			return left, fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
	return left, fmt.Errorf("unmounting %s: more than %d mounts lie on each other there", path, maxStacked)
}

// busy is how long something may be busy for no reason that stays: a program that is being started
// has what its starter has open, until its first instruction.
var busy = wait.Backoff{Steps: 20, Duration: 10 * time.Millisecond}

// unmount takes away the mount that is seen at a path.
func unmount(target string) (err error) {
	// What it returns says no more than err does.
	_ = wait.ExponentialBackoff(busy, func() (bool, error) {
		err = helper.Unmount(target, unix.UMOUNT_NOFOLLOW)
		return !errors.Is(err, unix.EBUSY), nil
	})
	return err
}

// inUse reports whether somebody has the device for itself, in other mount namespaces too: a file
// system that is mounted, or a device that is made of it. The kernel gives it to one holder only.
func (d device) inUse() (used bool, err error) {
	// What it returns says no more than used and err do.
	_ = wait.ExponentialBackoff(busy, func() (bool, error) {
		used, err = d.held()
		return !used, nil
	})
	return used, err
}

// held is inUse at this moment.
func (d device) held() (bool, error) {
	f, err := os.OpenFile(d.path, os.O_RDONLY|os.O_EXCL|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return false, f.Close()
	case errors.Is(err, unix.EBUSY):
		return true, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EIO):
		return false, nil // it is gone
	}
	return false, err
}

// others are the mounts, except those at some paths, of a volume: of its file system, or the device
// itself bound to a file.
func (d device) others(except ...string) (found []mountinfo.Mount, err error) {
	all, err := table()
	if err != nil {
		return nil, err
	}
	for i, path := range except {
		if except[i], err = real(path); err != nil {
			return nil, err
		}
	}
	for _, m := range all {
		if slices.Contains(except, m.Target) {
			continue
		}
		if m.Device == deviceText(d.number) || m.Device == deviceText(d.in) && d.isAt(m.Target) {
			found = append(found, m)
		}
	}
	return found, nil
}

// publications are the paths, except some, at which a volume was published. The kubelet binds what
// was published again: a folder of a file system (subPath), and a device in a folder of its own.
func (d device) publications(except ...string) (targets []string, err error) {
	all, err := d.others(except...)
	for _, m := range all {
		if m.Device == deviceText(d.number) && m.Root != "/" || kubeletsOwn(m.Target) {
			continue
		}
		targets = append(targets, m.Target)
	}
	return targets, err
}

// kubeletsOwn reports whether a path is …/volumeDevices/<PersistentVolume>/dev/<Pod>, to which the
// kubelet binds a device. Targets of NodePublishVolume are in …/volumeDevices/publish.
func kubeletsOwn(path string) bool {
	dev := filepath.Dir(path)
	return filepath.Base(dev) == "dev" && filepath.Base(filepath.Dir(filepath.Dir(dev))) == "volumeDevices"
}
