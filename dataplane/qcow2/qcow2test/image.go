// Package qcow2test writes images of the format qcow2 for tests, by its specification.
package qcow2test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// Image is the form of an image.
type Image struct {
	// Bits is the logarithm of the cluster size in bytes, Version 2 or 3.
	Bits    uint
	Version uint32
	// Compression of packed clusters: 0 deflate, 1 zstd. Extended: clusters are cut into 32.
	Compression byte
	Extended    bool
	// Size is that of the disk in bytes.
	Size int64
}

// Stored is how a cluster is stored.
type Stored byte

// Ways to store a cluster.
const (
	Hole Stored = iota
	Zero
	Plain
	Packed
)

// Bits of entries, and features.
const (
	isCompressed       = 1 << 62
	isZero             = 1
	featureCompression = 1 << 3
	featureExtendedL2  = 1 << 4
	compressionZstd    = 1
	sector             = 512
)

func (b Image) entrySize() int64 {
	if b.Extended {
		return 16
	}
	return 8
}

// Build writes an image, cluster after cluster: the content, cluster n in the form that how says.
func (b Image) Build(t testing.TB, content []byte, how func(cluster int) Stored) []byte {
	t.Helper()
	cluster := int64(1) << b.Bits
	span := cluster / b.entrySize() * cluster
	tables := (b.Size-1)/span + 1
	l1 := (8*tables-1)/cluster + 1
	file := make([]byte, (1+l1+tables)*cluster)
	be := binary.BigEndian
	copy(file, "QFI\xfb")
	be.PutUint32(file[4:], b.Version)
	be.PutUint32(file[20:], uint32(b.Bits))
	be.PutUint64(file[24:], uint64(b.Size))
	be.PutUint32(file[36:], uint32(tables))
	be.PutUint64(file[40:], uint64(cluster))
	if b.Version == 3 {
		var features uint64
		if b.Compression > 0 {
			features |= featureCompression
		}
		if b.Extended {
			features |= featureExtendedL2
		}
		be.PutUint64(file[72:], features)
		be.PutUint32(file[96:], 4)
		be.PutUint32(file[100:], 112)
		file[104] = b.Compression
	}
	for n := range tables {
		at := (1 + l1 + n) * cluster
		be.PutUint64(file[cluster+8*n:], uint64(at)|1<<63)
	}
	for n := int64(0); n*cluster < b.Size; n++ {
		entry := (1+l1)*cluster + n*b.entrySize()
		data := make([]byte, cluster)
		copy(data, content[n*cluster:])
		switch how(int(n)) {
		case Hole:
		case Zero:
			if b.Extended {
				be.PutUint64(file[entry+8:], 0xffffffff<<32)
			} else {
				be.PutUint64(file[entry:], isZero)
			}
		case Plain:
			at := (int64(len(file))-1)/cluster*cluster + cluster
			file = append(file, make([]byte, at-int64(len(file)))...)
			file = append(file, data...)
			be.PutUint64(file[entry:], uint64(at)|1<<63)
			if b.Extended {
				be.PutUint64(file[entry+8:], 0xffffffff)
			}
		case Packed:
			packed := b.pack(t, data)
			at := int64(len(file))
			file = append(file, packed...)
			sectors := (at+int64(len(packed))-1)/sector - at/sector
			be.PutUint64(file[entry:], isCompressed|uint64(sectors)<<(62-(b.Bits-8))|uint64(at))
		}
	}
	return file
}

func (b Image) pack(t testing.TB, data []byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	var w io.WriteCloser
	var err error
	if b.Compression == compressionZstd {
		w, err = zstd.NewWriter(&packed)
	} else {
		w, err = flate.NewWriter(&packed, 6)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(data)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}
