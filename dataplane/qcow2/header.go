package qcow2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Magic is how a qcow2 file begins.
const Magic = "QFI\xfb"

// HeadSize is how much of a file its header takes at most, in bytes, as far as it is read here.
const HeadSize = 512

// ErrRefused: the file is no disk by itself, or has what is not known here.
var ErrRefused = errors.New("qcow2 image")

// The header of a qcow2 file, big endian, as its specification has it (docs/interop/qcow2.rst of
// QEMU).
const (
	offVersion      = 4
	offBackingName  = 8
	offClusterBits  = 20
	offSize         = 24
	offCrypt        = 32
	offL1Size       = 36
	offL1Table      = 40
	offIncompatible = 72
	offHeaderLength = 100
	offCompression  = 104
	version2Length  = 72
	version3Length  = 104

	minClusterBits = 9
	maxClusterBits = 21
	// minExtendedBits is the least for clusters that are cut into 32.
	minExtendedBits = 14

	sector = 512
)

// Incompatible features. Those that have no name here change the file in ways that nobody knows.
const (
	featureDirty        = 1 << 0 // reference counts are stale; nothing that a reader needs
	featureCorrupt      = 1 << 1
	featureExternalFile = 1 << 2
	featureCompression  = 1 << 3
	featureExtendedL2   = 1 << 4
	featuresKnown       = featureDirty | featureCompression | featureExtendedL2
)

// Compression of single clusters.
const (
	compressionDeflate = 0
	compressionZstd    = 1
)

// Header is what the beginning of a file says.
type Header struct {
	// Size is that of the disk in bytes, a multiple of 512.
	Size int64

	clusterBits uint
	// l1Entries is how many entries the table at l1Offset has.
	l1Entries   uint32
	l1Offset    uint64
	extended    bool
	compression byte
}

// IsImage tells whether a file that begins so is a qcow2 file.
func IsImage(head []byte) bool { return bytes.HasPrefix(head, []byte(Magic)) }

// ParseHeader reads the beginning of a qcow2 file: at least HeadSize bytes of it, or all that there
// are. ErrRefused says what is wrong, and what to do.
func ParseHeader(head []byte) (Header, error) {
	refuse := func(format string, a ...any) (Header, error) {
		return Header{}, fmt.Errorf("%w: "+format, append([]any{ErrRefused}, a...)...)
	}
	if len(head) < version2Length {
		return refuse("the file ends within its header")
	}
	be := binary.BigEndian
	version, size, bits := be.Uint32(head[offVersion:]), be.Uint64(head[offSize:]), be.Uint32(head[offClusterBits:])
	switch {
	case version != 2 && version != 3:
		return refuse("its version is %d; 2 and 3 are known: convert it with qemu-img convert -O qcow2", version)
	case version == 3 && (len(head) < version3Length || be.Uint32(head[offHeaderLength:]) < version3Length):
		return refuse("the file ends within its header")
	case be.Uint64(head[offBackingName:]) != 0:
		return refuse("it names another file as its base, which would be missing: merge the two with qemu-img convert -O qcow2")
	case be.Uint32(head[offCrypt:]) != 0:
		return refuse("it is encrypted: decrypt it with qemu-img convert")
	case bits < minClusterBits || bits > maxClusterBits:
		return refuse("its clusters have 2^%d bytes; 2^%d to 2^%d are valid", bits, minClusterBits, maxClusterBits)
	case size == 0 || size > math.MaxInt64-sector || size%sector != 0:
		return refuse("its disk has %d bytes: a multiple of %d is valid", size, sector)
	}
	h := Header{Size: int64(size), clusterBits: uint(bits), l1Entries: be.Uint32(head[offL1Size:]),
		l1Offset: be.Uint64(head[offL1Table:])}
	if version == 2 {
		return h, nil
	}
	features := be.Uint64(head[offIncompatible:])
	if features&featureCompression != 0 && len(head) > offCompression {
		h.compression = head[offCompression]
	}
	h.extended = features&featureExtendedL2 != 0
	switch {
	case features&featureExternalFile != 0:
		return refuse("its data is in another file, which would be missing: merge the two with qemu-img convert -O qcow2")
	case features&featureCorrupt != 0:
		return refuse("it is marked as corrupt: repair it with qemu-img check -r all")
	case features&^featuresKnown != 0:
		return refuse("it has features that are unknown here (%#x): convert it with qemu-img convert -O qcow2",
			features&^featuresKnown)
	case h.compression > compressionZstd:
		return refuse("its compression %d is unknown here: convert it with qemu-img convert -O qcow2", h.compression)
	case h.extended && bits < minExtendedBits:
		return refuse("its clusters have 2^%d bytes; 2^%d to 2^%d are valid with extended entries", bits, minExtendedBits,
			maxClusterBits)
	}
	return h, nil
}
