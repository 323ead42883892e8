package cli

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// imageBackup is a backup of an image on target default, in a state.
func imageBackup(name, image string, state lh.BackupState) *lh.BackupBackingImage {
	return &lh.BackupBackingImage{ObjectMeta: resttest.Meta(name),
		Spec: lh.BackupBackingImageSpec{BackingImage: image, BackupTargetName: "default", UserCreated: true},
		Status: lh.BackupBackingImageStatus{State: state, BackingImage: image, Size: 64 << 20, Progress: 100,
			URL: "s3://b@r/?backingImage=" + image}}
}

// TestImageBackups: what a target has is listed, and deleted.
func TestImageBackups(t *testing.T) {
	failed := imageBackup("old-1a2b3c4d", "old", lh.BackupStateError)
	failed.Status.Error, failed.Status.Progress = "no space in the store", 40
	b := newBed(t, append(backups(), imageBackup("golden-1a2b3c4d", "golden", lh.BackupStateCompleted), failed)...)
	for name, args := range map[string][]string{"backing-image-backup-list": {"list"},
		"backing-image-backup-get": {"get", "golden-1a2b3c4d", "-o", "wide"}} {
		golden(t, name, b.ok(append([]string{"backing-image-backup"}, args...)...))
	}
	if out := b.ok("backing-image-backup", "delete", "old-1a2b3c4d", "--yes"); out !=
		"backup old-1a2b3c4d is being deleted\n" {
		t.Errorf("%q", out)
	}
	if r := b.run("backing-image-backup", "get", "none"); r.status == exitOK || !strings.Contains(r.err,
		"ankole backing-image-backup list") {
		t.Errorf("%+v", r)
	}
}

// TestImageBackupIsFollowed: the command waits for the backup that it has ordered; what has become
// of it is told.
func TestImageBackupIsFollowed(t *testing.T) {
	for state, want := range map[lh.BackupState]result{
		lh.BackupStateCompleted: {exitOK, " of backing image golden is complete\n", ""},
		lh.BackupStateError:     {exitError, "", "of backing image golden has failed: the disk has burnt; delete it"},
	} {
		b := newBed(t, append(backups(), imageOf("golden", "download", nil))...)
		ordered, ended := context.WithCancel(t.Context())
		var controllers sync.WaitGroup
		controllers.Go(func() {
			for ; ordered.Err() == nil; runtime.Gosched() {
				var all lh.BackupBackingImageList
				if err := b.client.List(t.Context(), &all, client.InNamespace(lh.Namespace)); err != nil {
					t.Error(err)
					return
				}
				for i := range all.Items {
					var now lh.BackupBackingImage
					b.change(all.Items[i].Name, &now, func() { now.Status.State, now.Status.Error = state, "the disk has burnt" })
					return
				}
			}
		})
		if r := b.run("backing-image-backup", "create", "golden", "--timeout", "30s"); r.status != want.status ||
			!strings.HasSuffix(r.out, want.out) || !strings.Contains(r.err, want.err) {
			t.Errorf("%s: %+v", state, r)
		}
		ended()
		controllers.Wait()
	}
	b := newBed(t, append(backups(), imageOf("golden", "download", nil))...)
	if out := b.ok("backing-image-backup", "create", "golden", "--wait=false"); out !=
		"backup of backing image golden to backup target default ordered\n" {
		t.Errorf("%q", out)
	}
	if r := b.run("backing-image-backup", "create", "none"); r.status == exitOK || !strings.Contains(r.err, "none") {
		t.Errorf("%+v", r)
	}
}

// TestImageBackupIsRestored: the image is ordered under its own name, of the backup's store.
func TestImageBackupIsRestored(t *testing.T) {
	b := newBed(t, append(backups(), imageBackup("golden-1a2b3c4d", "golden", lh.BackupStateCompleted),
		imageBackup("new-1a2b3c4d", "new", lh.BackupStateInProgress))...)
	if out := b.ok("backing-image-backup", "restore", "golden-1a2b3c4d", "--wait=false"); !strings.Contains(out,
		"backing image golden is being made") {
		t.Errorf("%q", out)
	}
	made := &lh.BackingImage{}
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: lh.Namespace, Name: "golden"}, made); err != nil ||
		made.Spec.SourceType != "restore" || made.Spec.SourceParameters["backup-url"] != "s3://b@r/?backingImage=golden" ||
		made.Spec.SourceParameters["backup-target-name"] != "default" {
		t.Errorf("%+v, %v", made.Spec, err)
	}
	if r := b.run("backing-image-backup", "restore", "new-1a2b3c4d"); r.status == exitOK ||
		!strings.Contains(r.err, "is InProgress: wait until it is Completed") {
		t.Errorf("%+v", r)
	}
}
