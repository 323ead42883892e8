package backup_test

import (
	"net/http"
	"strings"
	"testing"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

const imageBackups = "/v1/backupbackingimages/golden-1a2b3c4d"

// imageBackup is the backup of image golden on target default, in a state.
func imageBackup(state lh.BackupState) *lh.BackupBackingImage {
	return &lh.BackupBackingImage{ObjectMeta: resttest.Meta("golden-1a2b3c4d"),
		Spec: lh.BackupBackingImageSpec{BackingImage: "golden", BackupTargetName: "default"},
		Status: lh.BackupBackingImageStatus{State: state, URL: "s3://b@r/?backingImage=golden",
			Checksum: strings.Repeat("0a", 64)}}
}

// TestImageIsRestored: the image is ordered under its own name, with the checksum that it had; its
// store is that of the backup's target.
func TestImageIsRestored(t *testing.T) {
	target := &lh.BackupTarget{ObjectMeta: resttest.Meta("default"),
		Spec: lh.BackupTargetSpec{BackupTargetURL: "s3://b@r/"}}
	f := newFixture(t, target, imageBackup(lh.BackupStateCompleted))
	const order, body = imageBackups + "?action=backupBackingImageRestore", `{"dataEngine":"v1"}`
	f.Refused(f.Do("POST", order, `{}`), 500, `dataEngine is "": give v1`)
	f.Refused(f.Do("POST", order, `{"dataEngine":"v2"}`), 500, "give v1")
	if a := f.Do("POST", order, body); a.Status != http.StatusOK || a.Text != "" {
		t.Fatalf("%d %q", a.Status, a.Text)
	}
	var made lh.BackingImage
	f.Read("golden", &made)
	if s := made.Spec; s.SourceType != "restore" || s.Checksum != strings.Repeat("0a", 64) || s.DataEngine != "v1" ||
		s.SourceParameters["backup-url"] != "s3://b@r/?backingImage=golden" ||
		s.SourceParameters["backup-target-name"] != "default" {
		t.Errorf("%+v", s)
	}
	f.Refused(f.Do("POST", order, body), 500, `unable to restore backing image golden: backingimages.longhorn.io "golden" already exists`)
	f.Refused(f.Do("POST", "/v1/backupbackingimages/none?action=backupBackingImageRestore", body), 404, "none")
	for state, why := range map[lh.BackupState]string{"": "is Pending", lh.BackupStateInProgress: "is InProgress",
		lh.BackupStateError: "is Error"} {
		f = newFixture(t, target, imageBackup(state))
		f.Refused(f.Do("POST", order, body), 500, why)
	}
}

func TestImageBackupDelete(t *testing.T) {
	f := newFixture(t, imageBackup(lh.BackupStateCompleted))
	if a := f.Do("DELETE", imageBackups, ""); a.Status != http.StatusOK || a.Text != "" {
		t.Errorf("%d %q", a.Status, a.Text)
	}
	f.Refused(f.Do("DELETE", imageBackups, ""), 404, "unable to delete backup backing image golden-1a2b3c4d")
}
