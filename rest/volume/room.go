package volume

import (
	"context"
	"fmt"
	"math"
	"strings"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/serve"
)

const (
	// extFileLimit is the largest file of an ext4 file system with 4 KiB blocks, and so the largest
	// replica.
	extFileLimit = 16 << 40
	// maxThinness is how much larger than a disk a volume may be at all. Volumes are thin and disks
	// grow, so a volume that has no room now is created and waits for it; a thousand times the
	// largest disk is a typing error.
	maxThinness = 1000
)

// checkRoom refuses a volume that no disk of the cluster could ever hold. One that merely has no
// room now is accepted: its condition Scheduled says so, and it is placed when there is room. A
// cluster without disks is not judged.
func checkRoom(ctx context.Context, o *serve.Objects, sizeBytes int64) error {
	var nodes lh.NodeList
	if err := o.List(ctx, &nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	most, where := int64(-1), ""
	for _, n := range nodes.Items {
		for name := range n.Spec.Disks {
			d := n.Status.DiskStatus[name]
			if limit := diskLimit(d); limit > most {
				most, where = limit, fmt.Sprintf("disk %s of node %s with %d bytes", name, n.Name, d.StorageMaximum)
			}
		}
	}
	if most >= 0 && sizeBytes > most {
		return fmt.Errorf(
			"a volume of %d bytes can never be placed: the largest that any disk could hold is %d bytes (%s)",
			sizeBytes, most, where)
	}
	return nil
}

// diskLimit is the largest volume that could ever be put on a disk.
func diskLimit(d lh.DiskStatus) int64 {
	if d.StorageMaximum <= 0 {
		return math.MaxInt64 // Not measured yet.
	}
	limit := int64(math.MaxInt64)
	if d.StorageMaximum < math.MaxInt64/maxThinness {
		limit = d.StorageMaximum * maxThinness
	}
	if strings.HasPrefix(d.FilesystemType, "ext") {
		limit = min(limit, extFileLimit-1)
	}
	return limit
}
