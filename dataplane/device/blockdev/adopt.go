package blockdev

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Kept is what a successor has to know of a device, beside its descriptor of /dev/fuse. It is kept
// as JSON.
type Kept struct {
	// Loop is the number of the loop device.
	Loop int `json:"loop"`
	// ID is that of the device, see Device.ID; empty where a program kept it that gave none.
	ID string `json:"id,omitempty"`
	// Ublk is the number of a ublk device, which needs no loop device; nil: it is none.
	Ublk *uint32 `json:"ublk,omitempty"`
}

// Identify gives an ID to a device that has none: it is to be told from the one that comes after
// it. Whoever keeps the device is told before the ID is.
func (k *Kept) Identify() {
	if k.ID == "" {
		k.ID = rand.Text()
	}
}

// Kept returns it for an exposed device.
func (d *Device) Kept() Kept { return Kept{Loop: d.loop, ID: d.id} }

// Duplicate returns a second descriptor of the device's /dev/fuse. The caller closes it. It must be
// called before the frontend is stopped.
func (d *Device) Duplicate() (int, error) {
	fd, err := unix.FcntlInt(uintptr(d.fuse), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("block device %s: duplicate its descriptor: %w", d.cfg.Volume, err)
	}
	return fd, nil
}

// Adopt takes over the device of a server that was killed, or has left it. fuse is its /dev/fuse,
// which belongs to the device from then on, in case of an error too. Start the frontend on Handle
// next, with Resume.
//
// If it is not what it was (the loop device is gone, another one has its node), the error says so
// and nothing is changed: then Open removes what is left and begins anew.
func Adopt(ctx context.Context, cfg Config, kept Kept, fuse int) (*Device, error) {
	d, err := adopt(ctx, cfg, kept, fuse)
	if err != nil {
		unix.Close(fuse)
		return nil, err
	}
	if err = os.MkdirAll(cfg.DeviceDir, 0o755); err == nil {
		err = d.bounded(ctx, "create the device node", d.restoreNode)
	}
	if err != nil {
		unix.Close(fuse)
		unix.Close(d.lock)
		return nil, err
	}
	return d, nil
}

// Leave parts with a device that goes on in another process, which has a duplicate of its
// descriptor of /dev/fuse: nothing on the host has changed. The device must not be used any more.
func (d *Device) Leave() error { return errors.Join(unix.Close(d.fuse), unix.Close(d.lock)) }

func adopt(ctx context.Context, cfg Config, kept Kept, fuse int) (*Device, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	d := &Device{cfg: cfg, id: kept.ID, fuse: fuse, loop: kept.Loop}
	if err := d.lockFolder(ctx, lockPatience); err != nil {
		return nil, err
	}
	if err := d.checkKept(); err != nil {
		unix.Close(d.lock)
		return nil, fmt.Errorf("block device %s: cannot be taken over: %w", cfg.Volume, err)
	}
	return d, nil
}

// checkKept makes sure that the loop device is what it was, and finds out whether its file system
// is mounted here still. It asks nothing of the file system, which nobody serves.
//
// The path of the loop device's file, as the kernel tells it, is the file's as long as the mount is
// there, here or in a container that has not ended to the last. Of a mount that the kernel has
// detached only the end of the path is left.
func (d *Device) checkKept() error {
	at, err := mountedAt(d.dir())
	if err != nil {
		return err
	}
	file, err := fileOf(d.loop)
	if err != nil {
		return err
	}
	if file != d.file() && file != d.detachedFile() {
		return fmt.Errorf("loop device %d lies on %q, neither on %s nor on what was mounted there", d.loop, file, d.file())
	}
	d.mounted = at && file == d.file()
	if err := unix.SetNonblock(d.fuse, true); err != nil {
		return fmt.Errorf("descriptor: %w", err)
	}
	return nil
}

// RestoreNode makes the node of an exposed device again if somebody has removed it, or has a
// regular file there, and says whether it has.
func (d *Device) RestoreNode(ctx context.Context) (restored bool, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(d.Path(), &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return false, nil
	}
	err = d.bounded(ctx, "create the device node", d.restoreNode)
	return err == nil, err
}

// restoreNode makes the node again if somebody has removed it, or has a regular file there.
func (d *Device) restoreNode() error {
	var st unix.Stat_t
	err := unix.Lstat(d.Path(), &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return d.createNode()
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT == unix.S_IFREG:
		if err := d.moveFile(); err != nil {
			return err
		}
		return d.createNode()
	case st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != d.number():
		return fmt.Errorf("%s is not the node of %s; remove it", d.Path(), d.what())
	}
	d.node = st.Rdev
	return d.cfg.relink()
}

// number is that of the block device, as a node has it.
func (d *Device) number() uint64 {
	if d.rdev != 0 {
		return d.rdev
	}
	return unix.Mkdev(loopMajor, uint32(d.loop))
}

// what names the block device for messages.
func (d *Device) what() string {
	if d.rdev != 0 {
		return fmt.Sprintf("block device %d:%d", unix.Major(d.rdev), unix.Minor(d.rdev))
	}
	return fmt.Sprintf("loop device %d", d.loop)
}

// createNode creates the volume's node.
func (d *Device) createNode() error {
	number := d.number()
	if err := unix.Mknod(d.Path(), unix.S_IFBLK|0o660, int(number)); err != nil {
		return fmt.Errorf("create %s: %w", d.Path(), err)
	}
	d.node = number
	return d.cfg.relink()
}
