package qcow2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

const (
	// maxTables bounds the memory for the tables of an image, in bytes: with clusters of 64 KiB those
	// of a disk of 512 GiB.
	maxTables = 64 << 20
	// keptBytes is how much unpacked content is kept for the next reads, at least one cluster.
	keptBytes = 1 << 20
	// maxWindow bounds the memory for unpacking a cluster, in bytes.
	maxWindow = 8 << 20
	// subclusters are the parts of a cluster with an extended entry.
	subclusters = 32
)

// Bits of the tables' entries.
const (
	offsetMask   = 0x00fffffffffffe00
	isCompressed = 1 << 62
	isZero       = 1 << 0
)

// ErrCorrupt: the file contradicts itself, or ends early.
var ErrCorrupt = errors.New("damaged qcow2 image")

// Image is an open image. Reads may run side by side.
type Image struct {
	Header
	f        io.ReaderAt
	fileSize int64
	// tables are those of the second level, as they are in the file; nil: nothing is stored.
	tables [][]byte

	mu sync.Mutex
	// kept are clusters that were unpacked, the last one first.
	kept []unpacked
}

type unpacked struct {
	entry uint64
	data  []byte
}

// Open reads the header and the tables of a file of that size.
func Open(f io.ReaderAt, fileSize int64) (*Image, error) {
	head := make([]byte, min(HeadSize, fileSize))
	if err := readFull(f, head, 0); err != nil {
		return nil, err
	}
	if !IsImage(head) {
		return nil, fmt.Errorf("%w: it does not begin as one", ErrRefused)
	}
	h, err := ParseHeader(head)
	if err != nil {
		return nil, err
	}
	i := &Image{Header: h, f: f, fileSize: fileSize}
	if err := i.readTables(); err != nil {
		return nil, err
	}
	return i, nil
}

func (h *Header) clusterSize() int64 { return 1 << h.clusterBits }

// entrySize is that of an entry of the second level.
func (h *Header) entrySize() int64 {
	if h.extended {
		return 16
	}
	return 8
}

// tableSpan is how many bytes of the disk a table of the second level describes.
func (h *Header) tableSpan() int64 { return h.clusterSize() / h.entrySize() * h.clusterSize() }

func (i *Image) readTables() error {
	entries := (i.Size-1)/i.tableSpan() + 1
	if entries > maxTables/8 {
		return fmt.Errorf("%w: the table of its tables has more than %d MiB: convert it with larger clusters, or to raw",
			ErrRefused, maxTables>>20)
	}
	if entries > int64(i.l1Entries) {
		return fmt.Errorf("%w: its table has %d entries, and %d are needed", ErrCorrupt, i.l1Entries, entries)
	}
	first := make([]byte, 8*entries)
	if err := i.within(i.l1Offset, len(first)); err != nil {
		return err
	}
	if err := readFull(i.f, first, int64(i.l1Offset)); err != nil {
		return err
	}
	i.tables = make([][]byte, entries)
	room := maxTables - len(first)
	for n := range i.tables {
		at := binary.BigEndian.Uint64(first[8*n:]) & offsetMask
		if at == 0 {
			continue
		}
		if room -= int(i.clusterSize()); room < 0 {
			return fmt.Errorf("%w: its tables have more than %d MiB: convert it with larger clusters, or to raw",
				ErrRefused, maxTables>>20)
		}
		if err := i.within(at, int(i.clusterSize())); err != nil {
			return err
		}
		i.tables[n] = make([]byte, i.clusterSize())
		if err := readFull(i.f, i.tables[n], int64(at)); err != nil {
			return err
		}
	}
	return nil
}

// within refuses a range that is not in the file.
func (i *Image) within(off uint64, n int) error {
	if off > uint64(i.fileSize) || uint64(n) > uint64(i.fileSize)-off {
		return fmt.Errorf("%w: %d bytes at %d are named, and the file has %d", ErrCorrupt, n, off, i.fileSize)
	}
	return nil
}

// readFull fills p; an early end is an error.
func readFull(f io.ReaderAt, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: the file ends at %d", ErrCorrupt, off+int64(n))
	}
	return err
}

// place is where a piece of the disk is.
type place struct {
	kind placeKind
	// at is the offset in the file of a plain piece.
	at int64
	// entry is that of a compressed cluster, from its start.
	entry uint64
	// n is how long the piece is from the offset that was asked for, in bytes.
	n int64
}

type placeKind uint8

const (
	zeroes placeKind = iota
	plain
	compressed
)

// locate finds the piece at an offset of the disk.
func (i *Image) locate(off int64) place {
	cluster := i.clusterSize()
	in := off % cluster
	table := i.tables[off/i.tableSpan()]
	if table == nil {
		return place{n: i.tableSpan() - off%i.tableSpan()}
	}
	at := off % i.tableSpan() / cluster * i.entrySize()
	entry := binary.BigEndian.Uint64(table[at:])
	switch {
	case entry&isCompressed != 0:
		return place{kind: compressed, entry: entry, n: cluster - in}
	case i.extended:
		part := cluster / subclusters
		p := place{n: part - off%part}
		if bitmap := binary.BigEndian.Uint64(table[at+8:]); bitmap>>(in/part)&1 != 0 {
			p.kind, p.at = plain, int64(entry&offsetMask)+in
		}
		return p
	case entry&isZero != 0 || entry&offsetMask == 0:
		return place{n: cluster - in}
	}
	return place{kind: plain, at: int64(entry&offsetMask) + in, n: cluster - in}
}

// ReadAt implements io.ReaderAt for the content of the disk.
func (i *Image) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("qcow2: offset %d is negative", off)
	}
	want := p
	if left := max(i.Size-off, 0); int64(len(p)) > left {
		want = p[:left]
	}
	for n < len(want) {
		k, err := i.readSome(want[n:], off+int64(n))
		if err != nil {
			return n, err
		}
		n += k
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readSome reads as much as lies together, at least a byte.
func (i *Image) readSome(p []byte, off int64) (int, error) {
	first := i.locate(off)
	n := min(first.n, int64(len(p)))
	for n < int64(len(p)) && first.kind != compressed {
		next := i.locate(off + n)
		if next.kind != first.kind || next.kind == plain && next.at != first.at+n {
			break
		}
		n = min(n+next.n, int64(len(p)))
	}
	p = p[:n]
	switch first.kind {
	case zeroes:
		clear(p)
	case plain:
		if err := i.within(uint64(first.at), len(p)); err != nil {
			return 0, err
		}
		return len(p), readFull(i.f, p, first.at)
	case compressed:
		data, err := i.unpack(first.entry)
		if err != nil {
			return 0, err
		}
		copy(p, data[off%i.clusterSize():])
	}
	return len(p), nil
}

// unpack returns the content of a compressed cluster. Nobody changes it.
func (i *Image) unpack(entry uint64) ([]byte, error) {
	if data := i.find(entry); data != nil {
		return data, nil
	}
	// The entry has the offset in its low bits, and above them how many sectors follow the first one.
	bits := 62 - (i.clusterBits - 8)
	at := entry & (1<<bits - 1)
	length := int64((entry&(isCompressed-1))>>bits+1)*sector - int64(at%sector)
	if err := i.within(at, 1); err != nil {
		return nil, err
	}
	packed := make([]byte, min(length, i.fileSize-int64(at))) // the last one may end with the file
	if err := readFull(i.f, packed, int64(at)); err != nil {
		return nil, err
	}
	data := make([]byte, i.clusterSize())
	if err := i.inflate(data, packed); err != nil {
		return nil, fmt.Errorf("%w: the compressed cluster at %d: %w", ErrCorrupt, at, err)
	}
	i.keep(entry, data)
	return data, nil
}

func (i *Image) inflate(data, packed []byte) error {
	if i.compression == compressionDeflate {
		r := flate.NewReader(bytes.NewReader(packed))
		defer r.Close() // it was only read
		_, err := io.ReadFull(r, data)
		return err
	}
	r, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.ReadFull(r, data)
	return err
}

func (i *Image) find(entry uint64) []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	for n, u := range i.kept {
		if u.entry == entry {
			copy(i.kept[1:n+1], i.kept[:n])
			i.kept[0] = u
			return u.data
		}
	}
	return nil
}

func (i *Image) keep(entry uint64, data []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if most := max(1, int(keptBytes/i.clusterSize())); len(i.kept) < most {
		i.kept = append(i.kept, unpacked{})
	}
	copy(i.kept[1:], i.kept)
	i.kept[0] = unpacked{entry, data}
}
