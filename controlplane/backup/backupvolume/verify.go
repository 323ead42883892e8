package backupvolume

import (
	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/backup/verification"
	"ankole.storage/controlplane/loop"
)

// kind is what the parts of verifications call backup volumes.
const kind = "BackupVolume"

// subject is what verifications see of a backup volume.
func subject(v *v1beta2.BackupVolume) *verification.Subject {
	volume := v.Spec.VolumeName
	return &verification.Subject{Kind: kind, Name: v.Name, UID: string(v.UID),
		URL:         func(at string) (string, error) { return store.BackupURL(at, volume, "") },
		Backups:     "of volume " + volume + " on backup target " + v.Spec.BackupTargetName,
		Mend:        "back the volume up again: what it still holds is written again",
		RequestedAt: v.Spec.VerifyRequestedAt, BandwidthLimit: v.Spec.VerifyBandwidthLimit,
		Known: !v.Status.LastSyncedAt.IsZero(), Status: &v.Status.Verification}
}

// verify has the store's part of the volume verified where that is asked for or due.
func (p *pass) verify() loop.Decision {
	if p.s.Target == nil || p.s.Target.Spec.BackupTargetURL == "" {
		return loop.Decision{}
	}
	next := verification.Decide(p.now, subject(p.v), p.s.Verification)
	d := loop.Decision{After: next.After, Events: next.Events}
	if next.Part {
		d.Do = loop.Call{What: "verify backup volume " + p.v.Name, Order: orderVerify}
	}
	return d
}
