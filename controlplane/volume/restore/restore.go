// Package restore says what the spec and status of a volume mean that is filled from a backup:
// whether it holds the content yet, which backup a standby volume is to hold next, and when a
// restore that has failed is tried again. The controllers of volumes and attachments read it;
// docs/design/backups.md has the states.
//
// All functions are pure.
package restore

import (
	"cmp"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/volume/dataloss"
)

const (
	// shortest and longest bound the pause after a failed attempt.
	shortest = 30 * time.Second
	longest  = time.Hour
	// longestOfStandby bounds it for a standby volume, which may be years old when its store is away
	// for a moment.
	longestOfStandby = 5 * time.Minute
)

// Needed says whether a volume is filled from a backup and nobody but the restore may use it: until
// it holds the whole content, and a standby volume until it is activated.
func Needed(v *v1beta2.Volume) bool {
	return v.Spec.FromBackup != "" && (!v.Status.RestoreInitiated || v.Status.RestoreRequired)
}

// Filling says whether the volume is to take a backup now that it does not hold. Between two
// backups a standby volume rests: replicas can be added then.
func Filling(v *v1beta2.Volume) bool { return Needed(v) && !rests(v) }

func rests(v *v1beta2.Volume) bool {
	c := v1beta2.FindCondition(v.Status.Conditions, v1beta2.VolumeConditionRestore)
	return v.Status.IsStandby && c.Status == v1beta2.ConditionFalse && c.Reason != v1beta2.VolumeReasonRestoreFailure
}

// Activating says whether a standby volume is to become an ordinary one, when it holds the newest
// backup.
func Activating(v *v1beta2.Volume) bool { return v.Status.IsStandby && !v.Spec.Standby }

// Newest is the newest backup of a volume, and when it was made (RFC 3339).
type Newest struct{ Backup, At string }

// Seen is the newest backup that a standby volume knows of, after a look that has found now. What
// is older than what was seen before is there because that was deleted in the store: the volume
// keeps what it holds then, and takes the older one if it could not be filled. Where there is none
// left it is held then, the last one that the volume was filled from: it has its content still,
// unless the newer one was begun.
func Seen(before, now Newest, failed bool, held string) Newest {
	was, errWas := time.Parse(time.RFC3339, before.At)
	is, errIs := time.Parse(time.RFC3339, now.At)
	switch {
	case now.Backup == "" && failed && held != "" && held != before.Backup:
		return Newest{Backup: held}
	case now.Backup == "" || errWas == nil && errIs == nil && is.Before(was) && !failed:
		return before
	}
	return now
}

// Next is the backup that a volume is to hold: first the one that it is made from, or the newest
// one for a standby volume. running: the one that was requested is being restored; that ends first.
func Next(v *v1beta2.Volume, from, requested string, running bool) string {
	switch {
	case running || !v.Spec.Standby && !v.Status.IsStandby:
		return cmp.Or(requested, from)
	case v.Status.LastBackup != "":
		return v.Status.LastBackup
	}
	return cmp.Or(requested, from)
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
	most := longest
	switch {
	case dataloss.AcceptsDamage(v), dataloss.AcceptsOlder(v): // decided since, or a person waits
		most = shortest
	case v.Status.IsStandby:
		most = longestOfStandby
	}
	return true, at.Add(min(max(at.Sub(v.CreationTimestamp.Time), shortest), most))
}
