package osdisk

import (
	"io"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/disk"
)

// file is an open file descriptor.
type file struct {
	fd     int
	name   string
	direct bool
}

// Handle implements disk.File.
func (f *file) Handle() int32 { return int32(f.fd) }

// Path implements disk.File.
func (f *file) Path() string { return f.name }

// Buffers for direct access by callers whose memory is not page-aligned.
const (
	pageSize   = 4096
	bounceSize = 256 << 10
)

var bounce = sync.Pool{New: func() any {
	raw := make([]byte, bounceSize+pageSize)
	skip := int(-uintptr(unsafe.Pointer(&raw[0])) % pageSize)
	b := raw[skip : skip+bounceSize : skip+bounceSize]
	return &b
}}

func aligned(p []byte) bool {
	return len(p) == 0 || uintptr(unsafe.Pointer(&p[0]))%pageSize == 0
}

// ReadAt implements disk.File.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	total := 0
	for total < len(p) {
		n, err := f.readSome(p[total:], off+int64(total))
		if err != nil {
			return total, wrap("read", f.name, err)
		}
		if n == 0 {
			return total, io.EOF
		}
		total += n
	}
	return total, nil
}

func (f *file) readSome(p []byte, off int64) (n int, err error) {
	if f.direct && !aligned(p) {
		b := bounce.Get().(*[]byte)
		defer bounce.Put(b)
		part := (*b)[:min(len(p), bounceSize)]
		n, err = f.pread(part, off)
		return copy(p, part[:max(n, 0)]), err
	}
	return f.pread(p, off)
}

func (f *file) pread(p []byte, off int64) (n int, err error) {
	err = retry(func() (err error) {
		n, err = unix.Pread(f.fd, p, off)
		return err
	})
	return max(n, 0), err
}

// WriteAt implements disk.File.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	total := 0
	for total < len(p) {
		n, err := f.writeSome(p[total:], off+int64(total))
		if err != nil {
			return total, wrap("write", f.name, err)
		}
		if n == 0 {
			return total, wrap("write", f.name, unix.EIO)
		}
		total += n
	}
	return total, nil
}

func (f *file) writeSome(p []byte, off int64) (int, error) {
	if f.direct && !aligned(p) {
		b := bounce.Get().(*[]byte)
		defer bounce.Put(b)
		p = (*b)[:copy(*b, p)]
	}
	var n int
	err := retry(func() (err error) {
		n, err = unix.Pwrite(f.fd, p, off)
		return err
	})
	return max(n, 0), err
}

// Sync implements disk.File.
func (f *file) Sync() error {
	return wrap("sync", f.name, retry(func() error { return unix.Fdatasync(f.fd) }))
}

// Truncate implements disk.File.
func (f *file) Truncate(size int64) error {
	return wrap("truncate", f.name, retry(func() error { return unix.Ftruncate(f.fd, size) }))
}

// Punch implements disk.File.
func (f *file) Punch(off, n int64) error {
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	return wrap("punch", f.name, retry(func() error { return unix.Fallocate(f.fd, mode, off, n) }))
}

// Preallocate implements disk.File.
func (f *file) Preallocate(off, n int64) error {
	return wrap("preallocate", f.name, retry(func() error { return unix.Fallocate(f.fd, 0, off, n) }))
}

// Stat implements disk.File.
func (f *file) Stat() (disk.Info, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(f.fd, &st) }); err != nil {
		return disk.Info{}, wrap("stat", f.name, err)
	}
	return infoOf(&st), nil
}

// Close implements disk.File.
func (f *file) Close() error { return wrap("close", f.name, unix.Close(f.fd)) }
