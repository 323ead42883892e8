package powerdisk

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Numbers of the kernel's FUSE interface (linux/fuse.h), version 7, as far as a loop device makes
// use of it.
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opFlush       = 25
	opInit        = 26
	opAccess      = 34
	opDestroy     = 38
	opBatchForget = 42
	opFallocate   = 43

	protoMajor = 7
	protoMinor = 31

	// asyncRead, bigWrites, asyncDIO and maxPages: without ASYNC_DIO a loop device has one request
	// under way at a time.
	wantedFlags = 1<<0 | 1<<5 | 1<<15 | 1<<22

	// openDirect and openNoFlush: nothing is cached here, and closing a descriptor asks nothing of
	// the server.
	openFlags = 1<<0 | 1<<5

	punchHole = 0x02
	zeroRange = 0x10

	rootNode = 1
	fileNode = 2
	fileName = "disk"

	inHeader    = 40
	writeHeader = 40
	outHeader   = 16
	maxTransfer = 1 << 20
	recvSize    = maxTransfer + pageSize
)

var ne = binary.NativeEndian

// message is a request from the kernel.
type message struct {
	opcode uint32
	unique uint64
	node   uint64
	body   []byte
}

func parse(p []byte) (message, error) {
	if len(p) < inHeader || int(ne.Uint32(p)) != len(p) {
		return message{}, fmt.Errorf("powerdisk: a request of %d bytes that says otherwise", len(p))
	}
	return message{opcode: ne.Uint32(p[4:]), unique: ne.Uint64(p[8:]), node: ne.Uint64(p[16:]), body: p[inHeader:]}, nil
}

// answer sends an answer. An error means that the kernel does not wait for it any more.
func answer(fd int, unique uint64, errno unix.Errno, body []byte) error {
	var head [outHeader]byte
	ne.PutUint32(head[:], uint32(outHeader+len(body)))
	ne.PutUint32(head[4:], uint32(-int32(errno)))
	ne.PutUint64(head[8:], unique)
	_, err := unix.Writev(fd, [][]byte{head[:], body})
	return err
}

func attributes(node uint64, size int64) []byte {
	p := make([]byte, 88)
	mode, links := uint32(unix.S_IFREG|0o600), uint32(1)
	if node == rootNode {
		mode, links, size = unix.S_IFDIR|0o700, 2, 0
	}
	ne.PutUint64(p, node)
	ne.PutUint64(p[8:], uint64(size))
	ne.PutUint64(p[16:], uint64(size/512))
	ne.PutUint32(p[60:], mode)
	ne.PutUint32(p[64:], links)
	ne.PutUint32(p[80:], pageSize)
	return p
}

// about answers what concerns the file system and not the disk's content.
func about(m *message, size int64) (unix.Errno, []byte) {
	switch m.opcode {
	case opInit:
		return initAnswer(m.body)
	case opLookup:
		if m.node != rootNode || string(m.body) != fileName+"\x00" {
			return unix.ENOENT, nil
		}
		p := make([]byte, 40)
		ne.PutUint64(p, fileNode)
		return 0, append(p, attributes(fileNode, size)...)
	case opGetattr:
		return 0, append(make([]byte, 16), attributes(m.node, size)...)
	case opOpen:
		p := make([]byte, 16)
		ne.PutUint32(p[8:], openFlags)
		return 0, p
	case opStatfs:
		p := make([]byte, 80)
		ne.PutUint64(p, uint64(size/pageSize))
		ne.PutUint32(p[40:], pageSize) // the loop device's discard granularity
		ne.PutUint32(p[44:], 255)
		ne.PutUint32(p[48:], pageSize)
		return 0, p
	case opRelease, opFlush, opAccess, opDestroy:
		return 0, nil
	}
	return unix.ENOSYS, nil
}

func initAnswer(body []byte) (unix.Errno, []byte) {
	if len(body) < 16 || ne.Uint32(body) != protoMajor {
		return unix.EPROTO, nil
	}
	p := make([]byte, 64)
	ne.PutUint32(p, protoMajor)
	ne.PutUint32(p[4:], min(ne.Uint32(body[4:]), protoMinor))
	ne.PutUint32(p[8:], ne.Uint32(body[8:]))
	ne.PutUint32(p[12:], ne.Uint32(body[12:])&wantedFlags)
	ne.PutUint16(p[16:], 128) // requests under way: the loop device's own limit
	ne.PutUint16(p[18:], 96)
	ne.PutUint32(p[20:], maxTransfer)
	ne.PutUint32(p[24:], 1)
	ne.PutUint16(p[28:], maxTransfer/pageSize)
	return 0, p
}
