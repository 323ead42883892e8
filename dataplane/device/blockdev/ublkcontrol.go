package blockdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/block"
	"ankole.storage/dataplane/loop/uring"
	"ankole.storage/host/barethread"
)

// This file speaks to the kernel's driver ublk_drv: numbers and structures of linux/ublk_cmd.h.

// Commands to the driver.
const (
	ublkGetInfo       = 0x80207502
	ublkAdd           = 0xc0207504
	ublkDelete        = 0xc0207505
	ublkStart         = 0xc0207506
	ublkStop          = 0xc0207507
	ublkSetParams     = 0xc0207508
	ublkStartRecovery = 0xc0207510
	ublkEndRecovery   = 0xc0207511
	ublkGetFeatures   = 0x80207513 // since Linux 6.5
	ublkDeleteAsync   = 0x80207514
	ublkUpdateSize    = 0xc0207515 // since Linux 6.16
)

// Features of the driver, and of a device.
const (
	ublkRecovery   = 1 << 3
	ublkReissue    = 1 << 4
	ublkIoctl      = 1 << 6
	ublkUserCopy   = 1 << 7
	ublkSizes      = 1 << 10
	ublkNoPartScan = 1 << 18

	// ublkNeeded is without what a device cannot be served, and taken over.
	ublkNeeded = ublkRecovery | ublkReissue | ublkIoctl | ublkUserCopy
)

// States of a device.
const (
	ublkDead     = 0
	ublkLive     = 1
	ublkQuiesced = 2
)

const (
	ublkControl = "/dev/ublk-control"
	// ublkClass has a folder for each device, and for the control device, with its number.
	ublkClass = "/sys/class/ublk-char"

	ublkNone = 0xffffffff // no number of a device, and no queue

	ublkInfoSize   = 64
	ublkParamsSize = 64 // up to the end of the discard parameters, in words of 64 bits
)

// ublkInfo is struct ublksrv_ctrl_dev_info, of which the last 64 bits but three are the server's
// own: mark.
type ublkInfo struct {
	queues, depth, state uint16
	maxTransfer, number  uint32
	flags, mark          uint64
}

func (i *ublkInfo) encode() []byte {
	p := make([]byte, ublkInfoSize)
	ne := binary.NativeEndian
	ne.PutUint16(p, i.queues)
	ne.PutUint16(p[2:], i.depth)
	ne.PutUint32(p[8:], i.maxTransfer)
	ne.PutUint32(p[12:], i.number)
	ne.PutUint64(p[24:], i.flags)
	ne.PutUint64(p[32:], i.mark)
	return p
}

func decodeUblkInfo(p []byte) ublkInfo {
	ne := binary.NativeEndian
	return ublkInfo{queues: ne.Uint16(p), depth: ne.Uint16(p[2:]), state: ne.Uint16(p[4:]), maxTransfer: ne.Uint32(p[8:]),
		number: ne.Uint32(p[12:]), flags: ne.Uint64(p[24:]), mark: ne.Uint64(p[32:])}
}

// ublkParams is struct ublk_params as far as discards.
func ublkParams(size int64, blockSize int) []byte {
	const (
		basic, discard = 1, 2
		volatile, fua  = 1 << 2, 1 << 3
		// maxSpan bounds discards and zeroing, in sectors: 1 GiB at once.
		maxSpan = 1 << 21
	)
	p := make([]byte, ublkParamsSize)
	ne := binary.NativeEndian
	ne.PutUint32(p, ublkParamsSize)
	ne.PutUint32(p[4:], basic|discard)
	ne.PutUint32(p[8:], volatile|fua)
	page, sector := uint8(12), uint8(9)
	if blockSize == block.Size {
		sector = page
	}
	p[12], p[13], p[14], p[15] = sector, page, page, page // logical, physical, best and least transfer
	ne.PutUint32(p[16:], block.MaxTransfer/block.SectorSize)
	ne.PutUint64(p[24:], uint64(size)/block.SectorSize)
	ne.PutUint32(p[44:], block.Size) // granularity
	ne.PutUint32(p[48:], maxSpan)
	ne.PutUint32(p[52:], maxSpan)
	ne.PutUint16(p[56:], 1) // ranges of a discard
	return p
}

// ublkCommand has the driver carry a command out, and waits. buf is what goes there or comes back.
// It may wait for requests of the device itself: it runs on a thread that keeps none of this
// process's files open.
func ublkCommand(op uint64, number uint32, data uint64, buf []byte) error {
	return barethread.Run(func() error { return ublkDo(op, number, data, buf) })
}

func ublkDo(op uint64, number uint32, data uint64, buf []byte) error {
	ctl, err := openNumbered(ublkControl, "/sys/class/misc/ublk-control/dev", unix.S_IFCHR)
	if err != nil {
		return err
	}
	defer unix.Close(ctl)
	r, err := uring.New(1, 2, uring.Entries128)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // the command has ended
	// The kernel reads and writes buf after the call that gives it the address: it must not move.
	mem, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(mem) }()
	copy(mem, buf)
	e, p := r.NextCommand()
	e.Opcode, e.FD, e.Off = uring.OpCommand, int32(ctl), op
	ne := binary.NativeEndian
	ne.PutUint32(p, number)
	ne.PutUint16(p[4:], 0xffff)
	if len(buf) > 0 {
		ne.PutUint16(p[6:], uint16(len(buf)))
		ne.PutUint64(p[8:], uint64(uintptr(unsafe.Pointer(&mem[0]))))
	}
	ne.PutUint64(p[16:], data)
	r.Push()
	for ended := false; !ended; {
		r.Flush()
		if err := r.Wait(); err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return err
		}
		r.Reap(func(_ uint64, res int32) {
			ended = true
			if err = nil; res < 0 {
				err = unix.Errno(-res)
			}
		})
	}
	copy(buf, mem)
	return err
}

// openNumbered opens a device by its path, or where /dev has no node for it (a container's),
// through a node of its own; the number is in a file of sysfs.
func openNumbered(path, number string, kind uint32) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		var dev uint64
		if dev, err = numberIn(number); err == nil {
			if err = unix.Mknod(path, kind|0o600, int(dev)); err == nil || errors.Is(err, unix.EEXIST) {
				fd, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
			}
		}
	}
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}

// numberIn reads the number of a device as sysfs writes it. It uses system calls alone, so that any
// thread may call it.
func numberIn(path string) (uint64, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(fd)
	text := make([]byte, 64)
	n, err := unix.Read(fd, text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	major, minor, ok := strings.Cut(strings.TrimSpace(string(text[:n])), ":")
	x, err1 := strconv.ParseUint(major, 10, 32)
	y, err2 := strconv.ParseUint(minor, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return 0, fmt.Errorf("%s: %q is no number of a device", path, text[:n])
	}
	return unix.Mkdev(uint32(x), uint32(y)), nil
}

// ublkFeatures asks what the driver can.
func ublkFeatures() (uint64, error) {
	p := make([]byte, 8)
	err := ublkCommand(ublkGetFeatures, ublkNone, 0, p)
	return binary.NativeEndian.Uint64(p), err
}

func ublkInfoOf(number uint32) (ublkInfo, error) {
	p := make([]byte, ublkInfoSize)
	err := ublkCommand(ublkGetInfo, number, 0, p)
	i := decodeUblkInfo(p)
	if err == nil && i.number != number {
		err = fmt.Errorf("the kernel speaks of device %d", i.number)
	}
	return i, err
}

// ublkNumbers are the numbers of all ublk devices of the host.
func ublkNumbers() ([]uint32, error) {
	entries, err := os.ReadDir(ublkClass)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // there is no driver
	}
	var list []uint32
	for _, e := range entries {
		if text, ok := strings.CutPrefix(e.Name(), "ublkc"); ok {
			if n, err := strconv.ParseUint(text, 10, 31); err == nil {
				list = append(list, uint32(n))
			}
		}
	}
	return list, err
}

func ublkName(kind string, number uint32) string { return fmt.Sprintf("ublk%s%d", kind, number) }

// ublkDisk is the folder of the block device in sysfs.
func ublkDisk(number uint32) string { return filepath.Join("/sys/block", ublkName("b", number)) }
