package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankole.storage/controlplane/object/naming"
	"ankole.storage/csi/request"
	"ankole.storage/host/hostpath"
)

// deviceDir has the block devices of the volumes that are attached to a node.
const deviceDir = "/dev/longhorn"

// devicePath is where the device of a volume is, as Pods see it.
func devicePath(volume string) string { return filepath.Join(deviceDir, volume) }

// device is the block device of a volume on this node.
type device struct {
	// path to open; the volume's name is its last element.
	path string
	// number of the device, and of the file system in which its node lies.
	number, in uint64
	// mapped: it is the mapper device of an encrypted volume.
	mapped bool
}

// name of the volume.
func (d device) name() string { return filepath.Base(d.path) }

// shown is where Pods and people see it.
func (d device) shown() string {
	if d.mapped {
		return naming.MappedDevicePath(d.name())
	}
	return devicePath(d.name())
}

// sync has the kernel write what it keeps of the device.
func (d device) sync() error {
	f, err := os.OpenFile(d.path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// lookup finds the device of a volume. Without one the volume is not attached here: NOT_FOUND.
func lookup(volume string) (device, error) {
	if err := request.CheckID(volume); err != nil {
		return device{}, err
	}
	d := device{path: hostpath.Resolve(devicePath(volume))}
	var st unix.Stat_t
	err := unix.Stat(d.path, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return d, status.Errorf(codes.NotFound, "volume %s has no block device on this node (%s): it is not attached here",
			volume, devicePath(volume))
	case err != nil:
		return d, status.Errorf(codes.Internal, "device %s: %v", devicePath(volume), err)
	case st.Mode&unix.S_IFMT != unix.S_IFBLK:
		return d, status.Errorf(codes.Internal, "%s is no block device", devicePath(volume))
	}
	d.number, d.in = st.Rdev, st.Dev
	return d, nil
}

// size in bytes of the device, as the kernel has it.
func (d device) size() (int64, error) {
	f, err := os.OpenFile(d.path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("device: %w", err)
	}
	defer f.Close()
	var n uint64
	if err := ioctl(f, unix.BLKGETSIZE64, unsafe.Pointer(&n)); err != nil {
		return 0, fmt.Errorf("size of %s: %w", d.path, err)
	}
	return int64(n), nil
}

// setReadOnly has the kernel refuse writes to the device, or take them again.
func (d device) setReadOnly(on bool) error {
	f, err := os.OpenFile(d.path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("device: %w", err)
	}
	defer f.Close()
	var flag int32
	if on {
		flag = 1
	}
	var now int32
	if err := ioctl(f, unix.BLKROGET, unsafe.Pointer(&now)); err == nil && (now != 0) == on {
		return nil
	}
	if err := ioctl(f, unix.BLKROSET, unsafe.Pointer(&flag)); err != nil {
		return fmt.Errorf("making %s read-only (%v): %w", d.path, on, err)
	}
	return nil
}

// awaitSize waits until the device has a size: the engine tells the kernel a moment after it tells
// the manager.
func (d device) awaitSize(ctx context.Context, wanted int64) (have int64, err error) {
	err = request.Await(ctx, "expanding on the node", func() (bool, string, error) {
		if have, err = d.size(); err != nil {
			return false, "", status.Errorf(codes.Internal, "%v", err)
		}
		return have >= wanted, fmt.Sprintf("the device has %d bytes, %d are wanted", have, wanted), nil
	})
	return have, err
}

// ioctl with a pointer to what the kernel reads or writes.
func ioctl(f *os.File, request uint, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(request), uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
