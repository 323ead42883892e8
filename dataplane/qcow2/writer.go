package qcow2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
	"unsafe"
)

const (
	// writtenBits is the least for clusters of images that are written here.
	writtenBits = 16
	// maxWrittenTables bounds the memory for their tables, in bytes: clusters grow with the disk.
	maxWrittenTables = 16 << 20
	// maxWritten is the largest disk that is written, in bytes.
	maxWritten = maxWrittenTables / 8 << maxClusterBits
	// ahead is how many bytes a file is made larger at a time.
	ahead = 64 << 20
	// refcountOrder is the logarithm of how many bits a reference count has.
	refcountOrder = 4
	refcountBytes = 1 << refcountOrder / 8
	// isCopied marks clusters that only one entry names.
	isCopied = 1 << 63
	// alignment is that of memory and ranges, for direct I/O.
	alignment = 4096

	offRefcounts        = 48
	offRefcountClusters = 56
	offRefcountOrder    = 96
)

// Target is the new file that an image is written to. Ranges and memory are multiples of 4096
// bytes; what is not written reads as zeroes.
type Target interface {
	Resize(size int64) error
	WriteAt(p []byte, off int64) error
}

// Writer makes an image, version 3, of a disk. Resize comes first, then each range once, in any
// order, by WriteAt or Punch, and Finish last. Clusters of zeroes are left out, the others lie in
// the order in which they have come: the same content in the same order makes the same file.
type Writer struct {
	f    Target
	size int64
	bits uint

	// mu is held to read while something is written, and to write while the file grows.
	mu sync.RWMutex
	// tables are those of the second level; nil: nothing is stored.
	tables [][]uint64
	// next is the first cluster of the file that is free, room the number of clusters that it has.
	next, room int64
}

// NewWriter returns the writer of an image.
func NewWriter(f Target) *Writer { return &Writer{f: f} }

func (w *Writer) cluster() int64 { return 1 << w.bits }

// perTable is how many clusters a table of the second level names.
func (w *Writer) perTable() int64 { return w.cluster() / 8 }

// Resize sets the size of the disk.
func (w *Writer) Resize(size int64) error {
	if size <= 0 || size%sector != 0 || size > maxWritten {
		return fmt.Errorf("%w: a disk of %d bytes is not written: a multiple of %d up to %d is valid; export it as raw",
			ErrRefused, size, sector, int64(maxWritten))
	}
	w.size, w.bits = size, writtenBits
	for size>>w.bits > maxWrittenTables/8 || size>>w.bits == maxWrittenTables/8 && size&(w.cluster()-1) != 0 {
		w.bits++
	}
	w.tables = make([][]uint64, (size-1)/(w.perTable()*w.cluster())+1)
	w.next = 1 // the header
	return w.grow()
}

// grow makes room in the file. The caller holds the lock, or is alone.
func (w *Writer) grow() error {
	if w.next <= w.room {
		return nil
	}
	w.room = w.next + ahead>>w.bits
	return w.f.Resize(w.room << w.bits)
}

func (w *Writer) within(off, n int64) error {
	if off < 0 || n < 0 || off > w.size || n > w.size-off {
		return fmt.Errorf("%w: %d bytes at %d of a disk of %d", ErrRefused, n, off, w.size)
	}
	return nil
}

// Punch notes a range of zeroes, which nothing is stored of.
func (w *Writer) Punch(off, n int64) error { return w.within(off, n) }

// run is a part of what is written, [from, to), and where it goes.
type run struct {
	from, to int64
	at       int64
}

// WriteAt stores a range; it may be called for different ranges side by side.
func (w *Writer) WriteAt(p []byte, off int64) error {
	if err := w.within(off, int64(len(p))); err != nil {
		return err
	}
	runs, err := w.place(p, off)
	if err != nil {
		return err
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, r := range runs {
		if err := w.f.WriteAt(p[r.from:r.to], r.at); err != nil {
			return err
		}
	}
	return nil
}

// place finds where a range goes, but for clusters in which all of it is zero.
func (w *Writer) place(p []byte, off int64) (runs []run, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for from := int64(0); from < int64(len(p)); {
		to := min(from+w.cluster()-(off+from)&(w.cluster()-1), int64(len(p)))
		if !isZeroes(p[from:to]) {
			at := w.at(off + from)
			if n := len(runs); n > 0 && runs[n-1].to == from && runs[n-1].at+from-runs[n-1].from == at {
				runs[n-1].to = to
			} else {
				runs = append(runs, run{from, to, at})
			}
		}
		from = to
	}
	return runs, w.grow()
}

// at is the place in the file of a place on the disk, whose cluster is stored from now on.
func (w *Writer) at(off int64) int64 {
	n := off >> w.bits
	table := &w.tables[n/w.perTable()]
	if *table == nil {
		*table = make([]uint64, w.perTable())
	}
	entry := &(*table)[n%w.perTable()]
	if *entry == 0 {
		*entry = uint64(w.next<<w.bits) | isCopied
		w.next++
	}
	return int64(*entry&offsetMask) + off&(w.cluster()-1)
}

var zeroBlock [alignment]byte

func isZeroes(p []byte) bool {
	for len(p) > len(zeroBlock) {
		if !bytes.Equal(p[:len(zeroBlock)], zeroBlock[:]) {
			return false
		}
		p = p[len(zeroBlock):]
	}
	return bytes.Equal(p, zeroBlock[:len(p)])
}

// Finish writes the tables and the header. Nothing is written any more beside it, or after it.
func (w *Writer) Finish() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	buffer := aligned(int(w.cluster()))
	first := make([]uint64, len(w.tables))
	stored := int64(0)
	for n, table := range w.tables {
		if table != nil {
			first[n] = uint64((w.next+stored)<<w.bits) | isCopied
			stored++
		}
	}
	l1 := w.next + stored
	refcounts := l1 + int64(len(first)*8-1)>>w.bits + 1
	tables, blocks := w.refcounts(refcounts)
	total := refcounts + tables + blocks
	if err := w.f.Resize(total << w.bits); err != nil {
		return err
	}
	at := w.next
	put := func(entries []uint64) (err error) {
		for begin := 0; begin < len(entries) && err == nil; begin += int(w.perTable()) {
			clear(buffer)
			for i, e := range entries[begin:min(begin+int(w.perTable()), len(entries))] {
				binary.BigEndian.PutUint64(buffer[8*i:], e)
			}
			err = w.f.WriteAt(buffer, at<<w.bits)
			at++
		}
		return err
	}
	for _, table := range w.tables {
		if err := put(table); err != nil {
			return err
		}
	}
	named := make([]uint64, blocks)
	for i := range named {
		named[i] = uint64((refcounts + tables + int64(i)) << w.bits)
	}
	if err := put(first); err != nil {
		return err
	}
	if err := put(named); err != nil {
		return err
	}
	if err := w.count(buffer, at, total); err != nil {
		return err
	}
	w.header(buffer, l1, refcounts, tables)
	return w.f.WriteAt(buffer, 0)
}

// refcounts is how many clusters the table of reference counts and its blocks take, in a file that
// has so many clusters before them.
func (w *Writer) refcounts(before int64) (tables, blocks int64) {
	per := w.cluster() / refcountBytes
	for {
		needed := (before+tables+blocks-1)/per + 1
		table := (needed*8-1)>>w.bits + 1
		if needed == blocks && table == tables {
			return tables, blocks
		}
		tables, blocks = table, needed
	}
}

// count writes the blocks of reference counts from a cluster on: each cluster has one.
func (w *Writer) count(buffer []byte, at, total int64) error {
	per := w.cluster() / refcountBytes
	for counted := int64(0); counted < total; counted += per {
		clear(buffer)
		for i := range min(per, total-counted) {
			binary.BigEndian.PutUint16(buffer[i*refcountBytes:], 1)
		}
		if err := w.f.WriteAt(buffer, at<<w.bits); err != nil {
			return err
		}
		at++
	}
	return nil
}

func (w *Writer) header(p []byte, l1, refcounts, refcountTables int64) {
	clear(p)
	be := binary.BigEndian
	copy(p, Magic)
	be.PutUint32(p[offVersion:], 3)
	be.PutUint32(p[offClusterBits:], uint32(w.bits))
	be.PutUint64(p[offSize:], uint64(w.size))
	be.PutUint32(p[offL1Size:], uint32(len(w.tables)))
	be.PutUint64(p[offL1Table:], uint64(l1<<w.bits))
	be.PutUint64(p[offRefcounts:], uint64(refcounts<<w.bits))
	be.PutUint32(p[offRefcountClusters:], uint32(refcountTables))
	be.PutUint32(p[offRefcountOrder:], refcountOrder)
	be.PutUint32(p[offHeaderLength:], version3Length)
}

// aligned is memory for direct I/O.
func aligned(n int) []byte {
	p := make([]byte, n+alignment)
	at := int(-uintptr(unsafe.Pointer(&p[0])) % alignment)
	return p[at : at+n : at+n]
}
