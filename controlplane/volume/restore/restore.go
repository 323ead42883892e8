// Package restore says what the spec and status of a volume mean that is filled from a backup:
// whether it holds the content yet, and when a restore that has failed is tried again. The
// controllers of volumes and attachments read it; docs/design/backups.md has the states.
//
// All functions are pure.
package restore

import (
	"time"

	"ankole.storage/api/longhorn/v1beta2"
)

const (
	// shortest and longest bound the pause after a failed attempt.
	shortest = 30 * time.Second
	longest  = time.Hour
)

// Needed says whether a volume is to be filled from a backup and does not hold the whole content
// yet: nobody but the restore may use it. A standby volume is not filled by this version.
func Needed(v *v1beta2.Volume) bool {
	return v.Spec.FromBackup != "" && !v.Spec.Standby && (!v.Status.RestoreInitiated || v.Status.RestoreRequired)
}

// TakesJobs says whether the recurring jobs that a backup has are still to be given to a volume
// that is made of it. all is setting restore-volume-recurring-jobs.
func TakesJobs(v *v1beta2.Volume, all bool) bool {
	return Needed(v) && !v.Status.RestoreInitiated && v.Spec.RestoreVolumeRecurringJob.Or(all)
}

// Failed says whether the last attempt has failed, and when the next one is due: after as long as
// the volume was there when it failed, so that the pauses double.
func Failed(v *v1beta2.Volume) (failed bool, next time.Time) {
	c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionRestore)
	if c.Status != v1beta2.ConditionFalse || c.Reason != v1beta2.VolumeReasonRestoreFailure {
		return false, time.Time{}
	}
	at, err := time.Parse(time.RFC3339, c.LastTransitionTime)
	if err != nil {
		return true, time.Time{}
	}
	return true, at.Add(min(max(at.Sub(v.CreationTimestamp.Time), shortest), longest))
}
