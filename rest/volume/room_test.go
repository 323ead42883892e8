package volume

import (
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
)

func TestDiskLimit(t *testing.T) {
	for _, c := range []struct {
		disk lh.DiskStatus
		want int64
	}{
		{lh.DiskStatus{}, 1<<63 - 1},
		{lh.DiskStatus{StorageMaximum: 1 << 30}, 1000 << 30},
		{lh.DiskStatus{StorageMaximum: 1 << 40, FilesystemType: "ext2/ext3"}, 16<<40 - 1},
		{lh.DiskStatus{StorageMaximum: 1 << 40, FilesystemType: "xfs"}, 1000 << 40},
		{lh.DiskStatus{StorageMaximum: 1 << 62, FilesystemType: "xfs"}, 1<<63 - 1},
	} {
		if got := diskLimit(c.disk); got != c.want {
			t.Errorf("%+v: %d, want %d", c.disk, got, c.want)
		}
	}
}
