package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/frontend/nbd/nbdclient"
)

// Target is a volume with everything its user can ask for. Buffers, offsets and sizes are whole
// sectors.
type Target interface {
	Device
	// WriteFUA writes and returns when the data is on stable storage.
	WriteFUA(p []byte, off int64) (int, error)
	// Discard says that n bytes at off are not needed any more.
	Discard(off, n int64) error
	// Zero makes n bytes at off read as zeroes.
	Zero(off, n int64) error
	Close() error
}

// Target connects to what the engine offers.
func (e *Engine) Target() (Target, error) {
	if e.HasDevice() {
		return openBlockDevice(filepath.Join(e.Host.Devices(), e.v.Name))
	}
	c, err := e.dialNBD()
	if err != nil {
		return nil, err
	}
	return nbdTarget{c}, nil
}

type nbdTarget struct{ *nbdclient.Client }

// WriteFUA implements Target.
func (c nbdTarget) WriteFUA(p []byte, off int64) (int, error) { return c.WriteAtFUA(p, off) }

// Discard implements Target.
func (c nbdTarget) Discard(off, n int64) error { return c.Trim(off, n) }

// Zero implements Target.
func (c nbdTarget) Zero(off, n int64) error { return c.WriteZeroes(off, n) }

// blockDevice is a device node, used without the page cache.
type blockDevice struct {
	*os.File
}

func openBlockDevice(path string) (Target, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return blockDevice{f}, nil
}

// Flush implements Target.
func (d blockDevice) Flush() error { return d.Sync() }

// WriteFUA implements Target.
func (d blockDevice) WriteFUA(p []byte, off int64) (int, error) {
	n, err := unix.Pwritev2(int(d.Fd()), [][]byte{p}, off, unix.RWF_DSYNC)
	if err == nil && n < len(p) {
		err = errors.New("short write")
	}
	return n, err
}

// Discard implements Target.
func (d blockDevice) Discard(off, n int64) error { return Discard(d.File, off, n) }

// Zero implements Target.
func (d blockDevice) Zero(off, n int64) error { return ofRange(d.File, unix.BLKZEROOUT, off, n) }

// Discard discards a range of a block device.
func Discard(device *os.File, off, n int64) error { return ofRange(device, unix.BLKDISCARD, off, n) }

// ofRange asks a block device for something that is done to a range.
func ofRange(d *os.File, request uintptr, off, n int64) error {
	span := [2]uint64{uint64(off), uint64(n)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), request, uintptr(unsafe.Pointer(&span))); errno != 0 {
		return fmt.Errorf("%s: request %#x of %d bytes at %d: %w", d.Name(), request, n, off, errno)
	}
	return nil
}

// Aligned returns n bytes that begin at a page, as direct I/O wants them.
func Aligned(n int) []byte {
	const page = 4096
	b := make([]byte, n+page)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (page - 1)
	return b[skip : skip+n : skip+n]
}

// HasDevice reports whether the volume is offered as a block device.
func (e *Engine) HasDevice() bool { return e.v.cfg.Transport != "" && e.v.cfg.Transport != "nbd-unix" }
