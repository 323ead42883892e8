package chain_test

import (
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// alignedBuffer returns n bytes that direct I/O accepts.
func alignedBuffer(n int) []byte {
	raw := make([]byte, n+4096)
	skip := int(-uintptr(unsafe.Pointer(&raw[0])) % 4096)
	return raw[skip : skip+n : skip+n]
}

func pwriteAll(fd int, p []byte, off int64) error {
	n, err := unix.Pwrite(fd, p, off)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}
