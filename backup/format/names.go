// Package format is the layout of a backup store: names of objects, records, blocks.
//
// The layout is that of Longhorn's backup store, version 1 data, in both directions
// (docs/design/backup-store.md). The package turns bytes into values and back, and does no I/O.
package format

import (
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Errors, marked where they arise.
var (
	// ErrCorrupt: the bytes of an object are not what the layout says.
	ErrCorrupt = errors.New("damaged object in the backup store")
	// ErrName: not the name of a volume, backup or lock.
	ErrName = errors.New("names begin with a letter or digit and go on with letters, digits, '.', '_' and '-'")
)

// Base is the folder of everything in the store.
const Base = "backupstore/"

// volumes is the folder of all volumes, images that of the records of backing images.
const (
	volumes = Base + "volumes/"
	images  = Base + "backing-images/backing-images/"
)

// blocks is the folder of a pool, below that of the volume, or of all backing images.
const blocks = "blocks/"

// ImageLocks stands for a volume in the names of the locks of backing images. No volume has this
// name.
const ImageLocks = "BACKINGIMAGE"

var validName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]+$`)

// CheckName returns ErrName unless name may be that of a volume or a backup.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%q: %w", name, ErrName)
	}
	return nil
}

// Checksum is the first half of the SHA-512 of a block's content before compression.
type Checksum [32]byte

// Sum returns the checksum of a block.
func Sum(block []byte) Checksum {
	whole := sha512.Sum512(block)
	return Checksum(whole[:32])
}

// String is the checksum in 64 hex digits, as in names and records.
func (c Checksum) String() string { return hex.EncodeToString(c[:]) }

// ParseChecksum reads 64 lower-case hex digits, or returns ErrCorrupt.
func ParseChecksum(s string) (c Checksum, err error) {
	if n, err := hex.Decode(c[:], []byte(s[:min(len(s), 64)])); err != nil || n != 32 || c.String() != s {
		return c, fmt.Errorf("%q is no checksum: %w", s, ErrCorrupt)
	}
	return c, nil
}

// VolumesFolder is the folder of all volumes; two levels below it are folders of volumes.
func VolumesFolder() string { return volumes }

// VolumeFolder is the folder of a volume. The name must be valid.
func VolumeFolder(volume string) string {
	h := Sum([]byte(volume)).String()
	return volumes + h[:2] + "/" + h[2:4] + "/" + volume + "/"
}

// VolumeRecord is the object of a volume's record.
func VolumeRecord(volume string) string { return VolumeFolder(volume) + "volume.cfg" }

// BackupsFolder is the folder of the backup records of a volume.
func BackupsFolder(volume string) string { return VolumeFolder(volume) + "backups/" }

// BackupRecord is the object of a backup's record.
func BackupRecord(volume, backup string) string {
	return BackupsFolder(volume) + "backup_" + backup + ".cfg"
}

// BackupOf returns the backup whose record the object is; not ok if it is no backup record.
func BackupOf(object string) (backup string, ok bool) {
	return between(object, "backup_", ".cfg")
}

// Pool is the folder of blocks that backups share: those of a volume, or of all backing images.
type Pool string

// ImagePool has the blocks of all backing images.
const ImagePool Pool = Base + "backing-images/" + blocks

// PoolOf has the blocks of a volume.
func PoolOf(volume string) Pool { return Pool(VolumeFolder(volume) + blocks) }

// Object is the object of a block.
func (p Pool) Object(c Checksum) string {
	h := c.String()
	return string(p) + h[:2] + "/" + h[2:4] + "/" + h + ".blk"
}

// BlocksFolder is the folder of the blocks of a volume.
func BlocksFolder(volume string) string { return string(PoolOf(volume)) }

// BlockObject is the object of a block of a volume.
func BlockObject(volume string, c Checksum) string { return PoolOf(volume).Object(c) }

// BlockOf returns the checksum of the block that the object is; not ok if it is no block.
func BlockOf(object string) (c Checksum, ok bool) {
	h, ok := strings.CutSuffix(path.Base(object), ".blk")
	if !ok {
		return c, false
	}
	c, err := ParseChecksum(h)
	return c, err == nil
}

// Marks is the folder of the marks of blocks that are damaged or missing.
func (p Pool) Marks() string { return strings.TrimSuffix(string(p), blocks) + "damaged/" }

// Mark is the object that marks a block as damaged or missing. Its content says nothing.
func (p Pool) Mark(c Checksum) string { return p.Marks() + c.String() + ".mark" }

// MarkOf returns the checksum of the block that the object marks; not ok if it is no mark.
func MarkOf(object string) (c Checksum, ok bool) {
	h, ok := strings.CutSuffix(path.Base(object), ".mark")
	if !ok {
		return c, false
	}
	c, err := ParseChecksum(h)
	return c, err == nil
}

// ImagesFolder is the folder of the records of backing images; each has a folder of its own there.
func ImagesFolder() string { return images }

// ImageRecord is the object of the record of a backing image. The name must be valid.
func ImageRecord(image string) string { return images + image + "/backing-image.cfg" }

// ImageOf returns the backing image whose folder this is; not ok if it is no such folder.
func ImageOf(folder string) (image string, ok bool) {
	image, ok = strings.CutPrefix(folder, images)
	if ok {
		image, ok = strings.CutSuffix(image, "/")
	}
	return image, ok && CheckName(image) == nil
}

// LocksFolder is the folder of the locks of a volume.
func LocksFolder(volume string) string { return VolumeFolder(volume) + "locks/" }

// LockObject is the object of a lock, whose name is "lock-" and 16 hex digits.
func LockObject(volume, lock string) string { return LocksFolder(volume) + lock + ".lck" }

// LockOf returns the lock that the object is; not ok if it is none.
func LockOf(object string) (lock string, ok bool) {
	lock, ok = between(object, "lock-", ".lck")
	return "lock-" + lock, ok
}

// between returns the part of a name between a prefix and a suffix.
func between(object, prefix, suffix string) (string, bool) {
	name, ok := strings.CutPrefix(path.Base(object), prefix)
	if !ok {
		return "", false
	}
	name, ok = strings.CutSuffix(name, suffix)
	return name, ok && CheckName(name) == nil
}
