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
