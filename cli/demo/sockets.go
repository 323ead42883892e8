package demo

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// connection is a TCP connection of some process of this machine.
type connection struct{ from, to netip.AddrPort }

// The kernel's structures for questions about sockets, in bytes: see sock_diag(7).
const (
	sockDiagByFamily = 20
	requestSize      = 56 // struct inet_diag_req_v2
	messageSize      = 72 // struct inet_diag_msg
	diagInfo         = 2  // INET_DIAG_INFO
	established      = 1  // TCP_ESTABLISHED
	maxMessages      = 1 << 20
)

// connections lists the established IPv4 connections with the bytes that each has carried, both
// ways. It needs no rights.
func connections() (map[connection]uint64, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil, fmt.Errorf("asking the kernel for connections: %w", err)
	}
	defer unix.Close(fd)
	request := make([]byte, unix.SizeofNlMsghdr+requestSize)
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := request[unix.SizeofNlMsghdr:]
	body[0], body[1], body[2] = unix.AF_INET, unix.IPPROTO_TCP, 1<<(diagInfo-1)
	binary.NativeEndian.PutUint32(body[4:], 1<<established)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("asking the kernel for connections: %w", err)
	}
	all := map[connection]uint64{}
	buf := make([]byte, 64<<10)
	for range maxMessages {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, fmt.Errorf("reading the kernel's list of connections: %w", err)
		}
		if done, err := readConnections(buf[:n], all); done || err != nil {
			return all, err
		}
	}
	return nil, fmt.Errorf("the kernel's list of connections does not end")
}

// readConnections reads netlink messages; done says that the last one was there.
func readConnections(buf []byte, into map[connection]uint64) (done bool, err error) {
	for len(buf) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(buf))
		if size < unix.SizeofNlMsghdr || size > len(buf) {
			return false, fmt.Errorf("a message of %d bytes in %d bytes of the kernel's list of connections", size, len(buf))
		}
		switch body := buf[unix.SizeofNlMsghdr:size]; binary.NativeEndian.Uint16(buf[4:]) {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return false, fmt.Errorf("the kernel refuses to list connections")
			}
			return false, fmt.Errorf("the kernel refuses to list connections: %w",
				unix.Errno(-int32(binary.NativeEndian.Uint32(body))))
		default:
			readConnection(body, into)
		}
		buf = buf[min(len(buf), (size+3)&^3):]
	}
	return false, nil
}

// readConnection reads one struct inet_diag_msg and its attributes.
func readConnection(body []byte, into map[connection]uint64) {
	if len(body) < messageSize || body[0] != unix.AF_INET {
		return
	}
	address := func(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b)) }
	c := connection{
		from: netip.AddrPortFrom(address(body[8:12]), binary.BigEndian.Uint16(body[4:])),
		to:   netip.AddrPortFrom(address(body[24:28]), binary.BigEndian.Uint16(body[6:])),
	}
	for rest := body[messageSize:]; len(rest) >= unix.SizeofRtAttr; {
		size := int(binary.NativeEndian.Uint16(rest))
		if size < unix.SizeofRtAttr || size > len(rest) {
			return
		}
		if binary.NativeEndian.Uint16(rest[2:]) == diagInfo {
			var info unix.TCPInfo
			raw := unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info))
			copy(raw, rest[unix.SizeofRtAttr:size])
			into[c] = info.Bytes_acked + info.Bytes_received
		}
		rest = rest[min(len(rest), (size+3)&^3):]
	}
}
