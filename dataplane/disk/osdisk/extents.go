package osdisk

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/disk"
)

// The FIEMAP request of linux/fiemap.h. The kernel fills in the extents.
type fiemap struct {
	start, length   uint64
	flags, mapped   uint32
	count, reserved uint32
	extents         [disk.ExtentsPerCall]fiemapExtent
}

type fiemapExtent struct {
	logical, physical, length uint64
	reserved64                [2]uint64
	flags                     uint32
	reserved                  [3]uint32
}

const (
	ioctlFiemap = 0xc020660b
	// fiemapSync writes buffered data out first, so that its place is known.
	fiemapSync            = 0x1
	fiemapExtentLast      = 0x1
	fiemapExtentUnwritten = 0x800
)

// Extents implements disk.File.
func (f *file) Extents(off int64, out []disk.Extent) ([]disk.Extent, bool, error) {
	info, err := f.Stat()
	if err != nil || off >= info.Size {
		return out, false, err
	}
	req := &fiemap{start: uint64(off), length: uint64(info.Size - off), flags: fiemapSync, count: disk.ExtentsPerCall}
	err = retry(func() error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(f.fd), ioctlFiemap, uintptr(unsafe.Pointer(req)))
		if errno != 0 {
			return errno
		}
		return nil
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) {
		return f.seekExtents(off, info.Size, out)
	}
	if err != nil {
		return out, false, wrap("list extents of", f.name, err)
	}
	last := false
	for _, e := range req.extents[:req.mapped] {
		out = appendClipped(out, off, info.Size, disk.Extent{Off: int64(e.logical), Len: int64(e.length),
			Unwritten: e.flags&fiemapExtentUnwritten != 0})
		last = e.flags&fiemapExtentLast != 0
	}
	return out, req.mapped == disk.ExtentsPerCall && !last, nil
}

func appendClipped(out []disk.Extent, from, to int64, e disk.Extent) []disk.Extent {
	start, end := max(e.Off, from), min(e.Off+e.Len, to)
	if start >= end {
		return out
	}
	return append(out, disk.Extent{Off: start, Len: end - start, Unwritten: e.Unwritten})
}

// seekExtents finds data by seeking, on tmpfs only: elsewhere a file system without FIEMAP may
// report preallocated space as a hole or holes as data, which would change what a replica reads.
func (f *file) seekExtents(off, size int64, out []disk.Extent) ([]disk.Extent, bool, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(f.fd, &st); err != nil {
		return out, false, wrap("list extents of", f.name, err)
	}
	if st.Type != unix.TMPFS_MAGIC {
		return out, false, fmt.Errorf("list extents of %s: %w: %s has no FIEMAP; use ext4 or XFS", f.name,
			disk.ErrUnsupported, typeName(int64(st.Type)))
	}
	for range disk.ExtentsPerCall {
		data, err := unix.Seek(f.fd, off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return out, false, nil
		}
		if err != nil {
			return out, false, wrap("seek in", f.name, err)
		}
		hole, err := unix.Seek(f.fd, data, unix.SEEK_HOLE)
		if err != nil {
			return out, false, wrap("seek in", f.name, err)
		}
		out = appendClipped(out, off, size, disk.Extent{Off: data, Len: hole - data})
		off = hole
	}
	return out, true, nil
}

var fsTypes = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs",
	unix.NFS_SUPER_MAGIC: "nfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
}

func typeName(magic int64) string {
	if name, ok := fsTypes[magic]; ok {
		return name
	}
	return fmt.Sprintf("0x%x", magic)
}

func isTmpfs(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.TMPFS_MAGIC
}

// Statfs implements disk.Meta.
func (s *FS) Statfs(name string) (disk.FSInfo, error) {
	var st unix.Statfs_t
	real := s.resolve(name)
	if err := retry(func() error { return unix.Statfs(real, &st) }); err != nil {
		return disk.FSInfo{}, wrap("statfs", name, err)
	}
	return disk.FSInfo{
		Type:           typeName(int64(st.Type)),
		SizeBytes:      int64(st.Blocks) * st.Bsize,
		FreeBytes:      int64(st.Bavail) * st.Bsize,
		BlockSize:      st.Bsize,
		ExtentSizeHint: extentSizeHint(real),
	}, nil
}

// The extended attributes of linux/fs.h (struct fsxattr) and the flags that make extsize count.
type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	pad                                           [8]byte
}

const (
	ioctlGetXattr     = 0x801c581f
	xflagExtsize      = 0x800
	xflagExtsizeBelow = 0x1000
)

// extentSizeHint returns the hint of a file or directory; file systems without hints have none.
func extentSizeHint(real string) int64 {
	fd, err := unix.Open(real, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var x fsxattr
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlGetXattr, uintptr(unsafe.Pointer(&x))); errno != 0 {
		return 0
	}
	if x.xflags&(xflagExtsize|xflagExtsizeBelow) == 0 {
		return 0
	}
	return int64(x.extsize)
}
