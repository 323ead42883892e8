package cli

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/resttest"
)

// backups are a target, and what it has of a volume: a backup, and one that has failed.
func backups() []client.Object {
	of := map[string]string{"backup-volume": "demo", "backup-target": "default"}
	target := &lh.BackupTarget{ObjectMeta: resttest.Meta("default"), Spec: lh.BackupTargetSpec{
		BackupTargetURL: "s3://b@r/", CredentialSecret: "aws-secret", PollInterval: "300s"}}
	target.Status.Available = true
	volume := &lh.BackupVolume{ObjectMeta: resttest.Meta("demo-1a2b3c4d"), Spec: lh.BackupVolumeSpec{VolumeName: "demo",
		BackupTargetName: "default"}}
	whole := &lh.Backup{ObjectMeta: resttest.Meta("backup-1"), Spec: lh.BackupSpec{SnapshotName: "s1"},
		Status: lh.BackupStatus{State: lh.BackupStateCompleted, Progress: 100, VolumeName: "demo"}}
	failed := &lh.Backup{ObjectMeta: resttest.Meta("backup-2"), Spec: lh.BackupSpec{SnapshotName: "s2"},
		Status: lh.BackupStatus{State: lh.BackupStateError, Progress: 40, Error: "no space in the store"}}
	volume.Labels, whole.Labels, failed.Labels = of, of, of
	return []client.Object{target, volume, whole, failed}
}

// TestBackupIsFollowed: the command waits for the backup that it has ordered, and not for those of
// the same snapshot that were there before; what has become of it is told.
func TestBackupIsFollowed(t *testing.T) {
	for name, want := range map[string]struct {
		state lh.BackupState
		result
	}{
		"complete": {lh.BackupStateCompleted, result{exitOK, "of snapshot s1 of volume demo is complete\n", ""}},
		"failed":   {lh.BackupStateError, result{exitError, "", "of snapshot s1 has failed: the disk has burnt"}},
	} {
		snapshot := &lh.Snapshot{ObjectMeta: resttest.Meta("s1"), Spec: lh.SnapshotSpec{Volume: "demo"},
			Status: lh.SnapshotStatus{ReadyToUse: true, CreationTime: "2026-11-29T08:00:00Z"}}
		b := newBed(t, append(append(cluster(), backups()...), snapshot)...)
		var demo lh.Volume
		b.change("demo", &demo, func() { demo.Spec.BackupTargetName, demo.Spec.BackupBlockSize = "default", 2<<20 })
		ordered, ended := context.WithCancel(t.Context())
		var controllers sync.WaitGroup
		controllers.Go(func() {
			for ordered.Err() == nil {
				var all lh.BackupList
				if err := b.client.List(t.Context(), &all, client.InNamespace(lh.Namespace)); err != nil {
					t.Error(err)
					return
				}
				for i := range all.Items {
					o := &all.Items[i]
					if o.Name == "backup-1" || o.Name == "backup-2" {
						continue
					}
					var now lh.Backup
					b.change(o.Name, &now, func() {
						now.Status = lh.BackupStatus{State: want.state, VolumeName: "demo", SnapshotName: "s1",
							Error: "the disk has burnt", LastSyncedAt: metav1.Now()}
					})
					return
				}
				runtime.Gosched()
			}
		})
		if r := b.run("backup", "create", "demo", "s1", "--timeout", "30s"); r.status != want.status ||
			!strings.HasSuffix(r.out, want.out) || !strings.Contains(r.err, want.err) {
			t.Errorf("%s: %+v", name, r)
		}
		ended()
		controllers.Wait()
	}
}
