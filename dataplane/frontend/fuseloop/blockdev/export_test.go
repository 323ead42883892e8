package blockdev

import "golang.org/x/sys/unix"

// Abandon leaves everything as a killed process would.
func (d *Device) Abandon() {
	unix.Close(d.fuse)
	unix.Close(d.lock)
}

// MountPoint is where the file system is mounted.
func (d *Device) MountPoint() string { return d.dir() }

// Backing returns the loop devices that lie on path.
func Backing(path string) ([]int, error) { return backing(path) }

// IsMounted looks for dir in a list of mounts.
func IsMounted(dir string, list func() ([]byte, error)) (bool, error) { return isMounted(dir, list) }
