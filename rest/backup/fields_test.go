package backup

import (
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// TestEveryFieldIsConverted sets one field after the other, each alone, and compares what that
// changes in the conversion with the page.
func TestEveryFieldIsConverted(t *testing.T) {
	q, p := resttest.Request(t), &resttest.Fields{}
	resttest.Section(p, "a backup target, as a client sees it", lh.BackupTarget{}, func(o lh.BackupTarget) any {
		return backupTargetView(q, &o)
	})
	resttest.Section(p, "a backup volume, as a client sees it", lh.BackupVolume{}, func(o lh.BackupVolume) any {
		return backupVolumeView(q, &o)
	})
	resttest.Section(p, "a backup, as a client sees it", lh.Backup{}, func(o lh.Backup) any {
		return backupView(q, &o)
	})
	resttest.Section(p, "the backup of a backing image, as a client sees it", lh.BackupBackingImage{},
		func(o lh.BackupBackingImage) any { return backupBackingImageView(q, &o) })
	p.Compare(t)
}
