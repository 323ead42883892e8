package backupimage

import (
	"cmp"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/backup/verification"
	"ankole.storage/controlplane/loop"
)

// kind is what the parts of verifications call backups of backing images.
const kind = "BackupBackingImage"

// subject is what verifications see of a backup.
func subject(b *v1beta2.BackupBackingImage) *verification.Subject {
	image := b.Spec.BackingImage
	return &verification.Subject{Kind: kind, Name: b.Name, UID: string(b.UID),
		URL:         func(at string) (string, error) { return store.ImageURL(at, image) },
		Backups:     "of backing image " + image + " on backup target " + b.Spec.BackupTargetName,
		Mend:        "a disk that has the image ready writes them again",
		RequestedAt: b.Spec.VerifyRequestedAt, BandwidthLimit: b.Spec.VerifyBandwidthLimit, Known: true,
		Status: &b.Status.Verification}
}

// verify has a complete backup verified where that is asked for or due, beside what is decided
// already.
func (p *pass) verify(d loop.Decision) loop.Decision {
	if p.s.Target == nil || p.s.Target.Spec.BackupTargetURL == "" {
		return d
	}
	next := verification.Decide(p.now, subject(p.b), p.s.Verification)
	if d.Events = append(d.Events, next.Events...); d.After == 0 || next.After > 0 && next.After < d.After {
		d.After = cmp.Or(next.After, d.After)
	}
	if next.Part {
		d.Do = loop.Call{What: "verify backup " + p.b.Name, Order: orderVerify}
	}
	return d
}

// mends says whether what the latest verification has found is to be written again: an image does
// not change, so that no other backup of it comes. It is tried once.
func (p *pass) mends() bool {
	st, s := &p.b.Status, p.s
	found := st.Verification
	return found != nil && found.Ended() && found.FaultCount > 0 && st.LastSyncedAt.Before(&found.EndedAt) &&
		s.Image != nil && s.Image.DeletionTimestamp == nil && s.Image.Status.Checksum == st.Checksum && s.From != "" &&
		s.Target != nil && s.Target.Spec.BackupTargetURL != "" && s.Target.Status.Available
}
