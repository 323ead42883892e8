package ublk

import (
	"encoding/binary"

	"ankole.storage/dataplane/block"
)

// Numbers of linux/ublk_cmd.h.
const (
	opRead        = 0
	opWrite       = 1
	opFlush       = 2
	opDiscard     = 3
	opWriteZeroes = 5

	opMask      = 0xff
	flagFUA     = 1 << 13
	flagNoUnmap = 1 << 15

	// DescriptorSize is the length of a request's description in the memory that the kernel shares.
	DescriptorSize = 24

	bufferOffset     = 0x80000000
	bufferTagShift   = 25
	bufferQueueShift = 41

	errIO         = 5
	errInvalid    = 22
	errNoSpace    = 28
	errOpNotSupp  = 95
	placeShift    = 16
	maxQueues     = 64
	maxQueueDepth = 256
)

var ne = binary.NativeEndian

// description is struct ublksrv_io_desc.
type description struct {
	op      uint32 // and flags
	sectors uint32
	start   uint64
}

// parse reads a description of DescriptorSize bytes, once: the memory is the kernel's.
func parse(p []byte) description {
	return description{op: ne.Uint32(p), sectors: ne.Uint32(p[4:]), start: ne.Uint64(p[8:])}
}

// within reports whether a description's range is not empty and lies in a volume of size bytes.
func (d *description) within(size int64) bool {
	all := uint64(size) / block.SectorSize
	return d.sectors > 0 && d.start <= all && uint64(d.sectors) <= all-d.start
}

// dataOffset is where the data of a request is read and written on the device.
func dataOffset(queue, tag int) int64 {
	return bufferOffset + int64(queue)<<bufferQueueShift + int64(tag)<<bufferTagShift
}

// errno is a code as a result for the kernel.
func errno(c block.Code) int64 {
	switch c {
	case block.OK:
		return 0
	case block.Invalid:
		return -errInvalid
	case block.NoSpace:
		return -errNoSpace
	}
	return -errIO
}
