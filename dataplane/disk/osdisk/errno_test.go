package osdisk

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"

	"ankole.storage/dataplane/disk"
)

// What a disk says of a bad sector is disk.ErrIO, whichever driver it has and whether the page
// cache was between: who reads a directory with damage goes by that.
func TestBadSectorsAreErrIO(t *testing.T) {
	kinds := []error{disk.ErrNotFound, disk.ErrExists, disk.ErrNoSpace, disk.ErrInUse, disk.ErrUnsupported, disk.ErrIO}
	for errno, want := range map[unix.Errno]error{
		unix.EIO:       disk.ErrIO, // the page cache; device mapper, loop devices
		unix.ENODATA:   disk.ErrIO, // direct I/O: the medium (NVMe, SCSI)
		unix.EILSEQ:    disk.ErrIO, // its protection information does not match
		unix.EREMOTEIO: disk.ErrIO, // the target gives up
		unix.EBADMSG:   disk.ErrIO, // XFS and ext4: a checksum of theirs does not match
		unix.EUCLEAN:   disk.ErrIO, // a structure of theirs is damaged
		unix.ENOSPC:    disk.ErrNoSpace,
		unix.EDQUOT:    disk.ErrNoSpace,
		unix.ENOENT:    disk.ErrNotFound,
		unix.ETIMEDOUT: nil, // the way to the disk, not the sector
		unix.EMFILE:    nil,
		unix.EROFS:     nil,
	} {
		err := wrap("read", "/d/ankole.member", &fs.PathError{Op: "read", Path: "/real", Err: errno})
		for _, kind := range kinds {
			if is := errors.Is(err, kind); is != (kind == want) {
				t.Errorf("%v (%d) is %v: %v", errno, int(errno), kind, is)
			}
		}
		if !errors.Is(err, errno) {
			t.Error(fmt.Errorf("%v is lost: %w", errno, err))
		}
	}
}
