package blockdev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/block"
	"ankole.storage/host/barethread"
	"ankole.storage/host/mountinfo"
)

// Recover removes node, loop device and mount of a volume whose server died. It returns ErrInUse if
// one lives.
func Recover(ctx context.Context, cfg Config) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	d, err := lockAndRecover(ctx, cfg, 0)
	if err != nil {
		return err
	}
	return d.Close(ctx, false)
}

// Sweep recovers every volume that was ever a block device in deviceDir and whose server is dead,
// also where another one might have followed: beds for tests call it at their end.
func Sweep(ctx context.Context, deviceDir string) error {
	volumes, err := lockedVolumes(deviceDir)
	if err != nil {
		return err
	}
	var errs []error
	for _, volume := range volumes {
		if err := Recover(ctx, Config{Volume: volume, DeviceDir: deviceDir}); !errors.Is(err, ErrInUse) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// RemoveDead is Recover for a volume whose server is not followed by another one here: of a device
// that lives, or waits for its next server, or of somebody else's, nothing is touched.
func RemoveDead(ctx context.Context, cfg Config) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	d := &Device{cfg: cfg, fuse: -1, loop: -1}
	locked := exists(d.lockPath())
	if what, err := d.look(ctx); err != nil || what == foundServed || what == foundNothing && !locked {
		return err
	}
	afterFirstLook(cfg.Volume)
	locked = exists(d.lockPath())
	if err := d.lockFolder(ctx, 0); err != nil {
		return ignoreInUse(err)
	}
	// Where instance managers have no lock in common, as in containers, another one may have taken
	// the device since, and have brought it up again under the same numbers. Then the lock file is
	// this call's own.
	what, err := d.look(ctx)
	if err == nil && what != foundServed {
		if err = d.recover(ctx); err == nil {
			return d.Close(ctx, false)
		}
	} else if err == nil && !locked {
		err = ignoreMissing(os.Remove(d.lockPath()))
	}
	unix.Close(d.lock)
	return err
}

// RemoveLeft is RemoveDead for a ublk device, which does not end by itself when nobody keeps it any
// more; other kinds are left alone.
func RemoveLeft(ctx context.Context, cfg Config) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	if d := (&Device{cfg: cfg}); !exists(d.recordPath()) {
		return nil
	}
	return RemoveDead(ctx, cfg)
}

// afterFirstLook is for tests.
var afterFirstLook = func(volume string) {}

func ignoreInUse(err error) error {
	if errors.Is(err, ErrInUse) {
		return nil
	}
	return err
}

func exists(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil
}

// RemoveAllDead is RemoveDead for every volume with a node in deviceDir, or a lock file, but for
// those that are served. A server makes the lock file first and the node last, and takes them away
// in reverse: killed in between it leaves mount and loop device, and no node.
func RemoveAllDead(ctx context.Context, deviceDir string, served map[string]bool) error {
	volumes, err := everyVolume(deviceDir)
	if err != nil {
		return err
	}
	var errs []error
	for _, volume := range volumes {
		cfg := Config{Volume: volume, DeviceDir: deviceDir}
		if err := cfg.validate(); err == nil && !served[volume] {
			errs = append(errs, RemoveDead(ctx, cfg))
		}
	}
	return errors.Join(errs...)
}

// everyVolume returns the names of nodes and records in deviceDir, and of lock files.
func everyVolume(deviceDir string) ([]string, error) {
	volumes, err := lockedVolumes(deviceDir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(deviceDir)
	for _, e := range entries {
		volumes = append(volumes, recordedVolume(e.Name()))
	}
	slices.Sort(volumes)
	return slices.Compact(volumes), ignoreMissing(err)
}

// lockedVolumes returns the volumes that have a lock file beside those of deviceDir.
func lockedVolumes(deviceDir string) ([]string, error) {
	cfg := Config{Volume: "any", DeviceDir: deviceDir}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(cfg.RunDir, "fuse", "*"+lockSuffix))
	if err != nil {
		return nil, err
	}
	var volumes []string
	for _, file := range files {
		volumes = append(volumes, strings.TrimSuffix(filepath.Base(file), lockSuffix))
	}
	return volumes, nil
}

// found is what a look at a volume's device finds.
type found int

const (
	foundNothing found = iota
	// foundServed: somebody serves it, or will again, or the node is not a server's.
	foundServed
	// foundDead: its loop devices are dead, and its node, if there is one, is of one of them or of
	// none of the volume's.
	foundDead
)

// look looks for node and loop devices of the volume. A mount without them, and the lock file, are
// not looked for.
func (d *Device) look(ctx context.Context) (found, error) {
	loops, err := d.leftLoops(ctx)
	if err != nil {
		return foundNothing, err
	}
	for _, n := range loops {
		if !d.isDead(ctx, n) {
			return foundServed, nil
		}
	}
	what := foundNothing
	if len(loops) > 0 {
		what = foundDead
	}
	switch l, err := d.leftUblk(); {
	case err != nil:
		return foundNothing, err
	case l != nil && l.held:
		return foundServed, nil
	case l != nil:
		return foundDead, nil
	}
	var node unix.Stat_t
	if unix.Lstat(d.Path(), &node) != nil {
		return what, nil
	}
	if node.Mode&unix.S_IFMT != unix.S_IFBLK || unix.Major(node.Rdev) != loopMajor {
		return foundServed, nil
	}
	if n := int(unix.Minor(node.Rdev)); !slices.Contains(loops, n) {
		if there, err := d.isServed(n); err != nil || there {
			return foundServed, err
		}
	}
	return foundDead, nil
}

// lockAndRecover returns a device that is locked and of which nothing is left from before.
func lockAndRecover(ctx context.Context, cfg Config, patience time.Duration) (*Device, error) {
	d := &Device{cfg: cfg, fuse: -1, loop: -1}
	if err := d.lockFolder(ctx, patience); err != nil {
		return nil, err
	}
	if err := d.recover(ctx); err != nil {
		unix.Close(d.lock)
		return nil, fmt.Errorf("block device %s: %w", cfg.Volume, err)
	}
	return d, nil
}

// lockFolder takes the lock of the volume, or returns ErrInUse if somebody has it for longer than
// patience.
func (d *Device) lockFolder(ctx context.Context, patience time.Duration) error {
	if err := os.MkdirAll(filepath.Dir(d.dir()), 0o700); err != nil {
		return fmt.Errorf("block device %s: %w", d.cfg.Volume, err)
	}
	return d.takeLock(ctx, patience)
}

// maxStackedMounts bounds how many dead mounts are taken off one mount point: each belongs to a
// process that died between its unmount and its mount, so there is hardly ever more than one.
const maxStackedMounts = 16

// recover removes what a dead predecessor of this volume left: it holds the lock, so whatever is
// there has no living owner.
func (d *Device) recover(ctx context.Context) error {
	if err := d.recoverUblk(ctx); err != nil {
		return err
	}
	loops, err := d.leftLoops(ctx)
	if err != nil {
		return err
	}
	if err := d.removeNode(loops); err != nil {
		return err
	}
	for range maxStackedMounts {
		at, err := mountedAt(d.dir())
		if err != nil {
			return err
		}
		if !at {
			break
		}
		// The server is dead, so this cannot wait for it; a file system on top of the loop device
		// keeps the dead mount alive out of sight until it is unmounted too.
		if err := d.bounded(ctx, "detach the mount of a dead predecessor", func() error {
			return unix.Unmount(d.dir(), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}); err != nil {
			return err
		}
	}
	for _, n := range loops {
		if err := d.bounded(ctx, "detach the loop device of a dead predecessor", func() error {
			return clearLoop(n)
		}); err != nil {
			return err
		}
	}
	return nil
}

// leftLoops returns the loop devices of dead predecessors. The path of their file ends where it was
// mounted if that mount has gone: it was taken away, or its mount namespace has ended, as that of a
// container does. Then only a device whose server is dead is taken for one of them.
func (d *Device) leftLoops(ctx context.Context) ([]int, error) {
	loops, err := backing(d.file())
	if err != nil {
		return nil, err
	}
	others, err := backing(d.detachedFile())
	if err != nil {
		return nil, err
	}
	for _, n := range others {
		if d.isDead(ctx, n) {
			loops = append(loops, n)
		}
	}
	return loops, nil
}

// isDead reports that the file of loop device n is on a FUSE file system whose connection has
// ended: it cannot be read any more. One that does not answer is not dead. The state of the loop
// device says nothing, since the attributes of its file stay valid.
func (d *Device) isDead(ctx context.Context, n int) bool {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	err := readings.ask(ctx, n, func() error {
		return barethread.Run(func() error { return withLoop(n, readDirect) })
	})
	return errors.Is(err, unix.EIO)
}

// readings are the process's questions whether a loop device can be read.
var readings looks

// readDirect reads the first page of an open loop device past the page cache.
func readDirect(fd int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_DIRECT); err != nil {
		return err
	}
	page, err := unix.Mmap(-1, 0, block.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(page) }()
	_, err = unix.Pread(fd, page, 0)
	return err
}

// removeNode removes a node left behind: of a dead predecessor, or of a number that is none of the
// volume's by now, as after a boot where the directory is on a disk. A regular file is moved aside.
// Anything else that is not a loop device's node, or one of a device that may live, is left alone
// and in the way.
func (d *Device) removeNode(ours []int) error {
	var st unix.Stat_t
	err := unix.Lstat(d.Path(), &st)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.Path(), err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		return d.moveFile()
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK || unix.Major(st.Rdev) != loopMajor {
		return fmt.Errorf("%s exists and is no loop device's node; remove it", d.Path())
	}
	minor := int(unix.Minor(st.Rdev))
	if !slices.Contains(ours, minor) {
		served, err := d.isServed(minor)
		if err != nil {
			return err
		}
		if served {
			return fmt.Errorf("%s is the node of loop device %d, on which another server offers a volume of this name; "+
				"end that server, or remove the node", d.Path(), minor)
		}
	}
	if err := ignoreMissing(os.Remove(d.Path())); err != nil {
		return err
	}
	return d.cfg.relink()
}

// moveFile moves a regular file from where the volume's node is to be: a program that wrote to the
// path while there was no device has made it. Its content is kept, under a name that no volume has;
// a second one stays in the way until the first one was looked at.
func (d *Device) moveFile() error {
	aside := filepath.Join(d.cfg.DeviceDir, "."+d.cfg.Volume+".file")
	err := unix.Renameat2(unix.AT_FDCWD, d.Path(), unix.AT_FDCWD, aside, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%s is a regular file, and so is %s, which was moved from there before: look at both and remove them",
			d.Path(), aside)
	}
	if err != nil {
		return fmt.Errorf("%s is a regular file and cannot be moved to %s: %w", d.Path(), aside, err)
	}
	return nil
}

// isServed reports that loop device n lies on the file of a server of a volume of this name, which
// may live: in another mount namespace, with a run directory of its own, perhaps. Once its mount
// has gone only the end of the path is left.
func (d *Device) isServed(n int) (bool, error) {
	file, err := fileOf(n)
	return file == d.detachedFile() || strings.HasSuffix(file, filepath.Join("/fuse", d.cfg.Volume, d.cfg.Volume)), err
}

// mountedAt reports whether something is mounted at dir, without touching it: a dead server would
// not answer.
func mountedAt(dir string) (bool, error) {
	return isMounted(dir, func() ([]byte, error) { return os.ReadFile("/proc/self/mountinfo") })
}

// mountLooks bounds how often the list of mounts is read while it changes all the time.
const mountLooks = 10

// isMounted looks for dir in the list of mounts. Kernels before 5.8 leave lines out of it while
// other mounts go, so that a list without dir counts only if it is the same twice.
func isMounted(dir string, list func() ([]byte, error)) (bool, error) {
	var before []byte
	for range mountLooks {
		text, err := list()
		if err != nil {
			return false, err
		}
		found := false
		err = mountinfo.Each(bytes.NewReader(text), func(m *mountinfo.Mount) { found = found || m.Target == dir })
		if found || err != nil {
			return found, err
		}
		if before != nil && bytes.Equal(text, before) {
			break
		}
		before = text
	}
	return false, nil
}
