package frontendtest

import "unsafe"

// aligned returns n bytes at a page boundary, as direct I/O on a block device wants them.
func aligned(n int) []byte {
	const page = 4096
	p := make([]byte, n+page)
	skip := -int(uintptr(unsafe.Pointer(&p[0]))) & (page - 1)
	return p[skip : skip+n : skip+n]
}
