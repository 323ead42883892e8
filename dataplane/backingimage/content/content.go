// Package content tells what the bytes of an image are, by their beginning and not by a name:
// packed as gzip, xz or zstd, in which case they are unpacked as a stream; and then a qcow2 file,
// or a raw disk, which is everything else.
//
// What cannot become a disk is refused before it is stored: a qcow2 file that is only a part of a
// disk, and a raw one that is no whole number of sectors. Memory is bounded whatever a stream asks
// for.
package content

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"

	"ankole.storage/dataplane/qcow2"
)

// ErrRefused: the content can be no backing image. The message says why, and what to do.
var ErrRefused = errors.New("refused")

// MaxWindow bounds what an unpacker remembers of a stream, in bytes: what xz -9 and zstd -19 ask
// for.
const MaxWindow = 64 << 20

// sector is the unit of a disk's size.
const sector = 512

// Format of a stored image.
type Format string

// Formats.
const (
	Raw   Format = "raw"
	QCOW2 Format = "qcow2"
)

// Info is what a file's beginning says of it.
type Info struct {
	Format Format
	// VirtualSize is that of the disk in bytes. A raw file does not say it: 0.
	VirtualSize int64
}

// DiskSize is the size in bytes of the disk that a file of that size holds. A file that holds none
// is ErrRefused.
func (i Info) DiskSize(fileSize int64) (int64, error) {
	switch {
	case fileSize == 0:
		return 0, fmt.Errorf("%w: the image is empty", ErrRefused)
	case i.Format == QCOW2:
		return i.VirtualSize, nil
	case fileSize%sector != 0:
		return 0, fmt.Errorf("%w: the image has %d bytes, which is no multiple of %d: it is cut, or no raw disk", ErrRefused,
			fileSize, sector)
	}
	return fileSize, nil
}

// Reader is the unpacked content.
type Reader struct {
	Info
	// Packing is "gzip", "xz", "zstd", or "" for content that was not packed.
	Packing string

	source *noted
	r      *bufio.Reader
	finish func()
}

// HeadSize is how many bytes of a file Describe looks at, at most.
const HeadSize = qcow2.HeadSize

// Describe tells what a file is that begins so; at least HeadSize bytes of it, or all that there
// are. A qcow2 file that is no disk by itself is ErrRefused.
func Describe(head []byte) (Info, error) {
	if !qcow2.IsImage(head) {
		return Info{Format: Raw}, nil
	}
	h, err := qcow2.ParseHeader(head)
	if err != nil {
		return Info{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return Info{Format: QCOW2, VirtualSize: h.Size}, nil
}

// packings by the first bytes of their streams.
var packings = []struct {
	name, magic string
	open        func(io.Reader) (io.Reader, func(), error)
}{
	{"gzip", "\x1f\x8b\x08", openGzip},
	{"xz", "\xfd7zXZ\x00", openXZ},
	{"zstd", "\x28\xb5\x2f\xfd", openZstd},
}

func openGzip(r io.Reader) (io.Reader, func(), error) {
	z, err := gzip.NewReader(r)
	return z, func() {}, err
}

func openXZ(r io.Reader) (io.Reader, func(), error) {
	z, err := xz.NewReader(r, MaxWindow)
	return z, func() {}, err
}

func openZstd(r io.Reader) (io.Reader, func(), error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(MaxWindow))
	if err != nil {
		return nil, nil, err
	}
	return z, z.Close, nil
}

// Open looks at the beginning of a stream. What it returns must be closed. Errors of r are returned
// as they are.
func Open(r io.Reader) (*Reader, error) {
	c := &Reader{source: &noted{r: r}, finish: func() {}}
	packed := bufio.NewReaderSize(c.source, 64<<10)
	c.r = packed
	head, err := peek(packed)
	if err != nil {
		return nil, err
	}
	for _, p := range packings {
		if !bytes.HasPrefix(head, []byte(p.magic)) {
			continue
		}
		c.Packing = p.name
		unpacked, finish, err := p.open(packed)
		if err != nil {
			return nil, c.explain(err)
		}
		c.finish, c.r = finish, bufio.NewReaderSize(unpacked, 64<<10)
		if head, err = peek(c.r); err != nil {
			finish()
			return nil, c.explain(err)
		}
		break
	}
	if c.Info, err = Describe(head); err != nil {
		c.finish()
		return nil, err
	}
	return c, nil
}

// peek returns the first bytes of a stream, fewer if it is shorter.
func peek(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(HeadSize)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return head, err
}

// Read returns unpacked bytes.
func (c *Reader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err != nil && err != io.EOF && c.Packing != "" {
		err = c.explain(err)
	}
	return n, err
}

// Close releases the memory of the unpacking.
func (c *Reader) Close() { c.finish() }

// explain tells a stream that cannot be unpacked from a source that has failed.
func (c *Reader) explain(err error) error {
	switch {
	case c.source.err != nil:
		return c.source.err
	case errors.Is(err, xz.ErrMemlimit), errors.Is(err, zstd.ErrWindowSizeExceeded),
		errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("%w: unpacking this %s stream takes more than %d MiB of memory: pack the image with a lower level, "+
			"or give it unpacked", ErrRefused, c.Packing, MaxWindow>>20)
	}
	return fmt.Errorf("%w: the %s stream is damaged or cut: %w", ErrRefused, c.Packing, err)
}

// noted remembers why a source has failed: an unpacker may say something else.
type noted struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (n *noted) Read(p []byte) (int, error) {
	k, err := n.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return k, err
}
