package dataloss

import "ankole.storage/api/longhorn/v1beta2"

// DamageAnnotation of a Volume is a person's decision about the backup that it is restored from,
// where the store does not have all of that any more. Its value is DamageAccepted: what the store
// does not have becomes zero, in this restore; or, when that is done, DamageAcknowledged: the
// person knows what is zero. A standby volume that is being activated does without the newest
// backup instead. The controller takes it away when it is over.
const DamageAnnotation = "ankole.storage/accept-backup-damage"

// Values of DamageAnnotation.
const (
	DamageAccepted     = "accepted"
	DamageAcknowledged = "acknowledged"
)

// AcceptsDamage says whether the restore that fills a volume may leave out what the store does not
// have. That of a standby volume may not: later backups are restored by what differs, and would not
// bring it.
func AcceptsDamage(v *v1beta2.Volume) bool {
	return v.Annotations[DamageAnnotation] == DamageAccepted && v.Spec.FromBackup != "" && !v.Spec.Standby &&
		!v.Status.IsStandby
}

// AcceptsOlder says whether a standby volume that is being activated may do without the newest
// backup where that cannot be restored.
func AcceptsOlder(v *v1beta2.Volume) bool {
	return v.Annotations[DamageAnnotation] == DamageAccepted && v.Status.IsStandby && !v.Spec.Standby
}
