package blockdev

import "golang.org/x/sys/unix"

// Abandon leaves everything as a killed process would.
func (d *Device) Abandon() {
	unix.Close(d.fuse)
	unix.Close(d.lock)
}

// MountPoint is where the file system is mounted.
func (d *Device) MountPoint() string { return d.dir() }

// LoseMount detaches the mount, as the kernel does at the end of the mount namespace that it is in.
func (d *Device) LoseMount() error {
	if err := unix.Unmount(d.dir(), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return err
	}
	d.mounted = false
	return nil
}

// Backing returns the loop devices that lie on path.
func Backing(path string) ([]int, error) { return backing(path) }

// IsMounted looks for dir in a list of mounts.
func IsMounted(dir string, list func() ([]byte, error)) (bool, error) { return isMounted(dir, list) }

// LockPath is where the lock of a volume is.
func LockPath(cfg Config) string {
	if err := cfg.validate(); err != nil {
		panic(err)
	}
	d := &Device{cfg: cfg}
	return d.lockPath()
}

// AfterFirstLook has RemoveDead call f when it has looked once, until it returns.
func AfterFirstLook(f func(volume string)) (undo func()) {
	afterFirstLook = f
	return func() { afterFirstLook = func(string) {} }
}

// LockRefused has whoever waits for a lock call f at every refusal, until it returns.
func LockRefused(f func()) (undo func()) {
	lockRefused = f
	return func() { lockRefused = func() {} }
}
