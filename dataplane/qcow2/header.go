package content

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

const qcow2Magic = "QFI\xfb"

// The header of a qcow2 file, big endian, as its specification has it (docs/interop/qcow2.rst of
// QEMU).
const (
	offVersion      = 4
	offBackingName  = 8
	offClusterBits  = 20
	offSize         = 24
	offCrypt        = 32
	offIncompatible = 72
	offHeaderLength = 100
	version2Length  = 72
	version3Length  = 104

	minClusterBits = 9
	maxClusterBits = 21
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

// Describe tells what a file is that begins so; at least HeadSize bytes of it, or all that there
// are. A qcow2 file that is no disk by itself is ErrRefused.
func Describe(head []byte) (Info, error) {
	if !bytes.HasPrefix(head, []byte(qcow2Magic)) {
		return Info{Format: Raw}, nil
	}
	refuse := func(format string, a ...any) (Info, error) {
		return Info{}, fmt.Errorf("%w: qcow2 image: "+format, append([]any{ErrRefused}, a...)...)
	}
	if len(head) < version2Length {
		return refuse("the file ends within its header")
	}
	be := binary.BigEndian
	version, size := be.Uint32(head[offVersion:]), be.Uint64(head[offSize:])
	switch {
	case version != 2 && version != 3:
		return refuse("its version is %d; 2 and 3 are known: convert it with qemu-img convert -O qcow2", version)
	case version == 3 && (len(head) < version3Length || be.Uint32(head[offHeaderLength:]) < version3Length):
		return refuse("the file ends within its header")
	case be.Uint64(head[offBackingName:]) != 0:
		return refuse("it names another file as its base, which would be missing: merge the two with qemu-img convert -O qcow2")
	case be.Uint32(head[offCrypt:]) != 0:
		return refuse("it is encrypted: decrypt it with qemu-img convert")
	case be.Uint32(head[offClusterBits:]) < minClusterBits || be.Uint32(head[offClusterBits:]) > maxClusterBits:
		return refuse("its clusters have 2^%d bytes; 2^%d to 2^%d are valid", be.Uint32(head[offClusterBits:]),
			minClusterBits,
			maxClusterBits)
	case size == 0 || size > math.MaxInt64-sector || size%sector != 0:
		return refuse("its disk has %d bytes: a multiple of %d is valid", size, sector)
	}
	if version == 3 {
		switch features := be.Uint64(head[offIncompatible:]); {
		case features&featureExternalFile != 0:
			return refuse("its data is in another file, which would be missing: merge the two with qemu-img convert -O qcow2")
		case features&featureCorrupt != 0:
			return refuse("it is marked as corrupt: repair it with qemu-img check -r all")
		case features&^featuresKnown != 0:
			return refuse("it has features that are unknown here (%#x): convert it with qemu-img convert -O qcow2",
				features&^featuresKnown)
		}
	}
	return Info{Format: QCOW2, VirtualSize: int64(size)}, nil
}
