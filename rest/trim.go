package rest

import (
	"fmt"
	"time"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resource"
)

// trimLimit bounds the time of a trim, which lasts as long as the file system works on it.
const trimLimit = 24 * time.Hour

// timeLimits are those of operations that do not answer at once.
var timeLimits = map[string]time.Duration{resource.ActionTrimFilesystem + " /v1/volumes/{name}": trimLimit,
	resource.ActionUpload + " /v1/backingimages/{name}": imageLimit}

// timeLimit is the time that an operation has.
func timeLimit(operation string) time.Duration {
	if d, ok := timeLimits[operation]; ok {
		return d
	}
	return requestTimeout
}

// trimFilesystem has the file system that is mounted from a volume discard what it does not use. It
// answers when that is done.
var trimFilesystem = withSnapshots("trim the file system", func(p *snapshotted) (any, error) {
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
	return p.q.volume(p.volume.Name)
})
