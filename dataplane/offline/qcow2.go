package offline

import (
	"context"
	"encoding/binary"
	"os"

	"ankole.storage/dataplane/chain"
)

// A qcow2 image, version 3, in clusters of 64 KiB: header, L1 table, L2 tables, reference counts,
// and then the data in the order of the volume. Which clusters hold data is known from the chain's
// extents before anything is written, so every table has its final place and content at once. All
// numbers are big-endian.
const (
	qcowMagic       = 0x514649fb
	qcowVersion     = 3
	qcowClusterBits = 16
	qcowCluster     = 1 << qcowClusterBits
	// qcowEntries is how many 8-byte entries a table's cluster holds, qcowCounts how many 2-byte
	// reference counts.
	qcowEntries = qcowCluster / 8
	qcowCounts  = qcowCluster / 2
	// qcowCopied marks an entry whose cluster has exactly one user.
	qcowCopied = 1 << 63
	// qcowHeader is the length of a version 3 header without compression.
	qcowHeader = 104
)

// qcowLayout is where everything lies, in clusters.
type qcowLayout struct {
	size int64
	// present has a bit per cluster of the volume that holds data.
	present []uint64
	// l2s are the indexes of the L2 tables that are needed, in order.
	l2s []int64
	// l1At, l2At, tableAt, countsAt and dataAt are first clusters; their lengths follow from one
	// another.
	l1Len, l1At, l2At, tableAt, tableLen, countsAt, countsLen, dataAt, total int64
}

func clustersOf(n, unit int64) int64 { return (n + unit - 1) / unit }

func layOut(c *chain.Chain) *qcowLayout {
	l := &qcowLayout{size: c.Size()}
	guest := clustersOf(l.size, qcowCluster)
	l.present = make([]uint64, clustersOf(guest, 64))
	data := int64(0)
	_ = eachData(c, func(off, n int64) error { // fn does not fail
		for i := off / qcowCluster; i <= (off+n-1)/qcowCluster; i++ {
			if !l.has(i) {
				l.present[i/64] |= 1 << (i % 64)
				data++
				if t := i / qcowEntries; len(l.l2s) == 0 || l.l2s[len(l.l2s)-1] != t {
					l.l2s = append(l.l2s, t)
				}
			}
		}
		return nil
	})
	l.l1At = 1
	l.l1Len = max(1, clustersOf(clustersOf(guest, qcowEntries), qcowEntries))
	l.l2At = l.l1At + l.l1Len
	l.tableAt = l.l2At + int64(len(l.l2s))
	// The reference counts count themselves too: grow until they suffice.
	for l.countsLen, l.tableLen = 1, 1; ; {
		l.total = l.tableAt + l.tableLen + l.countsLen + data
		counts := max(l.countsLen, clustersOf(l.total, qcowCounts))
		table := max(l.tableLen, clustersOf(counts, qcowEntries))
		if counts == l.countsLen && table == l.tableLen {
			break
		}
		l.countsLen, l.tableLen = counts, table
	}
	l.countsAt = l.tableAt + l.tableLen
	l.dataAt = l.countsAt + l.countsLen
	return l
}

func (l *qcowLayout) has(cluster int64) bool { return l.present[cluster/64]&(1<<(cluster%64)) != 0 }

// writeQCOW2 writes an image that qemu and everything built on it reads.
func writeQCOW2(ctx context.Context, f *os.File, c *chain.Chain, progress Progress) error {
	l := layOut(c)
	if err := f.Truncate(l.total * qcowCluster); err != nil {
		return err
	}
	if err := l.writeTables(f); err != nil {
		return err
	}
	// place is the file cluster of the volume's cluster next: pieces come in order, so it only ever
	// moves on.
	next, place := int64(0), l.dataAt
	return copyData(ctx, c, progress, func(p []byte, off int64) error {
		for len(p) > 0 {
			cluster := off / qcowCluster
			for ; next < cluster; next++ {
				if l.has(next) {
					place++
				}
			}
			in := off % qcowCluster
			n := min(int64(len(p)), qcowCluster-in)
			if err := writeSparse(f, p[:n], place*qcowCluster+in); err != nil {
				return err
			}
			p, off = p[n:], off+n
		}
		return nil
	})
}

func (l *qcowLayout) writeTables(f *os.File) error {
	if _, err := f.WriteAt(l.header(), 0); err != nil {
		return err
	}
	l1 := make([]byte, l.l1Len*qcowCluster)
	place := l.dataAt
	table := make([]byte, qcowCluster)
	for i, t := range l.l2s {
		at := l.l2At + int64(i)
		binary.BigEndian.PutUint64(l1[8*t:], uint64(at*qcowCluster)|qcowCopied)
		clear(table)
		for e := range int64(qcowEntries) {
			if cluster := t*qcowEntries + e; cluster < clustersOf(l.size, qcowCluster) && l.has(cluster) {
				binary.BigEndian.PutUint64(table[8*e:], uint64(place*qcowCluster)|qcowCopied)
				place++
			}
		}
		if _, err := f.WriteAt(table, at*qcowCluster); err != nil {
			return err
		}
	}
	if _, err := f.WriteAt(l1, l.l1At*qcowCluster); err != nil {
		return err
	}
	return l.writeCounts(f)
}

// writeCounts writes that every cluster of the file has one user.
func (l *qcowLayout) writeCounts(f *os.File) error {
	table := make([]byte, l.tableLen*qcowCluster)
	counts := make([]byte, qcowCluster)
	for i := range l.countsLen {
		binary.BigEndian.PutUint64(table[8*i:], uint64((l.countsAt+i)*qcowCluster))
		clear(counts)
		for k := range min(qcowCounts, max(0, l.total-i*qcowCounts)) {
			binary.BigEndian.PutUint16(counts[2*k:], 1)
		}
		if _, err := f.WriteAt(counts, (l.countsAt+i)*qcowCluster); err != nil {
			return err
		}
	}
	_, err := f.WriteAt(table, l.tableAt*qcowCluster)
	return err
}

func (l *qcowLayout) header() []byte {
	h := make([]byte, qcowHeader+8) // and the end of the list of extensions: a type and a length of zero
	put32 := func(at int, v int64) { binary.BigEndian.PutUint32(h[at:], uint32(v)) }
	put64 := func(at int, v int64) { binary.BigEndian.PutUint64(h[at:], uint64(v)) }
	put32(0, qcowMagic)
	put32(4, qcowVersion)
	put32(20, qcowClusterBits)
	put64(24, l.size)
	put32(36, clustersOf(clustersOf(l.size, qcowCluster), qcowEntries)) // entries in L1
	put64(40, l.l1At*qcowCluster)
	put64(48, l.tableAt*qcowCluster)
	put32(56, l.tableLen)
	put32(96, 4) // reference counts of 1<<4 bits
	put32(100, qcowHeader)
	return h
}
