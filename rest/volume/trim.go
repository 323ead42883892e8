package volume

import (
	"fmt"
	"time"

	lh "ankole.storage/api/longhorn/v1beta2"
)

// trimLimit bounds the time of a trim, which lasts as long as the file system works on it.
const trimLimit = 24 * time.Hour

// trimFilesystem has the file system that is mounted from a volume discard what it does not use. It
// answers when that is done.
func trimFilesystem(p *snapshotted) (any, error) {
	switch v := p.volume; {
	case v.Status.State != lh.VolumeStateAttached:
		return nil, fmt.Errorf("volume %s is not attached", v.Name)
	case v.Status.FrontendDisabled || v.Spec.Frontend != lh.VolumeFrontendBlockDev:
		return nil, fmt.Errorf("volume %s has no block device, so that no file system is mounted from it", v.Name)
	case v.Spec.MigrationNodeID != "":
		return nil, errMigrating
	}
	if _, err := p.calls.Trim(p.q.Context(), p.engine); err != nil {
		return nil, err
	}
	return show(p.q, p.volume.Name)
}
