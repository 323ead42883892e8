// Package nbdclient is a lean client of the Network Block Device protocol, for tests and
// benchmarks.
//
// Client is for tests: any number of goroutines call ReadAt, WriteAt and the rest, their requests
// are pipelined on one connection. Conn is for benchmarks: one thread keeps a queue of a given
// depth full, with two system calls per batch and no allocation per request, so that what is
// measured is the server.
package nbdclient

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
)

// Protocol numbers, as in the NBD project's proto.md.
const (
	magicGreeting = 0x4e42444d41474943
	magicOption   = 0x49484156454f5054
	magicOptReply = 0x0003e889045565a9
	magicRequest  = 0x25609513
	magicReply    = 0x67446698

	optGo      = 7
	repAck     = 1
	repInfo    = 3
	repError   = 1 << 31
	infoExport = 0
	infoSizes  = 3

	requestHeader = 28
	replyHeader   = 16

	clientFlags = 1<<0 | 1<<1 // fixed newstyle, no zeroes
	maxReply    = 64 << 10    // of a negotiation message: far beyond any sensible error text
)

// Command is the type of a request.
type Command uint16

// Commands.
const (
	Read        Command = 0
	Write       Command = 1
	disconnect  Command = 2
	Flush       Command = 3
	Trim        Command = 4
	WriteZeroes Command = 6
)

// FlagFUA asks a write to be on stable storage before it is answered.
const FlagFUA = 1

// maxTransfer is the largest payload sent in one request.
const maxTransfer = 32 << 20

// Export is what the server told about the volume.
type Export struct {
	// Size in bytes.
	Size int64
	// Flags are the transmission flags.
	Flags uint16
	// MinBlock, PreferredBlock and MaxRequest are in bytes; 0 if the server did not say.
	MinBlock, PreferredBlock, MaxRequest uint32
}

// ErrRefused is returned by Dial when the server does not serve the export.
var ErrRefused = errors.New("the server refused the export")

// dial connects to "unix:path" or "tcp:host:port" and negotiates the export.
func dial(ctx context.Context, addr, export string) (net.Conn, Export, error) {
	network, rest, ok := strings.Cut(addr, ":")
	if !ok || network != "unix" && network != "tcp" {
		return nil, Export{}, fmt.Errorf("nbd address %q: want unix:path or tcp:host:port", addr)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, rest)
	if err != nil {
		return nil, Export{}, fmt.Errorf("nbd server %s: %w", addr, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	e, err := negotiate(conn, export)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, Export{}, fmt.Errorf("nbd export %q at %s: %w", export, addr, err)
	}
	return conn, e, nil
}

func negotiate(c io.ReadWriter, export string) (Export, error) {
	var e Export
	be := binary.BigEndian
	var greeting [18]byte
	if _, err := io.ReadFull(c, greeting[:]); err != nil {
		return e, fmt.Errorf("no greeting: %w", err)
	}
	if be.Uint64(greeting[:]) != magicGreeting || be.Uint64(greeting[8:]) != magicOption {
		return e, errors.New("not a newstyle NBD server")
	}
	out := be.AppendUint32(nil, clientFlags&uint32(be.Uint16(greeting[16:])))
	out = be.AppendUint64(out, magicOption)
	out = be.AppendUint32(out, optGo)
	out = be.AppendUint32(out, uint32(4+len(export)+2+2))
	out = be.AppendUint32(out, uint32(len(export)))
	out = append(out, export...)
	out = be.AppendUint16(out, 1)
	out = be.AppendUint16(out, infoSizes)
	if _, err := c.Write(out); err != nil {
		return e, err
	}
	for {
		var h [20]byte
		if _, err := io.ReadFull(c, h[:]); err != nil {
			return e, fmt.Errorf("negotiation broken off: %w", err)
		}
		typ, size := be.Uint32(h[12:]), be.Uint32(h[16:])
		if be.Uint64(h[:]) != magicOptReply || be.Uint32(h[8:]) != optGo || size > maxReply {
			return e, errors.New("malformed option reply")
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(c, data); err != nil {
			return e, err
		}
		switch {
		case typ == repAck:
			return e, nil
		case typ&repError != 0:
			return e, fmt.Errorf("%w (option error %d %s)", ErrRefused, typ&^repError, data)
		case typ == repInfo:
			e.take(data)
		}
	}
}

func (e *Export) take(data []byte) {
	be := binary.BigEndian
	if len(data) >= 12 && be.Uint16(data) == infoExport {
		e.Size, e.Flags = int64(be.Uint64(data[2:])), be.Uint16(data[10:])
	}
	if len(data) >= 14 && be.Uint16(data) == infoSizes {
		e.MinBlock, e.PreferredBlock, e.MaxRequest = be.Uint32(data[2:]), be.Uint32(data[6:]), be.Uint32(data[10:])
	}
}

// putRequest encodes a request header.
func putRequest(h []byte, cmd Command, flags uint16, cookie uint64, off int64, size uint32) {
	be := binary.BigEndian
	be.PutUint32(h, magicRequest)
	be.PutUint16(h[4:], flags)
	be.PutUint16(h[6:], uint16(cmd))
	be.PutUint64(h[8:], cookie)
	be.PutUint64(h[16:], uint64(off))
	be.PutUint32(h[24:], size)
}

// parseReply decodes a reply header.
func parseReply(h []byte) (cookie uint64, errno syscall.Errno, err error) {
	be := binary.BigEndian
	if be.Uint32(h) != magicReply {
		return 0, 0, fmt.Errorf("malformed NBD reply % x", h[:replyHeader])
	}
	return be.Uint64(h[8:]), syscall.Errno(be.Uint32(h[4:])), nil
}
