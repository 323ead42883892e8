package blockdev

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/block"
)

const (
	loopControl = "/dev/loop-control"
	loopMajor   = 7
	// configureTries bounds the race for a free loop device with other programs: each try lost
	// means that one of them got one.
	configureTries = 64
)

// attachLoop finds a free loop device and puts it on the file.
func (d *Device) attachLoop() error {
	// NOFLUSH and no reads: the descriptor is only handed to the loop device.
	file, err := unix.Open(d.file(), unix.O_RDWR|unix.O_CLOEXEC|unix.O_DIRECT, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", d.file(), err)
	}
	defer unix.Close(file)
	ctl, err := unix.Open(loopControl, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", loopControl, err)
	}
	defer unix.Close(ctl)
	cfg := unix.LoopConfig{Fd: uint32(file), Size: uint32(d.cfg.BlockSize)}
	cfg.Info.Flags = unix.LO_FLAGS_DIRECT_IO
	copy(cfg.Info.File_name[:len(cfg.Info.File_name)-1], "ankole-"+d.cfg.Volume)
	for range configureTries {
		n, err := unix.IoctlRetInt(ctl, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return fmt.Errorf("no free loop device: %w", err)
		}
		err = withLoop(n, func(fd int) error { return unix.IoctlLoopConfigure(fd, &cfg) })
		if errors.Is(err, unix.EBUSY) {
			continue // somebody was faster
		}
		if err != nil {
			return fmt.Errorf("configure loop device %d: %w", n, err)
		}
		d.loop = n
		return d.checkLoop()
	}
	return fmt.Errorf("%d free loop devices were taken by others before they could be configured", configureTries)
}

// checkLoop makes sure that direct I/O is on: the kernel turns it off without a word when it does
// not like the file, and then every byte would be cached twice.
func (d *Device) checkLoop() error {
	return withLoop(d.loop, func(fd int) error {
		info, err := unix.IoctlLoopGetStatus64(fd)
		if err != nil {
			return err
		}
		if info.Flags&unix.LO_FLAGS_DIRECT_IO == 0 {
			return errors.New("the kernel refuses direct I/O on the loop device")
		}
		return nil
	})
}

// loopSize asks the kernel for the size of loop device n, in bytes.
func loopSize(n int) (int64, error) {
	return diskSize(fmt.Sprintf("/sys/block/loop%d", n))
}

// diskSize asks the kernel for the size of the block device with that folder in sysfs, in bytes.
func diskSize(folder string) (int64, error) {
	text, err := os.ReadFile(folder + "/size")
	if err != nil {
		return 0, err
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return sectors * block.SectorSize, err
}

// withLoop opens loop device n for f; where /dev has no node for it (a container's), through a node
// of its own.
func withLoop(n int, f func(fd int) error) error {
	path := "/dev/loop" + strconv.Itoa(n)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		if err = unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, uint32(n)))); err == nil ||
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

// clearLoop detaches loop device n; one in use is detached when its last user closes it.
func clearLoop(n int) error {
	err := withLoop(n, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0) })
	if errors.Is(err, unix.ENXIO) { // detached already
		return nil
	}
	return err
}

// makeNode creates the volume's node and checks that it can be opened.
func (d *Device) makeNode() error {
	if err := d.createNode(); err != nil {
		return err
	}
	path := d.Path()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w (is %s on a file system mounted nodev?)", path, err, d.cfg.DeviceDir)
	}
	unix.Close(fd)
	return nil
}

// backing returns the loop devices that lie on path.
func backing(path string) ([]int, error) {
	devices, err := os.ReadDir("/sys/block")
	if err != nil {
		return nil, err
	}
	var list []int
	for _, dev := range devices {
		number, ok := strings.CutPrefix(dev.Name(), "loop")
		n, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		file, err := fileOf(n)
		if err != nil {
			return nil, err
		}
		if file == path {
			list = append(list, n)
		}
	}
	return list, nil
}

// fileOf returns the path of the file that loop device n lies on, as this mount namespace sees it;
// "" if it has none, or none any more.
func fileOf(n int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/sys/block/loop%d/loop/backing_file", n))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return "", nil
	}
	return strings.TrimSuffix(strings.TrimSpace(string(text)), " (deleted)"), err
}
