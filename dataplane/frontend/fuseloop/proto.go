package fuseloop

import (
	"encoding/binary"

	"ankole.storage/dataplane/block"
)

// Numbers of the kernel's FUSE interface (linux/fuse.h), version 7. Integers are in the machine's
// order.
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opSetattr     = 4
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opFlush       = 25
	opInit        = 26
	opOpendir     = 27
	opReaddir     = 28
	opReleasedir  = 29
	opFsyncdir    = 30
	opAccess      = 34
	opInterrupt   = 36
	opDestroy     = 38
	opIoctl       = 39
	opBatchForget = 42
	opFallocate   = 43

	major = 7
	// minor is the version answered. Older kernels get their own.
	minor = 40

	initAsyncRead      = 1 << 0
	initBigWrites      = 1 << 5
	initAsyncDIO       = 1 << 15
	initParallelDirops = 1 << 18
	initMaxPages       = 1 << 22
	initExt            = 1 << 30
	wantedFlags        = initAsyncRead | initBigWrites | initAsyncDIO | initParallelDirops | initMaxPages |
		initExt
	openDirectIO        = 1 << 0
	openNoFlush         = 1 << 5
	openParallelWrites  = 1 << 6
	fileOpenFlags       = openDirectIO | openNoFlush | openParallelWrites
	notifyStore         = 4
	interruptBit        = 1 // of an identifier: the interruption of that request
	setattrSize         = 1 << 3
	fallocKeepSize      = 0x01
	fallocPunch         = 0x02
	fallocZero          = 0x10
	rootNode            = 1
	fileNode            = 2
	modeDir             = 0o040700
	modeFile            = 0o100600
	direntDir           = 4
	direntFile          = 8
	inHeader            = 40
	outHeader           = 16
	requestHeader       = 80 // the header and the fixed part of the longest request (WRITE)
	writeOut            = 8
	maxPages            = block.MaxTransfer / 4096
	congestionThreshold = MaxBackground * 3 / 4
)

// MaxBackground is how many asynchronous requests the kernel keeps under way: twice the loop
// device's own limit.
const MaxBackground = 256

// Errors answered. A request that could be answered ENOSYS once is never sent again, so FSYNC and
// FALLOCATE never are.
const (
	errNoEntry   = 2
	errIO        = 5
	errNoMemory  = 12
	errFault     = 14
	errNoTTY     = 25
	errInvalid   = 22
	errNotDir    = 20
	errIsDir     = 21
	errPerm      = 1
	errNoSpace   = 28
	errNoSys     = 38
	errProto     = 71
	errOpNotSupp = 95
)

func errno(c block.Code) int32 {
	switch c {
	case block.OK:
		return 0
	case block.Invalid:
		return errInvalid
	case block.NoSpace:
		return errNoSpace
	}
	return errIO
}

var ne = binary.NativeEndian

// header is the fixed head of every request.
type header struct {
	size   uint32
	opcode uint32
	unique uint64
	node   uint64
}

func putOut(p []byte, size int, errno int32, unique uint64) {
	ne.PutUint32(p, uint32(size))
	ne.PutUint32(p[4:], uint32(-errno))
	ne.PutUint64(p[8:], unique)
}

// attrValid is how long the kernel may take attributes for valid, in seconds: for ever. A new size
// it is told (SizeNotice, or the answer to SETATTR, which always counts).
const attrValid = 1 << 31

// putAttr encodes the attributes of a node (88 bytes).
func putAttr(p []byte, node uint64, size int64) {
	clear(p[:88])
	mode, links := uint32(modeFile), uint32(1)
	if node == rootNode {
		mode, links, size = modeDir, 2, 0
	}
	ne.PutUint64(p, node)
	ne.PutUint64(p[8:], uint64(size))
	ne.PutUint64(p[16:], uint64(size/512))
	ne.PutUint32(p[60:], mode)
	ne.PutUint32(p[64:], links)
	ne.PutUint32(p[80:], block.Size)
}

// SizeNotice encodes a message that gives the kernel's inode of the file a size in bytes, larger
// than its own, where nobody can ask the kernel for it through the file's path. For that it gives
// the kernel the last byte, zero, to cache; nobody reads the cache, since the file is only used
// directly.
func SizeNotice(size int64) []byte {
	const store = 24
	p := make([]byte, outHeader+store+1)
	ne.PutUint32(p, uint32(len(p)))
	ne.PutUint32(p[4:], notifyStore)
	ne.PutUint64(p[outHeader:], fileNode)
	ne.PutUint64(p[outHeader+8:], uint64(size-1))
	ne.PutUint32(p[outHeader+16:], 1)
	return p
}

// putStatfs encodes the file system's figures (80 bytes). The loop device takes its discard
// granularity from the block size.
func putStatfs(p []byte, size int64) {
	clear(p[:80])
	ne.PutUint64(p, uint64(size/block.Size))
	ne.PutUint64(p[24:], 2)
	ne.PutUint32(p[40:], block.Size)
	ne.PutUint32(p[44:], 255)
	ne.PutUint32(p[48:], block.Size)
}

// putInit encodes the answer to INIT (64 bytes) to a kernel that offers flags.
func putInit(p []byte, kernelMinor uint32, readahead uint32, flags uint64) {
	clear(p[:64])
	ne.PutUint32(p, major)
	ne.PutUint32(p[4:], min(kernelMinor, minor))
	ne.PutUint32(p[8:], readahead)
	ne.PutUint32(p[12:], uint32(flags))
	ne.PutUint16(p[16:], MaxBackground)
	ne.PutUint16(p[18:], congestionThreshold)
	ne.PutUint32(p[20:], block.MaxTransfer)
	ne.PutUint32(p[24:], 1)
	ne.PutUint16(p[28:], maxPages)
	ne.PutUint32(p[32:], uint32(flags>>32))
}

// appendDirent appends a directory entry to p if it fits in limit bytes.
func appendDirent(p []byte, limit int, node, next uint64, kind uint32, name string) []byte {
	n := (24 + len(name) + 7) &^ 7
	if len(p)+n > limit {
		return p
	}
	e := make([]byte, n)
	ne.PutUint64(e, node)
	ne.PutUint64(e[8:], next)
	ne.PutUint32(e[16:], uint32(len(name)))
	ne.PutUint32(e[20:], kind)
	copy(e[24:], name)
	return append(p, e...)
}
