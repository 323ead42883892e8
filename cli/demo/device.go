package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/frontend/nbd/nbdclient"
)

const (
	// grain is what offsets and lengths on a device are multiples of.
	grain = 4096
	// reconnectFor is how long an NBD client goes on trying when its server restarts.
	reconnectFor = time.Minute
)

// device is an attached volume seen as a row of bytes. Offsets, lengths and the addresses of
// buffers are multiples of grain; see aligned.
type device interface {
	io.ReaderAt
	io.WriterAt
	// Flush returns when everything written before is on stable storage of every replica.
	Flush() error
	// Zero makes a range read as zeroes.
	Zero(off, n int64) error
	Size() int64
	Close() error
}

// aligned returns a buffer whose address is a multiple of grain.
func aligned(n int) []byte {
	b := make([]byte, n+grain)
	skip := int(-uintptr(unsafe.Pointer(&b[0])) & (grain - 1))
	return b[skip : skip+n : skip+n]
}

// openDevice opens an endpoint of the API: a block device or nbd+unix:///NAME?socket=PATH.
func openDevice(ctx context.Context, endpoint string) (device, error) {
	if strings.HasPrefix(endpoint, "/") {
		return openBlock(endpoint)
	}
	address, export, err := parseNBD(endpoint)
	if err != nil {
		return nil, err
	}
	c, err := nbdclient.Dial(ctx, address, nbdclient.Options{Export: export, Reconnect: reconnectFor})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", endpoint, err)
	}
	return nbdDevice{c}, nil
}

// parseNBD reads an NBD URI, on a unix socket or over TCP.
func parseNBD(endpoint string) (address, export string, err error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", "", fmt.Errorf("endpoint %q: %w", endpoint, err)
	}
	export = strings.TrimPrefix(u.Path, "/")
	switch {
	case u.Scheme == "nbd+unix" && u.Query().Get("socket") != "":
		return "unix:" + u.Query().Get("socket"), export, nil
	case u.Scheme == "nbd" && u.Host != "":
		return "tcp:" + u.Host, export, nil
	}
	return "", "",
		fmt.Errorf("endpoint %q is neither a block device nor an NBD socket, which is all the demonstration can use",
			endpoint)
}

type nbdDevice struct{ *nbdclient.Client }

func (d nbdDevice) Zero(off, n int64) error { return d.WriteZeroes(off, n) }

// blockDevice is a block device past the page cache, so that what is read comes from the volume.
type blockDevice struct {
	*os.File
	size int64
}

func openBlock(path string) (device, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return blockDevice{f, size}, nil
}

func (b blockDevice) Size() int64 { return b.size }

func (b blockDevice) Flush() error { return b.Sync() }

func (b blockDevice) Zero(off, n int64) error {
	zeroes := aligned(int(min(n, chunk)))
	for n > 0 {
		m := min(n, int64(len(zeroes)))
		if _, err := b.WriteAt(zeroes[:m], off); err != nil {
			return err
		}
		off, n = off+m, n-m
	}
	return nil
}
