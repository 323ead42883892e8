// Package blockdev makes a block device of the node out of a FUSE frontend: it mounts a file system
// of one file, puts a loop device in direct mode on that file, and creates the node under which the
// volume is known.
//
// It is the blocking shell around package fuseloop and runs outside the engine's loop. The order
// is:
//
//	Open      lock the volume, remove what a dead predecessor left, open /dev/fuse and mount
//	          (now the frontend is started on Device)
//	Expose    loop device and node
//	Resize    after the frontend has a new size
//	Withdraw  node, loop device and mount, while the frontend still serves
//	          (now the frontend is stopped, which closes Device)
//	Close     whatever Withdraw could not do, and the lock
//
// A device whose server was killed while somebody else kept /dev/fuse open is not dead: Adopt, with
// that descriptor, takes the place of Open and Expose. The mount need not be there any more: where
// the server ran in a container, the kernel has detached it together with the container's mount
// namespace, and the loop device, which has the file open, keeps the file system alive.
//
// Every step is bounded in time. What the kernel makes wait for the frontend ends at the latest
// when the frontend stops, because closing /dev/fuse aborts the connection.
package blockdev

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/frontend/fuseloop"
	"ankole.storage/dataplane/loop"
	"ankole.storage/host/barethread"
)

// Config describes a block device.
type Config struct {
	// Volume names the device node and the file behind it.
	Volume string
	// RunDir is a directory for mount points and locks, kept across restarts of the process. The
	// default lies under /run/ankole and belongs to DeviceDir: whoever makes nodes in one directory
	// shares the locks.
	RunDir string
	// DeviceDir is where the node appears, for instance /dev/longhorn.
	DeviceDir string
	// BlockSize is the logical block size of the device in bytes: 512 (default) or 4096.
	BlockSize int
	// Timeout bounds every step that waits for the kernel. Default 10 s.
	Timeout time.Duration
}

// RunVariable of the environment names a folder in the place of /run/ankole, so that what a run of
// tests has mounted is found by its folder. All who serve or remove devices of a directory have the
// same one.
const RunVariable = "ANKOLE_RUN"

// runRoot has the run directories of all directories of devices.
var runRoot = cmp.Or(os.Getenv(RunVariable), "/run/ankole")

// RunDirOf is the default of Config.RunDir for a directory of devices.
func RunDirOf(deviceDir string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(deviceDir)))
	return filepath.Join(runRoot, hex.EncodeToString(sum[:8]))
}

const (
	defaultTimeout = 10 * time.Second
	// lockSuffix makes a lock file's name of a volume's.
	lockSuffix = ".lock"
)

func (c *Config) validate() error {
	if c.BlockSize == 0 {
		c.BlockSize = block.SectorSize
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.RunDir == "" {
		c.RunDir = RunDirOf(c.DeviceDir)
	}
	switch {
	case c.Volume == "" || c.Volume == "." || c.Volume == ".." || strings.ContainsAny(c.Volume, "/,\x00") ||
		len(c.Volume) > 200:
		return fmt.Errorf("block device: %q cannot name a device node", c.Volume)
	case !filepath.IsAbs(c.RunDir) || !filepath.IsAbs(c.DeviceDir):
		return fmt.Errorf("block device %s: run directory %q and device directory %q must be absolute", c.Volume,
			c.RunDir, c.DeviceDir)
	case c.BlockSize != block.SectorSize && c.BlockSize != block.Size:
		return fmt.Errorf("block device %s: block size %d is neither %d nor %d", c.Volume, c.BlockSize,
			block.SectorSize, block.Size)
	}
	return nil
}

// ErrInUse is returned by Open when a living process serves the volume.
var ErrInUse = errors.New("another process serves this volume as a block device")

// Device is a block device being set up, in use or torn down. Its methods are called one at a time.
type Device struct {
	cfg  Config
	id   string
	lock int // of the lock file; whoever has it open holds the lock
	fuse int // /dev/fuse; belongs to the frontend from the moment it starts
	// mounted: the file system is at dir. False too for one whose mount ended with the container of
	// an earlier server.
	mounted bool
	loop    int             // number of the loop device, -1 without
	node    uint64          // the number of the node that was made, 0: of none
	rdev    uint64          // the number of the block device where that is no loop device's
	late    []chan struct{} // steps that outlived their bound
}

func (d *Device) dir() string  { return filepath.Join(d.cfg.RunDir, "fuse", d.cfg.Volume) }
func (d *Device) file() string { return filepath.Join(d.dir(), d.cfg.Volume) }

// detachedFile is the path of the file once its mount is detached.
func (d *Device) detachedFile() string { return "/" + d.cfg.Volume }

func (d *Device) lockPath() string {
	return filepath.Join(d.cfg.RunDir, "fuse", d.cfg.Volume+lockSuffix)
}

// Path is the node of the device.
func (d *Device) Path() string { return filepath.Join(d.cfg.DeviceDir, d.cfg.Volume) }

// ID tells the device from every other one, those that were at the same path before or come after
// it included. It stays when the device goes on in another process. Whoever has mounted a device
// that is up no more has to mount again, and sees by the ID that there is another one.
func (d *Device) ID() string { return d.id }

// Handle is /dev/fuse, for the frontend.
func (d *Device) Handle() loop.Handle { return loop.Handle(d.fuse) }

// Available says whether this process can make block devices here; the error says what is missing.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("block devices through FUSE and loop need root: mounting and loop devices are refused to others")
	}
	for _, dev := range []string{"/dev/fuse", loopControl} {
		fd, err := unix.Open(dev, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("block devices through FUSE and loop need %s: %w (load the kernel module, or give the "+
				"container the device)", dev, err)
		}
		unix.Close(fd)
	}
	return mayMount()
}

// mayMount checks for CAP_SYS_ADMIN, which root in a container may lack.
func mayMount() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("cannot read this process's capabilities: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return errors.New("block devices through FUSE and loop need CAP_SYS_ADMIN: run the container privileged")
	}
	return nil
}

// Open prepares the volume's file system and mounts it. Start the frontend on Handle next.
func Open(ctx context.Context, cfg Config) (*Device, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	d, err := lockAndRecover(ctx, cfg, lockPatience)
	if err != nil {
		return nil, err
	}
	d.id = rand.Text()
	if err = os.MkdirAll(d.dir(), 0o700); err == nil {
		err = d.mount()
	}
	if err != nil {
		unix.Close(d.lock)
		return nil, fmt.Errorf("block device %s: %w", cfg.Volume, err)
	}
	return d, nil
}

const (
	// lockTries bounds the race with owners that remove the lock file as they go.
	lockTries = 100
	// lockPatience is how long who serves a volume waits for its lock, and lockPause how long between
	// two tries: who looks for what killed servers have left holds it for a moment.
	lockPatience = time.Second
	lockPause    = 20 * time.Millisecond
)

// takeLock locks the volume for the life of this process, whatever way that ends. It waits for at
// most patience while somebody has the lock.
func (d *Device) takeLock(ctx context.Context, patience time.Duration) error {
	until := time.Now().Add(patience)
	for gone := 0; gone < lockTries; {
		fd, err := unix.Open(d.lockPath(), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return fmt.Errorf("block device %s: open %s: %w", d.cfg.Volume, d.lockPath(), err)
		}
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && current(fd, d.lockPath()) {
			d.lock = fd
			return nil
		}
		unix.Close(fd)
		switch {
		case err == nil:
			gone++ // its owner removed it between our open and our lock
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("block device %s: lock %s: %w", d.cfg.Volume, d.lockPath(), err)
		case ctx.Err() != nil || time.Now().After(until):
			return fmt.Errorf("block device %s: %w; stop it first", d.cfg.Volume, ErrInUse)
		}
		lockRefused()
		select {
		case <-ctx.Done():
		case <-time.After(lockPause):
		}
	}
	return fmt.Errorf("block device %s: %s comes and goes; try again", d.cfg.Volume, d.lockPath())
}

// lockRefused is for tests.
var lockRefused = func() {}

// current reports whether path still names the open file.
func current(fd int, path string) bool {
	var mine, there unix.Stat_t
	return unix.Fstat(fd, &mine) == nil && unix.Lstat(path, &there) == nil && mine.Dev == there.Dev &&
		mine.Ino == there.Ino
}

func (d *Device) mount() error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	opts := fmt.Sprintf("fd=%d,rootmode=40700,user_id=0,group_id=0,max_read=%d", fd, block.MaxTransfer)
	if err := unix.Mount("ankole-"+d.cfg.Volume, d.dir(), "fuse.ankole", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		opts); err != nil {
		unix.Close(fd)
		return fmt.Errorf("mount at %s: %w", d.dir(), err)
	}
	d.fuse, d.mounted = fd, true
	return nil
}

// Expose creates the loop device and the node; the frontend must be serving.
func (d *Device) Expose(ctx context.Context) error {
	if err := d.bounded(ctx, "attach a loop device", d.attachLoop); err != nil {
		return err
	}
	if err := os.MkdirAll(d.cfg.DeviceDir, 0o755); err != nil {
		return fmt.Errorf("block device %s: %w", d.cfg.Volume, err)
	}
	return d.bounded(ctx, "create the device node", d.makeNode)
}

// Resize lets the loop device take over the frontend's size, in bytes, which is not smaller than
// any before it. The frontend must be serving.
func (d *Device) Resize(ctx context.Context, size int64) error {
	refresh := func() error { return d.refreshSize(size) }
	if !d.mounted {
		if _, err := unix.Write(d.fuse, fuseloop.SizeNotice(size)); err != nil {
			return fmt.Errorf("block device %s: tell the kernel its size: %w", d.cfg.Volume, err)
		}
		refresh = func() error { return nil }
	}
	return d.bounded(ctx, "resize", func() error {
		if err := refresh(); err != nil {
			return err
		}
		return withLoop(d.loop, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0) })
	})
}

// Fit is Resize if the device has not the size in bytes that the frontend has.
func (d *Device) Fit(ctx context.Context, size int64) error {
	if n, err := loopSize(d.loop); err == nil && n == size {
		return nil
	}
	return d.Resize(ctx, size)
}

// refreshSize makes the kernel's inode of the file take over the frontend's size. The loop device
// asks the frontend, and so shows the new size in any case; but a read beyond the inode's is cut
// short, which is an error of the device.
//
// Asking for the attributes is not enough: the kernel drops the size in an answer to GETATTR if any
// write was completed between question and answer, while stat shows it all the same. The answer to
// SETATTR always counts, and setting the times is one that changes nothing.
func (d *Device) refreshSize(size int64) error {
	now := unix.Timespec{Nsec: unix.UTIME_NOW}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, d.file(), []unix.Timespec{now, now}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("refresh the size of %s: %w", d.file(), err)
	}
	var file unix.Stat_t
	if err := unix.Stat(d.file(), &file); err != nil {
		return fmt.Errorf("size of %s: %w", d.file(), err)
	}
	var inode unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, d.file(), unix.AT_STATX_DONT_SYNC, unix.STATX_SIZE, &inode); err != nil {
		return fmt.Errorf("size of the inode of %s: %w", d.file(), err)
	}
	if file.Size < size || int64(inode.Size) != file.Size {
		return fmt.Errorf("%s has %d bytes, and the kernel holds on to %d, its inode to %d; try again", d.file(), size,
			file.Size, inode.Size)
	}
	return nil
}

// Withdraw removes node, loop device and mount in this order, while the frontend still serves. It
// goes on after errors and returns them all. A loop device that somebody still uses goes away when
// they close it.
func (d *Device) Withdraw(ctx context.Context) error {
	var errs []error
	if d.node != 0 {
		errs = append(errs, d.bounded(ctx, "remove the device node", d.removeOwnNode))
	}
	if d.loop >= 0 {
		errs = append(errs, d.bounded(ctx, "detach the loop device", d.detachLoop))
	}
	if d.mounted {
		errs = append(errs, d.bounded(ctx, "unmount", d.unmount))
	}
	return errors.Join(errs...)
}

// Close finishes what Withdraw could not and releases the lock; the frontend must have stopped.
// started says that one was ever started on Handle, and so has closed it.
func (d *Device) Close(ctx context.Context, started bool) error {
	defer unix.Close(d.lock)
	if !started && d.fuse >= 0 {
		unix.Close(d.fuse)
	}
	if err := d.awaitLate(ctx); err != nil {
		return err
	}
	err := d.Withdraw(ctx)
	if err != nil {
		return err // the lock file stays and says that something may be left
	}
	if err := ignoreMissing(os.Remove(d.dir())); err != nil {
		return fmt.Errorf("block device %s: %w", d.cfg.Volume, err)
	}
	return ignoreMissing(os.Remove(d.lockPath()))
}

// removeOwnNode removes the volume's node. One of another loop device is of whoever follows: where
// servers have no lock in common, as in two containers, a late one meets it.
func (d *Device) removeOwnNode() error {
	var st unix.Stat_t
	err := unix.Lstat(d.Path(), &st)
	foreign := st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev != d.node
	if err == nil && !foreign {
		err = unix.Unlink(d.Path())
	}
	if err := ignoreMissing(err); err != nil {
		return fmt.Errorf("remove %s: %w", d.Path(), err)
	}
	d.node = 0
	return d.cfg.relink()
}

func (d *Device) detachLoop() error {
	err := clearLoop(d.loop)
	if err == nil {
		d.loop = -1
	}
	return err
}

// unmount takes the mount out of sight; it ends when the loop device has closed the file.
func (d *Device) unmount() error {
	err := unix.Unmount(d.dir(), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || errors.Is(err, unix.EINVAL) { // EINVAL: not mounted any more
		d.mounted = false
		return nil
	}
	return err
}

// bounded runs one blocking step for at most the configured time, on a thread that does not keep
// /dev/fuse open: the step may wait for the volume's own file system when this process is killed. A
// step that takes longer is remembered, and Close waits for it once more after the connection has
// been aborted.
func (d *Device) bounded(ctx context.Context, what string, step func() error) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	result := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		result <- barethread.Run(step)
	}()
	select {
	case err := <-result:
		<-done
		if err != nil {
			return fmt.Errorf("block device %s: %s: %w", d.cfg.Volume, what, err)
		}
		return nil
	case <-ctx.Done():
		d.late = append(d.late, done)
		return fmt.Errorf("block device %s: %s: the kernel did not finish within %v: %w", d.cfg.Volume, what,
			d.cfg.Timeout, ctx.Err())
	}
}

func (d *Device) awaitLate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	for _, done := range d.late {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("block device %s: the kernel still works on an earlier step: %w", d.cfg.Volume, ctx.Err())
		}
	}
	d.late = nil
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
